/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_DISK_RAW_H
#define DEVICES_DISK_RAW_H

/*
 * A disk that is a plain file or a block device, byte for byte.
 *
 * The file is locked for as long as the disk is open (open file description
 * lock: shared for a read-only disk, exclusive else), so that no two virtual
 * machines write one image. It is never created, truncated or extended.
 */

#include "devices/disk.h"
#include "vmm/errmsg.h"
#include "vmm/log.h"

/*
 * 0, or -errno with one line for the user in `err`. A file whose last bytes do
 * not fill a sector is opened without them and a warning goes to `log`.
 */
int disk_raw_open(const char *path, bool read_only, struct log *log,
                  struct disk **out_disk, struct errmsg *err) MUST_CHECK;

#endif
