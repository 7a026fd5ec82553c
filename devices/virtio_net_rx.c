/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames for the guest, received straight into its memory. thread: io
 *
 * Nobody knows a frame's size before it is there, so each read gets room for
 * the largest one. Reads are begun in batches, each with chains of its own;
 * what a frame does not fill stays in the stock for the next batch, in the
 * ring's order. A batch grows while every read of it brings a frame. Without
 * room, nothing is read and nothing watched until the guest adds buffers.
 * spec: virtio-1.2 5.1.6.3, 5.1.6.4
 */
#include "devices/virtio_net_int.h"

#include <assert.h>
#include <string.h>

/* A frame with two VLAN tags beside its MTU. */
#define VNET_FRAME_EXTRA 22u
#define VNET_DEFAULT_MTU 1500u
/* How long a guest gets to add buffers when it has some, but too few. */
#define VNET_HUNGRY_NS 20000000u

/* --- lists --------------------------------------------------------------- */

static void vnet_list_add(struct vnet_buf_list *l, struct vnet_buf *b)
{
    b->next = NULL;
    if (l->last)
        l->last->next = b;
    else
        l->first = b;
    l->last = b;
}

static struct vnet_buf *vnet_list_take(struct vnet_buf_list *l)
{
    struct vnet_buf *b = l->first;

    if (b) {
        l->first = b->next;
        if (!l->first)
            l->last = NULL;
    }
    return b;
}

/* Moves all of `from` behind `to`. */
static void vnet_list_move(struct vnet_buf_list *to, struct vnet_buf_list *from)
{
    if (!from->first)
        return;
    if (to->last)
        to->last->next = from->first;
    else
        to->first = from->first;
    to->last = from->last;
    *from = (struct vnet_buf_list){NULL, NULL};
}

/* Memory that was never needed is never touched. */
static struct vnet_buf *vnet_buf_new(struct vnet_rx *rx)
{
    struct vnet_buf *b = rx->free_bufs;

    if (b) {
        rx->free_bufs = b->next;
        return b;
    }
    /* The ring has no more heads than we have these. */
    assert(rx->bufs_made < VNET_QUEUE_SIZE);
    return &rx->bufs[rx->bufs_made++];
}

static void vnet_buf_free(struct vnet_rx *rx, struct vnet_buf *b)
{
    b->next = rx->free_bufs;
    rx->free_bufs = b;
}

/* --- buffers of the guest ------------------------------------------------ */

static bool vnet_mergeable(const struct vnet_pair *p)
{
    return p->v->dev.features & VNET_BIT(VIRTIO_NET_F_MRG_RXBUF);
}

static void vnet_rx_give_up(struct vnet_pair *p, uint16_t head)
{
    struct vnet *v = p->v;

    v->stats.rx_bad_buffers++;
    log_limited(v->dev.env.log, &v->log_limit, LOG_WARN,
                "network %s: the guest gave a receive buffer that holds "
                "nothing",
                v->dev.name);
    vq_push(vnet_rxq(p), head, 0);
    vnet_signal_later(p);
}

/* Kept chains come first, then the ring's. As vq_pop(). */
static int vnet_rx_next(struct vnet_pair *p)
{
    uint16_t head = 0;

    if (vnet_take_kept(&p->rx.kept, &head))
        return vq_pop_again(vnet_rxq(p), head, &p->v->chain);
    return vq_pop(vnet_rxq(p), &p->v->chain);
}

/* The next chain of the ring that can be used: 1, 0 none, or -EPROTO. */
static int vnet_rx_pop(struct vnet_pair *p, struct vnet_buf **out_buf)
{
    const struct vq_chain *c = &p->v->chain;
    struct vnet_buf *b;
    uint16_t tries = vnet_rxq(p)->size;
    int rc;

    /* Bad ones are few, or the loop of this turn ends without a buffer. */
    while (tries-- > 0 && (rc = vnet_rx_next(p)) != 0) {
        if (rc < 0)
            return rc;
        if (c->num_readable > 0 || c->writable_bytes < NET_HDR_BYTES) {
            vnet_rx_give_up(p, c->head);
            continue;
        }
        b = vnet_buf_new(&p->rx);
        b->head = c->head;
        b->bytes = 0;
        b->num_segs = 0;
        while (b->num_segs < c->num_writable && b->num_segs < VNET_BUF_SEGS &&
               b->bytes < NET_HDR_BYTES + NET_MAX_FRAME) {
            struct iovec *s = &b->segs[b->num_segs];

            *s = c->iov[b->num_segs++];
            if (s->iov_len > NET_HDR_BYTES + NET_MAX_FRAME)
                s->iov_len = NET_HDR_BYTES + NET_MAX_FRAME;
            b->bytes += (uint32_t)s->iov_len;
        }
        if (b->bytes < NET_HDR_BYTES) { /* in more pieces than we take */
            vnet_buf_free(&p->rx, b);
            vnet_rx_give_up(p, c->head);
            continue;
        }
        *out_buf = b;
        return 1;
    }
    return 0;
}

/* --- rooms for frames ---------------------------------------------------- */

/* The room that any frame fits in; with its header. */
static uint32_t vnet_rx_need(const struct vnet *v)
{
    uint32_t mtu = le16toh(v->config.mtu);

    if (v->offloads & (NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6))
        return NET_HDR_BYTES + NET_MAX_FRAME;
    if (mtu < VNET_DEFAULT_MTU)
        mtu = VNET_DEFAULT_MTU; /* others on the link may not keep to it */
    return (uint32_t)min_u64(NET_HDR_BYTES + mtu + VNET_FRAME_EXTRA,
                             NET_HDR_BYTES + NET_MAX_FRAME);
}

/* The chain's bytes behind the header's place, as far as iovecs last. */
static void vnet_read_add(struct vnet_read *r, const struct vnet_buf *b,
                          uint32_t skip)
{
    struct net_frame *f = &r->frame;

    for (uint16_t i = 0; i < b->num_segs && f->iovcnt < VNET_READ_SEGS; i++) {
        struct iovec s = b->segs[i];

        if (skip >= s.iov_len) {
            skip -= (uint32_t)s.iov_len;
            continue;
        }
        s.iov_base = (char *)s.iov_base + skip;
        s.iov_len -= skip;
        skip = 0;
        f->iov[++f->iovcnt] = s;
        f->bytes += (uint32_t)s.iov_len;
    }
}

void vnet_rx_put_back(struct vnet_pair *p, struct vnet_read *r)
{
    vnet_list_move(&r->bufs, &p->rx.stock);
    p->rx.stock = r->bufs;
}

int vnet_rx_reserve(struct vnet_pair *p, struct vnet_read *r, uint32_t need,
                    bool anything)
{
    bool mergeable = vnet_mergeable(p);
    struct net_frame *f = &r->frame;
    int rc;

    r->bufs = (struct vnet_buf_list){NULL, NULL};
    f->iov = r->iov;
    f->iovcnt = 0;
    f->bytes = 0;
    do {
        struct vnet_buf *b = vnet_list_take(&p->rx.stock);

        if (!b) {
            rc = vnet_rx_pop(p, &b);
            if (rc < 0)
                return rc;
            if (rc == 0)
                break;
        }
        vnet_read_add(r, b, r->bufs.first ? 0 : NET_HDR_BYTES);
        vnet_list_add(&r->bufs, b);
    } while (mergeable && f->bytes < need && f->iovcnt < VNET_READ_SEGS);
    if (r->bufs.first &&
        (!mergeable || f->bytes >= need || f->iovcnt == VNET_READ_SEGS)) {
        p->rx.meagre = false;
        return 1;
    }
    if (r->bufs.first && anything)
        return 1;
    vnet_rx_put_back(p, r);
    return 0;
}

/* --- frames -------------------------------------------------------------- */

/* The only place where a filled receive chain goes back. */
void vnet_rx_deliver(struct vnet_pair *p, struct vnet_read *r, uint32_t bytes)
{
    struct vq_used used[VNET_READ_SEGS];
    struct vnet_buf *first = r->bufs.first;
    uint32_t left = bytes + NET_HDR_BYTES;
    uint16_t n = 0;
    uint32_t done = 0;

    while (left > 0) {
        struct vnet_buf *b = vnet_list_take(&r->bufs);
        uint32_t here = (uint32_t)min_u64(left, b->bytes);

        used[n].head = b->head;
        used[n++].bytes = here;
        left -= here;
        vnet_buf_free(&p->rx, b);
    }
    r->frame.hdr.num_buffers = htole16(n);
    for (uint16_t i = 0; done < NET_HDR_BYTES; i++) {
        size_t take = min_u64(first->segs[i].iov_len, NET_HDR_BYTES - done);

        memcpy(first->segs[i].iov_base, (char *)&r->frame.hdr + done, take);
        done += (uint32_t)take;
    }
    vq_push_all(vnet_rxq(p), used, n);
    vnet_signal_later(p);
}

static void vnet_rx_account(struct vnet_pair *p, uint32_t bytes)
{
    struct vnet *v = p->v;

    v->stats.rx_frames++;
    v->stats.rx_bytes += bytes;
    if (p->rx.num_owed == 0 &&
        rate_limit_take(&v->rx_limit, bytes, util_now_ns()) == 0)
        return;
    p->rx.owed_bytes[p->rx.num_owed++] = bytes;
}

/* What a read has brought, if the guest may have it. */
static void vnet_rx_take(struct vnet_pair *p, struct vnet_read *r,
                         int32_t result)
{
    struct vnet *v = p->v;

    if (result == -EAGAIN) {
        p->rx.dry = true;
    } else if (result >= (int32_t)NET_MIN_FRAME &&
               vnet_check_rx(&r->frame.hdr, v->offloads)) {
        vnet_rx_deliver(p, r, (uint32_t)result);
        vnet_rx_account(p, (uint32_t)result);
        p->rx.filled++;
    } else if (result >= 0 || result == -EMSGSIZE) {
        v->stats.rx_dropped++;
        p->rx.filled++;
    }
    vnet_list_move(&p->rx.returned, &r->bufs);
}

static void vnet_rx_end_batch(struct vnet_pair *p, uint32_t begun)
{
    struct vnet_rx *rx = &p->rx;

    vnet_list_move(&rx->returned, &rx->stock);
    rx->stock = rx->returned;
    rx->returned = (struct vnet_buf_list){NULL, NULL};
    if (rx->filled == begun && begun == rx->batch && !rx->dry)
        rx->batch = (uint32_t)min_u64(2 * rx->batch, VNET_MAX_READS);
    else if (rx->dry)
        rx->batch = (uint32_t)min_u64(rx->filled + 1, VNET_MAX_READS);
}

static void vnet_on_received(struct net_frame *f, int32_t result)
{
    struct vnet_read *r = f->arg;
    struct vnet_pair *p = r->pair;
    struct vnet_rx *rx = &p->rx;
    struct vnet *v = p->v;

    rx->in_flight--;
    if (!v->active) {
        vnet_frame_is_back(v);
        return;
    }
    vnet_rx_take(p, r, result);
    if (rx->in_flight > 0)
        return;
    vnet_rx_end_batch(p, rx->begun);
    if (v->dev.resting) {
        vnet_rest_step(v);
        return;
    }
    vnet_mmds_rx_room(p);
    if (!p->running || !vnet_link_is_up(v))
        return;
    if (rx->dry)
        v->back->ops->rx_wait(v->back, p->index);
    else
        vnet_rx_run(p);
}

/* --- running ------------------------------------------------------------- */

static void vnet_rx_later(struct ev_timer *t);

static int vnet_rx_wait_until(struct vnet_pair *p, uint64_t deadline_ns)
{
    return evloop_timer_arm(p->v->dev.env.loop, &p->rx.later, deadline_ns,
                            vnet_rx_later, p);
}

/* 1: all delivered frames are paid for; 0: the timer runs; -errno. */
static int vnet_rx_pay(struct vnet_pair *p)
{
    struct vnet_rx *rx = &p->rx;
    uint32_t paid = 0;
    uint64_t when = 0;
    int rc = 1;

    while (paid < rx->num_owed && when == 0) {
        when = rate_limit_take(&p->v->rx_limit, rx->owed_bytes[paid],
                               util_now_ns());
        paid += when == 0;
    }
    rx->num_owed -= paid;
    memmove(rx->owed_bytes, rx->owed_bytes + paid,
            rx->num_owed * sizeof(rx->owed_bytes[0]));
    if (when) {
        counter_add(&p->v->stats.rx_throttled, 1);
        rx->batch = 1; /* so that little comes ahead of its payment */
        rc = vnet_rx_wait_until(p, when);
        return rc < 0 ? rc : 0;
    }
    return 1;
}

/* How many reads got their room; the first takes what is there if it must. */
static int vnet_rx_prepare(struct vnet_pair *p)
{
    uint32_t need = vnet_rx_need(p->v) - NET_HDR_BYTES;
    uint32_t n = 0;
    int rc;

    vq_disable_kicks(vnet_rxq(p));
    do {
        rc = vnet_rx_reserve(p, &p->rx.reads[n], need, p->rx.meagre && n == 0);
        n += rc > 0;
    } while (rc > 0 && n < p->rx.batch);
    return rc < 0 ? rc : (int)n;
}

static void vnet_rx_begin(struct vnet_pair *p, uint32_t n)
{
    struct net_back *back = p->v->back;

    p->rx.in_flight = n;
    p->rx.begun = n;
    p->rx.filled = 0;
    p->rx.dry = false;
    for (uint32_t i = 0; i < n; i++) {
        struct vnet_read *r = &p->rx.reads[i];

        r->pair = p;
        r->frame.arg = r;
        r->frame.done = vnet_on_received;
        back->ops->rx(back, p->index, &r->frame);
    }
}

/* No room: the guest's next kick goes on, or a timer. 0 or -errno. */
static int vnet_rx_starve(struct vnet_pair *p)
{
    p->rx.hungry = true;
    counter_add(&p->v->stats.rx_no_buffer, 1);
    if (vq_enable_kicks(vnet_rxq(p)))
        return vnet_rx_wait_until(p, 0); /* some came just now */
    if (p->rx.stock.first) /* too little: but it may be all it will give */
        return vnet_rx_wait_until(p, util_now_ns() + VNET_HUNGRY_NS);
    return 0;
}

void vnet_rx_run(struct vnet_pair *p)
{
    struct vnet_rx *rx = &p->rx;
    int rc;

    if (!p->running || rx->in_flight > 0 || rx->later.heap_index_ != 0 ||
        !vnet_link_is_up(p->v) || p->v->dev.resting)
        return;
    if (vnet_rxq(p)->stopped)
        return; /* its buffers, the stock's too, are the driver's again */
    rx->hungry = false;
    rc = vnet_rx_pay(p);
    if (rc > 0)
        rc = vnet_rx_prepare(p);
    else if (rc == 0)
        return;
    if (rc > 0) {
        vnet_rx_begin(p, (uint32_t)rc);
        return;
    }
    if (rc == 0)
        rc = vnet_rx_starve(p);
    if (rc < 0)
        vnet_break(p->v);
}

static void vnet_rx_later(struct ev_timer *t)
{
    struct vnet_pair *p = t->arg;

    /*
     * A deadline of 0 says that there are new buffers to look at first. A ring
     * that is too small for the largest frame waits once, not for each frame.
     */
    if (p->rx.hungry && t->deadline_ns != 0)
        p->rx.meagre = true;
    vnet_rx_run(p);
}

void vnet_rx_kick(struct vnet_pair *p)
{
    vnet_mmds_rx_room(p);
    if (!p->rx.hungry)
        return; /* found when they are needed */
    evloop_timer_cancel(p->v->dev.env.loop, &p->rx.later);
    vnet_rx_run(p);
}

void vnet_rx_init(struct vnet_pair *p)
{
    struct vnet_rx *rx = &p->rx;

    assert(rx->in_flight == 0);
    rx->free_bufs = NULL;
    rx->stock = (struct vnet_buf_list){NULL, NULL};
    rx->returned = (struct vnet_buf_list){NULL, NULL};
    rx->batch = 1;
    rx->hungry = false;
    rx->meagre = false;
    rx->bufs_made = 0;
    rx->kept.next = 0;
    rx->kept.num = 0;
}

void vnet_rx_keep(struct vnet_pair *p)
{
    struct vnet_buf *b;
    uint16_t at = 0;

    /* What is kept already was taken later. */
    while ((b = vnet_list_take(&p->rx.stock))) {
        vnet_keep(&p->rx.kept, at++, b->head);
        vnet_buf_free(&p->rx, b);
    }
}

void vnet_rx_stop(struct vnet_pair *p)
{
    evloop_timer_cancel(p->v->dev.env.loop, &p->rx.later);
}
