/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_DISK_ALIGN_H
#define DEVICES_DISK_ALIGN_H

/*
 * A disk for any request on top of one that wants its requests aligned (direct
 * I/O). What is aligned goes straight through; the rest goes through a bounce
 * buffer, and a write of part of a block reads that block first. Such a write
 * and any other that touches the same block run one after the other, so that
 * neither brings back what the other has replaced.
 *
 * Bounce buffers are few: requests wait for one, in order.
 */

#include "devices/disk_raw.h"

/* Owns `lower` if it succeeds. 0 or -ENOMEM. */
int disk_align_new(struct disk *lower, struct disk_raw_alignment align,
                   struct disk **out_disk) MUST_CHECK;

#endif
