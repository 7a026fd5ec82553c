/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock_int.h"

/*
 * virtio-vsock: packets from the guest. thread: io
 *
 * Bytes go from guest memory to the socket by one sendmsg(); only what the
 * socket does not take is kept, within the credit that the guest was given.
 */

static void vv_tx_answer_reset(struct vvsock *vv, const struct vsock_pkt *pkt)
{
    struct vsock_pkt rst = vsock_pkt_reset_for(pkt);

    if (pkt->op != VIRTIO_VSOCK_OP_RST) /* else two sides could go on so */
        vv_reset_push(vv, &rst);
}

static void vv_tx_bad(struct vvsock *vv, const struct vsock_pkt *pkt,
                      const char *what)
{
    vv->stats.bad_packets++;
    log_limited(vv->dev.env.log, &vv->limit, LOG_WARN,
                "vsock: guest packet: %s (operation %u, ports %u to %u)", what,
                pkt->op, pkt->src_port, pkt->dst_port);
}

/* Hands the payload on. False: the connection has ended. */
static bool vv_tx_data(struct vv_conn *c, const struct vsock_pkt *pkt)
{
    struct vvsock *vv = c->vv;
    int n = vq_chain_slice(&vv->chain, false, VSOCK_HDR_BYTES, pkt->len,
                           vv->iov, (int)ARRAY_SIZE(vv->iov));

    if (n > 0) /* the length was checked against the chain */
        return vv_conn_write(c, vv->iov, n, pkt->len);
    vv_conn_end(c, true);
    return false;
}

/* A packet for a connection: first its state, then its bytes. */
static void vv_tx_conn(struct vv_conn *c, const struct vsock_pkt *pkt)
{
    uint32_t ev = vsc_on_packet(&c->sm, pkt);

    if (ev & VSC_EV_BAD) {
        vv_tx_bad(c->vv, pkt, "breaks the connection's rules");
        vv_conn_end(c, true);
        return;
    }
    if (ev & VSC_EV_RESET) {
        vv_conn_end(c, false);
        return;
    }
    if (ev & VSC_EV_CLOSED) {
        vv_conn_closed(c);
        return;
    }
    if ((ev & VSC_EV_OPENED) && !vv_conn_opened(c))
        return;
    if ((ev & VSC_EV_DATA) && !vv_tx_data(c, pkt))
        return;
    if ((ev & VSC_EV_STOP_READ) && !vv_conn_stop_read(c))
        return;
    if ((ev & VSC_EV_STOP_WRITE) && !vv_conn_stop_write(c))
        return;
    /* With credit again, bytes of the peer may wait. */
    if (c->sm.wanted || ((ev & VSC_EV_CREDIT) && vv_conn_reads(c)))
        vv_conn_ready(c);
}

static void vv_tx_packet(struct vvsock *vv)
{
    struct vsock_pkt pkt = {0};
    struct vv_conn *c;
    int rc = vsock_pkt_parse(&vv->chain, vv->guest_cid, &pkt);

    if (rc == -ENOMSG) {
        vv_tx_bad(vv, &pkt, "no header, or a foreign source");
        return;
    }
    if (rc == -ENXIO) {
        vv_tx_bad(vv, &pkt, "not a stream to the host");
        vv_tx_answer_reset(vv, &pkt);
        return;
    }
    c = vv_conn_find(vv, pkt.dst_port, pkt.src_port);
    if (rc) {
        vv_tx_bad(vv, &pkt, "bad operation or length");
        if (c)
            vv_conn_end(c, false);
        vv_tx_answer_reset(vv, &pkt);
        return;
    }
    if (pkt.op == VIRTIO_VSOCK_OP_REQUEST) {
        /* The guest's socket is new, whatever became of an older one. */
        if (c)
            vv_conn_end(c, false);
        vv_reset_forget(vv, pkt.dst_port, pkt.src_port);
        vv_conn_from_guest(vv, &pkt);
        return;
    }
    if (c)
        vv_tx_conn(c, &pkt);
    else
        vv_tx_answer_reset(vv, &pkt);
}

bool vv_tx_run(struct vvsock *vv)
{
    struct virtq *vq = &vv->dev.vq[VV_TX_QUEUE];
    uint64_t bytes_end = vv->stats.to_host_bytes + VV_TURN_BYTES;
    uint32_t left = VV_TURN_CHAINS;

    vq_disable_kicks(vq);
    while (vv->active && left > 0 && vv->stats.to_host_bytes < bytes_end) {
        int rc;

        /*
         * Too many answers wait for guest buffers: then the guest waits as
         * well. Buffers for them wake us, not a kick of this queue.
         */
        vv->tx_held = vv->num_resets >= VV_RESETS_HIGH;
        if (vv->tx_held)
            return false;
        rc = vq_pop(vq, &vv->chain);
        if (rc < 0) {
            vv_broken(vv, "its tx queue is broken");
            return false;
        }
        if (rc == 0) {
            if (!vq_enable_kicks(vq))
                return false;
            vq_disable_kicks(vq);
            left--;
            continue;
        }
        counter_add(&vv->stats.to_host_packets, 1);
        vv_tx_packet(vv);
        vq_push(vq, vv->chain.head, 0);
        left--;
    }
    return vv->active;
}
