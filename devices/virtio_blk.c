/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_blk.h"

#include "devices/virtio_blk_req.h"
#include "vmm/errmsg.h"

#include <assert.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_ids.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* virtio block device. spec: virtio-1.2 5.2. thread: io */

#define VBLK_NUM_QUEUES 1u
#define VBLK_QUEUE_SIZE 256u
#define VBLK_MAX_FLIGHT (VBLK_NUM_QUEUES * VBLK_QUEUE_SIZE)
#define VBLK_MAX_SEGS   (VQ_MAX_SEGS - 2u) /* without header and status */

/* One request that the backend has. */
struct vblk_flight {
    struct disk_io io;
    struct vblk *b;
    struct vblk_flight *next_free;
    uint16_t q;
    uint16_t head;
    bool flush_after;    /* a write that has to be durable when it completes */
    uint32_t used_bytes; /* when it succeeds */
    uint8_t *status_byte;
};

struct vblk {
    struct virtio_dev dev; /* first */
    /* immutable */
    struct disk *disk;
    struct vblk_limits limits;
    char id[VIRTIO_BLK_ID_BYTES];
    char name[64];
    struct virtio_blk_config config;
    struct iovec *iov; /* VQ_MAX_SEGS for each flight, touched when used */
    /* io thread */
    struct vblk_flight flight[VBLK_MAX_FLIGHT];
    struct vblk_flight *free_list; /* last in, first out: few pages stay warm */
    uint32_t in_flight;
    bool resetting;
    struct ev_timer again[VBLK_NUM_QUEUES]; /* goes on with a busy queue */
    struct vq_chain chain;                  /* scratch of vblk_handle_queue() */
    struct log_limit log_limit;
};

static struct vblk *vblk_of(struct virtio_dev *dev)
{
    return container_of(dev, struct vblk, dev);
}

static bool vblk_has_feature(const struct vblk *b, unsigned bit)
{
    return b->dev.features & (1ull << bit);
}

/* --- completion: the only place where a request goes back --------------- */

static void vblk_complete(struct vblk *b, uint16_t q, uint16_t head,
                          uint8_t *status_byte, uint8_t status,
                          uint32_t used_bytes)
{
    /* pairs with: the driver's read after used.idx, published by vq_push() */
    __atomic_store_n(status_byte, status, __ATOMIC_RELAXED);
    vq_push(&b->dev.vq[q], head, used_bytes);
}

static void vblk_on_done(struct disk_io *io, int status)
{
    struct vblk_flight *f = io->arg;
    struct vblk *b = f->b;

    if (status == 0 && f->flush_after) {
        f->flush_after = false;
        io->op = DISK_FLUSH;
        b->disk->ops->submit(b->disk, b->dev.env.loop, io);
        return;
    }
    if (status)
        log_limited(b->dev.env.log, &b->log_limit, LOG_WARN,
                    "disk %s: a request of the guest failed: %s", b->dev.name,
                    err_reason(status));
    f->next_free = b->free_list;
    b->free_list = f;
    b->in_flight--;
    if (b->resetting) {
        /* The rings are gone; the guest hears nothing of it any more. */
        if (b->in_flight == 0) {
            b->resetting = false;
            virtio_reset_done(&b->dev);
        }
        return;
    }
    vblk_complete(b, f->q, f->head, f->status_byte,
                  status ? VIRTIO_BLK_S_IOERR : VIRTIO_BLK_S_OK,
                  status ? 1 : f->used_bytes);
    virtio_signal(&b->dev, f->q);
}

/* --- execution ----------------------------------------------------------- */

static struct vblk_flight *vblk_take_flight(struct vblk *b)
{
    struct vblk_flight *f = b->free_list;

    /* The queue never has more requests outstanding than we have flights. */
    assert(f);
    b->free_list = f->next_free;
    b->in_flight++;
    return f;
}

/* Data where the disk can reach it: straight in guest memory. */
static uint32_t vblk_map_data(struct vblk *b, struct vblk_flight *f,
                              const struct vblk_req *req)
{
    bool is_read = req->op == VBLK_READ;
    int n;

    f->io.iov = b->iov + (size_t)(f - b->flight) * VQ_MAX_SEGS;
    if (req->op == VBLK_FLUSH)
        return 0;
    n = vq_chain_slice(&b->chain, is_read, is_read ? 0 : VBLK_HEADER_BYTES,
                       req->data_bytes, f->io.iov, VQ_MAX_SEGS);
    assert(n > 0); /* the parser measured this chain */
    return (uint32_t)n;
}

static void vblk_submit(struct vblk *b, uint16_t q, const struct vblk_req *req)
{
    struct vblk_flight *f = vblk_take_flight(b);

    f->b = b;
    f->q = q;
    f->head = b->chain.head;
    f->status_byte = req->status_byte;
    f->used_bytes = 1 + (req->op == VBLK_READ ? req->data_bytes : 0);
    /* Without FLUSH the driver takes us for write-through: be it. */
    f->flush_after =
        req->op == VBLK_WRITE && !vblk_has_feature(b, VIRTIO_BLK_F_FLUSH);
    f->io.op = req->op == VBLK_READ    ? DISK_READ
               : req->op == VBLK_WRITE ? DISK_WRITE
                                       : DISK_FLUSH;
    f->io.offset_bytes = req->offset_bytes;
    f->io.iovcnt = vblk_map_data(b, f, req);
    f->io.done = vblk_on_done;
    f->io.arg = f;
    b->disk->ops->submit(b->disk, b->dev.env.loop, &f->io);
}

static void vblk_execute(struct vblk *b, uint16_t q, const struct vblk_req *req)
{
    uint32_t used = 1;

    if (req->status == VIRTIO_BLK_S_OK && req->op != VBLK_GET_ID) {
        vblk_submit(b, q, req);
        return;
    }
    if (req->status == VIRTIO_BLK_S_OK)
        used += (uint32_t)vq_chain_write(&b->chain, 0, b->id, sizeof(b->id));
    vblk_complete(b, q, b->chain.head, req->status_byte, req->status, used);
}

static void vblk_again(struct ev_timer *t);

/* At most a queue's worth of requests, then other devices get their turn. */
static void vblk_handle_queue(struct vblk *b, uint16_t q)
{
    struct virtq *vq = &b->dev.vq[q];
    uint32_t budget = vq->size;
    struct vblk_req req;
    int rc = 0;

    do {
        vq_disable_kicks(vq);
        while (budget > 0 && (rc = vq_pop(vq, &b->chain)) > 0) {
            budget--;
            rc = vblk_parse(&b->chain, &b->limits, &req);
            if (rc)
                break;
            vblk_execute(b, q, &req);
        }
    } while (rc == 0 && budget > 0 && vq_enable_kicks(vq));
    virtio_signal(&b->dev, q);
    if (rc == 0 && budget == 0)
        rc = evloop_timer_arm(b->dev.env.loop, &b->again[q], 0, vblk_again, b);
    if (rc < 0)
        virtio_needs_reset(&b->dev);
}

static void vblk_again(struct ev_timer *t)
{
    struct vblk *b = t->arg;

    vblk_handle_queue(b, (uint16_t)(t - b->again));
}

/* --- the device ---------------------------------------------------------- */

/* thread: vcpu */
static void vblk_config_read(struct virtio_dev *dev, uint32_t off, void *data,
                             uint32_t len)
{
    const struct vblk *b = vblk_of(dev);

    memcpy(data, (const char *)&b->config + off, len);
}

static int vblk_activate(struct virtio_dev *dev)
{
    (void)dev; /* features and rings are read where they matter */
    return 0;
}

static int vblk_reset(struct virtio_dev *dev)
{
    struct vblk *b = vblk_of(dev);

    for (uint32_t q = 0; q < VBLK_NUM_QUEUES; q++)
        evloop_timer_cancel(dev->env.loop, &b->again[q]);
    if (b->in_flight == 0)
        return 0;
    b->resetting = true;
    return -EINPROGRESS;
}

static void vblk_queue_kick(struct virtio_dev *dev, uint16_t q)
{
    vblk_handle_queue(vblk_of(dev), q);
}

static void vblk_free(struct virtio_dev *dev)
{
    struct vblk *b = vblk_of(dev);

    assert(b->in_flight == 0);
    b->disk->ops->free(b->disk);
    free(b->iov);
    free(b);
}

static const struct virtio_ops vblk_ops = {
    .config_read = vblk_config_read,
    .activate = vblk_activate,
    .reset = vblk_reset,
    .queue_kick = vblk_queue_kick,
    .free = vblk_free,
};

static void vblk_init_config(struct vblk *b)
{
    struct virtio_dev *dev = &b->dev;

    b->config.capacity = htole64(b->disk->size_bytes / DISK_SECTOR_BYTES);
    b->config.seg_max = htole32(VBLK_MAX_SEGS);
    b->config.blk_size = htole32(DISK_SECTOR_BYTES);
    b->config.num_queues = htole16(VBLK_NUM_QUEUES);
    dev->config_len = sizeof(b->config);
    dev->offered =
        (1ull << VIRTIO_BLK_F_SEG_MAX) | (1ull << VIRTIO_BLK_F_BLK_SIZE);
    if (b->disk->read_only)
        dev->offered |= 1ull << VIRTIO_BLK_F_RO;
    else
        dev->offered |= 1ull << VIRTIO_BLK_F_FLUSH;
    dev->num_queues = VBLK_NUM_QUEUES;
    for (uint32_t q = 0; q < VBLK_NUM_QUEUES; q++)
        dev->queue_max[q] = VBLK_QUEUE_SIZE;
}

int vblk_new(const struct vdev_env *env, struct disk *disk, const char *id,
             struct virtio_dev **out_dev)
{
    struct vblk *b = calloc(1, sizeof(*b));

    if (!b)
        return -ENOMEM;
    b->iov = calloc((size_t)VBLK_MAX_FLIGHT * VQ_MAX_SEGS, sizeof(*b->iov));
    if (!b->iov) {
        free(b);
        return -ENOMEM;
    }
    (void)snprintf(b->name, sizeof(b->name), "blk/%s", id);
    memcpy(b->id, id, strnlen(id, sizeof(b->id)));
    b->disk = disk;
    b->limits.capacity_bytes = disk->size_bytes;
    b->limits.read_only = disk->read_only;
    for (uint32_t i = VBLK_MAX_FLIGHT; i-- > 0;) {
        b->flight[i].next_free = b->free_list;
        b->free_list = &b->flight[i];
    }
    virtio_dev_init(&b->dev, &vblk_ops, env, b->name, VIRTIO_ID_BLOCK);
    vblk_init_config(b);
    *out_dev = &b->dev;
    return 0;
}
