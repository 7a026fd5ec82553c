/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network device whose machine pauses, is saved and loaded. thread: io
 *
 * Frames that were not begun stay with the network or come back from it; what
 * was begun ends. Chains need not come back in the order in which they were
 * taken (a frame between two others may have been dropped), so a ring cannot
 * simply be wound back: their heads are kept, and looked at anew on the way to
 * their use. Those are the state, with what the guest has set and what it was
 * told. A stream's half frame is its process's alone.
 * spec: virtio-1.2 5.1
 */
#include "devices/virtio_net_int.h"

#include <assert.h>
#include <string.h>

/* --- chains that are kept ------------------------------------------------ */

void vnet_keep(struct vnet_kept *k, uint16_t at, uint16_t head)
{
    uint16_t live = (uint16_t)(k->num - k->next);

    /* A ring has no more chains outstanding than it has heads. */
    assert(live < VNET_QUEUE_SIZE && at <= live);
    memmove(k->heads, k->heads + k->next, live * sizeof(k->heads[0]));
    memmove(k->heads + at + 1, k->heads + at,
            (size_t)(live - at) * sizeof(k->heads[0]));
    k->heads[at] = head;
    k->next = 0;
    k->num = (uint16_t)(live + 1);
}

bool vnet_take_kept(struct vnet_kept *k, uint16_t *out_head)
{
    if (k->next == k->num)
        return false;
    *out_head = k->heads[k->next++];
    return true;
}

/* --- rest ---------------------------------------------------------------- */

/* Nothing is in flight. */
static void vnet_settle(struct vnet *v)
{
    for (uint16_t i = 0; i < v->back->max_pairs; i++) {
        vnet_rx_keep(v->pairs[i]);
        if (v->pairs[i]->signal.queued_)
            vnet_signal_now(v->pairs[i]);
    }
}

void vnet_rest_step(struct vnet *v)
{
    if (v->rest_begins || vnet_in_flight(v) > 0)
        return;
    vnet_settle(v);
    virtio_rested(&v->dev);
}

int vnet_rest(struct virtio_dev *dev)
{
    struct vnet *v = vnet_of(dev);
    uint64_t now = util_now_ns();

    vnet_ctrl_stop(v);
    vnet_mmds_stop(v);
    for (uint16_t i = 0; i < v->back->max_pairs; i++) {
        vnet_rx_stop(v->pairs[i]);
        vnet_tx_stop(v->pairs[i]);
    }
    rate_limit_settle(&v->rx_limit, now);
    rate_limit_settle(&v->tx_limit, now);
    v->rest_begins = true;
    v->back->ops->rest(v->back);
    v->rest_begins = false;
    if (vnet_in_flight(v) > 0)
        return -EINPROGRESS;
    vnet_settle(v);
    return 0;
}

/*
 * A machine that was loaded may be elsewhere, with another link: its guest
 * looks at that again, and tells its neighbours where it is.
 */
static void vnet_come_back(struct vnet *v)
{
    v->loaded = false;
    if (v->dev.features & VNET_BIT(VIRTIO_NET_F_GUEST_ANNOUNCE))
        (void)atomic_fetch_or_explicit(&v->status, VIRTIO_NET_S_ANNOUNCE,
                                       memory_order_release);
    virtio_config_changed(&v->dev);
}

void vnet_wake(struct virtio_dev *dev)
{
    struct vnet *v = vnet_of(dev);

    for (uint16_t i = 0; i < v->num_pairs; i++) {
        vnet_tx_run(v->pairs[i]);
        v->back->ops->tx_flush(v->back, i); /* what was sent in part */
        vnet_rx_run(v->pairs[i]);
    }
    vnet_mmds_wake(v);
    if (v->loaded)
        vnet_come_back(v);
}

/* --- saving -------------------------------------------------------------- */

/* A ring that is not in use any more has its chains back. */
static bool vnet_is_up(const struct virtq *vq)
{
    return vq->size != 0 && !vq->broken && !vq->stopped;
}

static void vnet_save_kept(const struct virtq *vq, const struct vnet_kept *k,
                           struct state_out *out)
{
    uint16_t n = vnet_is_up(vq) ? (uint16_t)(k->num - k->next) : 0;

    state_put_u16(out, n);
    for (uint16_t i = 0; i < n; i++)
        state_put_u16(out, k->heads[k->next + i]);
}

static void vnet_save_pair(struct vnet_pair *p, struct state_out *out)
{
    vnet_save_kept(vnet_rxq(p), &p->rx.kept, out);
    vnet_save_kept(vnet_txq(p), &p->tx.kept, out);
    state_put_u16(out, (uint16_t)p->rx.num_owed);
    for (uint32_t i = 0; i < p->rx.num_owed; i++)
        state_put_u32(out, p->rx.owed_bytes[i]);
}

void vnet_save(struct virtio_dev *dev, struct state_out *out)
{
    struct vnet *v = vnet_of(dev);

    state_put_bytes(out, v->config.mac, sizeof(v->config.mac));
    state_put_u16(out, le16toh(v->config.mtu));
    state_put_u8(out, (atomic_load(&v->status) & VIRTIO_NET_S_ANNOUNCE) != 0);
    state_put_u16(out, v->num_pairs);
    state_put_u32(out, v->offloads);
    rate_limit_save(&v->rx_limit, out);
    rate_limit_save(&v->tx_limit, out);
    for (uint16_t i = 0; i < v->back->max_pairs; i++)
        vnet_save_pair(v->pairs[i], out);
}

/* --- loading ------------------------------------------------------------- */

/* All chains that the device has of this ring, and no others. */
static int vnet_load_kept(const struct virtq *vq, struct vnet_kept *k,
                          struct state_in *in)
{
    uint16_t taken = (uint16_t)(vq->next_avail - vq->next_used);
    uint16_t n = state_get_u16(in);

    k->next = 0;
    k->num = 0;
    if (in->bad || n != (vnet_is_up(vq) ? taken : 0) || n > VNET_QUEUE_SIZE)
        return -EBADMSG;
    for (uint16_t i = 0; i < n; i++) {
        k->heads[i] = state_get_u16(in);
        if (k->heads[i] >= vq->size)
            return -EBADMSG;
    }
    k->num = n;
    return 0;
}

static int vnet_load_pair(struct vnet_pair *p, struct state_in *in)
{
    int rc = vnet_load_kept(vnet_rxq(p), &p->rx.kept, in);
    uint16_t n;

    if (rc == 0)
        rc = vnet_load_kept(vnet_txq(p), &p->tx.kept, in);
    n = state_get_u16(in);
    if (rc || in->bad || n > VNET_MAX_READS)
        return -EBADMSG;
    for (uint16_t i = 0; i < n; i++) {
        p->rx.owed_bytes[i] = state_get_u32(in);
        if (p->rx.owed_bytes[i] > NET_MAX_FRAME)
            return -EBADMSG;
    }
    p->rx.num_owed = n;
    return 0;
}

/* What the guest has set by its control queue. */
static int vnet_load_ctrl(struct vnet *v, struct state_in *in)
{
    uint16_t pairs = state_get_u16(in);
    uint32_t offloads = state_get_u32(in);
    bool mq = v->dev.features & VNET_BIT(VIRTIO_NET_F_MQ);
    const struct virtq *ctrl = &v->dev.vq[v->ctrl_queue];
    int rc;

    if (in->bad || pairs > (mq ? v->back->max_pairs : 1) ||
        (offloads & ~vnet_offloads_of(v->dev.features)))
        return -EBADMSG;
    if (v->ctrl_queue != 0 && vnet_is_up(ctrl) &&
        ctrl->next_avail != ctrl->next_used)
        return -EBADMSG; /* no request of it is ever left undone */
    rc = vnet_set_offloads(v, offloads);
    if (rc == 0 && pairs > 0) /* none: it was never set up */
        rc = vnet_set_pairs(v, pairs);
    return rc;
}

int vnet_load(struct virtio_dev *dev, struct state_in *in, struct errmsg *err)
{
    struct vnet *v = vnet_of(dev);
    uint64_t now = util_now_ns();
    bool announce;
    int rc;

    (void)err;
    state_get_bytes(in, v->config.mac, sizeof(v->config.mac));
    v->config.mtu = htole16(state_get_u16(in));
    announce = state_get_bool(in);
    if (announce && !(dev->features & VNET_BIT(VIRTIO_NET_F_GUEST_ANNOUNCE)))
        return -EBADMSG;
    rc = vnet_load_ctrl(v, in);
    if (rc == 0)
        rc = rate_limit_load(&v->rx_limit, in, now);
    if (rc == 0)
        rc = rate_limit_load(&v->tx_limit, in, now);
    for (uint16_t i = 0; i < v->back->max_pairs && rc == 0; i++)
        rc = vnet_load_pair(v->pairs[i], in);
    if (rc)
        return rc;
    if (announce)
        (void)atomic_fetch_or(&v->status, VIRTIO_NET_S_ANNOUNCE);
    v->loaded = true;
    return 0;
}
