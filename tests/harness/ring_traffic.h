/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_RING_TRAFFIC_H
#define TESTS_HARNESS_RING_TRAFFIC_H

/*
 * Ring traffic of a driver that mostly keeps the rules: requests are well
 * formed, now and then one field of them is not.
 */

#include "tests/harness/fake_driver.h"
#include "tests/harness/fuzz_input.h"

#define FRING_MAX_SEGS 12u

struct fring {
    struct fdrv *d;
    uint16_t q;
    gpa_t table; /* guest memory for indirect tables */
    uint16_t next_desc;
    uint16_t avail_idx;
};

/* Over the rings that fdrv_queue_init() has laid out. */
void fring_init(struct fring *r, struct fdrv *d, uint16_t q);
/*
 * Adds one request and publishes it, unless the ring is full. `segs` may be
 * changed on the way. `indirect`: whether the device has agreed to tables.
 */
void fring_add(struct fring *r, struct fuzz_in *in, struct fdrv_seg *segs,
               uint16_t n, bool indirect);
/* One of the words that a driver may write at any time. */
void fring_disturb(struct fring *r, struct fuzz_in *in);

#endif
