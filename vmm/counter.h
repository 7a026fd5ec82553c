/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_COUNTER_H
#define VMM_COUNTER_H

/*
 * Counts for the metrics: plain additions, without lock or system call. One
 * thread at a time adds to a count (its owner, or who holds its owner's lock);
 * any thread may read it. They only grow, and start at 0.
 */

#include "vmm/util.h"

static inline uint64_t counter_get(const uint64_t *c)
{
    return __atomic_load_n(c, __ATOMIC_RELAXED);
}

static inline void counter_add(uint64_t *c, uint64_t n)
{
    __atomic_store_n(c, *c + n, __ATOMIC_RELAXED);
}

/* A struct made of counts alone, whoever adds to them meanwhile. */
static inline void counters_copy(void *out, const void *from, size_t bytes)
{
    const uint64_t *c = from;
    uint64_t *o = out;

    for (size_t i = 0; i < bytes / sizeof(*c); i++)
        o[i] = counter_get(&c[i]);
}

/* How long something took. */
struct span {
    uint64_t min_ns; /* 0: nothing yet */
    uint64_t max_ns;
    uint64_t sum_ns;
};

static inline void span_add(struct span *s, uint64_t ns)
{
    if (s->min_ns == 0 || ns < s->min_ns)
        __atomic_store_n(&s->min_ns, ns ? ns : 1, __ATOMIC_RELAXED);
    if (ns > s->max_ns)
        __atomic_store_n(&s->max_ns, ns, __ATOMIC_RELAXED);
    counter_add(&s->sum_ns, ns);
}

#define HISTOGRAM_BUCKETS 24u

/* n[0]: below 1 us; n[i]: from 2^(i-1) us to below 2^i; the last: all above. */
struct histogram {
    uint64_t n[HISTOGRAM_BUCKETS];
};

static inline void histogram_add(struct histogram *h, uint64_t ns)
{
    uint64_t us = ns / 1000;
    size_t i = us ? 64u - (size_t)__builtin_clzll(us) : 0;

    counter_add(&h->n[min_u64(i, HISTOGRAM_BUCKETS - 1)], 1);
}

#endif
