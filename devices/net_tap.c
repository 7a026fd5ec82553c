/* SPDX-License-Identifier: Apache-2.0 */
/* Frames through a TAP. thread: io */
#include "devices/net_tap_int.h"

#include "vmm/cleanup.h"

#include <assert.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>

static struct net_tap *tap_of(struct net_back *b)
{
    return container_of(b, struct net_tap, base);
}

/* --- frames -------------------------------------------------------------- */

static void tap_unwatch(struct tap_pair *p)
{
    int rc = evloop_fd_mod(p->tap->loop, &p->watch, 0);

    assert(rc == 0); /* taking away needs nothing that could be missing */
    (void)rc;
}

static void tap_gone(struct net_tap *t)
{
    if (t->gone)
        return;
    t->gone = true;
    for (uint16_t i = 0; i < t->num_open; i++)
        tap_unwatch(&t->pairs[i]);
    t->events->link_down(t->arg, "its TAP interface was removed");
}

/* What the kernel says once the interface behind a descriptor is no more. */
static bool tap_is_gone_error(const struct net_tap *t, uint16_t pair,
                              int32_t result)
{
    return (result == -EBADFD || result == -ENODEV || result == -EFAULT) &&
           pair < t->attached;
}

static void tap_on_read(struct ev_io *ev, int32_t result)
{
    struct net_frame *f = ev->arg;
    struct net_tap *t = tap_of(f->back_);
    int32_t hdr = t->base.vnet_hdr ? (int32_t)NET_HDR_BYTES : 0;

    if (result == -EINTR)
        result = -EAGAIN;
    if (result >= 0) {
        result -= hdr;
        if (result < 0 || (uint32_t)result > f->bytes)
            result = -EMSGSIZE;
    } else if (tap_is_gone_error(t, f->pair_, result)) {
        tap_gone(t);
        result = -ENETDOWN;
    } else if (result != -EAGAIN) {
        result = -EAGAIN; /* a queue that was just detached, or no memory */
    }
    f->done(f, result);
}

static void tap_on_written(struct ev_io *ev, int32_t result)
{
    struct net_frame *f = ev->arg;
    struct net_tap *t = tap_of(f->back_);

    /* EIO: the interface is down for now; EAGAIN: its queue is full. */
    if (tap_is_gone_error(t, f->pair_, result) && result != -EFAULT)
        tap_gone(t);
    f->done(f, result < 0 ? result : 0);
}

static void tap_submit(struct net_tap *t, struct net_frame *f, uint32_t iovcnt)
{
    struct ev_io *ev = &f->ev_;
    bool hdr = t->base.vnet_hdr;

    f->iov[0].iov_base = &f->hdr;
    f->iov[0].iov_len = NET_HDR_BYTES;
    ev->fd = t->pairs[f->pair_].fd;
    ev->iov = hdr ? f->iov : f->iov + 1;
    ev->iovcnt = hdr ? iovcnt + 1 : iovcnt;
    ev->offset_bytes = EV_IO_STREAM;
    ev->plain = &t->plain;
    ev->arg = f;
    evloop_io_submit(t->loop, ev);
}

static void tap_rx(struct net_back *b, uint16_t pair, struct net_frame *f)
{
    struct net_tap *t = tap_of(b);

    f->back_ = b;
    f->pair_ = pair;
    memset(&f->hdr, 0, sizeof(f->hdr));
    f->iov[f->iovcnt + 1].iov_base = &t->sink;
    f->iov[f->iovcnt + 1].iov_len = sizeof(t->sink);
    f->ev_.op = EV_IO_READV;
    f->ev_.fn = tap_on_read;
    tap_submit(t, f, f->iovcnt + 1);
}

static void tap_tx(struct net_back *b, uint16_t pair, struct net_frame *f)
{
    f->back_ = b;
    f->pair_ = pair;
    f->ev_.op = EV_IO_WRITEV;
    f->ev_.fn = tap_on_written;
    tap_submit(tap_of(b), f, f->iovcnt);
}

static void tap_tx_flush(struct net_back *b, uint16_t pair)
{
    (void)b; /* the loop sends all of a turn at once anyway */
    (void)pair;
}

/* --- waiting ------------------------------------------------------------- */

static void tap_on_ready(struct ev_fd *w, uint32_t revents)
{
    struct tap_pair *p = w->arg;
    struct net_tap *t = p->tap;

    tap_unwatch(p);
    if (revents & POLLIN)
        t->events->readable(t->arg, (uint16_t)(p - t->pairs));
    else
        tap_gone(t);
}

static void tap_rx_wait(struct net_back *b, uint16_t pair)
{
    struct net_tap *t = tap_of(b);

    if (t->gone || pair >= t->attached)
        return;
    if (evloop_fd_mod(t->loop, &t->pairs[pair].watch, POLLIN))
        tap_gone(t);
}

static void tap_cancel(struct net_back *b)
{
    struct net_tap *t = tap_of(b);

    /* Reads and writes never wait: those under way end in the next turn. */
    for (uint16_t i = 0; i < t->num_open; i++)
        tap_unwatch(&t->pairs[i]);
}

/* --- set-up by the device ------------------------------------------------ */

static int tap_start(struct net_back *b, struct evloop *loop,
                     const struct net_events *events, void *arg)
{
    struct net_tap *t = tap_of(b);
    int rc = 0;

    t->loop = loop;
    t->events = events;
    t->arg = arg;
    for (uint16_t i = 0; i < t->num_open && rc == 0; i++)
        rc = evloop_fd_add(loop, &t->pairs[i].watch, t->pairs[i].fd, 0,
                           tap_on_ready, &t->pairs[i]);
    for (uint16_t i = 0; i < t->num_open && rc; i++)
        evloop_fd_del(loop, &t->pairs[i].watch);
    return rc;
}

/* syscalls: ioctl(TUNSETOFFLOAD) */
static int tap_set_offloads(struct net_back *b, uint32_t offloads)
{
    struct net_tap *t = tap_of(b);
    unsigned long flags = 0;

    if (!t->base.vnet_hdr || t->gone)
        return 0;
    flags |= offloads & NET_OFFLOAD_CSUM ? TUN_F_CSUM : 0;
    flags |= offloads & NET_OFFLOAD_TSO4 ? TUN_F_TSO4 : 0;
    flags |= offloads & NET_OFFLOAD_TSO6 ? TUN_F_TSO6 : 0;
    flags |= offloads & NET_OFFLOAD_ECN ? TUN_F_TSO_ECN : 0;
    /* It is the interface's, whichever queue it is asked of. */
    if (ioctl(t->pairs[0].fd, TUNSETOFFLOAD, flags) < 0) {
        int rc = neg_errno();

        if (rc != -EBADFD)
            return rc;
        tap_gone(t);
    }
    return 0;
}

/* syscalls: ioctl(TUNSETQUEUE) */
static int tap_attach(struct net_tap *t, uint16_t pair, bool on)
{
    struct ifreq r;

    memset(&r, 0, sizeof(r));
    r.ifr_flags = on ? IFF_ATTACH_QUEUE : IFF_DETACH_QUEUE;
    return ioctl(t->pairs[pair].fd, TUNSETQUEUE, &r) < 0 ? neg_errno() : 0;
}

static int tap_set_pairs(struct net_back *b, uint16_t n)
{
    struct net_tap *t = tap_of(b);
    int rc = 0;

    if (t->gone)
        return 0;
    while (t->attached < n && rc == 0) {
        rc = tap_attach(t, t->attached, true);
        if (rc == 0)
            t->attached++;
    }
    while (t->attached > n && rc == 0) {
        uint16_t last = (uint16_t)(t->attached - 1);

        /* Without a queue a descriptor polls as broken. */
        tap_unwatch(&t->pairs[last]);
        rc = tap_attach(t, last, false);
        if (rc == 0)
            t->attached--;
    }
    if (rc == -EBADFD || rc == -EINVAL) {
        tap_gone(t);
        rc = 0;
    }
    return rc;
}

static void tap_free(struct net_back *b)
{
    struct net_tap *t = tap_of(b);

    for (uint16_t i = 0; i < t->num_open; i++) {
        if (t->loop)
            evloop_fd_del(t->loop, &t->pairs[i].watch);
        drop_fd(&t->pairs[i].fd);
    }
    free(t);
}

static const struct net_back_ops tap_ops = {
    .start = tap_start,
    .rx_wait = tap_rx_wait,
    .rx = tap_rx,
    .tx = tap_tx,
    .tx_flush = tap_tx_flush,
    .cancel = tap_cancel,
    .rest = tap_cancel,
    .set_offloads = tap_set_offloads,
    .set_pairs = tap_set_pairs,
    .free = tap_free,
};

struct net_tap *tap_new(uint16_t pairs)
{
    struct net_tap *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->base.ops = &tap_ops;
    t->base.max_pairs = pairs;
    t->base.vnet_hdr = true;
    t->attached = pairs;
    for (uint16_t i = 0; i < NET_MAX_PAIRS; i++) {
        t->pairs[i].tap = t;
        t->pairs[i].fd = -1;
    }
    return t;
}
