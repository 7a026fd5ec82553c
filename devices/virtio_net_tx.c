/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of the guest: parsed, then sent straight from its memory. thread: io
 *
 * While frames are on their way the driver is asked for no kicks: what it adds
 * meanwhile is found when they come back. spec: virtio-1.2 5.1.6.2
 */
#include "devices/virtio_net_int.h"

#include <assert.h>
#include <string.h>

/* The only place where a transmit chain goes back. */
static void vnet_tx_complete(struct vnet_pair *p, uint16_t head)
{
    vq_push(vnet_txq(p), head, 0);
    vnet_signal_later(p);
}

/* All of a batch are back. */
static void vnet_tx_resume(struct vnet_pair *p)
{
    if (p->v->dev.resting)
        vnet_rest_step(p->v);
    else
        vnet_tx_run(p);
}

static void vnet_on_sent(struct net_frame *f, int32_t result)
{
    struct vnet_write *w = f->arg;
    struct vnet_pair *p = w->pair;
    struct vnet *v = p->v;

    w->next_free = p->tx.free_writes;
    p->tx.free_writes = w;
    p->tx.in_flight--;
    if (!v->active) {
        vnet_frame_is_back(v);
        return;
    }
    if (result == -ECANCELED) { /* by a rest: it is still to be sent */
        vnet_keep(&p->tx.kept, p->tx.num_returned++, w->head);
        if (p->tx.in_flight == 0)
            vnet_tx_resume(p);
        return;
    }
    if (result == 0) {
        v->stats.tx_frames++;
        v->stats.tx_bytes += f->bytes;
    } else {
        v->stats.tx_dropped++;
        log_limited(v->dev.env.log, &v->log_limit, LOG_DEBUG,
                    "network %s: a frame of the guest was lost (error %d)",
                    v->dev.name, -result);
    }
    vnet_tx_complete(p, w->head);
    if (p->tx.in_flight == 0)
        vnet_tx_resume(p);
}

static void vnet_tx_submit(struct vnet_pair *p,
                           const struct virtio_net_hdr_v1 *hdr, uint32_t bytes)
{
    struct vnet_write *w = p->tx.free_writes;
    struct vnet *v = p->v;
    int n;

    if (w)
        p->tx.free_writes = w->next_free;
    else
        w = &p->tx.writes[p->tx.writes_made++];
    p->tx.in_flight++;
    w->pair = p;
    w->head = v->chain.head;
    w->frame.hdr = *hdr;
    w->frame.iov = w->iov;
    n = vnet_mmds_slice(v, w, bytes);
    assert(n > 0); /* the parser measured this chain */
    w->frame.iovcnt = (uint32_t)n;
    w->frame.bytes = bytes;
    w->frame.done = vnet_on_sent;
    w->frame.arg = w;
    v->back->ops->tx(v->back, p->index, &w->frame);
}

static void vnet_tx_later(struct ev_timer *t)
{
    vnet_tx_run(t->arg);
}

static int vnet_tx_wait(struct vnet_pair *p, uint64_t deadline_ns)
{
    return evloop_timer_arm(p->v->dev.env.loop, &p->tx.later, deadline_ns,
                            vnet_tx_later, p);
}

/*
 * The chain in v->chain. 1: it is dealt with; 0: it went back into the ring
 * and the limiter's timer runs; or -errno. `paid`: the limiter let it pass
 * already.
 */
static int vnet_tx_one(struct vnet_pair *p, bool paid)
{
    struct vnet *v = p->v;
    struct virtio_net_hdr_v1 hdr;
    uint32_t bytes = 0;
    uint64_t when;
    int rc = vnet_parse_tx(&v->chain, v->dev.features, &hdr, &bytes);

    if (rc) {
        v->stats.tx_bad++;
        log_limited(v->dev.env.log, &v->log_limit, LOG_WARN,
                    "network %s: the guest sent a frame that makes no sense",
                    v->dev.name);
        vnet_tx_complete(p, v->chain.head);
        return 1;
    }
    if (vnet_mmds_take(v, &hdr, bytes)) {
        vnet_tx_complete(p, v->chain.head);
        return 1;
    }
    if (!vnet_link_is_up(v)) {
        v->stats.tx_dropped++;
        vnet_tx_complete(p, v->chain.head);
        return 1;
    }
    when = paid ? 0 : rate_limit_take(&v->tx_limit, bytes, util_now_ns());
    if (when) {
        counter_add(&v->stats.tx_throttled, 1);
        vq_unpop(vnet_txq(p));
        rc = vnet_tx_wait(p, when);
        return rc < 0 ? rc : 0;
    }
    vnet_tx_submit(p, &hdr, bytes);
    return 1;
}

/* Kept chains come first, then the ring's. As vq_pop(). */
static int vnet_tx_pop(struct vnet_pair *p, bool *out_kept)
{
    uint16_t head = 0;

    *out_kept = vnet_take_kept(&p->tx.kept, &head);
    if (*out_kept)
        return vq_pop_again(vnet_txq(p), head, &p->v->chain);
    return vq_pop(vnet_txq(p), &p->v->chain);
}

/* Takes what the free slots allow. 1: there may be more; 0: all; -errno. */
static int vnet_tx_fill(struct vnet_pair *p, uint32_t *budget)
{
    bool kept = false;
    int rc = 1;

    while (p->tx.in_flight<VNET_MAX_WRITES && * budget> 0) {
        rc = vnet_tx_pop(p, &kept);
        if (rc <= 0)
            return rc;
        (*budget)--;
        rc = vnet_tx_one(p, kept);
        if (rc <= 0)
            return rc;
    }
    return 1;
}

void vnet_tx_run(struct vnet_pair *p)
{
    struct virtq *vq = vnet_txq(p);
    struct net_back *back = p->v->back;
    uint32_t budget = vq->size;
    int rc;

    if (!p->running || p->tx.in_flight > 0 || p->tx.later.heap_index_ != 0 ||
        p->v->dev.resting)
        return; /* goes on when these are over */
    if (budget == 0)
        return; /* the driver has not set this queue up */
    p->tx.num_returned = 0;
    do {
        vq_disable_kicks(vq);
        rc = vnet_tx_fill(p, &budget);
    } while (rc == 0 && p->tx.in_flight == 0 && p->tx.later.heap_index_ == 0 &&
             vq_enable_kicks(vq));
    if (p->tx.in_flight > 0)
        back->ops->tx_flush(back, p->index);
    else if (rc > 0) /* only frames that needed nothing of the back end */
        rc = vnet_tx_wait(p, 0);
    if (rc < 0)
        vnet_break(p->v);
}

void vnet_tx_init(struct vnet_pair *p)
{
    assert(p->tx.in_flight == 0);
    p->tx.free_writes = NULL;
    p->tx.writes_made = 0;
    p->tx.kept.next = 0;
    p->tx.kept.num = 0;
}

void vnet_tx_stop(struct vnet_pair *p)
{
    evloop_timer_cancel(p->v->dev.env.loop, &p->tx.later);
}
