/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/vsock_conn.h"

#include <assert.h>
#include <string.h>

/*
 * What we believe of a guest's buffer size at most. All counters are 32 bits
 * wide and wrap; with a window far below half of that, differences of them
 * are unambiguous.
 */
#define VSC_MAX_PEER_BUF (1u << 30)

void vsc_init_guest(struct vsc *s, const struct vsock_pkt *request,
                    uint32_t buf_alloc)
{
    memset(s, 0, sizeof(*s));
    s->state = VSC_DIALING;
    s->buf_alloc = buf_alloc;
    s->peer_buf_alloc = (uint32_t)min_u64(request->buf_alloc, VSC_MAX_PEER_BUF);
}

void vsc_init_host(struct vsc *s, uint32_t buf_alloc)
{
    memset(s, 0, sizeof(*s));
    s->state = VSC_ASKED;
    s->buf_alloc = buf_alloc;
    s->wanted = VSC_P_REQUEST;
}

uint32_t vsc_credit(const struct vsc *s)
{
    uint32_t in_flight = s->tx_cnt - s->peer_fwd_cnt;

    /* A guest may shrink its buffer below what is on its way. */
    return in_flight >= s->peer_buf_alloc ? 0 : s->peer_buf_alloc - in_flight;
}

/*
 * Every packet carries the sender's credit. False: the guest has freed more
 * than it ever got. A count from before the last one is an old packet that
 * another CPU of the guest queued late: only the newest counts.
 */
static bool vsc_take_credit(struct vsc *s, const struct vsock_pkt *pkt)
{
    uint32_t in_flight = s->tx_cnt - s->peer_fwd_cnt;
    uint32_t step = pkt->fwd_cnt - s->peer_fwd_cnt;

    if (step <= in_flight)
        s->peer_fwd_cnt = pkt->fwd_cnt;
    else if (step < 1u << 31)
        return false;
    s->peer_buf_alloc = (uint32_t)min_u64(pkt->buf_alloc, VSC_MAX_PEER_BUF);
    if (vsc_credit(s) > 0)
        s->credit_asked = false;
    return true;
}

static uint32_t vsc_on_data(struct vsc *s, const struct vsock_pkt *pkt)
{
    uint32_t room = s->buf_alloc - (s->rx_cnt - s->fwd_cnt);

    if ((s->guest_shut & VIRTIO_VSOCK_SHUTDOWN_SEND) || pkt->len > room)
        return VSC_EV_BAD;
    s->rx_cnt += pkt->len;
    return pkt->len > 0 ? VSC_EV_DATA : 0;
}

static uint32_t vsc_on_shutdown(struct vsc *s, const struct vsock_pkt *pkt)
{
    uint32_t news = pkt->flags & VSOCK_SHUT_BOTH & ~s->guest_shut;
    uint32_t ev = 0;

    s->guest_shut |= news;
    if (s->guest_shut == VSOCK_SHUT_BOTH)
        return VSC_EV_CLOSED;
    if (news & VIRTIO_VSOCK_SHUTDOWN_RCV)
        ev |= VSC_EV_STOP_READ;
    if (news & VIRTIO_VSOCK_SHUTDOWN_SEND)
        ev |= VSC_EV_STOP_WRITE;
    return ev;
}

static uint32_t vsc_on_open_packet(struct vsc *s, const struct vsock_pkt *pkt)
{
    switch (pkt->op) {
    case VIRTIO_VSOCK_OP_RW:
        return vsc_on_data(s, pkt);
    case VIRTIO_VSOCK_OP_SHUTDOWN:
        return vsc_on_shutdown(s, pkt);
    case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
        s->wanted |= VSC_P_UPDATE;
        return 0;
    case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
        return 0;
    default:
        return VSC_EV_BAD;
    }
}

/* Before the connection stands only an answer to ours makes sense. */
static uint32_t vsc_on_early_packet(struct vsc *s, const struct vsock_pkt *pkt)
{
    switch (pkt->op) {
    case VIRTIO_VSOCK_OP_RESPONSE:
        if (s->state != VSC_ASKED || !s->request_sent)
            return VSC_EV_BAD;
        s->state = VSC_OPEN;
        return VSC_EV_OPENED;
    case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
    case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
        return 0;
    default:
        return VSC_EV_BAD;
    }
}

uint32_t vsc_on_packet(struct vsc *s, const struct vsock_pkt *pkt)
{
    uint32_t before = vsc_credit(s);
    uint32_t ev;

    if (pkt->op == VIRTIO_VSOCK_OP_RST)
        return VSC_EV_RESET;
    if (!vsc_take_credit(s, pkt))
        return VSC_EV_BAD;
    if (s->state == VSC_OPEN)
        ev = vsc_on_open_packet(s, pkt);
    else
        ev = vsc_on_early_packet(s, pkt);
    if (ev & (VSC_EV_BAD | VSC_EV_CLOSED))
        return ev;
    if (before == 0 && vsc_credit(s) > 0)
        ev |= VSC_EV_CREDIT;
    return ev;
}

void vsc_host_connected(struct vsc *s)
{
    assert(s->state == VSC_DIALING);
    s->state = VSC_OPEN;
    s->wanted |= VSC_P_RESPONSE;
}

static void vsc_shut(struct vsc *s, uint32_t flag)
{
    if (s->our_shut & flag)
        return;
    s->our_shut |= flag;
    s->wanted |= VSC_P_SHUTDOWN;
}

void vsc_host_sent_all(struct vsc *s)
{
    vsc_shut(s, VIRTIO_VSOCK_SHUTDOWN_SEND);
}

void vsc_host_receives_no_more(struct vsc *s)
{
    vsc_shut(s, VIRTIO_VSOCK_SHUTDOWN_RCV);
}

/*
 * The guest is told when a quarter of the buffer is free that it does not know
 * of. So an empty buffer always leaves it three quarters at least, and a
 * sender can never wait for credit that nobody sends.
 */
void vsc_forwarded(struct vsc *s, uint32_t n)
{
    assert(n <= s->rx_cnt - s->fwd_cnt);
    s->fwd_cnt += n;
    if (s->fwd_cnt - s->fwd_told >= s->buf_alloc / 4)
        s->wanted |= VSC_P_UPDATE;
}

void vsc_drained(struct vsc *s)
{
    if (s->fwd_cnt != s->fwd_told)
        s->wanted |= VSC_P_UPDATE;
}

void vsc_ask_credit(struct vsc *s)
{
    if (s->credit_asked)
        return;
    s->credit_asked = true;
    s->wanted |= VSC_P_CREDIT;
}

/* Fills what is the same in every packet; it tells our credit. */
static void vsc_fill(struct vsc *s, uint16_t op, struct vsock_pkt *out_pkt)
{
    out_pkt->op = op;
    out_pkt->len = 0;
    out_pkt->flags = 0;
    out_pkt->buf_alloc = s->buf_alloc;
    out_pkt->fwd_cnt = s->fwd_cnt;
    s->fwd_told = s->fwd_cnt;
    s->wanted &= ~VSC_P_UPDATE;
}

bool vsc_next_packet(struct vsc *s, struct vsock_pkt *out_pkt)
{
    static const struct {
        uint32_t bit;
        uint16_t op;
    } order[] = {
        {VSC_P_REQUEST, VIRTIO_VSOCK_OP_REQUEST},
        {VSC_P_RESPONSE, VIRTIO_VSOCK_OP_RESPONSE},
        {VSC_P_CREDIT, VIRTIO_VSOCK_OP_CREDIT_REQUEST},
        {VSC_P_SHUTDOWN, VIRTIO_VSOCK_OP_SHUTDOWN},
        {VSC_P_UPDATE, VIRTIO_VSOCK_OP_CREDIT_UPDATE},
    };

    for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
        if (!(s->wanted & order[i].bit))
            continue;
        s->wanted &= ~order[i].bit;
        vsc_fill(s, order[i].op, out_pkt);
        if (order[i].bit == VSC_P_SHUTDOWN)
            out_pkt->flags = s->our_shut;
        if (order[i].bit == VSC_P_REQUEST)
            s->request_sent = true;
        return true;
    }
    return false;
}

void vsc_data_packet(struct vsc *s, uint32_t len, struct vsock_pkt *out_pkt)
{
    assert(len <= vsc_credit(s));
    vsc_fill(s, VIRTIO_VSOCK_OP_RW, out_pkt);
    out_pkt->len = len;
    s->tx_cnt += len;
}
