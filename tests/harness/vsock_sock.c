/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/vsock_guest.h"

#include <stdlib.h>
#include <string.h>

/* --- stream sockets ------------------------------------------------------ */

struct vsg_sock *vsg_socket(struct vsg *g, uint32_t port, uint32_t peer_port)
{
    struct vsg_sock *s = calloc(1, sizeof(*s));

    vsg_must(s != NULL, "out of memory");
    s->port = port;
    s->peer_port = peer_port;
    s->buf_alloc = g->listen_alloc;
    s->next = g->socks;
    g->socks = s;
    return s;
}

struct vsg_sock *vsg_find(struct vsg *g, uint32_t port, uint32_t peer_port)
{
    struct vsg_sock *s = g->socks;

    while (s && (s->port != port || s->peer_port != peer_port))
        s = s->next;
    return s;
}

static void vsg_sock_send(struct vsg *g, struct vsg_sock *s, uint16_t op,
                          uint32_t flags, const void *data, uint32_t len)
{
    struct vsock_pkt p = vsg_packet(op, s->port, s->peer_port);

    p.flags = flags;
    p.len = len;
    p.buf_alloc = s->buf_alloc;
    p.fwd_cnt = s->fwd_cnt;
    s->fwd_told = s->fwd_cnt;
    s->tx_cnt += len;
    vsg_send(g, &p, data, len);
}

void vsg_connect(struct vsg *g, struct vsg_sock *s)
{
    vsg_sock_send(g, s, VIRTIO_VSOCK_OP_REQUEST, 0, NULL, 0);
}

size_t vsg_unread(const struct vsg_sock *s)
{
    return s->rx_cnt - s->fwd_cnt;
}

static void vsg_take_data(struct vsg_sock *s, const uint8_t *data, uint32_t len)
{
    for (uint32_t done = 0; done < len;) {
        uint32_t tail = s->rx_cnt % VSG_SOCK_BUF;
        uint32_t n = VSG_SOCK_BUF - tail;

        if (n > len - done)
            n = len - done;
        if (vsg_unread(s) + n > s->buf_alloc) {
            s->overruns += len - done;
            return;
        }
        memcpy(s->buf + tail, data + done, n);
        s->rx_cnt += n;
        done += n;
    }
}

/* As Linux does: a reset once both directions are shut and all is read. */
static void vsg_answer_shutdown(struct vsg *g, struct vsg_sock *s)
{
    if (s->reset || s->peer_shut != VSOCK_SHUT_BOTH || vsg_unread(s) > 0)
        return;
    s->reset = true;
    s->connected = false;
    vsg_sock_send(g, s, VIRTIO_VSOCK_OP_RST, 0, NULL, 0);
}

static void vsg_stray(struct vsg *g, const struct vsock_pkt *p)
{
    struct vsock_pkt rst =
        vsg_packet(VIRTIO_VSOCK_OP_RST, p->dst_port, p->src_port);
    struct vsg_sock *s;

    if (p->op == VIRTIO_VSOCK_OP_RST) {
        g->strays++;
        return;
    }
    if (p->op != VIRTIO_VSOCK_OP_REQUEST || p->dst_port != g->listen_port) {
        vsg_send(g, &rst, NULL, 0);
        return;
    }
    s = vsg_socket(g, p->dst_port, p->src_port);
    s->connected = true;
    s->peer_alloc = p->buf_alloc;
    g->accepted++;
    vsg_sock_send(g, s, VIRTIO_VSOCK_OP_RESPONSE, 0, NULL, 0);
}

static void vsg_handle(struct vsg *g, const struct vsock_pkt *p,
                       const uint8_t *data)
{
    struct vsg_sock *s = vsg_find(g, p->dst_port, p->src_port);

    vsg_must(p->src_cid == 2 && p->type == VIRTIO_VSOCK_TYPE_STREAM,
             "a packet of a strange kind");
    if (!s || s->reset) {
        vsg_stray(g, p);
        return;
    }
    s->peer_alloc = p->buf_alloc;
    s->peer_fwd = p->fwd_cnt;
    switch (p->op) {
    case VIRTIO_VSOCK_OP_RESPONSE:
        s->connected = true;
        break;
    case VIRTIO_VSOCK_OP_RST:
        s->reset = true;
        s->connected = false;
        break;
    case VIRTIO_VSOCK_OP_SHUTDOWN:
        s->peer_shut |= p->flags;
        vsg_answer_shutdown(g, s);
        break;
    case VIRTIO_VSOCK_OP_RW:
        vsg_take_data(s, data, p->len);
        break;
    case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
        vsg_sock_send(g, s, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0, NULL, 0);
        break;
    default:
        break;
    }
}

void vsg_poll(struct vsg *g)
{
    static uint8_t data[256 * 1024];
    struct vsock_pkt p;

    vsg_reap_tx(g);
    while (vsg_recv(g, &p, data, sizeof(data)))
        vsg_handle(g, &p, data);
}

size_t vsg_write(struct vsg *g, struct vsg_sock *s, const void *data,
                 size_t len)
{
    const uint8_t *at = data;
    size_t done = 0;

    while (s->connected && done < len) {
        uint32_t credit = s->peer_alloc - (s->tx_cnt - s->peer_fwd);
        uint32_t n = (uint32_t)min_u64(len - done, 60000);

        vsg_reap_tx(g);
        if (n > credit)
            n = credit;
        if (n == 0 || g->tx_busy == VSG_TX_SLOTS)
            break;
        vsg_sock_send(g, s, VIRTIO_VSOCK_OP_RW, 0, at + done, n);
        done += n;
    }
    return done;
}

size_t vsg_read(struct vsg *g, struct vsg_sock *s, void *buf, size_t size)
{
    uint8_t *to = buf;
    size_t done = 0;

    while (done < size && vsg_unread(s) > 0) {
        uint32_t head = s->fwd_cnt % VSG_SOCK_BUF;
        size_t n = min_u64(vsg_unread(s), VSG_SOCK_BUF - head);

        if (n > size - done)
            n = size - done;
        memcpy(to + done, s->buf + head, n);
        s->fwd_cnt += (uint32_t)n;
        done += n;
    }
    if (s->reset || done == 0)
        return done;
    if (s->buf_alloc - (s->fwd_cnt - s->fwd_told) < 65536 || !vsg_unread(s))
        vsg_sock_send(g, s, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0, NULL, 0);
    vsg_answer_shutdown(g, s);
    return done;
}

void vsg_shutdown(struct vsg *g, struct vsg_sock *s, uint32_t flags)
{
    s->shut |= flags;
    if (!s->reset)
        vsg_sock_send(g, s, VIRTIO_VSOCK_OP_SHUTDOWN, flags, NULL, 0);
}

void vsg_drop(struct vsg *g, struct vsg_sock *s)
{
    struct vsg_sock **at = &g->socks;

    if (s->connected && !s->reset && s->shut != VSOCK_SHUT_BOTH)
        vsg_shutdown(g, s, VSOCK_SHUT_BOTH);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    free(s);
}
