/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The epoll back end, for hosts that forbid io_uring. File I/O is plain and
 * blocking, done between two waits so that no callback runs inside a submit.
 * syscalls: write epoll_create1 epoll_ctl epoll_pwait2 read preadv2 pwritev2
 * fdatasync fallocate
 */
#include "vmm/evloop_int.h"

#include "vmm/cleanup.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#define EPOLL_BATCH 64
/* Blocking requests in one turn: a slow disk must not keep others waiting. */
#define EPOLL_IO_BATCH 16

struct epollb {
    int fd;
    uint32_t num_always; /* slots with always_ready */
    struct ev_io *io_head;
    struct ev_io **io_tail;
};

int evloop_epoll_init(struct evloop *loop, void **out_priv)
{
    struct epollb *e = calloc(1, sizeof(*e));

    (void)loop;
    if (!e)
        return -ENOMEM;
    e->io_tail = &e->io_head;
    e->fd = epoll_create1(EPOLL_CLOEXEC);
    if (e->fd < 0) {
        int rc = neg_errno();

        free(e);
        return rc;
    }
    *out_priv = e;
    return 0;
}

static int epollb_start(struct evloop *loop)
{
    (void)loop;
    return 0;
}

static void epollb_fini(struct evloop *loop)
{
    struct epollb *e = evloop_priv(loop);

    drop_fd(&e->fd);
    free(e);
}

/* The generation tells a late event from one of the slot's next owner. */
static uint64_t epollb_data(const struct ev_slot *s)
{
    return (uint64_t)s->generation << 32 | s->index;
}

static int epollb_arm(struct evloop *loop, struct ev_slot *s)
{
    struct epollb *e = evloop_priv(loop);
    struct epoll_event ev = {.data.u64 = epollb_data(s)};
    int fd = s->kind == EV_SLOT_FD ? s->owner.w->fd : s->owner.c->fd;

    ev.events = s->kind == EV_SLOT_FD ? s->owner.w->events : EPOLLIN;
    if (ev.events == 0)
        return 0;
    if (epoll_ctl(e->fd, EPOLL_CTL_ADD, fd, &ev) == 0) {
        s->in_flight = true;
        return 0;
    }
    if (errno != EPERM)
        return neg_errno();
    s->always_ready = true; /* a regular file is always ready */
    e->num_always++;
    return 0;
}

static void epollb_remove(struct epollb *e, struct ev_slot *s, int fd)
{
    if (s->always_ready)
        e->num_always--;
    else if (s->in_flight)
        (void)epoll_ctl(e->fd, EPOLL_CTL_DEL, fd, NULL); /* closed: gone */
    s->always_ready = false;
    s->in_flight = false;
}

static int epollb_rearm(struct evloop *loop, struct ev_slot *s)
{
    epollb_remove(evloop_priv(loop), s, s->owner.w->fd);
    return epollb_arm(loop, s);
}

static void epollb_disarm(struct evloop *loop, struct ev_slot *s, int fd)
{
    epollb_remove(evloop_priv(loop), s, fd);
    evloop_slot_release(loop, s);
}

static void epollb_submit(struct evloop *loop, struct ev_io *io)
{
    struct epollb *e = evloop_priv(loop);

    io->next_ = NULL;
    *e->io_tail = io;
    e->io_tail = &io->next_;
}

int32_t evloop_do_io(const struct ev_io *io)
{
    ssize_t n = -1;

    switch (io->op) {
    case EV_IO_READV:
        n = preadv2(io->fd, io->iov, (int)io->iovcnt, (off_t)io->offset_bytes,
                    0);
        break;
    case EV_IO_WRITEV:
        n = pwritev2(io->fd, io->iov, (int)io->iovcnt, (off_t)io->offset_bytes,
                     0);
        break;
    case EV_IO_FDATASYNC:
        n = fdatasync(io->fd);
        break;
    case EV_IO_FALLOCATE:
        n = fallocate(io->fd, io->mode, (off_t)io->offset_bytes,
                      (off_t)io->len_bytes);
        break;
    }
    return n < 0 ? neg_errno() : (int32_t)n;
}

static void epollb_run_io(struct epollb *e)
{
    /* What a callback submits joins the end. */
    for (int left = EPOLL_IO_BATCH; left > 0 && e->io_head; left--) {
        struct ev_io *io = e->io_head;

        e->io_head = io->next_;
        if (!e->io_head)
            e->io_tail = &e->io_head;
        io->fn(io, evloop_do_io(io));
    }
}

static void epollb_dispatch(struct ev_slot *s, uint32_t revents)
{
    if (s->kind == EV_SLOT_FD) {
        struct ev_fd *w = s->owner.w;

        revents &= w->events | POLLERR | POLLHUP;
        if (revents && w->events)
            w->fn(w, revents);
    } else if (s->kind == EV_SLOT_COUNTER) {
        struct ev_counter *c = s->owner.c;
        uint64_t count = 0;

        if (read(c->fd, &count, sizeof(count)) == (ssize_t)sizeof(count))
            c->fn(c, count);
    }
}

static int epollb_turn(struct evloop *loop, uint64_t timeout_ns)
{
    struct epollb *e = evloop_priv(loop);
    struct epoll_event ev[EPOLL_BATCH];
    struct timespec ts;
    bool busy = e->io_head || e->num_always;
    int n;

    while ((n = evloop_take_signal(loop)) >= 0)
        evloop_write_signal(n);
    ts.tv_sec = busy ? 0 : (time_t)(timeout_ns / 1000000000u);
    ts.tv_nsec = busy ? 0 : (long)(timeout_ns % 1000000000u);
    n = epoll_pwait2(e->fd, ev, EPOLL_BATCH,
                     busy || timeout_ns != UINT64_MAX ? &ts : NULL, NULL);
    if (n < 0 && errno != EINTR)
        return neg_errno();
    epollb_run_io(e);
    for (int i = 0; i < n; i++) {
        struct ev_slot *s = evloop_slot(loop, (uint32_t)ev[i].data.u64);

        /* An earlier callback of this batch may have removed it. */
        if (s->in_flight && epollb_data(s) == ev[i].data.u64)
            epollb_dispatch(s, ev[i].events);
    }
    for (uint32_t i = 1; e->num_always && i < evloop_slot_limit(loop); i++) {
        struct ev_slot *s = evloop_slot(loop, i);

        if (s->kind == EV_SLOT_FD && s->always_ready)
            epollb_dispatch(s, s->owner.w->events);
    }
    return 0;
}

const struct evloop_ops evloop_epoll_ops = {
    .backend = EVLOOP_EPOLL,
    .start = epollb_start,
    .fini = epollb_fini,
    .arm = epollb_arm,
    .rearm = epollb_rearm,
    .disarm = epollb_disarm,
    .submit = epollb_submit,
    .turn = epollb_turn,
};
