/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_DISK_COW_H
#define DEVICES_DISK_COW_H

/*
 * A copy-on-write disk: what was written is in a sparse file of its own, what
 * was not is read from the files below it, 16 at most and a raw one.
 * disk_cow.md has the format and what a crash leaves; vmm/cow_file.h makes such
 * files.
 *
 * A flush makes all writes that were completed before it durable, first their
 * data, then the bitmap that makes the data count. After a sync has failed
 * every later flush fails as well until the disk is opened anew: what the host
 * had not written is unknown then. With DISK_UNSAFE, when no flush ever comes,
 * a write completes with its bitmap handed to the host: it outlives the
 * monitor, not the host.
 *
 * Writes of part of a cluster that is not yet there copy the rest of it from
 * below; such and others into the same cluster run one after the other. They
 * go through a pool of 16 buffers of 64 KiB and wait for one in order.
 *
 * Ownership, threads, errors: disk.h. Opening, freezing and freeing block;
 * freeing stores what no flush has stored.
 */

#include "devices/disk_raw.h"
#include "vmm/cow_file.h"

/* `flags`: DISK_READ_ONLY, DISK_UNSAFE. */
int disk_cow_open(const char *path, unsigned flags, struct disk **out_disk,
                  struct errmsg *err) MUST_CHECK;

/*
 * From descriptors, as cow_chain_open_fds() takes them: the top first, the raw
 * base last. They are the disk's if it succeeds. `name` is for messages.
 */
int disk_cow_open_fds(const int *fds, size_t num_fds, unsigned flags,
                      const char *name, struct disk **out_disk,
                      struct errmsg *err) MUST_CHECK;

/*
 * The file on top becomes one that is only read, for others to be put on it as
 * well, and a new one in `fd`, an empty file open for reading and writing,
 * takes its place. No request is in flight. What was written so far is on disk
 * when this returns: a flush before it makes it short. `top_path` is stored as
 * the path of the file that was on top; NULL: nobody needs it by path. Takes
 * `fd` over if it succeeds; if not, the disk is as it was.
 */
int disk_cow_freeze(struct disk *disk, int fd, const char *top_path,
                    struct errmsg *err) MUST_CHECK;

struct disk_cow_info {
    uint32_t depth; /* copy-on-write files */
    bool has_raw_base;
    uint64_t num_clusters;
    uint64_t num_allocated; /* in the file on top */
    uint8_t id[COW_ID_BYTES];
};

void disk_cow_info(const struct disk *disk, struct disk_cow_info *out);

/* The descriptors of the chain, as disk_cow_open_fds() takes them; borrowed.
 * Returns how many. */
size_t disk_cow_fds(const struct disk *disk, int fds[COW_MAX_DEPTH + 1]);

#endif
