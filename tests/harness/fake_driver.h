/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_FAKE_DRIVER_H
#define TESTS_HARNESS_FAKE_DRIVER_H

/*
 * The driver's side of virtio in plain memory, without a VM: builds split
 * rings the way a guest does, or breaks them on purpose, and stands in for the
 * transport of one device. Unit tests and fuzz targets share it.
 *
 * Ownership: struct fdrv owns its guest memory; devices stay the test's.
 * Threads: one, the one that runs the device.
 * Errors: misuse by a test aborts; there is nothing to recover.
 */

#include "devices/virtio.h"

#include <linux/virtio_ring.h>

/* One queue as its driver sees it. */
struct fdrv_queue {
    uint16_t size;
    bool event_idx;
    gpa_t desc;
    gpa_t avail;
    gpa_t used;
    uint16_t avail_idx; /* next to publish, free running */
    uint16_t used_idx;  /* next to look at, free running */
    uint16_t num_free;
    uint16_t free_head; /* free descriptors are linked by `next` */
    uint16_t next[VQ_MAX_SIZE];
};

/* One buffer of a request. */
struct fdrv_seg {
    gpa_t gpa;
    uint32_t len;
    bool writable;
};

struct fdrv {
    struct guest_mem *mem;
    gpa_t next_free; /* bump allocator of guest memory */
    struct fdrv_queue q[VIRTIO_MAX_QUEUES];
    /* what the device did to its transport */
    struct virtio_dev *dev;
    uint32_t signals[VIRTIO_MAX_QUEUES];
    uint32_t config_changes;
    uint32_t needs_resets;
    uint32_t reset_dones;
    uint32_t rests; /* virtio_rested() */
    /* Called after each of these, e.g. to end a running loop; may be NULL. */
    void (*on_event)(void *arg);
    void *on_event_arg;
};

/* `ram_bytes` is a multiple of 4096. */
void fdrv_init(struct fdrv *d, uint64_t ram_bytes);
void fdrv_fini(struct fdrv *d);

/* Guest memory, zeroed and aligned to `align`; aborts when there is none. */
gpa_t fdrv_alloc(struct fdrv *d, uint64_t len, uint64_t align);
/* Allocates and fills. */
gpa_t fdrv_put(struct fdrv *d, const void *src, uint64_t len, uint64_t align);
void fdrv_write(struct fdrv *d, gpa_t gpa, const void *src, uint64_t len);
void fdrv_read(const struct fdrv *d, gpa_t gpa, void *dst, uint64_t len);
/* A host pointer for tests that compare in place. */
void *fdrv_ptr(const struct fdrv *d, gpa_t gpa, uint64_t len);

/* --- rings --------------------------------------------------------------- */

/* Allocates the rings of queue `q`; does not touch any device. */
void fdrv_queue_init(struct fdrv *d, uint16_t q, uint16_t size, bool event_idx);
/* The arguments for vq_setup() of that queue. */
struct vq_setup_args fdrv_setup_args(const struct fdrv *d, uint16_t q,
                                     bool indirect);

/*
 * Links the buffers into one chain and puts its head into the avail ring,
 * without publishing. Returns the head; aborts when descriptors run out.
 */
uint16_t fdrv_add(struct fdrv *d, uint16_t q, const struct fdrv_seg *segs,
                  uint16_t n);
/* The same through one indirect table. */
uint16_t fdrv_add_indirect(struct fdrv *d, uint16_t q,
                           const struct fdrv_seg *segs, uint16_t n);
/* Makes all added requests visible (stores avail.idx). */
void fdrv_publish(struct fdrv *d, uint16_t q);
/* Takes the next used entry and frees its descriptors. False: none. */
bool fdrv_used(struct fdrv *d, uint16_t q, uint32_t *out_head,
               uint32_t *out_len);
/* used.idx as the device left it. */
uint16_t fdrv_used_idx(const struct fdrv *d, uint16_t q);

/* --- raw access, for breaking rules -------------------------------------- */

void fdrv_set_desc(struct fdrv *d, uint16_t q, uint16_t i, uint64_t addr,
                   uint32_t len, uint16_t flags, uint16_t next);
void fdrv_get_desc(const struct fdrv *d, uint16_t q, uint16_t i,
                   struct vring_desc *out);
void fdrv_set_avail_idx(struct fdrv *d, uint16_t q, uint16_t idx);
void fdrv_set_avail_entry(struct fdrv *d, uint16_t q, uint16_t slot,
                          uint16_t head);
void fdrv_set_avail_flags(struct fdrv *d, uint16_t q, uint16_t flags);
void fdrv_set_used_event(struct fdrv *d, uint16_t q, uint16_t idx);
uint16_t fdrv_avail_event(const struct fdrv *d, uint16_t q);
uint16_t fdrv_used_flags(const struct fdrv *d, uint16_t q);

/* --- a device without a transport ---------------------------------------- */

/*
 * Stands in for the transport of `dev`: sets up all its queues with `size`
 * entries (at most their maximum), accepts `features` within what it offers
 * (VIRTIO_RING_F_EVENT_IDX and _INDIRECT_DESC included) and activates it.
 * Returns what activate returned.
 */
int fdrv_attach(struct fdrv *d, struct virtio_dev *dev, uint16_t size,
                uint64_t features);
/* The same with the queues of `mask` alone: bit q is queue q. */
int fdrv_attach_some(struct fdrv *d, struct virtio_dev *dev, uint16_t size,
                     uint64_t features, uint32_t mask);
/* Publishes what was added and calls the device. */
void fdrv_kick(struct fdrv *d, uint16_t q);
/* Resets the device and forgets the rings; returns what reset returned. */
int fdrv_reset(struct fdrv *d);

/* --- a machine that pauses ------------------------------------------------ */

/* Brings the device to rest; returns what rest returned, 0 without one. */
int fdrv_rest(struct fdrv *d);
/* Wakes it and kicks every queue that is set up. */
void fdrv_wake(struct fdrv *d);
/*
 * Saves the device, which rests, and goes on with the fresh device `to`: its
 * rings, features and state are those of the old one, and it rests. Returns
 * what load returned. The old device is the test's again, to be reset.
 */
int fdrv_move(struct fdrv *d, struct virtio_dev *to);
/* What save() writes, as a whole file with one section "t"; the caller's to
 * state_out_fini(). */
void fdrv_save(struct fdrv *d, struct state_out *out);
/* Gives such a file to the load() of `dev`. */
int fdrv_load(struct virtio_dev *dev, const struct state_out *saved,
              struct errmsg *err);

#endif
