/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_MEM_DISK_H
#define TESTS_HARNESS_MEM_DISK_H

/*
 * A disk in memory that keeps its requests until the test completes them, in
 * any order, and that insists on an alignment if asked to.
 *
 * Ownership: the struct is the test's; ops->free only takes note. Errors:
 * a request that breaks the contract of disk.h aborts.
 */

#include "devices/disk.h"

#define MEM_DISK_MAX_HELD 1100u

struct mem_disk {
    struct disk base;
    uint8_t *bytes; /* NULL: no content */
    uint64_t align; /* of offsets, lengths and addresses; 0: none */
    struct disk_io *held[MEM_DISK_MAX_HELD];
    uint32_t num_held;
    uint32_t submitted;
    uint32_t ops_seen[DISK_WRITE_ZEROES + 1];
    uint32_t freed;
    int refresh_rc;
    uint64_t new_size_bytes; /* what a refresh finds */
};

void mem_disk_init(struct mem_disk *m, uint8_t *bytes, uint64_t size_bytes);

/* Completes the i-th request held: carries it out if `status` is 0. */
void mem_disk_complete(struct mem_disk *m, uint32_t i, int status);
/* All, first in first out, those that follow from them as well. */
void mem_disk_complete_all(struct mem_disk *m);

#endif
