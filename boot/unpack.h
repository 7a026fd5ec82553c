/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_UNPACK_H
#define BOOT_UNPACK_H

/*
 * Unpacks the payload of a bzImage on the host, so that no decompressor runs
 * in the guest. The format is known by its magic; every format but gzip is
 * followed by the unpacked size as one le32, gzip ends with the same number.
 * The output may never exceed what that size and the caller's limit say.
 *
 * Ownership: the result is a mapping of its own, unpack_free() gives it back.
 * Threads: any. Errors: -errno with a line for the user. syscalls: mmap,
 * munmap.
 */

#include "vmm/errmsg.h"

struct unpacked {
    uint8_t *bytes;
    uint64_t size_bytes;
    const char *format; /* "xz", static */
};

/* `name` is the kernel file, for error lines. */
int unpack_payload(const char *name, const uint8_t *src, uint64_t len,
                   uint64_t max_bytes, struct unpacked *out,
                   struct errmsg *err) MUST_CHECK;

void unpack_free(struct unpacked *u); /* fine on a zeroed struct */

/*
 * One decoder: fills exactly `dst_len` bytes. -EILSEQ for damaged data,
 * -ENOMEM. The table of unpack.c lists them; those of libraries that were
 * not there at build time are left out.
 */
typedef int unpack_fn(const uint8_t *src, size_t len, uint8_t *dst,
                      size_t dst_len);

unpack_fn unpack_gzip;
unpack_fn unpack_zstd;
unpack_fn unpack_lz4;
unpack_fn unpack_xz;

#endif
