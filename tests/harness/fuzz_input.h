/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_FUZZ_INPUT_H
#define TESTS_HARNESS_FUZZ_INPUT_H

/*
 * The bytes of one fuzz input, taken as decisions. When they run out, every
 * decision is 0. fuzz_must() is an assertion that no build drops.
 */

#include "vmm/util.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

struct fuzz_in {
    const uint8_t *p;
    size_t left;
};

static inline void fuzz_must(bool ok)
{
    if (!ok)
        abort();
}

static inline uint8_t fuzz_u8(struct fuzz_in *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->p++;
}

static inline uint16_t fuzz_u16(struct fuzz_in *in)
{
    uint16_t lo = fuzz_u8(in);

    return (uint16_t)(lo | fuzz_u8(in) << 8);
}

static inline uint32_t fuzz_u32(struct fuzz_in *in)
{
    uint32_t lo = fuzz_u16(in);

    return lo | (uint32_t)fuzz_u16(in) << 16;
}

static inline uint64_t fuzz_u64(struct fuzz_in *in)
{
    uint64_t lo = fuzz_u32(in);

    return lo | (uint64_t)fuzz_u32(in) << 32;
}

/* A number below `n`, which is at most 65536. */
static inline uint32_t fuzz_below(struct fuzz_in *in, uint32_t n)
{
    return (n <= 256 ? fuzz_u8(in) : fuzz_u16(in)) % n;
}

/* True for about one decision in `n`, n <= 256; false when bytes run out. */
static inline bool fuzz_rarely(struct fuzz_in *in, uint32_t n)
{
    return in->left > 0 && fuzz_u8(in) % n == n - 1;
}

/* A value from the edges of what the field can hold, or any. */
static inline uint64_t fuzz_edge(struct fuzz_in *in, uint64_t limit)
{
    switch (fuzz_below(in, 8)) {
    case 0:
        return limit;
    case 1:
        return limit - 1;
    case 2:
        return limit + 1;
    case 3:
        return UINT64_MAX - fuzz_below(in, 64);
    case 4:
        return 0;
    case 5:
        return fuzz_u16(in);
    default:
        return fuzz_u64(in);
    }
}

#endif
