/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_PAGEMAP_H
#define VMM_PAGEMAP_H

/*
 * Which pages of a mapping of ours are there. To look at one that is not would
 * make it: in a private mapping of a memfd even in the file.
 * Threads: any.
 */

#include "vmm/util.h"

/* -1: the kernel does not tell (no /proc). Before files are out of reach. */
int pagemap_open(void);

/*
 * The first run of pages that are in memory or swapped out, in [p, p + len),
 * whole pages, as offsets from p. False: none is. All of what is left where
 * the kernel does not tell.
 */
bool pagemap_next(int fd, const void *p, uint64_t len_bytes, uint64_t *out_from,
                  uint64_t *out_to);

#endif
