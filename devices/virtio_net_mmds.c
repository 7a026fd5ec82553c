/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata service (mmds_net.h) on this device's link: its frames are taken
 * out of what the guest sends, and its answers put among what the guest
 * receives, on the first pair. thread: io
 *
 * The network must never see a frame for the service, whatever another vCPU
 * writes into it meanwhile. So the part that tells is copied, looked at, and
 * the copy is sent in front of the rest.
 */
#include "devices/virtio_net_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* The longest headers and all that the window lets the guest send at once. */
#define VMMDS_MAX_BYTES (14u + 60u + 60u + MMDS_REQUEST_MAX)
/* Frames for the guest in one turn of the loop. */
#define VMMDS_BUDGET      64u
#define VMMDS_IPTCP_BYTES 40u
#define VMMDS_DEFAULT_MTU 1500u
#define VMMDS_MIN_MTU     68u /* a smaller one says nothing */

struct vnet_mmds {
    struct mmds_net *net;
    uint32_t ip;
    bool hungry;           /* waits for buffers of the guest */
    struct ev_later soon;  /* answers, at the end of this turn */
    struct ev_timer later; /* the same after a time */
    struct vnet_read room;
    uint8_t first[MMDS_HEAD_BYTES]; /* of the frame that was looked at */
    uint8_t in[VMMDS_MAX_BYTES];
    uint8_t out[MMDS_MAX_FRAME];
};

int vnet_mmds_new(struct vnet *v, const struct mmds_service *service)
{
    uint32_t mtu = le16toh(v->config.mtu);
    struct vnet_mmds *m;
    uint32_t isn;
    int rc;

    if (!service)
        return 0;
    if (getrandom(&isn, sizeof(isn), 0) != sizeof(isn))
        return -EIO;
    m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    if (mtu < VMMDS_MIN_MTU || mtu > VMMDS_DEFAULT_MTU)
        mtu = VMMDS_DEFAULT_MTU;
    m->ip = service->ip;
    rc = mmds_net_new(service, isn, (uint16_t)(mtu - VMMDS_IPTCP_BYTES),
                      &m->net);
    if (rc) {
        free(m);
        return rc;
    }
    v->mmds = m;
    return 0;
}

void vnet_mmds_free(struct vnet *v)
{
    if (!v->mmds)
        return;
    mmds_net_free(v->mmds->net);
    free(v->mmds);
    v->mmds = NULL;
}

/* --- answers -------------------------------------------------------------- */

static void vmmds_pump(struct vnet *v);

static void vmmds_on_timer(struct ev_timer *t)
{
    vmmds_pump(t->arg);
}

static void vmmds_on_soon(struct ev_later *l)
{
    vmmds_pump(l->arg);
}

/* Into the room, or nowhere if it does not fit. */
static void vmmds_fill(struct vnet_pair *p, struct vnet_read *r,
                       const uint8_t *frame, size_t len)
{
    struct net_frame *f = &r->frame;
    size_t done = 0;

    memset(&f->hdr, 0, sizeof(f->hdr));
    if (len == 0 || len > f->bytes)
        return;
    for (uint32_t i = 1; done < len; i++) {
        size_t n = min_u64(f->iov[i].iov_len, len - done);

        memcpy(f->iov[i].iov_base, frame + done, n);
        done += n;
    }
    vnet_rx_deliver(p, r, (uint32_t)len);
}

/* 1: one is on its way; 0: the guest gives no room; -EPROTO. */
static int vmmds_send_one(struct vnet *v, uint64_t now_ns)
{
    struct vnet_mmds *m = v->mmds;
    struct vnet_pair *p = v->pairs[0];
    int rc = vnet_rx_reserve(p, &m->room, MMDS_MAX_FRAME, false);

    if (rc <= 0)
        return rc;
    vmmds_fill(p, &m->room, m->out, mmds_net_next(m->net, m->out, now_ns));
    vnet_rx_put_back(p, &m->room);
    return 1;
}

/* 1: all is sent; 0: more is to be sent later; -EPROTO. */
static int vmmds_send(struct vnet *v, uint64_t now_ns)
{
    struct vnet_mmds *m = v->mmds;

    for (uint32_t i = 0; mmds_net_owes(m->net); i++) {
        int rc;

        if (i == VMMDS_BUDGET)
            return 0;
        rc = vmmds_send_one(v, now_ns);
        m->hungry = rc == 0;
        if (rc <= 0)
            return rc;
    }
    return 1;
}

/* Sends what the guest has room for, and sees to it that it goes on. */
static void vmmds_pump(struct vnet *v)
{
    struct vnet_mmds *m = v->mmds;
    struct vnet_pair *p = v->pairs[0];
    uint64_t now = util_now_ns();
    uint64_t when;
    int rc;

    if (!v->active || v->dev.resting || !p->running || vnet_rxq(p)->stopped)
        return;
    m->hungry = false;
    mmds_net_expire(m->net, now);
    rc = vmmds_send(v, now);
    when = mmds_net_deadline(m->net);
    if (rc == 0 && (!m->hungry || vq_enable_kicks(vnet_rxq(p))))
        rc = evloop_timer_arm(v->dev.env.loop, &m->later, 0, vmmds_on_timer, v);
    else if (rc >= 0 && when != 0)
        rc = evloop_timer_arm(v->dev.env.loop, &m->later, when, vmmds_on_timer,
                              v);
    else if (rc >= 0)
        evloop_timer_cancel(v->dev.env.loop, &m->later);
    if (rc < 0)
        vnet_break(v);
}

void vnet_mmds_rx_room(struct vnet_pair *p)
{
    if (p->v->mmds && p->index == 0 && p->v->mmds->hungry)
        vmmds_pump(p->v);
}

/* --- what the guest sends ------------------------------------------------- */

bool vnet_mmds_take(struct vnet *v, const struct virtio_net_hdr_v1 *hdr,
                    uint32_t bytes)
{
    struct vnet_mmds *m = v->mmds;
    size_t n;

    if (!m)
        return false;
    n = vq_chain_read(&v->chain, NET_HDR_BYTES, m->first,
                      min_u64(bytes, sizeof(m->first)));
    if (!mmds_frame_is_ours(m->first, n, m->ip))
        return false;
    if (bytes > sizeof(m->in)) {
        mmds_net_refuse(m->net);
        return true;
    }
    /* A further copy, which may differ: it is checked from its beginning. */
    n = vq_chain_read(&v->chain, NET_HDR_BYTES, m->in, bytes);
    mmds_net_receive(m->net, m->in, n, hdr->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM,
                     util_now_ns());
    /* Not now: the queue of the guest is being walked. */
    evloop_later(v->dev.env.loop, &m->soon, vmmds_on_soon, v);
    return true;
}

int vnet_mmds_slice(struct vnet *v, struct vnet_write *w, uint32_t bytes)
{
    uint32_t first = 0;
    int n = 0;

    if (v->mmds) {
        first = (uint32_t)min_u64(bytes, sizeof(w->first));
        memcpy(w->first, v->mmds->first, first);
        w->iov[1] = (struct iovec){w->first, first};
    }
    if (bytes > first)
        n = vq_chain_slice(&v->chain, false, NET_HDR_BYTES + first,
                           bytes - first, w->iov + 1 + (first > 0),
                           VQ_MAX_SEGS);
    return n < 0 ? n : n + (first > 0);
}

/* --- life ----------------------------------------------------------------- */

void vnet_mmds_stop(struct vnet *v)
{
    if (!v->mmds)
        return;
    evloop_later_cancel(v->dev.env.loop, &v->mmds->soon);
    evloop_timer_cancel(v->dev.env.loop, &v->mmds->later);
    v->mmds->hungry = false;
}

void vnet_mmds_wake(struct vnet *v)
{
    if (v->mmds)
        vmmds_pump(v);
}

void vnet_mmds_reset(struct vnet *v)
{
    if (v->mmds)
        mmds_net_reset(v->mmds->net);
}
