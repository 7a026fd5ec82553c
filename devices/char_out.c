/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/char_out.h"

#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define CO_GATHER_NS   1000000u
#define CO_CHUNK_BYTES 4096u
#define CO_SMALL_BYTES 256u /* what polls writable takes at least this much */

enum co_kind {
    CO_FILE,   /* never waits: regular files, /dev/null */
    CO_SOCKET, /* send() has a flag for it */
    CO_OWN,    /* reopened: an open file description of our own */
    CO_POLLED, /* could not be reopened: ask first, write little */
};

struct char_out {
    /* immutable */
    struct evloop *loop;
    struct log *log;
    const char *name;
    int fd; /* borrowed, unless CO_OWN */
    enum co_kind kind;
    int wake_fd;

    /* io thread */
    struct ev_counter wake;
    struct ev_timer gather;
    struct ev_fd room; /* watched while the reader is behind */
    bool told_dropped;

    /* guarded by lock */
    pthread_mutex_t lock;
    bool woken; /* the loop knows that there is something */
    bool dead;  /* the reader is gone: everything is dropped */
    uint64_t dropped;
    size_t start; /* of the bytes waiting, in the circular buffer */
    size_t used;
    uint8_t buf[CHAR_OUT_BUFFER_BYTES];
};

/* --- the buffer ---------------------------------------------------------- */

static void co_put_locked(struct char_out *co, const uint8_t *src, size_t len)
{
    size_t end = (co->start + co->used) % sizeof(co->buf);
    size_t first = sizeof(co->buf) - end < len ? sizeof(co->buf) - end : len;

    memcpy(co->buf + end, src, first);
    memcpy(co->buf, src + first, len - first);
    co->used += len;
}

void char_out_write(struct char_out *co, const void *data, size_t len)
{
    size_t room;
    bool wake;

    (void)pthread_mutex_lock(&co->lock);
    room = co->dead ? 0 : sizeof(co->buf) - co->used;
    if (len > room) {
        co->dropped += len - room;
        len = room;
    }
    co_put_locked(co, data, len);
    wake = len > 0 && !co->woken;
    if (wake)
        co->woken = true;
    (void)pthread_mutex_unlock(&co->lock);
    if (wake)
        (void)eventfd_write(co->wake_fd, 1); /* the counter cannot be full */
}

uint64_t char_out_dropped(struct char_out *co)
{
    uint64_t n;

    (void)pthread_mutex_lock(&co->lock);
    n = co->dropped;
    (void)pthread_mutex_unlock(&co->lock);
    return n;
}

/* --- writing ------------------------------------------------------------- */

/* Bytes taken, 0 when the reader has no room now, or -errno. */
static ssize_t co_try_write(const struct char_out *co, const void *src,
                            size_t len)
{
    struct pollfd p = {.fd = co->fd, .events = POLLOUT};
    ssize_t n;

    do {
        if (co->kind == CO_SOCKET) {
            n = send(co->fd, src, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        } else {
            if (co->kind == CO_POLLED && poll(&p, 1, 0) == 0)
                return 0;
            n = write(co->fd, src, len);
        }
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    return n < 0 ? neg_errno() : n;
}

/*
 * Writes one piece of at most `*budget` bytes. Only one thread takes bytes
 * out, so that they may be written from a copy while others add more.
 * 1: go on, 0: empty, -EAGAIN: no room at the reader, other -errno: it is gone.
 */
static int co_write_piece(struct char_out *co, size_t *budget)
{
    uint8_t piece[CO_CHUNK_BYTES];
    size_t len = co->kind == CO_POLLED ? CO_SMALL_BYTES : sizeof(piece);
    ssize_t n;

    len = min_u64(len, *budget);
    (void)pthread_mutex_lock(&co->lock);
    len = min_u64(len, min_u64(co->used, sizeof(co->buf) - co->start));
    memcpy(piece, co->buf + co->start, len);
    if (len == 0)
        co->woken = false;
    (void)pthread_mutex_unlock(&co->lock);
    if (len == 0)
        return 0;
    n = co_try_write(co, piece, len);
    if (n <= 0)
        return n == 0 ? -EAGAIN : (int)n;
    (void)pthread_mutex_lock(&co->lock);
    co->start = (co->start + (size_t)n) % sizeof(co->buf);
    co->used -= (size_t)n;
    (void)pthread_mutex_unlock(&co->lock);
    *budget -= (size_t)n;
    return 1;
}

static void co_give_up(struct char_out *co, int rc)
{
    (void)pthread_mutex_lock(&co->lock);
    co->dead = true;
    co->dropped += co->used;
    co->used = 0;
    (void)pthread_mutex_unlock(&co->lock);
    log_msg(co->log, LOG_WARN,
            "%s: cannot write its output any more: %s; the rest is dropped",
            co->name, err_reason(rc));
}

static void co_tell_dropped(struct char_out *co)
{
    if (co->told_dropped || char_out_dropped(co) == 0)
        return;
    co->told_dropped = true;
    log_msg(co->log, LOG_WARN,
            "%s: output is dropped because nobody reads it fast enough",
            co->name);
}

static void co_on_room(struct ev_fd *w, uint32_t revents);
static void co_on_gathered(struct ev_timer *t);

static size_t co_waiting(struct char_out *co)
{
    size_t n;

    (void)pthread_mutex_lock(&co->lock);
    n = co->used;
    (void)pthread_mutex_unlock(&co->lock);
    return n;
}

/*
 * Writes what there was when it began; what came meanwhile waits for the next
 * turn, so that a guest that never stops printing cannot hold the loop.
 * thread: io
 */
static void co_drain(struct char_out *co)
{
    size_t budget = co_waiting(co) + 1; /* one more, to find it empty */
    int rc = 1;

    while (rc > 0 && budget > 0)
        rc = co_write_piece(co, &budget);
    co_tell_dropped(co);
    if (rc == -EAGAIN && co->room.slot_ != 0)
        return;
    if (rc == -EAGAIN)
        rc =
            evloop_fd_add(co->loop, &co->room, co->fd, POLLOUT, co_on_room, co);
    else
        evloop_fd_del(co->loop, &co->room);
    if (rc > 0)
        rc = evloop_timer_arm(co->loop, &co->gather,
                              util_now_ns() + CO_GATHER_NS, co_on_gathered, co);
    if (rc < 0)
        co_give_up(co, rc);
}

static void co_on_room(struct ev_fd *w, uint32_t revents)
{
    (void)revents; /* a hang-up shows as an error of the write */
    co_drain(w->arg);
}

static void co_on_gathered(struct ev_timer *t)
{
    co_drain(t->arg);
}

static void co_on_wake(struct ev_counter *c, uint64_t count)
{
    struct char_out *co = c->arg;

    (void)count;
    if (co->room.slot_ != 0)
        return; /* the reader is behind; co_on_room() goes on */
    if (co_waiting(co) > sizeof(co->buf) / 2 ||
        evloop_timer_arm(co->loop, &co->gather, util_now_ns() + CO_GATHER_NS,
                         co_on_gathered, co))
        co_drain(co);
}

void char_out_flush(struct char_out *co, int timeout_ms)
{
    uint64_t end = util_now_ns() + (uint64_t)timeout_ms * 1000000u;
    struct pollfd p = {.fd = co->fd, .events = POLLOUT};
    size_t budget = sizeof(co->buf);
    int rc = 1;

    while (rc > 0 && budget > 0) {
        rc = co_write_piece(co, &budget);
        if (rc == -EAGAIN && util_now_ns() < end) {
            (void)poll(&p, 1, 1 + (int)((end - util_now_ns()) / 1000000u));
            rc = 1;
        }
    }
}

/* --- life ---------------------------------------------------------------- */

/*
 * An open file description of our own may be non-blocking without changing
 * the caller's. A pty's master must not be opened again: that makes a new pty.
 */
static void co_classify(struct char_out *co, int fd)
{
    char path[64];
    struct stat st;
    unsigned pty;
    int own;

    co->fd = fd;
    co->kind = CO_FILE;
    if (fstat(fd, &st) < 0)
        return; /* the first write will tell */
    if (S_ISSOCK(st.st_mode)) {
        co->kind = CO_SOCKET;
    } else if (S_ISFIFO(st.st_mode) || isatty(fd)) {
        co->kind = CO_POLLED;
        if (ioctl(fd, TIOCGPTN, &pty) == 0)
            return;
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (own < 0)
            return; /* no /proc in a jail: then it is asked before writing */
        co->kind = CO_OWN;
        co->fd = own;
    }
}

int char_out_new(struct evloop *loop, struct log *log, const char *name, int fd,
                 struct char_out **out_co)
{
    struct char_out *co = calloc(1, sizeof(*co));
    int rc;

    if (!co)
        return -ENOMEM;
    co->loop = loop;
    co->log = log;
    co->name = name;
    (void)pthread_mutex_init(&co->lock, NULL); /* never fails on Linux */
    co_classify(co, fd);
    co->wake_fd = eventfd(0, EFD_CLOEXEC);
    rc = co->wake_fd < 0
             ? neg_errno()
             : evloop_counter_add(loop, &co->wake, co->wake_fd, co_on_wake, co);
    if (rc) {
        char_out_free(co);
        return rc;
    }
    *out_co = co;
    return 0;
}

void char_out_free(struct char_out *co)
{
    if (!co)
        return;
    evloop_counter_del(co->loop, &co->wake);
    evloop_fd_del(co->loop, &co->room);
    evloop_timer_cancel(co->loop, &co->gather);
    drop_fd(&co->wake_fd);
    if (co->kind == CO_OWN)
        drop_fd(&co->fd);
    (void)pthread_mutex_destroy(&co->lock);
    free(co);
}
