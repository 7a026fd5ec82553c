/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_DISK_RAW_H
#define DEVICES_DISK_RAW_H

/*
 * A disk that is a plain file or a block device, byte for byte.
 *
 * The file is locked for as long as the disk is open (open file description
 * lock: shared for a read-only disk, exclusive else), so that no two virtual
 * machines write one image. It is never created, truncated or extended.
 *
 * Discarding punches holes; where the storage cannot, it says -EOPNOTSUPP.
 * Zeroes are made by the storage itself where it can, else written.
 */

#include "devices/disk.h"
#include "vmm/errmsg.h"
#include "vmm/log.h"

/* For disk_raw_open() and disk_open(): flags. */
#define DISK_READ_ONLY 1u
#define DISK_DIRECT    2u /* without the host's page cache (O_DIRECT) */
/* disk_open() only; not with DISK_DIRECT. */
#define DISK_COW    4u /* a copy-on-write file (disk_cow.h) */
#define DISK_UNSAFE 8u /* no flush will come: see disk_cow.h */

/* What a request must be a multiple of: its offset and each length, and each
 * address. 1 where nothing is required. */
struct disk_raw_alignment {
    uint32_t block_bytes;
    uint32_t memory_bytes;
};

/*
 * 0, or -errno with one line for the user in `err`. A file whose last bytes do
 * not fill a sector is opened without them and a warning goes to `log`.
 * `flags`: DISK_READ_ONLY, DISK_DIRECT; with the latter requests must be
 * aligned as disk_raw_alignment() says.
 */
int disk_raw_open(const char *path, unsigned flags, struct log *log,
                  struct disk **out_disk, struct errmsg *err) MUST_CHECK;

/*
 * The open file `fd`, of `size_bytes`, as a disk: no lock, no checks; for
 * backends that keep something in files (disk_cow.c). Takes the fd over if it
 * succeeds. 0 or -ENOMEM.
 */
int disk_raw_wrap(int fd, uint64_t size_bytes, bool read_only,
                  struct disk **out_disk) MUST_CHECK;
/* Frees the disk and gives its fd back. */
int disk_raw_unwrap(struct disk *disk);

struct disk_raw_alignment disk_raw_alignment(const struct disk *disk);

#endif
