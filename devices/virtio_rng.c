/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_rng.h"

#include <linux/virtio_ids.h>
#include <stdlib.h>
#include <sys/random.h>

/* virtio entropy device. spec: virtio-1.2 5.4. thread: io */

#define VRNG_QUEUE_SIZE    64u
#define VRNG_MAX_REQ_BYTES 65536u  /* a bigger buffer is filled in part */
#define VRNG_TURN_BYTES    262144u /* then other devices get their turn */
#define VRNG_RETRY_NS      100000000u

struct vrng {
    struct virtio_dev dev; /* first */
    /* io thread */
    struct ev_timer again;
    struct vrng_stats stats;
    struct vq_chain chain; /* scratch of vrng_handle_queue() */
};

static struct vrng *vrng_of(struct virtio_dev *dev)
{
    return container_of(dev, struct vrng, dev);
}

/*
 * Fills the front of the writable part. Returns the bytes filled: fewer than
 * asked for when the host's generator is not seeded yet.
 * syscalls: getrandom
 */
static uint32_t vrng_fill(const struct vq_chain *c)
{
    size_t want = min_u64(c->writable_bytes, VRNG_MAX_REQ_BYTES);
    const struct iovec *v = c->iov + c->num_readable;
    size_t done = 0;
    size_t off = 0;

    while (done < want) {
        size_t len = min_u64(v->iov_len - off, want - done);
        ssize_t n = getrandom((char *)v->iov_base + off, len, GRND_NONBLOCK);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        done += (size_t)n;
        off += (size_t)n;
        if (off == v->iov_len) {
            v++;
            off = 0;
        }
    }
    return (uint32_t)done;
}

static void vrng_handle_queue(struct vrng *r);

static void vrng_again(struct ev_timer *t)
{
    vrng_handle_queue(t->arg);
}

static void vrng_handle_queue(struct vrng *r)
{
    struct virtq *vq = &r->dev.vq[0];
    uint32_t heads = vq->size;
    uint32_t bytes = VRNG_TURN_BYTES;
    bool dry = false;
    int rc = 0;

    do {
        vq_disable_kicks(vq);
        while (heads > 0 && bytes > 0 && (rc = vq_pop(vq, &r->chain)) > 0) {
            uint32_t n = vrng_fill(&r->chain);

            /* An answer needs at least one byte. spec: virtio-1.2 5.4.6.1 */
            dry = n == 0 && r->chain.writable_bytes > 0;
            if (dry) {
                counter_add(&r->stats.dry, 1);
                vq_unpop(vq);
                break;
            }
            counter_add(&r->stats.requests, 1);
            counter_add(&r->stats.bytes, n);
            vq_push(vq, r->chain.head, n);
            heads--;
            bytes -= (uint32_t)min_u64(bytes, n);
        }
    } while (rc == 0 && heads > 0 && bytes > 0 && vq_enable_kicks(vq));
    virtio_signal(&r->dev, 0);
    if (rc >= 0 && (dry || heads == 0 || bytes == 0))
        rc = evloop_timer_arm(r->dev.env.loop, &r->again,
                              dry ? util_now_ns() + VRNG_RETRY_NS : 0,
                              vrng_again, r);
    if (rc < 0)
        virtio_needs_reset(&r->dev);
}

/* --- the device ---------------------------------------------------------- */

static void vrng_config_read(struct virtio_dev *dev, uint32_t off, void *data,
                             uint32_t len)
{
    /* There is no configuration space: the transport never calls this. */
    (void)dev;
    (void)off;
    (void)data;
    (void)len;
}

static int vrng_activate(struct virtio_dev *dev)
{
    (void)dev;
    return 0;
}

static int vrng_reset(struct virtio_dev *dev)
{
    evloop_timer_cancel(dev->env.loop, &vrng_of(dev)->again);
    return 0;
}

static void vrng_queue_kick(struct virtio_dev *dev, uint16_t q)
{
    (void)q;
    vrng_handle_queue(vrng_of(dev));
}

/* A request that waits for the host's generator is in its queue. */
static int vrng_rest(struct virtio_dev *dev)
{
    return vrng_reset(dev);
}

static void vrng_wake(struct virtio_dev *dev)
{
    (void)dev; /* the kick that follows does it */
}

static void vrng_free(struct virtio_dev *dev)
{
    free(vrng_of(dev));
}

static const struct virtio_ops vrng_ops = {
    .config_read = vrng_config_read,
    .activate = vrng_activate,
    .reset = vrng_reset,
    .queue_kick = vrng_queue_kick,
    .free = vrng_free,
    .rest = vrng_rest,
    .wake = vrng_wake,
};

void vrng_get_stats(const struct virtio_dev *dev, struct vrng_stats *out)
{
    *out = ((const struct vrng *)dev)->stats; /* dev is its first member */
}

int vrng_new(const struct vdev_env *env, struct virtio_dev **out_dev)
{
    struct vrng *r = calloc(1, sizeof(*r));

    if (!r)
        return -ENOMEM;
    virtio_dev_init(&r->dev, &vrng_ops, env, "rng", VIRTIO_ID_RNG);
    r->dev.num_queues = 1;
    r->dev.queue_max[0] = VRNG_QUEUE_SIZE;
    *out_dev = &r->dev;
    return 0;
}
