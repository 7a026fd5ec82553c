/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_BALLOON_INT_H
#define DEVICES_VIRTIO_BALLOON_INT_H

/*
 * Between the balloon's files: virtio_balloon.c (the device),
 * virtio_balloon_pages.c (requests that name pages) and virtio_balloon_state.c
 * (a machine that pauses, is saved and loaded). thread: io
 */

#include "devices/virtio_balloon.h"
#include "devices/virtio_balloon_req.h"

enum vballoon_role {
    VBALLOON_INFLATE,
    VBALLOON_DEFLATE,
    VBALLOON_STATS,
    VBALLOON_HINT,
    VBALLOON_REPORT,
    VBALLOON_NUM_ROLES,
};

/* The request that a queue is at; a large one takes several turns. */
struct vballoon_work {
    bool held;
    bool skip;     /* nothing of it is to be given back */
    uint16_t part; /* of the chain's writable ones */
    uint64_t off_bytes;
    struct vq_chain chain;
};

struct vballoon {
    struct virtio_dev dev; /* first */
    /* io thread */
    bool active;
    struct virtq *vq[VBALLOON_NUM_ROLES]; /* NULL: not negotiated */
    struct vballoon_work work[VBALLOON_NUM_ROLES];
    struct vballoon_pfns pfns;        /* of the inflate request */
    bool pending[VBALLOON_NUM_ROLES]; /* `again` goes on with it */
    struct ev_timer again;
    struct ev_timer stats_timer;
    uint32_t stats_interval_s;
    uint64_t stats_left_ns; /* at rest: until the next figures are asked for */
    struct vballoon_stats stats;
    struct vballoon_hinting hinting;
    uint32_t last_run; /* the number of the last hinting run */
    bool acknowledge_on_stop;
    struct vballoon_counts counts;
    struct log_limit log_limit;
    /* atomic: the fields of the configuration space */
    _Atomic uint32_t num_pages;
    _Atomic uint32_t actual;
    _Atomic uint32_t hint_cmd;
    _Atomic uint32_t poison;
};

static inline struct vballoon *vballoon_of(struct virtio_dev *dev)
{
    return container_of(dev, struct vballoon, dev);
}

static inline uint64_t vballoon_stats_ns(const struct vballoon *b)
{
    return b->stats_interval_s * 1000000000ull;
}

static inline bool vballoon_has(const struct vballoon *b, unsigned bit)
{
    return b->dev.features & (1ull << bit);
}

/* Serves the queue of `role` for one turn. */
void vballoon_handle(struct vballoon *b, enum vballoon_role role);
void vballoon_bad_request(struct vballoon *b, const char *what);
/* The driver's command of a hinting run. */
void vballoon_on_hint_cmd(struct vballoon *b, uint32_t g_cmd);
/* Asks for figures in `wait_ns`. 0 or -ENOMEM. */
int vballoon_arm_stats(struct vballoon *b, uint64_t wait_ns) MUST_CHECK;

/* --- virtio_balloon_state.c: struct virtio_ops --------------------------- */

#define VBALLOON_STATE_VERSION 1u
int vballoon_rest(struct virtio_dev *dev);
void vballoon_wake(struct virtio_dev *dev);
void vballoon_save(struct virtio_dev *dev, struct state_out *out);
int vballoon_load(struct virtio_dev *dev, struct state_in *in,
                  struct errmsg *err);

#endif
