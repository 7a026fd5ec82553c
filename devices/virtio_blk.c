/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_blk.h"

#include "devices/virtio_blk_int.h"

#include <assert.h>
#include <linux/virtio_ids.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* virtio block device: queues, limits, configuration; what becomes of a request
 * is in virtio_blk_flight.c. spec: virtio-1.2 5.2. thread: io */

/* --- rate limits --------------------------------------------------------- */

static void vblk_handle_queue(struct vblk *b, uint16_t q);

static void vblk_on_limit_timer(struct ev_timer *t)
{
    struct vblk *b = t->arg;
    uint16_t first = (uint16_t)(b->limited_q + 1u);

    b->limited = false;
    counter_add(&b->stats.limiter_events, 1);
    /* Not always the same queue first: it could take all there is. */
    for (uint16_t i = 0; i < b->dev.num_queues && !b->limited; i++)
        vblk_handle_queue(b, (uint16_t)((first + i) % b->dev.num_queues));
}

static uint64_t vblk_cost_bytes(const struct vblk_req *req)
{
    uint64_t bytes = req->op == VBLK_GET_ID ? 0 : req->data_bytes;

    if (req->status != VIRTIO_BLK_S_OK)
        return 0;
    for (uint32_t i = 0; req->op == VBLK_WRITE_ZEROES && i < req->num_ranges;
         i++)
        bytes += req->ranges[i].len_bytes;
    return bytes;
}

/* 1: go ahead. 0: it has to wait, and the timer is armed. -ENOMEM. */
static int vblk_admit(struct vblk *b, uint16_t q, const struct vblk_req *req)
{
    uint64_t at_ns;

    if (b->limit.bandwidth.config.size == 0 && b->limit.ops.config.size == 0)
        return 1; /* without a look at the clock */
    at_ns = rate_limit_take(&b->limit, vblk_cost_bytes(req), util_now_ns());
    if (at_ns == 0)
        return 1;
    b->limited = true;
    b->limited_q = q;
    counter_add(&b->stats.throttled, 1);
    return evloop_timer_arm(b->dev.env.loop, &b->limit_timer, at_ns,
                            vblk_on_limit_timer, b);
}

/* --- queues -------------------------------------------------------------- */

/* 1: a request was taken. 0: none is there, or it has to wait. -EPROTO,
 * -ENOMEM. */
static int vblk_take_one(struct vblk *b, uint16_t q)
{
    struct virtq *vq = &b->dev.vq[q];
    struct vblk_req req;
    int rc = vq_pop(vq, &b->chain);

    if (rc <= 0)
        return rc;
    rc = vblk_parse(&b->chain, &b->limits, &req);
    if (rc)
        return rc;
    rc = vblk_admit(b, q, &req);
    if (rc == 1)
        vblk_execute(b, q, &req);
    else
        vq_unpop(vq);
    return rc;
}

static void vblk_again(struct ev_timer *t)
{
    struct vblk *b = t->arg;

    vblk_handle_queue(b, (uint16_t)(t - b->again));
}

/* At most a queue's worth of requests, then other devices get their turn. */
static void vblk_handle_queue(struct vblk *b, uint16_t q)
{
    struct virtq *vq = &b->dev.vq[q];
    uint32_t budget = vq->size;
    int rc = 0;

    if (b->limited || vq->broken || b->dev.resting)
        return; /* the timer, or a wake, looks at every queue */
    b->taken_ns = 0;
    do {
        vq_disable_kicks(vq);
        while (budget > 0 && (rc = vblk_take_one(b, q)) > 0)
            budget--;
    } while (rc == 0 && budget > 0 && !b->limited && vq_enable_kicks(vq));
    virtio_signal(&b->dev, q);
    if (rc >= 0 && budget == 0 && vq->size > 0) {
        counter_add(&b->stats.left_over, 1);
        rc = evloop_timer_arm(b->dev.env.loop, &b->again[q], 0, vblk_again, b);
    }
    if (rc < 0)
        virtio_needs_reset(&b->dev);
}

static void vblk_queue_kick(struct virtio_dev *dev, uint16_t q)
{
    vblk_handle_queue(vblk_of(dev), q);
}

/* --- changes while it runs ----------------------------------------------- */

/* Under the transport's lock. */
static void vblk_store_capacity(struct virtio_dev *dev, void *arg)
{
    const struct disk *disk = arg;

    vblk_of(dev)->config.capacity =
        htole64(disk->size_bytes / DISK_SECTOR_BYTES);
}

/* Requests in flight were checked against the old size; the backend fails
 * those that the storage no longer has. */
void vblk_take_size(struct vblk *b)
{
    struct disk *disk = b->backing->disk;

    if (disk->size_bytes == b->limits.capacity_bytes)
        return;
    b->limits.capacity_bytes = disk->size_bytes;
    virtio_config_update(&b->dev, vblk_store_capacity, disk);
}

int vblk_refresh_size(struct virtio_dev *dev)
{
    struct vblk *b = vblk_of(dev);
    int rc = b->backing->disk->ops->refresh(b->backing->disk);

    counter_add(rc ? &b->stats.update_fails : &b->stats.updates, 1);
    if (rc == 0)
        vblk_take_size(b);
    return rc;
}

int vblk_swap(struct virtio_dev *dev, struct disk *new_disk)
{
    struct vblk *b = vblk_of(dev);
    struct vblk_backing *k = NULL;
    int rc = new_disk->read_only == b->limits.read_only
                 ? vblk_backing_new(new_disk, &k)
                 : -EINVAL;

    counter_add(rc ? &b->stats.update_fails : &b->stats.updates, 1);
    if (rc)
        return rc;
    vblk_backing_retire(b->backing);
    b->backing = k;
    vblk_take_size(b);
    return 0;
}

void vblk_get_stats(const struct virtio_dev *dev, struct vblk_stats *out)
{
    const struct vblk *b = (const struct vblk *)dev; /* its first member */

    *out = b->stats;
}

void vblk_set_rate_limit(struct virtio_dev *dev,
                         const struct rate_limit_config *c)
{
    struct vblk *b = vblk_of(dev);

    rate_limit_set(&b->limit, c, util_now_ns());
    if (!b->limited)
        return;
    evloop_timer_cancel(dev->env.loop, &b->limit_timer);
    vblk_on_limit_timer(&b->limit_timer);
}

bool vblk_is_file(const struct virtio_dev *dev, const struct stat *st)
{
    const struct vblk *b = (const struct vblk *)dev; /* its first member */

    return b->backing->disk->ops->is_file(b->backing->disk, st);
}

struct disk *vblk_disk(struct virtio_dev *dev)
{
    return ((struct vblk *)dev)->backing->disk; /* its first member */
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
    struct vblk *b = vblk_of(dev);

    b->limits.discard = dev->features & (1ull << VIRTIO_BLK_F_DISCARD);
    b->limits.write_zeroes =
        dev->features & (1ull << VIRTIO_BLK_F_WRITE_ZEROES);
    return 0;
}

static int vblk_reset(struct virtio_dev *dev)
{
    struct vblk *b = vblk_of(dev);

    for (uint32_t q = 0; q < dev->num_queues; q++)
        evloop_timer_cancel(dev->env.loop, &b->again[q]);
    evloop_timer_cancel(dev->env.loop, &b->limit_timer);
    evloop_later_cancel(dev->env.loop, &b->signal);
    b->limited = false;
    b->to_signal = 0;
    if (b->in_flight == 0)
        return 0;
    b->resetting = true;
    return -EINPROGRESS;
}

static void vblk_free(struct virtio_dev *dev)
{
    struct vblk *b = vblk_of(dev);

    assert(b->in_flight == 0);
    vblk_backing_retire(b->backing);
    vblk_flights_fini(b);
    free(b);
}

static const struct virtio_ops vblk_ops = {
    .config_read = vblk_config_read,
    .activate = vblk_activate,
    .reset = vblk_reset,
    .queue_kick = vblk_queue_kick,
    .free = vblk_free,
    .rest = vblk_rest,
    .wake = vblk_wake,
    .save = vblk_save,
    .load = vblk_load,
    .state_version = 1,
};

static void vblk_offer(struct vblk *b, unsigned feature)
{
    b->dev.offered |= 1ull << feature;
}

/* Larger blocks are only better: a request of one sector always works. */
static void vblk_init_topology(struct vblk *b, const struct disk *disk)
{
    uint32_t sectors = disk->block_bytes / DISK_SECTOR_BYTES;

    if (sectors <= 1)
        return;
    b->config.physical_block_exp = (uint8_t)__builtin_ctz(sectors);
    b->config.min_io_size = htole16((uint16_t)sectors);
    vblk_offer(b, VIRTIO_BLK_F_TOPOLOGY);
}

static void vblk_init_ranges(struct vblk *b, const struct disk *disk)
{
    uint32_t align = disk->discard_bytes / DISK_SECTOR_BYTES;

    b->config.max_write_zeroes_sectors = htole32(VBLK_MAX_RANGE_SECTORS);
    b->config.max_write_zeroes_seg = htole32(VBLK_MAX_RANGES);
    b->config.write_zeroes_may_unmap = disk->can_discard;
    vblk_offer(b, VIRTIO_BLK_F_WRITE_ZEROES);
    if (!disk->can_discard)
        return;
    b->config.max_discard_sectors = htole32(VBLK_MAX_RANGE_SECTORS);
    b->config.max_discard_seg = htole32(VBLK_MAX_RANGES);
    b->config.discard_sector_alignment = htole32(align ? align : 1);
    vblk_offer(b, VIRTIO_BLK_F_DISCARD);
}

static void vblk_init_config(struct vblk *b, const struct disk *disk)
{
    struct virtio_dev *dev = &b->dev;

    b->config.capacity = htole64(disk->size_bytes / DISK_SECTOR_BYTES);
    b->config.seg_max = htole32(VBLK_MAX_SEGS);
    b->config.blk_size = htole32(DISK_SECTOR_BYTES);
    b->config.num_queues = htole16(dev->num_queues);
    dev->config_len = sizeof(b->config);
    vblk_offer(b, VIRTIO_BLK_F_SEG_MAX);
    vblk_offer(b, VIRTIO_BLK_F_BLK_SIZE);
    vblk_init_topology(b, disk);
    /* This and discards are hints of the storage that a machine was saved with:
     * nothing breaks where another has them not. */
    dev->loadable = 1ull << VIRTIO_BLK_F_TOPOLOGY;
    if (dev->num_queues > 1)
        vblk_offer(b, VIRTIO_BLK_F_MQ);
    if (disk->read_only) {
        vblk_offer(b, VIRTIO_BLK_F_RO);
        return;
    }
    if (!b->unsafe_cache)
        vblk_offer(b, VIRTIO_BLK_F_FLUSH);
    vblk_init_ranges(b, disk);
    dev->loadable |= 1ull << VIRTIO_BLK_F_DISCARD;
}

static uint16_t vblk_num_queues(const struct vblk_args *args)
{
    if (args->num_queues == 0)
        return 1;
    return (uint16_t)min_u64(args->num_queues, VBLK_MAX_QUEUES);
}

int vblk_new(const struct vdev_env *env, struct disk *disk,
             const struct vblk_args *args, struct virtio_dev **out_dev)
{
    struct vblk *b = calloc(1, sizeof(*b));
    uint16_t num_queues = vblk_num_queues(args);

    if (!b)
        return -ENOMEM;
    b->num_flights = num_queues * VBLK_QUEUE_SIZE;
    if (vblk_flights_init(b) || vblk_backing_new(disk, &b->backing)) {
        vblk_flights_fini(b);
        free(b);
        return -ENOMEM;
    }
    (void)snprintf(b->name, sizeof(b->name), "blk/%s", args->id);
    memcpy(b->id, args->id, strnlen(args->id, sizeof(b->id)));
    b->unsafe_cache = args->unsafe_cache;
    b->limits.capacity_bytes = disk->size_bytes;
    b->limits.read_only = disk->read_only;
    b->limit_timer.arg = b;
    rate_limit_set(&b->limit, &args->limit, util_now_ns());
    virtio_dev_init(&b->dev, &vblk_ops, env, b->name, VIRTIO_ID_BLOCK);
    b->dev.num_queues = num_queues;
    for (uint16_t q = 0; q < num_queues; q++)
        b->dev.queue_max[q] = VBLK_QUEUE_SIZE;
    vblk_init_config(b, disk);
    *out_dev = &b->dev;
    return 0;
}
