/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_STATE_BOX_H
#define TESTS_HARNESS_STATE_BOX_H

/*
 * What one device saved, for changing it: the bytes lie in memory of just
 * their length, so that a sanitizer sees a loader that reads past them.
 *
 * Ownership: the box owns its bytes. Threads: one. Errors: misuse aborts.
 */

#include "tests/harness/fake_driver.h"

struct state_box {
    uint8_t *bytes;
    size_t len;
    uint16_t version;
    struct state_out out_; /* between begin and end */
};

/* Write fields into what begin returns. */
struct state_out *sbox_begin(struct state_box *b, uint16_t version);
void sbox_end(struct state_box *b);
/* All of it, or its first `len` bytes. */
struct state_in sbox_in(const struct state_box *b);
struct state_in sbox_in_part(const struct state_box *b, size_t len);
void sbox_free(struct state_box *b);

/* fdrv_rest() of a device that has nothing in flight; idempotent. */
void sbox_rest(struct fdrv *d);
/* What the resting device of `d` saves. */
void sbox_save(struct fdrv *d, struct state_box *b);
/*
 * As fdrv_move(), from any bytes: `to` takes the place of d->dev. Returns what
 * its load did; aborts when activate fails.
 */
int sbox_load_in(struct fdrv *d, struct virtio_dev *to, struct state_in *in);

#endif
