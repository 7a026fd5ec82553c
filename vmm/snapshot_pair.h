/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_SNAPSHOT_PAIR_H
#define VMM_SNAPSHOT_PAIR_H

/*
 * The two files of a snapshot, written so that a crash at any moment leaves
 * the old pair or the new one. Both are written beside their places, as
 * NAME.part, synced, and renamed; the old memory stays as NAME.old until the
 * state has followed, and is found there by its id (snap_pair_open_mem()).
 *
 * Ownership: the struct owns its strings and descriptors. Threads: any.
 * Errors: -errno with a line; nothing is left behind then.
 * syscalls: openat, F_OFD_SETLK, fsync, link, rename, unlink
 */

#include "vmm/errmsg.h"
#include "vmm/snapshot_mem.h"

struct snap_pair {
    char *state_path;
    char *mem_path;
    char *state_part;
    char *mem_part;
    char *mem_old;
    int state_fd;
    int mem_fd; /* to be filled by the caller */
};

/* -EBUSY: another one is being written there. */
int snap_pair_begin(struct snap_pair *p, const char *state_path,
                    const char *mem_path, struct errmsg *err) MUST_CHECK;
/* The state, and both take their places. In any case the pair is done. */
int snap_pair_commit(struct snap_pair *p, const void *state, size_t len_bytes,
                     struct errmsg *err) MUST_CHECK;
void snap_pair_abort(struct snap_pair *p); /* idempotent */

/* All of a state file; the caller frees it. At most SNAP_STATE_MAX bytes. */
#define SNAP_STATE_MAX (256 * MIB)
int snap_read_state(const char *path, void **out_data, size_t *out_len,
                    struct errmsg *err) MUST_CHECK;
/* The memory file that belongs to the state `f`, checked: `path`, or what a
 * crash left beside it. */
int snap_pair_open_mem(const char *path, const struct snap_mem *m,
                       const struct state_file *f, int *out_fd,
                       struct errmsg *err) MUST_CHECK;

#endif
