/* SPDX-License-Identifier: Apache-2.0 */
/* thread: io, apart from opening */
#include "devices/net_tap.h"

#include "vmm/cleanup.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define TAP_DEVICE "/dev/net/tun"

struct tap_pair {
    struct net_tap *tap;
    int fd;
    struct ev_fd watch; /* events are 0 unless somebody waits */
};

struct net_tap {
    struct net_back base; /* first */
    struct evloop *loop;
    const struct net_events *events;
    void *arg;
    uint16_t num_open;
    uint16_t attached; /* pairs that frames come on; others answer EBADFD */
    bool gone;
    bool plain;   /* the loop's note on what kind of file a TAP is */
    uint8_t sink; /* tells a frame that does not fit from one that does */
    struct tap_pair pairs[NET_MAX_PAIRS];
};

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
    .set_offloads = tap_set_offloads,
    .set_pairs = tap_set_pairs,
    .free = tap_free,
};

/* --- interfaces by name -------------------------------------------------- */

/* A request on interface `r->ifr_name`. syscalls: socket, ioctl(SIOC*) */
static int tap_ifreq(unsigned long what, struct ifreq *r)
{
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || ioctl(fd, what, r) < 0)
        return neg_errno();
    return 0;
}

static void tap_name(struct ifreq *r, const char *name)
{
    memset(r, 0, sizeof(*r));
    (void)snprintf(r->ifr_name, sizeof(r->ifr_name), "%s", name);
}

/* 0: there is none. */
static int tap_index(const char *name)
{
    struct ifreq r;

    tap_name(&r, name);
    return tap_ifreq(SIOCGIFINDEX, &r) ? 0 : r.ifr_ifindex;
}

static uint32_t tap_mtu(const char *name)
{
    struct ifreq r;

    tap_name(&r, name);
    return tap_ifreq(SIOCGIFMTU, &r) || r.ifr_mtu < 0 ? 0 : (uint32_t)r.ifr_mtu;
}

/* An interface that nobody else looks after: its MTU, and up. */
static int tap_raise(const struct net_tap_args *args, struct errmsg *err)
{
    struct ifreq r;
    int rc = 0;

    tap_name(&r, args->name);
    if (args->mtu) {
        r.ifr_mtu = (int)args->mtu;
        rc = tap_ifreq(SIOCSIFMTU, &r);
    }
    if (rc == 0) {
        tap_name(&r, args->name);
        rc = tap_ifreq(SIOCGIFFLAGS, &r);
        r.ifr_flags |= IFF_UP;
    }
    if (rc == 0)
        rc = tap_ifreq(SIOCSIFFLAGS, &r);
    if (rc)
        return err_set(err, rc,
                       "network interface %s: cannot be set up (MTU %u): %s; "
                       "create it yourself",
                       args->name, args->mtu, err_reason(rc));
    return 0;
}

/* --- opening ------------------------------------------------------------- */

static int tap_open_error(const struct net_tap_args *a, int rc,
                          struct errmsg *err)
{
    switch (rc) {
    case -EBUSY:
        return err_set(err, rc,
                       "network interface %s: in use by another process; end "
                       "that one or use another interface",
                       a->name);
    case -EPERM:
    case -EACCES:
        return err_set(err, rc,
                       "network interface %s: not allowed; give it to this "
                       "user (ip tuntap add %s mode tap user NAME) or run "
                       "with CAP_NET_ADMIN",
                       a->name, a->name);
    case -EINVAL:
        return err_set(err, rc,
                       "network interface %s: no TAP interface%s; make one "
                       "with: ip tuntap add %s mode tap%s",
                       a->name, a->pairs > 1 ? " of several queues" : "",
                       a->name, a->pairs > 1 ? " multi_queue" : "");
    default:
        return err_set(err, rc, "network interface %s: cannot be opened: %s",
                       a->name, err_reason(rc));
    }
}

/* syscalls: openat, ioctl(TUNSETIFF) */
static int tap_open_queue(const char *name, bool multi, int *out_fd,
                          struct errmsg *err)
{
    CLEANUP_FD int fd = open(TAP_DEVICE, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    struct ifreq r;

    if (fd < 0) {
        int rc = neg_errno();

        return err_set(err, rc,
                       TAP_DEVICE ": %s; load the tun module (modprobe tun) "
                                  "and allow this user to open it",
                       err_reason(rc));
    }
    tap_name(&r, name);
    r.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    if (multi)
        r.ifr_flags |= IFF_MULTI_QUEUE;
    err->text[0] = '\0'; /* the caller words what follows */
    if (ioctl(fd, TUNSETIFF, &r) < 0)
        return neg_errno();
    *out_fd = take_fd(&fd);
    return 0;
}

/* All queues of the interface, the first in any flavour that it has. */
static int tap_open_queues(struct net_tap *t, const struct net_tap_args *a,
                           struct errmsg *err)
{
    bool multi = a->pairs > 1;
    int rc = 0;

    while (t->num_open < a->pairs && rc == 0) {
        int *fd = &t->pairs[t->num_open].fd;

        rc = tap_open_queue(a->name, multi, fd, err);
        if (rc == -EINVAL && !multi && !err->text[0])
            rc = tap_open_queue(a->name, true, fd, err);
        if (rc == 0)
            t->num_open++;
    }
    if (rc && !err->text[0])
        return tap_open_error(a, rc, err);
    return rc;
}

/* syscalls: ioctl(TUNSETVNETHDRSZ, TUNSETOFFLOAD) */
static int tap_set_header(struct net_tap *t, const char *name,
                          struct errmsg *err)
{
    for (uint16_t i = 0; t->base.vnet_hdr && i < t->num_open; i++) {
        int bytes = NET_HDR_BYTES;

        if (ioctl(t->pairs[i].fd, TUNSETVNETHDRSZ, &bytes) < 0 ||
            ioctl(t->pairs[i].fd, TUNSETOFFLOAD, 0) < 0) {
            int rc = neg_errno();

            return err_set(err, rc,
                           "network interface %s: its headers cannot be set: "
                           "%s; the host's kernel has to be 4.8 or newer",
                           name, err_reason(rc));
        }
    }
    return 0;
}

static struct net_tap *tap_new(uint16_t pairs)
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

static int tap_missing(const char *name, struct errmsg *err)
{
    return err_set(err, -ENODEV,
                   "network interface %s: does not exist; create it: ip "
                   "tuntap add %s mode tap && ip link set %s up",
                   name, name, name);
}

static int tap_open_into(struct net_tap *t, const struct net_tap_args *a,
                         struct errmsg *err)
{
    int index = tap_index(a->name);
    int rc;

    if (strlen(a->name) >= IFNAMSIZ)
        return err_set(err, -EINVAL,
                       "network interface %.32s: a name has %u characters at "
                       "most; use another",
                       a->name, IFNAMSIZ - 1);
    if (index == 0 && !a->create)
        return tap_missing(a->name, err);
    rc = tap_open_queues(t, a, err);
    if (rc)
        return rc;
    /* One that went away meanwhile was just made anew, without anybody's
     * address or bridge: that is not what was asked for. */
    if (index != 0 && index != tap_index(a->name))
        return tap_missing(a->name, err);
    rc = tap_set_header(t, a->name, err);
    if (rc == 0 && index == 0)
        rc = tap_raise(a, err);
    t->base.mtu = tap_mtu(a->name);
    return rc;
}

int net_tap_open(const struct net_tap_args *args, struct net_back **out_back,
                 struct errmsg *err)
{
    struct net_tap *t = tap_new(args->pairs);
    int rc;

    if (!t)
        return err_set(err, -ENOMEM, "network: out of memory");
    rc = tap_open_into(t, args, err);
    if (rc) {
        tap_free(&t->base);
        return rc;
    }
    *out_back = &t->base;
    return 0;
}

int net_tap_adopt(int fd, struct net_back **out_back, struct errmsg *err)
{
    struct net_tap *t;
    struct ifreq r;
    int flags;
    int rc;

    memset(&r, 0, sizeof(r));
    if (ioctl(fd, TUNGETIFF, &r) < 0)
        return -ENOTTY;
    flags = fcntl(fd, F_GETFL);
    if (!(r.ifr_flags & IFF_TAP) || !(r.ifr_flags & IFF_NO_PI) || flags < 0 ||
        fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return err_set(err, -EINVAL,
                       "network descriptor %d: not a TAP without packet "
                       "information; open it with IFF_TAP and IFF_NO_PI",
                       fd);
    t = tap_new(1);
    if (!t)
        return err_set(err, -ENOMEM, "network: out of memory");
    t->base.vnet_hdr = r.ifr_flags & IFF_VNET_HDR;
    t->base.mtu = tap_mtu(r.ifr_name);
    t->pairs[0].fd = fd;
    t->num_open = 1;
    rc = tap_set_header(t, r.ifr_name, err);
    if (rc) {
        t->pairs[0].fd = -1; /* still the caller's */
        tap_free(&t->base);
        return rc;
    }
    *out_back = &t->base;
    return 0;
}
