/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_DISK_COPY_H
#define TOOLS_LIBMOTE_DISK_COPY_H

/*
 * Copies of disk images, and their checksums. Neither cares where an image has
 * holes: a page of zeroes and a hole are the same.
 * Threads: any. Errors: -errno; -ECANCELED once `cancel_fd` is readable.
 */

#include "vmm/util.h"

/* Bytes of a regular file or a block device. */
int lm_disk_size(int fd, uint64_t *out_bytes) MUST_CHECK;

/*
 * All of `from` into the empty file `to`: shared blocks where the file system
 * can, else what is not zero. `to` is not synced.
 */
int lm_disk_copy(int from, int to, uint64_t size_bytes,
                 int cancel_fd) MUST_CHECK;

/* CRC-32 over number and content of each page of 4 KiB that is not zero. */
int lm_disk_sum(int fd, uint64_t size_bytes, uint32_t *out_crc,
                int cancel_fd) MUST_CHECK;

#endif
