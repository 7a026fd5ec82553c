/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/tally.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#define TALLY_STEPS 32u

struct tally {
    size_t slots; /* immutable */
    /* guarded by lock */
    pthread_mutex_t lock;
    uint64_t dropped;
    struct tally_row rows[];
};

int tally_new(size_t slots, struct tally **out)
{
    struct tally *t;

    assert(slots > 0 && (slots & (slots - 1)) == 0);
    if (slots > (SIZE_MAX - sizeof(*t)) / sizeof(t->rows[0]))
        return -ENOMEM;
    t = calloc(1, sizeof(*t) + slots * sizeof(t->rows[0]));
    if (!t)
        return -ENOMEM;
    t->slots = slots;
    (void)pthread_mutex_init(&t->lock, NULL); /* never fails on Linux */
    *out = t;
    return 0;
}

void tally_free(struct tally *t)
{
    if (!t)
        return;
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

/* Fibonacci hashing: addresses differ in few, and neighbouring, bits. */
static size_t tally_hash(uint64_t key)
{
    return (size_t)((key * 0x9e3779b97f4a7c15u) >> 24);
}

void tally_add(struct tally *t, uint64_t key)
{
    size_t at = tally_hash(key);
    bool found = false;

    (void)pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < TALLY_STEPS && !found; i++) {
        struct tally_row *r = &t->rows[(at + i) & (t->slots - 1)];

        found = r->count == 0 || r->key == key;
        if (found) {
            r->key = key;
            r->count++;
        }
    }
    if (!found)
        t->dropped++;
    (void)pthread_mutex_unlock(&t->lock);
}

static int tally_compare(const void *a, const void *b)
{
    const struct tally_row *x = a;
    const struct tally_row *y = b;

    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->key < y->key ? -1 : x->key > y->key;
}

int tally_rows(struct tally *t, struct tally_row **out, size_t *out_count,
               uint64_t *out_dropped)
{
    struct tally_row *rows;
    size_t count = 0;
    size_t n = 0;

    (void)pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->slots; i++)
        count += t->rows[i].count > 0;
    rows = count > 0 ? calloc(count, sizeof(*rows)) : NULL;
    for (size_t i = 0; rows && i < t->slots; i++) {
        if (t->rows[i].count > 0)
            rows[n++] = t->rows[i];
    }
    *out_dropped = t->dropped;
    (void)pthread_mutex_unlock(&t->lock);
    if (n < count)
        return -ENOMEM;
    if (rows)
        qsort(rows, n, sizeof(*rows), tally_compare);
    *out_count = n;
    *out = rows;
    return 0;
}
