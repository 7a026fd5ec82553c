/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock_int.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

/* virtio-vsock: a connection's socket on the host. thread: io */

static void vv_on_poll(struct ev_fd *w, uint32_t revents);

void vv_conn_close_fd(struct vv_conn *c)
{
    evloop_fd_del(c->vv->dev.env.loop, &c->watch);
    vsu_close(&c->fd);
    vsock_buf_clear(&c->out);
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
    if (!vv_resting(c->vv) && c->hashed && !c->queued && vv_conn_reads(c) &&
        vsc_credit(&c->sm) > 0)
        events |= POLLIN;
    return events ? events : POLLHUP;
}

bool vv_conn_watch(struct vv_conn *c)
{
    struct evloop *loop = c->vv->dev.env.loop;
    int rc;

    if (c->fd < 0)
        return true;
    /* At rest only what the guest has sent goes on to its reader. */
    if (c->hung_up || (vv_resting(c->vv) && c->out.len == 0)) {
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
    return vv_conn_arm(c, util_now_ns() + VV_CLOSE_NS);
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

/* Only bytes of the guest go out; a hang-up is told again at the wake. */
static void vv_on_poll_resting(struct vv_conn *c, uint32_t revents)
{
    if (revents & (POLLHUP | POLLERR))
        evloop_fd_del(c->vv->dev.env.loop, &c->watch);
    else if (revents & POLLOUT)
        (void)vv_conn_flush(c); /* c is not used any more */
}

static void vv_on_poll(struct ev_fd *w, uint32_t revents)
{
    struct vv_conn *c = w->arg;
    struct vvsock *vv = c->vv;

    if (vv_resting(vv)) {
        vv_on_poll_resting(c, revents);
        return;
    }
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
