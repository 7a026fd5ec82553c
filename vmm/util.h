/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_UTIL_H
#define VMM_UTIL_H

/* Small helpers that every layer may use. No state, any thread. */

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MUST_CHECK        __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* The object of `type` whose `member` is at `ptr`. */
#define container_of(ptr, type, member)                                        \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/*
 * The negative errno of the call that just failed. Unlike a plain -errno it
 * can never be 0, so a failed call cannot be taken for a success.
 */
static inline int neg_errno(void)
{
    return errno > 0 ? -errno : -EIO;
}

/* `align` is a power of two; the result wraps to 0 past UINT64_MAX. */
static inline uint64_t align_up(uint64_t v, uint64_t align)
{
    return (v + align - 1) & ~(align - 1);
}

static inline bool is_pow2(uint64_t v)
{
    return v != 0 && (v & (v - 1)) == 0;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t util_now_ns(void);

/*
 * Reads exactly `len` bytes at file offset `off`, going on after EINTR and
 * short reads. 0, -ENODATA when the file ends early, or -errno.
 */
int util_pread_full(int fd, void *buf, size_t len, off_t off) MUST_CHECK;

/* Writes exactly `len` bytes, going on after EINTR and short writes. */
int util_write_full(int fd, const void *buf, size_t len) MUST_CHECK;

/*
 * open(), close-on-exec, of a file that is there; `flags` without O_CREAT. A
 * path of the form /dev/fd/N or /dev/fd/N/NAME is descriptor N, which the
 * process inherited: where it has a root of its own (mote-jail), whoever
 * started it opens its files. NAME is for people who read a message. The result
 * shares offset, flags and locks with N, which stays open. A descriptor, or
 * -errno: -EBADF if N is not open, -EACCES if it is not open for that.
 */
int util_open(const char *path, int flags) MUST_CHECK;

/*
 * Parses a whole string as an unsigned decimal number in [lo, hi].
 * 0, -EINVAL for anything else, -ERANGE outside the limits.
 */
int util_parse_u64(const char *s, uint64_t lo, uint64_t hi,
                   uint64_t *out) MUST_CHECK;

/*
 * Parses a size such as `512M`, `1GiB`, `4096` (plain numbers count units of
 * `unit` bytes). Suffixes K, M, G, T, optionally followed by `iB` or `B`, are
 * powers of 1024. 0, -EINVAL or -ERANGE (overflow).
 */
int util_parse_size(const char *s, uint64_t unit,
                    uint64_t *out_bytes) MUST_CHECK;

/*
 * Parses a duration such as `10s`, `500ms`, `2m`, `1h`; a plain number counts
 * seconds; fractions such as `1.5s` are allowed. 0, -EINVAL or -ERANGE.
 */
int util_parse_duration_ms(const char *s, uint64_t *out_ms) MUST_CHECK;

#endif
