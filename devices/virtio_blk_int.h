/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_BLK_INT_H
#define DEVICES_VIRTIO_BLK_INT_H

/*
 * Between virtio_blk.c (the device: queues, limits, configuration),
 * virtio_blk_flight.c (requests that the backend has) and virtio_blk_state.c (a
 * machine that pauses); nobody else.
 */

#include "devices/virtio_blk.h"
#include "devices/virtio_blk_req.h"

#define VBLK_QUEUE_SIZE 256u
#define VBLK_MAX_SEGS   (VQ_MAX_SEGS - 2u) /* without header and status */

/* A disk and who still uses it. The device's own, or left behind by a swap. */
struct vblk_backing {
    struct disk *disk;
    uint32_t in_flight;
    bool retired; /* freed with its last request */
};

/* One request that the backend has. */
struct vblk_flight {
    struct disk_io io;
    struct vblk *b;
    struct vblk_backing *backing;
    struct vblk_flight *next_free;
    uint16_t q;
    uint16_t head;
    enum vblk_op op;
    uint32_t data_bytes;
    uint64_t start_ns;
    bool flush_after;    /* has to be durable when it completes */
    uint32_t used_bytes; /* when it succeeds */
    uint8_t *status_byte;
    uint32_t next_range; /* discard, write zeroes: one after the other */
    uint32_t num_ranges;
    struct vblk_range ranges[VBLK_MAX_RANGES];
};

struct vblk {
    struct virtio_dev dev; /* first */
    /* immutable */
    bool unsafe_cache;
    char id[VIRTIO_BLK_ID_BYTES];
    char name[64];
    uint32_t num_flights;
    struct iovec *iov; /* VQ_MAX_SEGS for each flight, touched when used */
    /* changed under the transport's lock: virtio_config_update() */
    struct virtio_blk_config config;
    /* io thread */
    struct vblk_backing *backing;
    struct vblk_limits limits;
    struct vblk_flight *flights;
    struct vblk_flight *free_list; /* last in, first out: few pages stay warm */
    uint32_t num_used;             /* flights[num_used ..] were never touched */
    uint32_t in_flight;
    bool resetting;
    uint32_t to_signal;     /* bit q: completions that were not told yet */
    struct ev_later signal; /* tells them at the end of the turn */
    struct ev_timer again[VBLK_MAX_QUEUES]; /* goes on with a busy queue */
    struct rate_limit limit;
    bool limited; /* nothing is taken until limit_timer */
    uint16_t limited_q;
    struct ev_timer limit_timer;
    /* The time of a turn's requests is looked at once; 0: not yet. */
    uint64_t taken_ns;
    uint64_t done_ns;
    struct vblk_stats stats;
    struct vq_chain chain; /* scratch of vblk_handle_queue() */
    struct log_limit log_limit;
};

static inline struct vblk *vblk_of(struct virtio_dev *dev)
{
    return container_of(dev, struct vblk, dev);
}

/* Carries out what vblk_parse() made of b->chain; completes it now or later. */
void vblk_execute(struct vblk *b, uint16_t q, const struct vblk_req *req);

/* Signals now what would be signalled at the end of the turn. */
void vblk_tell(struct vblk *b);
/* Shows the guest the size of the backing, if it is another one. */
void vblk_take_size(struct vblk *b);

/* virtio_blk_state.c: what struct virtio_ops asks for. */
int vblk_rest(struct virtio_dev *dev);
void vblk_wake(struct virtio_dev *dev);
void vblk_save(struct virtio_dev *dev, struct state_out *out);
int vblk_load(struct virtio_dev *dev, struct state_in *in, struct errmsg *err);

/* Allocates b->num_flights; memory that is not needed is not touched either.
 * 0 or -ENOMEM. */
int vblk_flights_init(struct vblk *b) MUST_CHECK;
void vblk_flights_fini(struct vblk *b);

/* Its disk is owned if it succeeds: 0 or -ENOMEM. */
int vblk_backing_new(struct disk *disk, struct vblk_backing **out) MUST_CHECK;
/* Frees it with its disk, at once or after its last request. */
void vblk_backing_retire(struct vblk_backing *k);

#endif
