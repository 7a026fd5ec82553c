/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_PAYLOADS_VIRTIO_H
#define GUEST_PAYLOADS_VIRTIO_H

/*
 * The smallest virtio-mmio driver: one queue of a device, one request at a
 * time, its completion polled. The parts are open to the caller, so that a
 * hostile payload can bend them. spec: virtio-1.2 2.7, 4.2
 */

#include "guest/payloads/payload.h"

#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_mmio.h>
#include <linux/virtio_ring.h>

#define VD_MAX    20u
#define VD_QSIZE  8u
#define VD_SECTOR 512u

struct vd_ring {
    struct vring_desc desc[VD_QSIZE];
    volatile uint16_t avail_flags;
    volatile uint16_t avail_idx;
    volatile uint16_t avail[VD_QSIZE];
    volatile uint16_t used_event;
    /* On a page of its own, which only the device writes. */
    volatile uint16_t used_flags __attribute__((aligned(4096)));
    volatile uint16_t used_idx;
    volatile struct vring_used_elem used[VD_QSIZE];
    volatile uint16_t avail_event;
} __attribute__((aligned(4096)));

struct vdev {
    uint64_t base; /* of its registers */
    uint32_t gsi;
    uint32_t device_id;
    uint32_t queue; /* the one in use */
    uint16_t next_used;
    struct vd_ring *ring;
};

/* One piece of a request. */
struct vd_seg {
    const volatile void *at;
    uint32_t len_bytes;
    bool device_writes;
};

/* Every device that the command line names; fails if there is none. */
extern struct vdev vd_list[VD_MAX];
uint32_t vd_find_all(void);
/* The n-th (from 0) with this id, or NULL. After vd_find_all(). */
struct vdev *vd_find(uint32_t device_id, uint32_t n);

static inline uint32_t vd_read(const struct vdev *d, uint32_t reg)
{
    return mmio_r32(d->base + reg);
}

static inline void vd_write(const struct vdev *d, uint32_t reg, uint32_t v)
{
    mmio_w32(d->base + reg, v);
}

/* Reset, features (VERSION_1 and `low`), no queue yet. */
void vd_negotiate(struct vdev *d, uint32_t low_features);
/* Tells the device where the queue's empty ring is. */
void vd_set_queue(struct vdev *d, uint32_t queue);
void vd_driver_ok(struct vdev *d);
/* All three. */
void vd_start(struct vdev *d, uint32_t low_features, uint32_t queue);
void vd_reset(struct vdev *d); /* waits until the device says it is done */

/* Lays a request into descriptors 0, 1, ... and makes it available. */
void vd_post(struct vdev *d, const struct vd_seg *segs, uint32_t n);
void vd_kick(struct vdev *d);
/* Waits for the request's end; the bytes that the device says it wrote. */
uint32_t vd_wait(struct vdev *d);
/* Waits until the device asks for a reset; fails when it never does. */
void vd_wait_needs_reset(struct vdev *d, const char *what);

/* --- block --------------------------------------------------------------- */

/* The status byte of the request. */
uint8_t blk_request(struct vdev *d, uint32_t type, uint64_t sector, void *data,
                    uint32_t len_bytes);
/* What sector `sector` holds after blk_fill(): tests/kvm checks the same. */
void blk_fill(uint64_t *data, uint64_t sector, uint32_t sectors);
void blk_check(const uint64_t *data, uint64_t sector, uint32_t sectors);

/* One small request that any device answers; the ring must be fresh. */
uint32_t vd_poke_queue(const struct vdev *d);
void vd_poke(struct vdev *d);

#endif
