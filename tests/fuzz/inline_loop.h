/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FUZZ_INLINE_LOOP_H
#define TESTS_FUZZ_INLINE_LOOP_H

/*
 * The functions of vmm/evloop.h for fuzz targets: one thread, no waiting, the
 * same order each time. Posted calls run at once; the rest runs when the target
 * asks for a turn, and every armed timer is due then.
 *
 * These are definitions, not declarations: a target that includes this header
 * is linked without the real loop, because the archive's members are only
 * taken for what is missing. So they must be complete.
 */

#include "vmm/evloop.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define INLINE_MAX 64u

struct evloop {
    struct ev_fd *fds[INLINE_MAX];
    struct ev_counter *counters[INLINE_MAX];
    struct ev_timer *timers[INLINE_MAX];
    struct ev_later *laters[INLINE_MAX];
    uint32_t num_laters;
    struct ev_io *io_head;
    struct ev_io **io_tail;
};

int evloop_new(enum evloop_backend want, struct evloop **out_loop)
{
    struct evloop *loop = calloc(1, sizeof(*loop));

    (void)want;
    if (!loop)
        return -ENOMEM;
    loop->io_tail = &loop->io_head;
    *out_loop = loop;
    return 0;
}

void evloop_free(struct evloop *loop)
{
    free(loop);
}

enum evloop_backend evloop_backend(const struct evloop *loop)
{
    (void)loop;
    return EVLOOP_EPOLL;
}

int evloop_fallback_errno(const struct evloop *loop)
{
    (void)loop;
    return 0;
}

void evloop_stop(struct evloop *loop)
{
    (void)loop; /* a run is one turn in any case */
}

/* Slot 0 stays unused: it means "not added". */
#define INLINE_TAKE(array, obj, index)                                         \
    do {                                                                       \
        uint32_t i_ = 1;                                                       \
        while (i_ < INLINE_MAX && (array)[i_])                                 \
            i_++;                                                              \
        if (i_ == INLINE_MAX)                                                  \
            return -ENOSPC;                                                    \
        (array)[i_] = (obj);                                                   \
        (index) = i_;                                                          \
    } while (0)

int evloop_fd_add(struct evloop *loop, struct ev_fd *w, int fd, uint32_t events,
                  ev_fd_fn fn, void *arg)
{
    *w = (struct ev_fd){.fd = fd, .events = events, .fn = fn, .arg = arg};
    INLINE_TAKE(loop->fds, w, w->slot_);
    return 0;
}

int evloop_fd_mod(struct evloop *loop, struct ev_fd *w, uint32_t events)
{
    (void)loop;
    w->events = events;
    return w->slot_ ? 0 : -EINVAL;
}

void evloop_fd_del(struct evloop *loop, struct ev_fd *w)
{
    loop->fds[w->slot_] = NULL;
    w->slot_ = 0;
}

int evloop_counter_add(struct evloop *loop, struct ev_counter *c, int fd,
                       ev_counter_fn fn, void *arg)
{
    *c = (struct ev_counter){.fd = fd, .fn = fn, .arg = arg};
    INLINE_TAKE(loop->counters, c, c->slot_);
    return 0;
}

void evloop_counter_del(struct evloop *loop, struct ev_counter *c)
{
    loop->counters[c->slot_] = NULL;
    c->slot_ = 0;
}

int evloop_timer_arm(struct evloop *loop, struct ev_timer *t,
                     uint64_t deadline_ns, ev_timer_fn fn, void *arg)
{
    t->deadline_ns = deadline_ns;
    t->fn = fn;
    t->arg = arg;
    if (t->heap_index_ == 0)
        INLINE_TAKE(loop->timers, t, t->heap_index_);
    return 0;
}

void evloop_timer_cancel(struct evloop *loop, struct ev_timer *t)
{
    loop->timers[t->heap_index_] = NULL;
    t->heap_index_ = 0;
}

void evloop_later(struct evloop *loop, struct ev_later *l, ev_later_fn fn,
                  void *arg)
{
    if (l->queued_ || loop->num_laters == INLINE_MAX)
        return;
    *l = (struct ev_later){.fn = fn, .arg = arg, .queued_ = true};
    loop->laters[loop->num_laters++] = l;
}

void evloop_later_cancel(struct evloop *loop, struct ev_later *l)
{
    l->queued_ = false;
    for (uint32_t i = 0; i < loop->num_laters; i++) {
        if (loop->laters[i] == l)
            loop->laters[i] = NULL;
    }
}

void evloop_signal(struct evloop *loop, struct ev_signal *s)
{
    (void)loop;
    (void)eventfd_write(s->fd, 1); /* a full counter is raised as well */
}

void evloop_signal_cancel(struct evloop *loop, struct ev_signal *s)
{
    (void)loop;
    (void)s;
}

void evloop_io_submit(struct evloop *loop, struct ev_io *io)
{
    io->next_ = NULL;
    *loop->io_tail = io;
    loop->io_tail = &io->next_;
}

void evloop_post(struct evloop *loop, struct ev_call *c)
{
    (void)loop;
    c->fn(c);
}

/* --- a turn -------------------------------------------------------------- */

static void inline_run_io(struct evloop *loop)
{
    struct ev_io *io = loop->io_head;

    loop->io_head = NULL;
    loop->io_tail = &loop->io_head;
    while (io) {
        struct ev_io *next = io->next_;
        off_t off = (off_t)io->offset_bytes;
        ssize_t n;

        if (io->op == EV_IO_READV)
            n = preadv2(io->fd, io->iov, (int)io->iovcnt, off, 0);
        else if (io->op == EV_IO_WRITEV)
            n = pwritev2(io->fd, io->iov, (int)io->iovcnt, off, 0);
        else if (io->op == EV_IO_FALLOCATE)
            n = fallocate(io->fd, io->mode, off, (off_t)io->len_bytes);
        else
            n = fdatasync(io->fd);
        io->fn(io, n < 0 ? neg_errno() : (int32_t)n);
        io = next;
    }
}

static void inline_run_timers(struct evloop *loop)
{
    struct ev_timer *due[INLINE_MAX];

    for (uint32_t i = 1; i < INLINE_MAX; i++)
        due[i] = loop->timers[i];
    for (uint32_t i = 1; i < INLINE_MAX; i++) {
        if (!due[i] || loop->timers[i] != due[i])
            continue; /* cancelled by one before it */
        evloop_timer_cancel(loop, due[i]);
        due[i]->fn(due[i]);
    }
}

static void inline_run_laters(struct evloop *loop)
{
    uint32_t n = loop->num_laters;

    for (uint32_t i = 0; i < n; i++) {
        struct ev_later *l = loop->laters[i];

        loop->laters[i] = NULL;
        if (!l)
            continue;
        l->queued_ = false;
        l->fn(l);
    }
    loop->num_laters -= n;
    memmove(loop->laters, loop->laters + n,
            loop->num_laters * sizeof(loop->laters[0]));
}

static bool inline_readable(int fd, uint32_t events, uint32_t *out_revents)
{
    struct pollfd p = {.fd = fd, .events = (short)events};

    if (poll(&p, 1, 0) <= 0)
        return false;
    *out_revents = (uint32_t)p.revents;
    return true;
}

static void inline_loop_turn(struct evloop *loop)
{
    uint32_t revents = 0;
    uint64_t count;

    inline_run_io(loop);
    inline_run_timers(loop);
    for (uint32_t i = 1; i < INLINE_MAX; i++) {
        struct ev_counter *c = loop->counters[i];

        if (c && inline_readable(c->fd, POLLIN, &revents) &&
            read(c->fd, &count, sizeof(count)) == sizeof(count))
            c->fn(c, count);
    }
    for (uint32_t i = 1; i < INLINE_MAX; i++) {
        struct ev_fd *w = loop->fds[i];

        if (w && inline_readable(w->fd, w->events, &revents))
            w->fn(w, revents);
    }
    inline_run_laters(loop);
}

int evloop_run(struct evloop *loop)
{
    inline_loop_turn(loop);
    return 0;
}

#endif
