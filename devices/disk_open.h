/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_DISK_OPEN_H
#define DEVICES_DISK_OPEN_H

/* The disk that a path stands for, ready for any request of a device. */

#include "devices/disk_raw.h"

/*
 * As disk_raw_open(), but with DISK_DIRECT requests need no alignment: what has
 * none goes through a buffer (disk_align.h). With DISK_COW the path is a
 * copy-on-write file and stands for its whole chain. The caller owns the disk.
 */
int disk_open(const char *path, unsigned flags, struct log *log,
              struct disk **out_disk, struct errmsg *err) MUST_CHECK;

#endif
