/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_DISK_RAW_INT_H
#define DEVICES_DISK_RAW_INT_H

/* Between disk_raw.c (requests) and disk_raw_open.c; nobody else. */

#include "devices/disk_raw.h"

#include <sys/stat.h>

struct disk_raw {
    struct disk base; /* first */
    int fd;
    struct stat st; /* which file it is */
    struct disk_raw_alignment align;
    uint32_t falloc_bytes; /* fallocate takes multiples of this */
    /* What this storage turned out to lack. */
    bool no_punch;
    bool no_zero_range;
};

extern const struct disk_ops disk_raw_ops;

/* Bytes that the file or block device has now; 0 or -errno. */
int disk_raw_bytes(int fd, uint64_t *out_bytes) MUST_CHECK;
/* The disk's size is a multiple of this. */
uint32_t disk_raw_unit(const struct disk_raw *raw);

#endif
