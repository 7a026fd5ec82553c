/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_RATE_LIMIT_H
#define DEVICES_RATE_LIMIT_H

/*
 * Token buckets for bytes and operations. A bucket refills continuously, holds
 * at most `size` tokens and starts full; a burst comes on top once and does
 * not refill. A request larger than its bucket waits for a full one and then
 * leaves it in debt, so it passes and the mean rate still holds.
 *
 * Times are CLOCK_MONOTONIC in nanoseconds and handed in: no clock, timer or
 * allocation here. Threads: the owner's. Nothing fails but a load.
 */

#include "vmm/state.h"

struct bucket_config {
    uint64_t size; /* tokens; 0: no limit */
    uint64_t one_time_burst;
    uint64_t refill_ms; /* time from empty to full; 0: no limit */
};

struct rate_limit_config {
    struct bucket_config bandwidth; /* a token is a byte */
    struct bucket_config ops;       /* a token is a request */
};

struct bucket {
    struct bucket_config config;
    uint64_t burst;   /* left */
    int64_t tokens;   /* negative: in debt */
    uint64_t last_ns; /* tokens are counted up to here */
};

struct rate_limit {
    struct bucket bandwidth;
    struct bucket ops;
};

/* Both buckets full. A zeroed struct and a zeroed configuration limit nothing.
 */
void rate_limit_set(struct rate_limit *r, const struct rate_limit_config *c,
                    uint64_t now_ns);

/*
 * Takes one operation of `bytes`. 0 when it may go ahead; else nothing was
 * taken, and the result is the time at which to ask again.
 */
uint64_t rate_limit_take(struct rate_limit *r, uint64_t bytes, uint64_t now_ns);

/* --- a machine that pauses ------------------------------------------------ */

/* Counts the tokens up to now: those are what is saved. */
void rate_limit_settle(struct rate_limit *r, uint64_t now_ns);
/* Limits and what is left of them. */
void rate_limit_save(const struct rate_limit *r, struct state_out *out);
/*
 * Takes both over, as of now. -EBADMSG and nothing changed: more tokens than
 * the bucket holds, or a debt that no request leaves.
 */
int rate_limit_load(struct rate_limit *r, struct state_in *in,
                    uint64_t now_ns) MUST_CHECK;

#endif
