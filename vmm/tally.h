/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_TALLY_H
#define VMM_TALLY_H

/*
 * How often each of many numbers came: exits by address, samples by
 * instruction pointer. A fixed table, so that counting needs no memory and a
 * guest that chooses the numbers can neither make it grow nor make it slow:
 * what finds no place within a few steps is counted as dropped.
 *
 * Ownership: the caller's, by tally_free(). Threads: any; a lock of its own.
 */

#include "vmm/util.h"

struct tally;

struct tally_row {
    uint64_t key;
    uint64_t count; /* never 0 */
};

/* Room for at most `slots` numbers, a power of two. 0 or -ENOMEM. */
int tally_new(size_t slots, struct tally **out) MUST_CHECK;
void tally_free(struct tally *t); /* NULL is fine */

void tally_add(struct tally *t, uint64_t key);

/*
 * The rows, the most frequent first, ties by key; *out is for free() and NULL
 * where there are none. *out_dropped is what was counted without a row.
 */
int tally_rows(struct tally *t, struct tally_row **out, size_t *out_count,
               uint64_t *out_dropped) MUST_CHECK;

#endif
