/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for what each command needs again: blocks that were given back are
 * kept, in a few sizes, and with them their pages. Where page faults are dear
 * (some hosts emulate the guest's kernel: milliseconds each) going through
 * malloc, which returns memory to the kernel, cost a fifth of starting a
 * small program. Blocks beyond POOL_LARGEST go to malloc as they are.
 */
#ifndef GUEST_AGENT_POOL_H
#define GUEST_AGENT_POOL_H

#include <stddef.h>

#define POOL_CLASSES 4
#define POOL_LARGEST (32u << 10)

struct pool_block;

/* Zeroed is empty. */
struct pool {
    struct pool_block *free[POOL_CLASSES];
    size_t kept[POOL_CLASSES];
};

/* At least that many bytes, 16-aligned, with any contents. NULL: no memory. */
void *pool_get(struct pool *pool, size_t bytes);

/* As realloc: moves the first `used` bytes. On failure the old block stays. */
void *pool_grow(struct pool *pool, void *block, size_t used, size_t bytes);

/* NULL is fine. */
void pool_put(struct pool *pool, void *block);

#endif
