/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_console_int.h"

#include "devices/vsock_unix.h"
#include "vmm/errmsg.h"

#include <poll.h>

#include <string.h>
#include <sys/socket.h>

/*
 * The Unix socket of one port: a listener, and one client at a time. The rest
 * wait in its backlog. thread: io. syscalls: accept4 recvmsg sendmsg
 */

#define VCON_BACKLOG   4
#define VCON_RETRY_NS  100000000u /* when no descriptor is to be had */
#define VCON_SEND_SEGS 64
#define VCON_SEND_MAX  65536u /* in one call */

static void vcon_sock_on_client(struct ev_fd *w, uint32_t revents);
static void vcon_sock_on_accept(struct ev_fd *w, uint32_t revents);

/* --- the client ---------------------------------------------------------- */

/* Its descriptor goes; the port is closed to the guest. */
static void vcon_sock_forget(struct vcon_port *p)
{
    evloop_fd_del(p->v->dev.env.loop, &p->in);
    vsu_close(&p->client);
    p->client_eof = false;
    p->client_hup = false;
}

void vcon_sock_drop(struct vcon_port *p)
{
    vcon_sock_forget(p);
    vcon_ctl_tell(p, VCON_MSG_OPEN);
    vcon_port_tx(p); /* what waited for it is dropped */
}

/*
 * A client that hung up may have left bytes: the guest gets them when it has
 * room, unless it does not listen, or the next client comes first.
 */
static void vcon_sock_hung_up(struct vcon_port *p)
{
    if (!p->guest_open || p->client_eof || !vsu_has_data(p->client)) {
        vcon_sock_drop(p);
        return;
    }
    p->client_hup = true;
    if (p->held)
        vcon_port_tx(p);
}

static bool vcon_sock_can_receive(const struct vcon_port *p)
{
    return p->v->active && p->room && p->guest_open && !p->client_eof &&
           !p->tell_closed;
}

static void vcon_sock_receive(struct vcon_port *p)
{
    int rc = vcon_port_rx(p, p->client);

    if (rc == -ENODATA && !vsu_hung_up(p->client))
        p->client_eof = true; /* it may still listen */
    else if (rc)
        vcon_sock_drop(p);
}

static void vcon_sock_on_client(struct ev_fd *w, uint32_t revents)
{
    struct vcon_port *p = w->arg;

    if (vcon_sock_can_receive(p))
        vcon_sock_receive(p);
    else if (revents & (POLLHUP | POLLERR))
        vcon_sock_hung_up(p);
    if (p->client >= 0 && p->held)
        vcon_port_tx(p);
    vcon_sock_watch(p);
}

int vcon_sock_send(struct vcon_port *p, uint64_t *budget_bytes)
{
    while (p->sent_bytes < p->tx.readable_bytes) {
        struct iovec iov[VCON_SEND_SEGS];
        uint64_t len = min_u64(p->tx.readable_bytes - p->sent_bytes,
                               min_u64(*budget_bytes, VCON_SEND_MAX));
        ssize_t n;
        int num = 0;

        if (p->client < 0 || p->client_hup || p->tell_closed)
            return 1; /* nobody is there */
        if (len == 0)
            return 0;
        /* A chain of many small pieces goes piece by piece. */
        num = vq_chain_slice(&p->tx, false, p->sent_bytes, len, iov,
                             VCON_SEND_SEGS);
        if (num < 0)
            num = vq_chain_slice(&p->tx, false, p->sent_bytes, 1, iov, 1);
        n = vsu_send(p->client, iov, num);
        if (n == -EAGAIN)
            return 0;
        if (n < 0)
            return 1; /* its hang-up is told by the watch */
        p->sent_bytes += (uint64_t)n;
        *budget_bytes -= (uint64_t)n;
    }
    return 1;
}

/* --- the listener -------------------------------------------------------- */

static void vcon_sock_trouble(struct vcon_port *p, int rc)
{
    log_msg(p->v->dev.env.log, LOG_WARN, "console port %s: %s", p->name,
            err_reason(rc));
}

static void vcon_sock_on_retry(struct ev_timer *t)
{
    vcon_sock_watch(t->arg);
}

/* One that gave up is no trouble; without descriptors the watch would spin. */
static void vcon_sock_accept_failed(struct vcon_port *p, int rc)
{
    struct evloop *loop = p->v->dev.env.loop;

    if (rc == -EAGAIN || rc == -ECONNABORTED || rc == -EINTR)
        return;
    evloop_fd_del(loop, &p->accept);
    rc = evloop_timer_arm(loop, &p->accept_again, util_now_ns() + VCON_RETRY_NS,
                          vcon_sock_on_retry, p);
    if (rc)
        vcon_sock_trouble(p, rc);
}

static void vcon_sock_on_accept(struct ev_fd *w, uint32_t revents)
{
    struct vcon_port *p = w->arg;
    int fd = accept4(p->listen.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)revents;
    if (fd < 0) {
        vcon_sock_accept_failed(p, neg_errno());
        return;
    }
    if (p->client >= 0)
        vcon_sock_forget(p); /* it hung up long ago */
    p->client = fd;
    vcon_ctl_tell(p, VCON_MSG_OPEN);
    vcon_sock_watch(p);
}

static void vcon_sock_watch_client(struct vcon_port *p)
{
    struct evloop *loop = p->v->dev.env.loop;
    uint32_t want = POLLHUP; /* told in any case; 0 would silence it */
    int rc;

    if (vcon_sock_can_receive(p))
        want |= POLLIN;
    if (p->held)
        want |= POLLOUT;
    if (p->client < 0 || (p->client_hup && !(want & POLLIN))) {
        evloop_fd_del(loop, &p->in);
        return;
    }
    if (p->in.slot_ == 0)
        rc = evloop_fd_add(loop, &p->in, p->client, want, vcon_sock_on_client,
                           p);
    else
        rc = p->in.events == want ? 0 : evloop_fd_mod(loop, &p->in, want);
    if (rc) {
        vcon_sock_trouble(p, rc);
        vcon_sock_forget(p);
    }
}

void vcon_sock_watch(struct vcon_port *p)
{
    struct evloop *loop = p->v->dev.env.loop;
    int rc;

    if (vcon_resting(p->v)) {
        evloop_fd_del(loop, &p->in);
        evloop_fd_del(loop, &p->accept);
        return;
    }
    vcon_sock_watch_client(p);
    if (p->client >= 0 && !p->client_hup) {
        evloop_fd_del(loop, &p->accept);
        return;
    }
    if (p->accept.slot_ != 0 || p->accept_again.heap_index_ != 0)
        return;
    rc = evloop_fd_add(loop, &p->accept, p->listen.fd, POLLIN,
                       vcon_sock_on_accept, p);
    if (rc)
        vcon_sock_trouble(p, rc);
}

int vcon_sock_open(struct vcon_port *p, const struct vcon_port_args *args,
                   struct errmsg *err)
{
    int rc = unix_listen_open(&p->listen, "console port's socket", args->path,
                              VCON_BACKLOG, err);

    if (rc == 0)
        vcon_sock_watch(p);
    return rc;
}

void vcon_sock_close(struct vcon_port *p)
{
    evloop_fd_del(p->v->dev.env.loop, &p->accept);
    evloop_timer_cancel(p->v->dev.env.loop, &p->accept_again);
    vcon_sock_forget(p);
    unix_listen_close(&p->listen);
}
