/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_DISK_COW_INT_H
#define DEVICES_DISK_COW_INT_H

/* Between the files of the copy-on-write disk, and its tests; nobody else. */

#include "devices/disk_cow.h"

#include <sys/queue.h>

#define COW_MAX_BOUNCES 16u /* of a cluster each: 1 MiB */
#define COW_STORE_BATCH 32u /* sectors of the bitmap written at once */

struct disk_cow;

enum cow_step {
    COW_READ,   /* from a layer or the base into the caller's buffers */
    COW_DIRECT, /* a change of clusters that the top has */
    COW_WHOLE,  /* clusters that it has not, written or zeroed as a whole */
    COW_FETCH,  /* a cluster is read from below into the bounce buffer */
    COW_STORE,  /* the bounce buffer is written to the top */
};

/* One request while it is worked on, one run of clusters after the other. */
struct cow_req {
    TAILQ_ENTRY(cow_req) link;  /* waiting, hungry, or in the store's lists */
    TAILQ_ENTRY(cow_req) claim; /* while `claimed` */
    struct disk_cow *c;
    struct disk_io *up;
    struct disk_io io; /* to a file of the chain */
    struct iovec iov;
    struct iovec rest; /* of the caller's buffer that the run ends in */
    enum cow_step step;
    bool starting; /* inside of submit: nothing may complete */
    bool new_bits; /* the bitmap changed for it */
    bool claimed;  /* the clusters below are being brought to the top */
    uint64_t first_cluster;
    uint64_t end_cluster;
    const struct cow_req *blocker; /* whose claim it waits for */
    char *bounce;
    uint64_t fetched_bytes; /* into the bounce buffer */
    uint64_t pos;           /* next byte of the request */
    uint64_t left;          /* its bytes from there on */
    uint64_t run_bytes;     /* of the step at work */
    int status;
};

TAILQ_HEAD(cow_list, cow_req);

enum cow_store_state {
    COW_STORE_IDLE,
    COW_STORE_SYNC_DATA,
    COW_STORE_WRITE,
    COW_STORE_SYNC_MAP,
};

/* Of each sector of the bitmap. */
#define COW_DIRTY    1u /* differs from what is stored */
#define COW_IN_ROUND 2u /* being stored */

/* Rounds of storing the bitmap, one at a time (disk_cow_store.c). */
struct cow_store {
    enum cow_store_state state;
    struct cow_list queue; /* wait for the next round */
    struct cow_list round; /* of this one */
    struct disk_io io;
    struct iovec iov[DISK_SCRATCH_IOVS];
    uint8_t *mark; /* for each sector */
    uint8_t *copy; /* the bitmap as it was when the round began */
    uint64_t next_sector;
    uint64_t num_writing;
    bool dirty; /* some mark may be set */
    bool sync;  /* this round syncs */
    int failed; /* a sync did: what is on disk is unknown */
    uint8_t raw[COW_STORE_BATCH * COW_SECTOR_BYTES];
};

struct disk_cow {
    struct disk base; /* first */
    /* Headers and bitmaps. The fds of its files belong to the disks below. */
    struct cow_chain *chain;
    struct disk *layer[COW_MAX_DEPTH]; /* files, the top first */
    int fd[COW_MAX_DEPTH];             /* theirs */
    struct disk *raw;                  /* the base, or NULL */
    int raw_fd;
    bool unsafe;
    uint32_t num_reqs;
    struct cow_list claims;
    struct cow_list waiting; /* for the end of a claim */
    struct cow_list hungry;  /* for a bounce buffer */
    uint32_t num_bounces;
    uint32_t num_idle;
    char *idle[COW_MAX_BOUNCES];
    struct cow_store store;
};

extern const struct disk_ops disk_cow_ops;

static inline uint64_t cow_cluster_start(uint64_t pos)
{
    return pos - pos % COW_CLUSTER_BYTES;
}

/* End of the cluster at `pos`; the last one may be short. */
static inline uint64_t cow_cluster_end(const struct disk_cow *c, uint64_t pos)
{
    return min_u64(cow_cluster_start(pos) + COW_CLUSTER_BYTES,
                   c->base.size_bytes);
}

static inline uint64_t cow_top_offset(const struct disk_cow *c, uint64_t pos)
{
    return cow_data_offset(c->base.size_bytes) + pos;
}

/* --- disk_cow.c ------------------------------------------------------------
 */

/*
 * Bytes from `pos` on, at most `max`, that come from one place in the files
 * from `from` down: *out_disk at *out_offset, or NULL for zeroes.
 */
uint64_t cow_run(const struct disk_cow *c, uint32_t from, uint64_t pos,
                 uint64_t max, struct disk **out_disk, uint64_t *out_offset);
/* Uses up `n` bytes of the caller's buffers: copied to `dst`, or, if that is
 * NULL, filled with zeroes. */
void cow_copy(struct disk_io *up, char *dst, uint64_t n);
/* r->io, filled but for these, to a file of the chain. */
void cow_submit_to(struct cow_req *r, struct disk *disk, enum disk_op op,
                   uint64_t offset);
/* On with the request, to its end or to where it has to wait. */
void cow_go(struct cow_req *r);
/* The request ends, now or, inside of its submission, at the turn's end. */
void cow_complete(struct cow_req *r, int status);

/* --- disk_cow_copy.c -------------------------------------------------------
 */

/* Who brings the cluster to the top just now, or NULL. */
const struct cow_req *cow_claimant(const struct disk_cow *c, uint64_t cluster);
/* The clusters of the next `bytes` are r's to bring there. */
void cow_claim(struct cow_req *r, uint64_t bytes);
/* Its claim and its buffer, if it has them; others may go on with them. */
void cow_release(struct cow_req *r);
/* The next bytes, part of a cluster that is claimed: with the rest of it. */
void cow_copy_up(struct cow_req *r);
/* On with that: what is still missing in the bounce buffer. */
void cow_fetch(struct cow_req *r);

/* --- disk_cow_store.c ------------------------------------------------------
 */

/* `r` completes when all that was completed before is stored. */
void cow_store_join(struct cow_req *r);
/* The cluster is in the top from now on. */
void cow_store_set(struct disk_cow *c, uint64_t cluster);
/* At once, with blocking calls, nothing in flight. `sync`: durable. */
int cow_store_now(struct disk_cow *c, bool sync) MUST_CHECK;

#endif
