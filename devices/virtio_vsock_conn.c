/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock_int.h"

#include <assert.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* virtio-vsock: connections and their sockets on the host. thread: io */

/* Ports that clients of the host appear to come from: above what the guest's
 * programs use, and below the sign bit. */
#define VV_PORT_FIRST (1u << 30)
#define VV_PORT_COUNT (1u << 30)

static void vv_on_poll(struct ev_fd *w, uint32_t revents);
static void vv_on_timer(struct ev_timer *t);

/* --- the table ----------------------------------------------------------- */

/* Keyed, since the guest chooses the ports: it cannot aim at one bucket. */
static uint32_t vv_hash(const struct vvsock *vv, uint32_t host_port,
                        uint32_t guest_port)
{
    uint64_t x = (((uint64_t)host_port << 32) | guest_port) ^ vv->hash_key;

    x *= (vv->hash_key << 1) | 1;
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15ull;
    return (uint32_t)(x >> (64 - VV_HASH_BITS));
}

struct vv_conn *vv_conn_find(const struct vvsock *vv, uint32_t host_port,
                             uint32_t guest_port)
{
    struct vv_conn *c = vv->table[vv_hash(vv, host_port, guest_port)];

    while (c && (c->host_port != host_port || c->guest_port != guest_port))
        c = c->hash_next;
    return c;
}

static void vv_conn_unhash(struct vv_conn *c)
{
    struct vvsock *vv = c->vv;
    struct vv_conn **at = &vv->table[vv_hash(vv, c->host_port, c->guest_port)];

    if (!c->hashed)
        return;
    while (*at != c)
        at = &(*at)->hash_next;
    *at = c->hash_next;
    c->hashed = false;
}

/* --- birth and end ------------------------------------------------------- */

/* What the guest may send ahead: less once many connections have a claim. */
static uint32_t vv_buf_bytes(const struct vvsock *vv)
{
    return vv->promised + VV_BUF_BYTES <= VV_PROMISE_BYTES ? VV_BUF_BYTES
                                                           : VV_BUF_SMALL_BYTES;
}

/* NULL: too many, or no memory. The caller fills `sm` first of all. */
static struct vv_conn *vv_conn_new(struct vvsock *vv, uint32_t host_port,
                                   uint32_t guest_port)
{
    struct vv_conn *c = NULL;
    uint32_t h = vv_hash(vv, host_port, guest_port);

    if (vv->num_conns < VVSOCK_MAX_CONNS)
        c = calloc(1, sizeof(*c));
    if (!c) {
        vv->stats.refused++;
        log_limited(vv->dev.env.log, &vv->limit, LOG_WARN,
                    "vsock: a connection is refused: there are %u already",
                    vv->num_conns);
        return NULL;
    }
    c->vv = vv;
    c->host_port = host_port;
    c->guest_port = guest_port;
    c->fd = -1;
    c->sm.buf_alloc = vv_buf_bytes(vv);
    c->hash_next = vv->table[h];
    vv->table[h] = c;
    c->hashed = true;
    TAILQ_INSERT_TAIL(&vv->conns, c, link);
    vv->num_conns++;
    vv->promised += c->sm.buf_alloc;
    return c;
}

static void vv_conn_push_reset(const struct vv_conn *c)
{
    struct vsock_pkt rst = {
        .src_cid = VMADDR_CID_HOST,
        .src_port = c->host_port,
        .dst_port = c->guest_port,
        .type = VIRTIO_VSOCK_TYPE_STREAM,
    };

    /* The guest has never heard of it. */
    if (c->sm.state == VSC_ASKED && !c->sm.request_sent)
        return;
    vv_reset_push(c->vv, &rst);
}

static void vv_conn_close_fd(struct vv_conn *c)
{
    evloop_fd_del(c->vv->dev.env.loop, &c->watch);
    vsu_close(&c->fd);
    vsock_buf_clear(&c->out);
}

void vv_conn_end(struct vv_conn *c, bool reset)
{
    struct vvsock *vv = c->vv;

    if (reset && c->hashed)
        vv_conn_push_reset(c);
    if (!c->hashed)
        vv->num_draining--;
    vv_conn_unhash(c);
    vv_conn_unready(c);
    vv_conn_close_fd(c);
    evloop_timer_cancel(vv->dev.env.loop, &c->timer);
    TAILQ_REMOVE(&vv->conns, c, link);
    vv->num_conns--;
    vv->promised -= c->sm.buf_alloc;
    free(c);
}

void vv_conn_end_all(struct vvsock *vv, bool draining_too)
{
    struct vv_conn *c = TAILQ_FIRST(&vv->conns);

    while (c) {
        struct vv_conn *next = TAILQ_NEXT(c, link);

        if (c->hashed || draining_too)
            vv_conn_end(c, false);
        c = next;
    }
}

void vv_conn_ready(struct vv_conn *c)
{
    if (c->queued || !c->hashed)
        return;
    TAILQ_INSERT_TAIL(&c->vv->ready, c, ready_link);
    c->queued = true;
}

void vv_conn_unready(struct vv_conn *c)
{
    if (!c->queued)
        return;
    TAILQ_REMOVE(&c->vv->ready, c, ready_link);
    c->queued = false;
}

/* --- its socket ---------------------------------------------------------- */

bool vv_conn_reads(const struct vv_conn *c)
{
    return c->fd >= 0 && c->sm.state == VSC_OPEN && !c->eof &&
           !(c->sm.guest_shut & VIRTIO_VSOCK_SHUTDOWN_RCV);
}

/*
 * One that waits for its turn is not watched for bytes: it reads anyway. With
 * nothing else to learn, a watch for POLLHUP alone stays silent until the peer
 * has closed.
 */
static uint32_t vv_conn_events(const struct vv_conn *c)
{
    uint32_t events = 0;

    if (c->out.len > 0)
        events |= POLLOUT;
    if (c->hashed && !c->queued && vv_conn_reads(c) && vsc_credit(&c->sm) > 0)
        events |= POLLIN;
    return events ? events : POLLHUP;
}

bool vv_conn_watch(struct vv_conn *c)
{
    struct evloop *loop = c->vv->dev.env.loop;
    int rc;

    if (c->fd < 0)
        return true;
    if (c->hung_up) {
        evloop_fd_del(loop, &c->watch);
        return true;
    }
    if (c->watch.slot_)
        rc = evloop_fd_mod(loop, &c->watch, vv_conn_events(c));
    else
        rc = evloop_fd_add(loop, &c->watch, c->fd, vv_conn_events(c),
                           vv_on_poll, c);
    if (rc == 0)
        return true;
    vv_conn_end(c, true);
    return false;
}

/*
 * Once both directions are finished the socket goes, the guest is told, and
 * its reset awaited, for a time. False: it has ended.
 */
static bool vv_conn_settle(struct vv_conn *c)
{
    bool read_done = c->eof || (c->sm.guest_shut & VIRTIO_VSOCK_SHUTDOWN_RCV);
    bool write_done =
        c->wr_gone ||
        ((c->sm.guest_shut & VIRTIO_VSOCK_SHUTDOWN_SEND) && c->out.len == 0);

    if (!read_done || !write_done || c->finished)
        return true;
    c->finished = true;
    vv_conn_close_fd(c);
    vsc_host_sent_all(&c->sm);
    vsc_host_receives_no_more(&c->sm);
    vv_conn_ready(c);
    if (evloop_timer_arm(c->vv->dev.env.loop, &c->timer,
                         util_now_ns() + VV_CLOSE_NS, vv_on_timer, c) == 0)
        return true;
    vv_conn_end(c, true);
    return false;
}

/* The peer takes no more bytes; what waits for it is lost. */
static bool vv_conn_write_gone(struct vv_conn *c)
{
    if (!c->hashed) {
        vv_conn_end(c, false);
        return false;
    }
    vsc_forwarded(&c->sm, c->out.len);
    vsock_buf_clear(&c->out);
    c->wr_gone = true;
    vsc_host_receives_no_more(&c->sm);
    vv_conn_ready(c);
    return vv_conn_settle(c) && vv_conn_watch(c);
}

/* A send has failed for good. */
static bool vv_conn_send_failed(struct vv_conn *c, ssize_t rc)
{
    if (rc == -EPIPE || rc == -ECONNRESET)
        return vv_conn_write_gone(c);
    vv_conn_end(c, true);
    return false;
}

/* All bytes of the guest have been handed over. */
static bool vv_conn_flushed(struct vv_conn *c)
{
    if (!c->hashed) {
        vv_conn_end(c, false);
        return false;
    }
    vsc_drained(&c->sm);
    if (c->sm.guest_shut & VIRTIO_VSOCK_SHUTDOWN_SEND)
        return vv_conn_stop_write(c);
    return true;
}

static bool vv_conn_flush(struct vv_conn *c)
{
    struct iovec iov[2];

    while (c->out.len > 0) {
        int num_iov = vsock_buf_peek(&c->out, iov);
        ssize_t n = vsu_send(c->fd, iov, num_iov);

        if (n == -EAGAIN)
            break;
        if (n < 0)
            return vv_conn_send_failed(c, n);
        vsock_buf_consume(&c->out, (uint32_t)n);
        vsc_forwarded(&c->sm, (uint32_t)n);
    }
    if (c->out.len == 0 && !vv_conn_flushed(c))
        return false;
    if (c->sm.wanted)
        vv_conn_ready(c);
    return vv_conn_watch(c);
}

/* What `iov` holds behind its first `skip` bytes; returns the iovecs left. */
static int vv_iov_skip(struct iovec **iov, int num_iov, size_t skip)
{
    while (num_iov > 0 && skip >= (*iov)->iov_len) {
        skip -= (*iov)->iov_len;
        (*iov)++;
        num_iov--;
    }
    if (num_iov > 0) {
        (*iov)->iov_base = (char *)(*iov)->iov_base + skip;
        (*iov)->iov_len -= skip;
    }
    return num_iov;
}

bool vv_conn_write(struct vv_conn *c, struct iovec *iov, int num_iov,
                   uint32_t len)
{
    ssize_t n = -EAGAIN;

    c->vv->stats.to_host_bytes += len;
    if (c->wr_gone || c->fd < 0) {
        vsc_forwarded(&c->sm, len); /* the guest knows, or will soon */
        return true;
    }
    if (c->out.len == 0)
        n = vsu_send(c->fd, iov, num_iov);
    if (n < 0 && n != -EAGAIN) {
        vsc_forwarded(&c->sm, len);
        return vv_conn_send_failed(c, n);
    }
    if (n > 0)
        vsc_forwarded(&c->sm, (uint32_t)n);
    if (c->sm.wanted)
        vv_conn_ready(c);
    if (n == (ssize_t)len)
        return true;
    num_iov = vv_iov_skip(&iov, num_iov, n > 0 ? (size_t)n : 0);
    if (vsock_buf_append(&c->out, iov, num_iov)) {
        vv_conn_end(c, true);
        return false;
    }
    return vv_conn_watch(c);
}

bool vv_conn_stop_write(struct vv_conn *c)
{
    if (c->out.len == 0 && c->fd >= 0)
        (void)shutdown(c->fd, SHUT_WR); /* fails where the peer has gone */
    return vv_conn_settle(c);
}

bool vv_conn_stop_read(struct vv_conn *c)
{
    if (c->fd >= 0)
        (void)shutdown(c->fd, SHUT_RD); /* as above */
    return vv_conn_settle(c) && vv_conn_watch(c);
}

bool vv_conn_eof(struct vv_conn *c)
{
    c->eof = true;
    vsc_host_sent_all(&c->sm);
    if (!c->hung_up && !vsu_hung_up(c->fd))
        return vv_conn_settle(c) && vv_conn_watch(c);
    c->hung_up = true;
    return vv_conn_write_gone(c);
}

void vv_conn_closed(struct vv_conn *c)
{
    vv_conn_push_reset(c);
    if (c->out.len == 0) {
        vv_conn_end(c, false);
        return;
    }
    vv_conn_unhash(c);
    vv_conn_unready(c);
    c->vv->num_draining++;
    evloop_timer_cancel(c->vv->dev.env.loop, &c->timer);
    (void)shutdown(c->fd, SHUT_RD); /* fails where the peer has gone */
    (void)vv_conn_watch(c);         /* c is not used any more */
}

/* --- clients of the host ------------------------------------------------- */

static uint32_t vv_pick_port(struct vvsock *vv, uint32_t guest_port)
{
    uint32_t port;

    /* Ends: there are far more ports than connections. */
    do {
        port = VV_PORT_FIRST + vv->next_port;
        vv->next_port = (vv->next_port + 1) % VV_PORT_COUNT;
    } while (vv_conn_find(vv, port, guest_port));
    return port;
}

void vv_conn_from_host(struct vvsock *vv, int fd, uint32_t guest_port)
{
    struct vv_conn *c = NULL;

    if (vv->active)
        c = vv_conn_new(vv, vv_pick_port(vv, guest_port), guest_port);
    if (!c) {
        vsu_close(&fd);
        return;
    }
    vsc_init_host(&c->sm, c->sm.buf_alloc);
    c->by_host = true;
    c->fd = fd;
    if (evloop_timer_arm(vv->dev.env.loop, &c->timer,
                         util_now_ns() + VV_ANSWER_NS, vv_on_timer, c)) {
        vv_conn_end(c, false);
        return;
    }
    vv_conn_ready(c);
    if (vv_conn_watch(c))
        vv_run(vv);
}

bool vv_conn_opened(struct vv_conn *c)
{
    char line[32];
    struct iovec iov = {.iov_base = line};
    int len = snprintf(line, sizeof(line), "OK %u\n", c->host_port);
    ssize_t n;

    c->vv->stats.opened++;
    evloop_timer_cancel(c->vv->dev.env.loop, &c->timer);
    iov.iov_len = (size_t)len;
    n = vsu_send(c->fd, &iov, 1);
    if (c->hung_up)
        vv_conn_ready(c); /* it left bytes behind, and has gone */
    if (n == len)
        return vv_conn_watch(c);
    /* The socket is empty: it takes a line, or it is dead. */
    return vv_conn_send_failed(c, n < 0 ? n : -EIO);
}

/* --- clients of the guest ------------------------------------------------ */

static void vv_conn_refuse(struct vv_conn *c, int rc)
{
    struct vvsock *vv = c->vv;

    vv->stats.refused++;
    if (rc == -ENAMETOOLONG)
        log_limited(vv->dev.env.log, &vv->limit, LOG_WARN,
                    "vsock: guest connection to port %u is refused: the "
                    "socket's path would be longer than %u bytes",
                    c->host_port, VSU_PATH_MAX);
    else
        log_limited(vv->dev.env.log, &vv->limit, LOG_DEBUG,
                    "vsock: guest connection to port %u is refused: %s",
                    c->host_port, err_reason(rc));
    vv_conn_end(c, true);
}

/*
 * A Unix socket connects at once or fails. Where the listener's backlog is
 * full there is no event to wait for: try again, ever more slowly.
 */
static void vv_conn_dial(struct vv_conn *c)
{
    struct vvsock *vv = c->vv;
    uint64_t now;
    int rc = vsu_dial(vv->vsu, c->host_port, &c->fd);

    if (rc == 0) {
        vv->stats.opened++;
        vsc_host_connected(&c->sm);
        vv_conn_ready(c);
        (void)vv_conn_watch(c); /* c is not used any more */
        return;
    }
    now = util_now_ns();
    if (rc == -EAGAIN && now < c->dial_until_ns) {
        rc = evloop_timer_arm(vv->dev.env.loop, &c->timer,
                              now + c->dial_pause_ns, vv_on_timer, c);
        c->dial_pause_ns = min_u64(2 * c->dial_pause_ns, VV_DIAL_LAST_NS);
        if (rc == 0)
            return;
    }
    vv_conn_refuse(c, rc);
}

void vv_conn_from_guest(struct vvsock *vv, const struct vsock_pkt *pkt)
{
    struct vv_conn *c = vv_conn_new(vv, pkt->dst_port, pkt->src_port);
    struct vsock_pkt rst;

    if (!c) {
        rst = vsock_pkt_reset_for(pkt);
        vv_reset_push(vv, &rst);
        return;
    }
    vsc_init_guest(&c->sm, pkt, c->sm.buf_alloc);
    c->dial_pause_ns = VV_DIAL_FIRST_NS;
    c->dial_until_ns = util_now_ns() + VV_DIAL_NS;
    vv_conn_dial(c);
}

/* --- events -------------------------------------------------------------- */

/* The peer has closed. What it sent before is still the guest's. */
static bool vv_conn_hung_up(struct vv_conn *c)
{
    c->hung_up = true;
    if (c->hashed && c->sm.state == VSC_ASKED) {
        if (vsu_has_data(c->fd))
            return vv_conn_watch(c);
        vv_conn_end(c, true); /* it does not want to know any more */
        return false;
    }
    return vv_conn_write_gone(c);
}

static void vv_on_poll(struct ev_fd *w, uint32_t revents)
{
    struct vv_conn *c = w->arg;
    struct vvsock *vv = c->vv;

    if (revents & (POLLHUP | POLLERR)) {
        (void)vv_conn_hung_up(c); /* c is not used any more */
    } else if (!(revents & POLLOUT) || vv_conn_flush(c)) {
        if (c->queued)
            (void)vv_conn_watch(c); /* as above */
        else if (revents & POLLIN)
            vv_conn_ready(c);
    }
    vv_run(vv);
}

static void vv_on_timer(struct ev_timer *t)
{
    struct vv_conn *c = t->arg;
    struct vvsock *vv = c->vv;

    if (c->sm.state == VSC_DIALING) {
        vv_conn_dial(c);
    } else {
        /* No answer to a REQUEST, or none to a SHUTDOWN. */
        if (c->sm.state == VSC_ASKED)
            vv->stats.refused++;
        vv_conn_end(c, true);
    }
    vv_run(vv);
}
