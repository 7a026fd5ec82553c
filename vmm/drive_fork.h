/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_DRIVE_FORK_H
#define VMM_DRIVE_FORK_H

/*
 * A drive that a machine can write, at a fork: what it holds at that instant
 * becomes a disk of its own for each child. A copy-on-write file is left as it
 * is, for the children's files to be put on, and the machine goes on in a new
 * one; a raw file is copied by the file system (reflink).
 *
 * Ownership: embedded; paths and the list of them are borrowed. Files that were
 * made go again with drive_fork_fini() unless drive_fork_keep() was called.
 * Threads: io; the calls block. Errors: -errno with a line.
 */

#include "devices/virtio.h"
#include "vmm/config.h"

struct drive_fork {
    struct virtio_dev *dev;
    const struct config_drive *drive; /* borrowed */
    const char *next_path;            /* cow: where the machine goes on */
    const char **clones;              /* a new file for each child, in order */
    size_t num_clones;
    /* private */
    int next_fd;
    int *fds; /* of the clones */
    size_t num_made;
    bool frozen;
    bool keep;
};

/* Makes the files, all empty. -EEXIST: one is there already. */
int drive_fork_begin(struct drive_fork *f, struct errmsg *err) MUST_CHECK;
/* What takes long and need not be in the stop: data on its way to the disk. */
void drive_fork_hurry(struct drive_fork *f);
/* While the device rests: the instant. f->frozen says that the machine has
 * another file from now on, also if this fails later. */
int drive_fork_freeze(struct drive_fork *f, struct errmsg *err) MUST_CHECK;
/* The machine may run again: the children's disks. */
int drive_fork_finish(struct drive_fork *f, struct errmsg *err) MUST_CHECK;
void drive_fork_keep(struct drive_fork *f);
void drive_fork_fini(struct drive_fork *f); /* idempotent */

#endif
