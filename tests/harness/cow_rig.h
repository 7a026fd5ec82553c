/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_COW_RIG_H
#define TESTS_HARNESS_COW_RIG_H

/*
 * A copy-on-write disk in a test: its files in memory, requests that are waited
 * for, and a disk between it and a file of its chain that notes what passes
 * and fails what the test wants to fail. Errors abort.
 */

#include "devices/disk_cow_int.h"

/* --- files -----------------------------------------------------------------
 */

/* A file in memory of `bytes`, empty or holding `content`. */
int rig_file(const void *content, size_t bytes);
/* The same file, open anew: locks are apart. */
int rig_reopen(int fd);
/* A file on the base (-1: none): `kind` says what it is. */
int rig_delta(int base_fd, enum cow_base_kind kind, uint64_t size_bytes);
/* Opens anew fds[]; aborts if it is refused. */
struct disk *rig_open(const int *fds, size_t num_fds, unsigned flags);

/* --- requests --------------------------------------------------------------
 */

struct rig_req {
    struct disk_io io;
    struct iovec iov[DISK_SCRATCH_IOVS];
    struct evloop *loop;
    bool done;
    int status;
};

void rig_submit(struct disk *disk, struct evloop *loop, struct rig_req *r,
                enum disk_op op, uint64_t offset, void *buf, size_t len);
/* Runs the loop until it has ended; its status. */
int rig_wait(struct rig_req *r);
/* Both. */
int rig_do(struct disk *disk, struct evloop *loop, enum disk_op op,
           uint64_t offset, void *buf, size_t len);

/* --- in between ------------------------------------------------------------
 */

struct rig_spy;

struct rig_event {
    enum disk_op op;
    uint64_t offset_bytes;
    uint64_t len_bytes;
    uint8_t *data;   /* of a write */
    uint64_t start;  /* rig_spy.clock at its submission */
    uint64_t finish; /* and at its end; UINT64_MAX: not yet, or failed */
    struct rig_spy *spy;
    struct disk_io *io;
    disk_done_fn done; /* the engine's */
    void *arg;
    int fail;
};

struct rig_spy {
    struct disk base; /* first */
    struct disk *under;
    /* 0: let it pass; negative: its status. */
    int (*hook)(struct rig_spy *spy, const struct disk_io *io);
    void *arg;
    uint64_t *clock; /* counts up with each event; may be shared */
    struct rig_event **event;
    size_t num_events;
    uint64_t own_clock;
    uint32_t ops_seen[DISK_WRITE_ZEROES + 1];
};

/* Between the disk and its layer; the base if `layer` is the number of files.
 * Goes with the disk, the events by rig_spy_fini() after that. */
void rig_spy_init(struct rig_spy *spy, struct disk *cow, uint32_t layer);
void rig_spy_fini(struct rig_spy *spy);

/* --- random ----------------------------------------------------------------
 */

/* The next number below `n` of a sequence that `state` decides. */
uint32_t rig_random(uint64_t *state, uint32_t n);

#endif
