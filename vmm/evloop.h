/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_EVLOOP_H
#define VMM_EVLOOP_H

/*
 * The event loop of a process: fd readiness, eventfd counters, timers, file
 * I/O and calls from other threads, all answered on one thread. Two back ends
 * behind one interface: io_uring, and epoll with plain blocking file I/O for
 * hosts that forbid io_uring.
 *
 * Ownership: the embedded structs (ev_fd, ev_counter, ev_timer, ev_io) are the
 * caller's and stay untouched in memory until removed (ev_fd, ev_counter,
 * ev_timer) or until their callback ran (ev_io, ev_call). fds stay the
 * caller's. After evloop_*_del() the callback does not run again and the
 * struct may be freed at once.
 * Threads: everything on the loop's thread (or before evloop_run() starts),
 * apart from evloop_stop() and evloop_post(), which any thread may call.
 * Errors: 0 or -errno.
 */

#include "vmm/util.h"

#include <sys/uio.h>

struct evloop;

enum evloop_backend { EVLOOP_AUTO, EVLOOP_URING, EVLOOP_EPOLL };

/*
 * EVLOOP_AUTO takes io_uring and falls back to epoll where the host forbids
 * it; `evloop_backend()` tells which it became and `evloop_fallback_errno()`
 * why (0 when it did not fall back). EVLOOP_URING fails with the -errno of
 * io_uring_setup instead.
 */
int evloop_new(enum evloop_backend want, struct evloop **out_loop) MUST_CHECK;
void evloop_free(struct evloop *loop); /* NULL is fine */
enum evloop_backend evloop_backend(const struct evloop *loop);
int evloop_fallback_errno(const struct evloop *loop);

/* Runs callbacks until evloop_stop(); 0, or -errno of the loop itself. */
int evloop_run(struct evloop *loop) MUST_CHECK;
/* Ends evloop_run() after the current turn. Thread: any. */
void evloop_stop(struct evloop *loop);

/* --- readiness ---------------------------------------------------------- */

/*
 * Level-triggered: called again for as long as an event of `events` (POLLIN,
 * POLLOUT, POLLRDHUP) holds; POLLHUP and POLLERR are always told. Whoever
 * gets POLLHUP must remove the watch or consume its cause, else it spins.
 */
struct ev_fd;
typedef void (*ev_fd_fn)(struct ev_fd *w, uint32_t revents);
struct ev_fd {
    int fd;
    uint32_t events;
    ev_fd_fn fn;
    void *arg;      /* the caller's */
    uint32_t slot_; /* private to evloop; 0 = not added */
};

int evloop_fd_add(struct evloop *loop, struct ev_fd *w, int fd, uint32_t events,
                  ev_fd_fn fn, void *arg) MUST_CHECK;
/* Changes the events; 0 events keeps the watch without any wake-up. */
int evloop_fd_mod(struct evloop *loop, struct ev_fd *w,
                  uint32_t events) MUST_CHECK;
/* Idempotent; fine on a zeroed struct. */
void evloop_fd_del(struct evloop *loop, struct ev_fd *w);

/* --- eventfd counters --------------------------------------------------- */

/*
 * An eventfd whose counter the loop itself reads (one ring operation instead
 * of a wake-up and a read). `count` is what was read.
 */
struct ev_counter;
typedef void (*ev_counter_fn)(struct ev_counter *c, uint64_t count);
struct ev_counter {
    int fd;
    ev_counter_fn fn;
    void *arg;
    uint32_t slot_;
};

int evloop_counter_add(struct evloop *loop, struct ev_counter *c, int fd,
                       ev_counter_fn fn, void *arg) MUST_CHECK;
void evloop_counter_del(struct evloop *loop, struct ev_counter *c);

/* --- timers ------------------------------------------------------------- */

struct ev_timer;
typedef void (*ev_timer_fn)(struct ev_timer *t);
struct ev_timer {
    uint64_t deadline_ns; /* CLOCK_MONOTONIC */
    ev_timer_fn fn;
    void *arg;
    uint64_t due_ns_;     /* private: orders the timers */
    uint32_t heap_index_; /* private; 0 = not armed */
};

/*
 * One shot. Arming an armed timer moves it. A deadline that is over, 0 for
 * one, means the next turn, behind all timers that are due already: who goes
 * on so in every turn keeps no other timer waiting. 0 or -ENOMEM.
 */
int evloop_timer_arm(struct evloop *loop, struct ev_timer *t,
                     uint64_t deadline_ns, ev_timer_fn fn,
                     void *arg) MUST_CHECK;
void evloop_timer_cancel(struct evloop *loop, struct ev_timer *t);

/* --- at the end of a turn ----------------------------------------------- */

/*
 * `fn` runs once, after the other callbacks of this turn (or of the next one,
 * when called outside of a turn) and before the loop waits again: the place to
 * do once what many callbacks of a turn ask for. Asking again changes nothing.
 */
struct ev_later;
typedef void (*ev_later_fn)(struct ev_later *l);
struct ev_later {
    ev_later_fn fn;
    void *arg;
    bool queued_; /* private, as the next two */
    struct ev_later *next_;
    struct ev_later **link_;
};

void evloop_later(struct evloop *loop, struct ev_later *l, ev_later_fn fn,
                  void *arg);
/* Idempotent; fine on a zeroed struct. */
void evloop_later_cancel(struct evloop *loop, struct ev_later *l);

/* --- raising an eventfd ------------------------------------------------- */

/*
 * Adds 1 to the eventfd `s->fd` (non-blocking, the caller's) before the loop
 * waits again: with io_uring in the system call that waits, so that it costs
 * none of its own. Asking again before that changes nothing. What is asked for
 * in the last turn is still done when evloop_run() returns.
 */
struct ev_signal {
    int fd;
    bool queued_; /* private, as the next two */
    struct ev_signal *next_;
    struct ev_signal **link_;
};

void evloop_signal(struct evloop *loop, struct ev_signal *s);
/* Idempotent; fine on a zeroed struct. */
void evloop_signal_cancel(struct evloop *loop, struct ev_signal *s);

/* --- file I/O ----------------------------------------------------------- */

enum ev_io_op {
    EV_IO_READV,
    EV_IO_WRITEV,
    EV_IO_FDATASYNC,
    EV_IO_FALLOCATE, /* `mode` (FALLOC_FL_*) over [offset, offset + len) */
};

/*
 * One request on a file. `fn` runs exactly once on the loop's thread, never
 * inside evloop_io_submit(), with the bytes moved or -errno; short counts and
 * -EINTR/-EAGAIN are passed on as they are. There is no cancel: the buffers
 * stay valid until `fn` ran. All requests of one turn enter the kernel with
 * one system call.
 */
/*
 * The offset for files that have no position, such as sockets and TAPs. They
 * are non-blocking, and such a request never waits: it ends in the same or the
 * next turn, with -EAGAIN when it would have to. Those of one file are carried
 * out in the order of their submission.
 */
#define EV_IO_STREAM UINT64_MAX
struct ev_io;
typedef void (*ev_io_fn)(struct ev_io *io, int32_t result);
struct ev_io {
    enum ev_io_op op;
    int fd;
    const struct iovec *iov;
    uint32_t iovcnt;
    uint64_t offset_bytes;
    uint64_t len_bytes; /* EV_IO_FALLOCATE only, as is `mode` */
    int mode;
    /* EV_IO_STREAM: the caller's, one for each file, false at first. The loop
     * notes here that the host's kernel cannot do this file in a ring. */
    bool *plain;
    ev_io_fn fn;
    void *arg;
    struct ev_io *next_; /* private */
};

void evloop_io_submit(struct evloop *loop, struct ev_io *io);

/* --- calls from other threads ------------------------------------------- */

struct ev_call;
typedef void (*ev_call_fn)(struct ev_call *c);
struct ev_call {
    ev_call_fn fn;
    void *arg;
    struct ev_call *next_; /* private */
};

/*
 * Queues `c->fn` to run on the loop's thread; calls run in order of posting.
 * Calls posted after the loop has ended run when it runs again, or never:
 * then evloop_free() drops them. Thread: any.
 */
void evloop_post(struct evloop *loop, struct ev_call *c);

#endif
