/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/pool.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* In front of every block. */
struct pool_block {
    _Alignas(16) size_t kind; /* POOL_CLASSES: not of the pool */
    struct pool_block *next;  /* while it is free */
};

static const size_t pool_bytes[POOL_CLASSES] = {256, 1024, 4096, POOL_LARGEST};
/* How many of each are kept: some connections at once. */
static const size_t pool_keep[POOL_CLASSES] = {16, 16, 8, 4};

static size_t pool_class(size_t bytes)
{
    size_t kind = 0;

    while (kind < POOL_CLASSES && bytes > pool_bytes[kind])
        kind++;
    return kind;
}

void *pool_get(struct pool *pool, size_t bytes)
{
    size_t kind = pool_class(bytes);
    struct pool_block *block;

    if (kind < POOL_CLASSES && pool->free[kind]) {
        block = pool->free[kind];
        pool->free[kind] = block->next;
        pool->kept[kind]--;
        return block + 1;
    }
    if (kind < POOL_CLASSES)
        bytes = pool_bytes[kind];
    if (bytes > SIZE_MAX - sizeof(*block))
        return NULL;
    block = malloc(sizeof(*block) + bytes);
    if (!block)
        return NULL;
    block->kind = kind;
    return block + 1;
}

void *pool_grow(struct pool *pool, void *block, size_t used, size_t bytes)
{
    void *grown = pool_get(pool, bytes);

    if (!grown)
        return NULL;
    if (block)
        memcpy(grown, block, used);
    pool_put(pool, block);
    return grown;
}

void pool_put(struct pool *pool, void *block)
{
    struct pool_block *head;
    size_t kind;

    if (!block)
        return;
    head = (struct pool_block *)block - 1;
    kind = head->kind;
    if (kind == POOL_CLASSES || pool->kept[kind] == pool_keep[kind]) {
        free(head);
        return;
    }
    head->next = pool->free[kind];
    pool->free[kind] = head;
    pool->kept[kind]++;
}
