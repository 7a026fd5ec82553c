/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio network device: features, configuration, life.
 * spec: virtio-1.2 5.1. thread: io, config_read on vCPUs'
 */
#include "devices/virtio_net.h"

#include "devices/virtio_net_int.h"

#include <assert.h>
#include <linux/virtio_ids.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool vnet_feature(const struct vnet *v, unsigned bit)
{
    return v->dev.features & VNET_BIT(bit);
}

/* --- for the other files ------------------------------------------------- */

bool vnet_link_is_up(const struct vnet *v)
{
    return atomic_load_explicit(&v->status, memory_order_relaxed) &
           VIRTIO_NET_S_LINK_UP;
}

void vnet_signal_now(struct vnet_pair *p)
{
    evloop_later_cancel(p->v->dev.env.loop, &p->signal);
    virtio_signal(&p->v->dev, (uint16_t)(2 * p->index));
    virtio_signal(&p->v->dev, (uint16_t)(2 * p->index + 1));
}

static void vnet_on_signal(struct ev_later *l)
{
    vnet_signal_now(l->arg);
}

void vnet_signal_later(struct vnet_pair *p)
{
    evloop_later(p->v->dev.env.loop, &p->signal, vnet_on_signal, p);
}

/* No pair does anything any more. */
static void vnet_stop(struct vnet *v)
{
    vnet_ctrl_stop(v);
    vnet_mmds_stop(v);
    for (uint16_t i = 0; i < v->back->max_pairs; i++) {
        v->pairs[i]->running = false;
        evloop_later_cancel(v->dev.env.loop, &v->pairs[i]->signal);
        vnet_rx_stop(v->pairs[i]);
        vnet_tx_stop(v->pairs[i]);
    }
}

void vnet_break(struct vnet *v)
{
    vnet_stop(v);
    virtio_needs_reset(&v->dev);
}

uint32_t vnet_in_flight(const struct vnet *v)
{
    uint32_t n = 0;

    for (uint16_t i = 0; i < v->back->max_pairs; i++)
        n += v->pairs[i]->rx.in_flight + v->pairs[i]->tx.in_flight;
    return n;
}

/* Chains that the rings no longer know are forgotten. */
static void vnet_forget(struct vnet *v)
{
    for (uint16_t i = 0; i < v->back->max_pairs; i++) {
        vnet_rx_init(v->pairs[i]);
        vnet_tx_init(v->pairs[i]);
    }
}

void vnet_frame_is_back(struct vnet *v)
{
    if (!v->resetting || vnet_in_flight(v) > 0)
        return;
    v->resetting = false;
    vnet_forget(v);
    virtio_reset_done(&v->dev);
}

int vnet_set_pairs(struct vnet *v, uint16_t n)
{
    int rc = 0;

    if (n == v->num_pairs)
        return 0;
    rc = v->back->ops->set_pairs(v->back, n);
    if (rc)
        return rc;
    v->num_pairs = n;
    for (uint16_t i = 0; i < v->back->max_pairs; i++)
        v->pairs[i]->running = i < n;
    for (uint16_t i = 0; i < n; i++) {
        vnet_rx_run(v->pairs[i]);
        vnet_tx_run(v->pairs[i]);
    }
    return 0;
}

int vnet_set_offloads(struct vnet *v, uint32_t offloads)
{
    int rc = v->back->ops->set_offloads(v->back, offloads);

    /* Frames on their way are checked against what is in force by then. */
    if (rc == 0)
        v->offloads = offloads;
    return rc;
}

/* --- what the back end tells --------------------------------------------- */

static void vnet_on_readable(void *arg, uint16_t pair)
{
    struct vnet *v = arg;

    vnet_rx_run(v->pairs[pair]);
}

static void vnet_on_link_down(void *arg, const char *why)
{
    struct vnet *v = arg;

    if (!vnet_link_is_up(v))
        return;
    (void)atomic_fetch_and_explicit(&v->status, (uint16_t)~VIRTIO_NET_S_LINK_UP,
                                    memory_order_release);
    log_msg(v->dev.env.log, LOG_WARN,
            "network %s: link down: %s; the guest goes on without it",
            v->dev.name, why);
    if (v->active)
        virtio_config_changed(&v->dev);
}

static const struct net_events vnet_events = {
    .readable = vnet_on_readable,
    .link_down = vnet_on_link_down,
};

/* --- the device ---------------------------------------------------------- */

/* thread: vcpu */
static void vnet_config_read(struct virtio_dev *dev, uint32_t off, void *data,
                             uint32_t len)
{
    const struct vnet *v = vnet_of(dev);
    struct virtio_net_config c = v->config;

    c.status = htole16(atomic_load_explicit(&v->status, memory_order_acquire));
    memcpy(data, (const char *)&c + off, len);
}

static int vnet_activate(struct virtio_dev *dev)
{
    struct vnet *v = vnet_of(dev);
    int rc;

    if (vnet_features_close(dev->features) != dev->features)
        return -EINVAL;
    v->ctrl_queue = 0;
    /* Without MQ the driver knows of one pair. spec: virtio-1.2 5.1.2 */
    if (vnet_feature(v, VIRTIO_NET_F_CTRL_VQ))
        v->ctrl_queue = vnet_feature(v, VIRTIO_NET_F_MQ)
                            ? (uint16_t)(2 * v->back->max_pairs)
                            : 2;
    v->active = true;
    rc = vnet_set_offloads(v, vnet_offloads_of(dev->features));
    if (rc == 0)
        rc = vnet_set_pairs(v, 1);
    if (rc)
        log_msg(dev->env.log, LOG_ERROR,
                "network %s: cannot be set up as the guest asks (error %d)",
                dev->name, -rc);
    return rc;
}

static int vnet_reset(struct virtio_dev *dev)
{
    struct vnet *v = vnet_of(dev);

    v->active = false;
    v->loaded = false;
    v->num_pairs = 0;
    (void)atomic_fetch_and_explicit(
        &v->status, (uint16_t)~VIRTIO_NET_S_ANNOUNCE, memory_order_release);
    vnet_stop(v);
    vnet_mmds_reset(v);
    v->back->ops->cancel(v->back);
    if (vnet_set_offloads(v, 0))
        v->offloads = 0; /* frames that come with some are dropped then */
    if (vnet_in_flight(v) > 0) {
        v->resetting = true;
        return -EINPROGRESS;
    }
    vnet_forget(v);
    return 0;
}

static void vnet_queue_kick(struct virtio_dev *dev, uint16_t q)
{
    struct vnet *v = vnet_of(dev);

    if (v->ctrl_queue != 0 && q == v->ctrl_queue)
        vnet_ctrl_run(v);
    else if (q / 2 >= v->num_pairs)
        return; /* looked at once the pair is in use */
    else if (q % 2 == 0)
        vnet_rx_kick(v->pairs[q / 2]);
    else
        vnet_tx_run(v->pairs[q / 2]);
}

static void vnet_free_parts(struct vnet *v)
{
    vnet_mmds_free(v);
    for (uint16_t i = 0; i < NET_MAX_PAIRS; i++)
        free(v->pairs[i]);
    free(v);
}

static void vnet_free(struct virtio_dev *dev)
{
    struct vnet *v = vnet_of(dev);

    assert(vnet_in_flight(v) == 0);
    v->back->ops->free(v->back);
    vnet_free_parts(v);
}

static const struct virtio_ops vnet_ops = {
    .config_read = vnet_config_read,
    .activate = vnet_activate,
    .reset = vnet_reset,
    .queue_kick = vnet_queue_kick,
    .free = vnet_free,
    .rest = vnet_rest,
    .wake = vnet_wake,
    .save = vnet_save,
    .load = vnet_load,
    .state_version = 1,
};

/* --- making one ---------------------------------------------------------- */

static uint64_t vnet_offered(const struct net_back *back, uint32_t mtu)
{
    uint64_t f = VNET_BIT(VIRTIO_NET_F_MAC) | VNET_BIT(VIRTIO_NET_F_STATUS) |
                 VNET_BIT(VIRTIO_NET_F_MRG_RXBUF) |
                 VNET_BIT(VIRTIO_NET_F_CTRL_VQ) |
                 VNET_BIT(VIRTIO_NET_F_GUEST_ANNOUNCE);

    if (mtu)
        f |= VNET_BIT(VIRTIO_NET_F_MTU);
    if (back->max_pairs > 1)
        f |= VNET_BIT(VIRTIO_NET_F_MQ);
    if (back->vnet_hdr)
        f |= VNET_BIT(VIRTIO_NET_F_CSUM) | VNET_BIT(VIRTIO_NET_F_HOST_TSO4) |
             VNET_BIT(VIRTIO_NET_F_HOST_TSO6) |
             VNET_BIT(VIRTIO_NET_F_HOST_ECN) |
             VNET_BIT(VIRTIO_NET_F_GUEST_CSUM) |
             VNET_BIT(VIRTIO_NET_F_GUEST_TSO4) |
             VNET_BIT(VIRTIO_NET_F_GUEST_TSO6) |
             VNET_BIT(VIRTIO_NET_F_GUEST_ECN) |
             VNET_BIT(VIRTIO_NET_F_CTRL_GUEST_OFFLOADS);
    return f;
}

static void vnet_init_config(struct vnet *v, const struct vnet_args *args)
{
    struct virtio_dev *dev = &v->dev;
    uint16_t pairs = v->back->max_pairs;
    uint32_t mtu = args->mtu ? args->mtu : v->back->mtu;

    memcpy(v->config.mac, args->mac, VNET_MAC_BYTES);
    v->config.max_virtqueue_pairs = htole16(pairs);
    v->config.mtu = htole16((uint16_t)min_u64(mtu, UINT16_MAX));
    v->status = VIRTIO_NET_S_LINK_UP;
    dev->config_len = offsetof(struct virtio_net_config, speed);
    dev->offered =
        vnet_features_close(vnet_offered(v->back, mtu) & ~args->without);
    dev->num_queues = (uint16_t)(2 * pairs + 1);
    for (uint16_t q = 0; q < dev->num_queues; q++)
        dev->queue_max[q] = VNET_QUEUE_SIZE;
    if (pairs == 1)
        dev->queue_max[2] = VNET_CTRL_SIZE;
}

static int vnet_new_pairs(struct vnet *v)
{
    for (uint16_t i = 0; i < v->back->max_pairs; i++) {
        struct vnet_pair *p = calloc(1, sizeof(*p));

        if (!p)
            return -ENOMEM;
        p->v = v;
        p->index = i;
        v->pairs[i] = p;
    }
    return 0;
}

int vnet_new(const struct vdev_env *env, struct net_back *back,
             const struct vnet_args *args, struct virtio_dev **out_dev)
{
    struct vnet *v = calloc(1, sizeof(*v));
    uint64_t now = util_now_ns();
    int rc;

    assert(back->max_pairs >= 1 && back->max_pairs <= NET_MAX_PAIRS);
    if (!v)
        return -ENOMEM;
    v->back = back;
    (void)snprintf(v->name, sizeof(v->name), "net/%s", args->id);
    virtio_dev_init(&v->dev, &vnet_ops, env, v->name, VIRTIO_ID_NET);
    vnet_init_config(v, args);
    rate_limit_set(&v->rx_limit, &args->rx, now);
    rate_limit_set(&v->tx_limit, &args->tx, now);
    rc = vnet_new_pairs(v);
    if (rc == 0)
        rc = vnet_mmds_new(v, args->mmds);
    if (rc == 0)
        rc = back->ops->start(back, env->loop, &vnet_events, v);
    if (rc) {
        vnet_free_parts(v);
        return rc;
    }
    vnet_forget(v);
    *out_dev = &v->dev;
    return 0;
}

void vnet_set_rate_limits(struct virtio_dev *dev,
                          const struct rate_limit_config *rx,
                          const struct rate_limit_config *tx)
{
    struct vnet *v = vnet_of(dev);
    uint64_t now = util_now_ns();

    if (rx)
        rate_limit_set(&v->rx_limit, rx, now);
    if (tx)
        rate_limit_set(&v->tx_limit, tx, now);
    /* Who waits for the old limits need not any more. */
    for (uint16_t i = 0; i < v->num_pairs; i++) {
        vnet_rx_stop(v->pairs[i]);
        vnet_tx_stop(v->pairs[i]);
        vnet_rx_run(v->pairs[i]);
        vnet_tx_run(v->pairs[i]);
    }
}

void vnet_get_stats(struct virtio_dev *dev, struct vnet_stats *out)
{
    *out = vnet_of(dev)->stats;
}
