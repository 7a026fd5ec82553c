/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_blk_int.h"

#include "vmm/errmsg.h"

#include <assert.h>
#include <linux/virtio_blk.h>
#include <stdlib.h>

/* Requests of the block device on their way. spec: virtio-1.2 5.2. thread: io
 */

_Static_assert(VQ_MAX_SEGS >= DISK_SCRATCH_IOVS, "a flight's iovecs suffice");

/* --- backings ------------------------------------------------------------ */

int vblk_backing_new(struct disk *disk, struct vblk_backing **out)
{
    struct vblk_backing *k = calloc(1, sizeof(*k));

    if (!k)
        return -ENOMEM;
    k->disk = disk;
    *out = k;
    return 0;
}

static void vblk_backing_free_if_done(struct vblk_backing *k)
{
    if (!k->retired || k->in_flight > 0)
        return;
    k->disk->ops->free(k->disk);
    free(k);
}

void vblk_backing_retire(struct vblk_backing *k)
{
    k->retired = true;
    vblk_backing_free_if_done(k);
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

void vblk_tell(struct vblk *b)
{
    uint32_t queues = b->to_signal;

    evloop_later_cancel(b->dev.env.loop, &b->signal);
    b->to_signal = 0;
    for (uint16_t q = 0; queues; q++, queues >>= 1) {
        if (queues & 1)
            virtio_signal(&b->dev, q);
    }
}

static void vblk_on_signal(struct ev_later *l)
{
    vblk_tell(l->arg);
}

static uint8_t vblk_status(int status)
{
    if (status == 0)
        return VIRTIO_BLK_S_OK;
    return status == -EOPNOTSUPP ? VIRTIO_BLK_S_UNSUPP : VIRTIO_BLK_S_IOERR;
}

static void vblk_end_flight(struct vblk_flight *f)
{
    struct vblk *b = f->b;

    f->next_free = b->free_list;
    b->free_list = f;
    b->in_flight--;
    f->backing->in_flight--;
    vblk_backing_free_if_done(f->backing);
}

/* --- counts -------------------------------------------------------------- */

static void vblk_count(struct vblk *b, const struct vblk_flight *f, int status)
{
    struct vblk_stats *s = &b->stats;
    uint64_t ns = b->done_ns - f->start_ns;

    if (status) {
        counter_add(&s->failed, 1);
        return;
    }
    switch (f->op) {
    case VBLK_READ:
        counter_add(&s->reads, 1);
        counter_add(&s->read_bytes, f->data_bytes);
        span_add(&s->read_time, ns);
        histogram_add(&s->read_us, ns);
        break;
    case VBLK_WRITE:
        counter_add(&s->writes, 1);
        counter_add(&s->write_bytes, f->data_bytes);
        span_add(&s->write_time, ns);
        histogram_add(&s->write_us, ns);
        break;
    case VBLK_FLUSH:
        counter_add(&s->flushes, 1);
        histogram_add(&s->flush_us, ns);
        break;
    default:
        counter_add(&s->discards, 1);
        break;
    }
}

/* --- the backend's answer ------------------------------------------------ */

static void vblk_submit(struct vblk_flight *f)
{
    struct disk *disk = f->backing->disk;

    disk->ops->submit(disk, f->b->dev.env.loop, &f->io);
}

static struct iovec *vblk_iovs(struct vblk_flight *f)
{
    return f->b->iov + (size_t)(f - f->b->flights) * VQ_MAX_SEGS;
}

/* The disk may have shrunk since the request was checked. */
static bool vblk_fits(const struct vblk_flight *f, const struct vblk_range *r)
{
    uint64_t size = f->backing->disk->size_bytes;

    return r->offset_bytes <= size && r->len_bytes <= size - r->offset_bytes;
}

/* 1: there is more to do for this request, and it is on its way. 0: it is done.
 * -EIO. */
static int vblk_go_on(struct vblk_flight *f)
{
    if (f->next_range < f->num_ranges) {
        const struct vblk_range *r = &f->ranges[f->next_range++];

        if (!vblk_fits(f, r))
            return -EIO;
        f->io.offset_bytes = r->offset_bytes;
        f->io.len_bytes = r->len_bytes;
        f->io.may_unmap = r->may_unmap;
        f->io.iov = vblk_iovs(f);
        f->io.iovcnt = 0;
    } else if (f->flush_after) {
        f->flush_after = false;
        f->io.op = DISK_FLUSH;
    } else {
        return 0;
    }
    vblk_submit(f);
    return 1;
}

static void vblk_on_done(struct disk_io *io, int status)
{
    struct vblk_flight *f = io->arg;
    struct vblk *b = f->b;

    if (status == 0) {
        status = vblk_go_on(f);
        if (status > 0)
            return;
    }
    if (status && status != -EOPNOTSUPP)
        log_limited(b->dev.env.log, &b->log_limit, LOG_WARN,
                    "disk %s: a request of the guest failed: %s", b->dev.name,
                    err_reason(status));
    if (!b->to_signal)
        b->done_ns = util_now_ns(); /* the first of this turn */
    vblk_count(b, f, status);
    vblk_end_flight(f);
    if (b->resetting) {
        /* The rings are gone; the guest hears nothing of it any more. */
        if (b->in_flight == 0) {
            b->resetting = false;
            virtio_reset_done(&b->dev);
        }
        return;
    }
    vblk_complete(b, f->q, f->head, f->status_byte, vblk_status(status),
                  status ? 1 : f->used_bytes);
    b->to_signal |= 1u << f->q;
    if (!b->dev.resting) {
        evloop_later(b->dev.env.loop, &b->signal, vblk_on_signal, b);
    } else if (b->in_flight == 0) {
        vblk_tell(b);
        virtio_rested(&b->dev);
    }
}

/* --- execution ----------------------------------------------------------- */

static struct vblk_flight *vblk_take_flight(struct vblk *b)
{
    struct vblk_flight *f = b->free_list;

    if (f) {
        b->free_list = f->next_free;
    } else {
        /* The queues never have more outstanding than there are flights. */
        assert(b->num_used < b->num_flights);
        f = &b->flights[b->num_used++];
    }
    b->in_flight++;
    f->backing = b->backing;
    f->backing->in_flight++;
    return f;
}

/* Data where the disk can reach it: straight in guest memory. */
static uint32_t vblk_map_data(struct vblk *b, struct vblk_flight *f,
                              const struct vblk_req *req)
{
    bool is_read = req->op == VBLK_READ;
    int n;

    f->io.iov = vblk_iovs(f);
    if (!is_read && req->op != VBLK_WRITE)
        return 0;
    n = vq_chain_slice(&b->chain, is_read, is_read ? 0 : VBLK_HEADER_BYTES,
                       req->data_bytes, f->io.iov, VQ_MAX_SEGS);
    assert(n > 0); /* the parser measured this chain */
    return (uint32_t)n;
}

static enum disk_op vblk_disk_op(enum vblk_op op)
{
    switch (op) {
    case VBLK_READ:
        return DISK_READ;
    case VBLK_WRITE:
        return DISK_WRITE;
    case VBLK_DISCARD:
        return DISK_DISCARD;
    case VBLK_WRITE_ZEROES:
        return DISK_WRITE_ZEROES;
    default:
        return DISK_FLUSH;
    }
}

/* Without FLUSH the driver takes us for write-through: be it. */
static bool vblk_must_sync(const struct vblk *b, enum vblk_op op)
{
    return (op == VBLK_WRITE || op == VBLK_WRITE_ZEROES) && !b->unsafe_cache &&
           !(b->dev.features & (1ull << VIRTIO_BLK_F_FLUSH));
}

static void vblk_start(struct vblk *b, uint16_t q, const struct vblk_req *req)
{
    struct vblk_flight *f = vblk_take_flight(b);

    if (!b->taken_ns)
        b->taken_ns = util_now_ns();
    f->b = b;
    f->q = q;
    f->op = req->op;
    f->data_bytes = req->data_bytes;
    f->start_ns = b->taken_ns;
    f->head = b->chain.head;
    f->status_byte = req->status_byte;
    f->used_bytes = 1 + (req->op == VBLK_READ ? req->data_bytes : 0);
    f->flush_after = vblk_must_sync(b, req->op);
    f->next_range = 0;
    f->num_ranges = req->num_ranges;
    for (uint32_t i = 0; i < req->num_ranges; i++)
        f->ranges[i] = req->ranges[i];
    f->io.op = vblk_disk_op(req->op);
    f->io.offset_bytes = req->offset_bytes;
    f->io.iovcnt = vblk_map_data(b, f, req);
    f->io.done = vblk_on_done;
    f->io.arg = f;
    if (f->num_ranges == 0)
        vblk_submit(f);
    else
        (void)vblk_go_on(f); /* the first range, which was just checked */
}

void vblk_execute(struct vblk *b, uint16_t q, const struct vblk_req *req)
{
    bool at_once = req->status != VIRTIO_BLK_S_OK || req->op == VBLK_GET_ID ||
                   (req->op == VBLK_FLUSH && b->unsafe_cache);
    uint32_t used = 1;

    if (!at_once) {
        vblk_start(b, q, req);
        return;
    }
    if (req->status != VIRTIO_BLK_S_OK)
        counter_add(&b->stats.refused, 1);
    else if (req->op == VBLK_FLUSH)
        counter_add(&b->stats.flushes, 1);
    if (req->status == VIRTIO_BLK_S_OK && req->op == VBLK_GET_ID)
        used += (uint32_t)vq_chain_write(&b->chain, 0, b->id, sizeof(b->id));
    vblk_complete(b, q, b->chain.head, req->status_byte, req->status, used);
}

/* --- life ---------------------------------------------------------------- */

int vblk_flights_init(struct vblk *b)
{
    b->flights = calloc(b->num_flights, sizeof(*b->flights));
    b->iov = calloc((size_t)b->num_flights * VQ_MAX_SEGS, sizeof(*b->iov));
    return b->flights && b->iov ? 0 : -ENOMEM;
}

void vblk_flights_fini(struct vblk *b)
{
    free(b->iov);
    free(b->flights);
}
