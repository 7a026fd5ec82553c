/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock_int.h"

#include <assert.h>
#include <linux/vm_sockets.h>
#include <string.h>

/*
 * virtio-vsock: packets to the guest. thread: io
 *
 * Guest buffers are taken off the queue ahead, so that one recvmsg() fills
 * many of them: a buffer of today's Linux holds less than 4 KiB.
 */

#define VV_COST_BYTES 8192u /* count as much as a guest buffer used */

/* --- guest buffers ------------------------------------------------------- */

static void vv_slot_fill(struct vv_slot *s, const struct vq_chain *c)
{
    uint32_t n =
        c->num_writable < VV_SLOT_SEGS ? c->num_writable : VV_SLOT_SEGS;

    s->head = c->head;
    s->num_iov = (uint16_t)n;
    s->bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->iov[i] = c->iov[c->num_readable + i];
        s->bytes += s->iov[i].iov_len;
    }
}

/*
 * Has `want` buffers at hand if the guest gives them; returns how many are.
 * One too small for a header is handed back empty.
 */
static uint32_t vv_slots_get(struct vvsock *vv, uint32_t want)
{
    struct virtq *vq = &vv->dev.vq[VV_RX_QUEUE];

    if (vq->stopped)
        vv->num_slots = 0; /* its driver's again */
    /* Bounded by the queue's size, however fast the driver refills it. */
    for (uint32_t tries = vq->size; tries > 0 && vv->num_slots < want;
         tries--) {
        struct vv_slot *s =
            &vv->slots[(vv->slots_first + vv->num_slots) % VV_SLOTS];
        int rc = vq_pop(vq, &vv->chain);

        if (rc < 0)
            vv_broken(vv, "its rx queue is broken");
        if (rc <= 0)
            break;
        vv_slot_fill(s, &vv->chain);
        if (s->bytes < VSOCK_HDR_BYTES) {
            /* Those at hand are the last that were taken: put back in the
             * order of their ring they can only be without a gap. */
            if (vv->num_slots > 0) {
                vq_unpop(vq);
                break;
            }
            vv->stats.bad_packets++;
            vq_push(vq, s->head, 0);
            continue;
        }
        vv->num_slots++;
    }
    return vv->num_slots;
}

void vv_slots_put_back(struct vvsock *vv)
{
    for (; vv->num_slots > 0; vv->num_slots--)
        vq_unpop(&vv->dev.vq[VV_RX_QUEUE]);
}

/* Completes the first buffer: its header, and `pkt->len` bytes behind it. */
static void vv_slot_send(struct vvsock *vv, struct vsock_pkt *pkt)
{
    struct vv_slot *s = &vv->slots[vv->slots_first];
    struct virtio_vsock_hdr hdr;
    size_t done = 0;

    assert(vv->num_slots > 0);
    counter_add(&vv->stats.to_guest_packets, 1);
    vsock_pkt_encode(pkt, &hdr);
    for (uint32_t i = 0; done < sizeof(hdr); i++) {
        size_t n = s->iov[i].iov_len < sizeof(hdr) - done ? s->iov[i].iov_len
                                                          : sizeof(hdr) - done;

        memcpy(s->iov[i].iov_base, (const char *)&hdr + done, n);
        done += n;
    }
    vq_push(&vv->dev.vq[VV_RX_QUEUE], s->head,
            (uint32_t)sizeof(hdr) + pkt->len);
    vv->slots_first = (vv->slots_first + 1) % VV_SLOTS;
    vv->num_slots--;
}

/*
 * The room for data in the buffers at hand as iovecs, `limit` bytes at most.
 * Returns their number.
 */
static int vv_slots_iov(struct vvsock *vv, uint64_t limit, uint64_t *out_bytes)
{
    uint64_t total = 0;
    int n = 0;

    for (uint32_t k = 0; k < vv->num_slots && total < limit; k++) {
        const struct vv_slot *s = &vv->slots[(vv->slots_first + k) % VV_SLOTS];
        size_t skip = VSOCK_HDR_BYTES;

        for (uint32_t i = 0; i < s->num_iov && total < limit; i++) {
            size_t len = s->iov[i].iov_len;

            if (len <= skip) {
                skip -= len;
                continue;
            }
            vv->iov[n].iov_base = (char *)s->iov[i].iov_base + skip;
            vv->iov[n].iov_len = min_u64(len - skip, limit - total);
            total += vv->iov[n].iov_len;
            n++;
            skip = 0;
        }
    }
    *out_bytes = total;
    return n;
}

/* --- resets -------------------------------------------------------------- */

void vv_reset_push(struct vvsock *vv, const struct vsock_pkt *rst)
{
    struct vv_reset *r =
        &vv->resets[(vv->resets_first + vv->num_resets) % VV_RESETS_MAX];

    if (!vv->active)
        return;
    assert(vv->num_resets < VV_RESETS_MAX);
    r->src_cid = rst->src_cid;
    r->src_port = rst->src_port;
    r->dst_port = rst->dst_port;
    r->type = rst->type;
    r->forgotten = false;
    vv->num_resets++;
}

void vv_reset_forget(struct vvsock *vv, uint32_t host_port, uint32_t guest_port)
{
    for (uint32_t i = 0; i < vv->num_resets; i++) {
        struct vv_reset *r =
            &vv->resets[(vv->resets_first + i) % VV_RESETS_MAX];

        if (r->src_port == host_port && r->dst_port == guest_port)
            r->forgotten = true;
    }
}

/* There is one, and a buffer for it. */
static void vv_reset_send(struct vvsock *vv)
{
    const struct vv_reset *r = &vv->resets[vv->resets_first];
    struct vsock_pkt pkt = {
        .src_cid = r->src_cid,
        .dst_cid = vv->guest_cid,
        .src_port = r->src_port,
        .dst_port = r->dst_port,
        .type = r->type,
        .op = VIRTIO_VSOCK_OP_RST,
    };

    vv->resets_first = (vv->resets_first + 1) % VV_RESETS_MAX;
    vv->num_resets--;
    if (r->forgotten)
        return;
    vv->stats.resets_sent++;
    vv_slot_send(vv, &pkt);
}

/* --- connections --------------------------------------------------------- */

static struct vsock_pkt vv_packet_of(const struct vv_conn *c)
{
    return (struct vsock_pkt){
        .src_cid = VMADDR_CID_HOST,
        .dst_cid = c->vv->guest_cid,
        .src_port = c->host_port,
        .dst_port = c->guest_port,
        .type = VIRTIO_VSOCK_TYPE_STREAM,
    };
}

/* `n` bytes lie in the buffers at hand: heads them and sends them off. */
static void vv_send_data(struct vv_conn *c, uint64_t n)
{
    struct vvsock *vv = c->vv;

    vv->stats.to_guest_bytes += n;
    while (n > 0) {
        const struct vv_slot *s = &vv->slots[vv->slots_first];
        struct vsock_pkt pkt = vv_packet_of(c);
        uint64_t part = min_u64(n, s->bytes - VSOCK_HDR_BYTES);

        vsc_data_packet(&c->sm, (uint32_t)part, &pkt);
        vv_slot_send(vv, &pkt);
        n -= part;
    }
}

enum vv_served {
    VV_IDLE,    /* nothing to send as far as is known */
    VV_MORE,    /* there is more to send */
    VV_BLOCKED, /* the guest has no buffers */
    VV_ENDED,
};

/* Moves bytes of the peer into guest buffers. */
static enum vv_served vv_pump(struct vv_conn *c)
{
    struct vvsock *vv = c->vv;
    uint64_t limit = min_u64(vsc_credit(&c->sm), VV_QUANTUM_BYTES);
    uint64_t room = 0;
    ssize_t n;
    int num_iov;

    if (limit == 0) {
        vsc_ask_credit(&c->sm);
        return c->sm.wanted ? VV_MORE : VV_IDLE;
    }
    if (vv_slots_get(vv, VV_SLOTS) == 0)
        return VV_BLOCKED;
    num_iov = vv_slots_iov(vv, limit, &room);
    if (room == 0) {
        /* Buffers of a bare header: of no use to anybody with data. */
        vv->stats.bad_packets++;
        vq_push(&vv->dev.vq[VV_RX_QUEUE], vv->slots[vv->slots_first].head, 0);
        vv->slots_first = (vv->slots_first + 1) % VV_SLOTS;
        vv->num_slots--;
        return VV_MORE;
    }
    n = vsu_recv(c->fd, vv->iov, num_iov);
    if (n > 0) {
        vv_send_data(c, (uint64_t)n);
        /* After a short read the poll tells what comes next. */
        return (uint64_t)n == room || c->hung_up ? VV_MORE : VV_IDLE;
    }
    if (n == 0)
        return vv_conn_eof(c) ? VV_MORE : VV_ENDED;
    if (n == -EAGAIN)
        return VV_IDLE;
    vv_conn_end(c, true);
    return VV_ENDED;
}

/* One connection's turn. */
static enum vv_served vv_serve(struct vv_conn *c)
{
    struct vvsock *vv = c->vv;

    while (c->sm.wanted) {
        struct vsock_pkt pkt = vv_packet_of(c);

        if (vv_slots_get(vv, 1) == 0)
            return VV_BLOCKED;
        if (vsc_next_packet(&c->sm, &pkt))
            vv_slot_send(vv, &pkt);
    }
    return vv_conn_reads(c) ? vv_pump(c) : VV_IDLE;
}

/* What waits longest. False: the guest has no buffers, or nothing waits. */
static bool vv_rx_step(struct vvsock *vv)
{
    struct vv_conn *c;

    if (vv->num_resets > 0) {
        if (vv_slots_get(vv, 1) == 0)
            return false;
        vv_reset_send(vv);
        return true;
    }
    c = TAILQ_FIRST(&vv->ready);
    if (!c)
        return false;
    vv_conn_unready(c);
    switch (vv_serve(c)) {
    case VV_IDLE:
        (void)vv_conn_watch(c); /* c is not used any more */
        return true;
    case VV_MORE:
        vv_conn_ready(c);
        return true;
    case VV_BLOCKED:
        if (!vv->active)
            return false; /* broken meanwhile: the connection is gone */
        TAILQ_INSERT_HEAD(&vv->ready, c, ready_link);
        c->queued = true;
        return false;
    case VV_ENDED:
        break;
    }
    return true;
}

bool vv_rx_run(struct vvsock *vv)
{
    struct virtq *vq = &vv->dev.vq[VV_RX_QUEUE];
    uint32_t left = VV_TURN_CHAINS;

    vq_disable_kicks(vq);
    while (vv->active && left > 0) {
        uint16_t used_before = vq->next_used;
        uint64_t bytes_before = vv->stats.to_guest_bytes;
        uint64_t cost;

        if (!vv_rx_step(vv)) {
            if (!vv->active || (vv->num_resets == 0 && TAILQ_EMPTY(&vv->ready)))
                return false;
            /* Only now a kick for new buffers is of interest. */
            if (!vq_enable_kicks(vq))
                return false;
        }
        cost = 1 + (vv->stats.to_guest_bytes - bytes_before) / VV_COST_BYTES;
        if (cost < (uint16_t)(vq->next_used - used_before))
            cost = (uint16_t)(vq->next_used - used_before);
        left -= (uint32_t)min_u64(left, cost);
    }
    return vv->active;
}
