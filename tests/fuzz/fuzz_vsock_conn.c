/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/vsock_conn.h"

#include <stdlib.h>
#include <string.h>

/*
 * Any order of guest packets and host events on one connection, against a
 * model that keeps its own account of the bytes.
 */

struct model {
    struct vsc s;
    uint64_t held;      /* guest bytes taken and not forwarded yet */
    uint64_t in_flight; /* bytes sent that the guest has not freed */
};

static void must(bool ok)
{
    if (!ok)
        abort();
}

struct input {
    const uint8_t *p;
    size_t left;
};

static uint8_t take(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->p++;
}

static uint32_t take32(struct input *in)
{
    uint32_t v = take(in);

    v = v << 8 | take(in);
    v = v << 8 | take(in);
    return v << 8 | take(in);
}

/* True: the connection is over. */
static bool guest_packet(struct model *m, struct input *in)
{
    uint8_t how = take(in);
    struct vsock_pkt p = {
        .op = how & 7,
        .buf_alloc = 4096u << (take(in) & 15),
        .fwd_cnt = m->s.peer_fwd_cnt,
        .flags = take(in),
    };
    uint32_t fwd_before = m->s.peer_fwd_cnt;
    uint32_t ev;

    if (p.op == VIRTIO_VSOCK_OP_RW)
        p.len = how & 8 ? take32(in) : (uint32_t)(take(in) * 64);
    if (how & 16)
        p.fwd_cnt += (uint32_t)min_u64(m->in_flight, take(in) * 256u);
    if (how & 32)
        p.fwd_cnt = take32(in);
    ev = vsc_on_packet(&m->s, &p);
    if (ev & (VSC_EV_BAD | VSC_EV_CLOSED | VSC_EV_RESET))
        return true;
    must(m->s.peer_fwd_cnt - fwd_before <= m->in_flight);
    m->in_flight -= m->s.peer_fwd_cnt - fwd_before;
    if (ev & VSC_EV_DATA) {
        must(m->s.state == VSC_OPEN && p.len > 0);
        m->held += p.len;
    }
    return false;
}

static void host_event(struct model *m, struct input *in)
{
    struct vsock_pkt p;
    uint32_t n;

    switch (take(in) % 7) {
    case 0:
        if (m->s.state == VSC_DIALING)
            vsc_host_connected(&m->s);
        break;
    case 1:
        vsc_host_sent_all(&m->s);
        break;
    case 2:
        vsc_host_receives_no_more(&m->s);
        break;
    case 3:
        n = (uint32_t)min_u64(m->held, take(in) * 256u);
        vsc_forwarded(&m->s, n);
        m->held -= n;
        if (m->held == 0)
            vsc_drained(&m->s);
        break;
    case 4:
        vsc_ask_credit(&m->s);
        break;
    case 5:
        if (m->s.state != VSC_OPEN)
            break;
        n = (uint32_t)min_u64(vsc_credit(&m->s), take32(in));
        vsc_data_packet(&m->s, n, &p);
        must(p.len == n && p.fwd_cnt == m->s.fwd_cnt);
        m->in_flight += n;
        break;
    default:
        for (int i = 0; vsc_next_packet(&m->s, &p); i++)
            must(i < 5); /* bounded by the kinds of packets */
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct model m = {.held = 0};
    struct vsock_pkt req = {.op = VIRTIO_VSOCK_OP_REQUEST};
    uint8_t how = take(&in);
    uint32_t buf = 4096u << (how & 7);

    req.buf_alloc = how & 8 ? take32(&in) : 65536;
    if (how & 16)
        vsc_init_host(&m.s, buf);
    else
        vsc_init_guest(&m.s, &req, buf);
    if (how & 32) {
        /* Shortly before the counters wrap. */
        m.s.rx_cnt = m.s.fwd_cnt = m.s.fwd_told = UINT32_MAX - 5000;
        m.s.tx_cnt = m.s.peer_fwd_cnt = UINT32_MAX - 5000;
    }
    while (in.left > 0) {
        if (take(&in) & 1)
            host_event(&m, &in);
        else if (guest_packet(&m, &in))
            return 0;
        must(m.held <= buf);
        must(m.s.rx_cnt - m.s.fwd_cnt == (uint32_t)m.held);
        must(m.s.tx_cnt - m.s.peer_fwd_cnt == (uint32_t)m.in_flight);
        must(m.in_flight <= 1u << 30);
        /* An empty buffer never leaves the guest without credit. */
        if (m.held == 0 && m.s.state == VSC_OPEN)
            must(m.s.fwd_cnt - m.s.fwd_told < buf / 4 ||
                 (m.s.wanted & VSC_P_UPDATE));
    }
    return 0;
}
