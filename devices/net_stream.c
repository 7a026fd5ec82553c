/* SPDX-License-Identifier: Apache-2.0 */
/* thread: io, apart from opening */
#include "devices/net_stream_int.h"

#include "vmm/cleanup.h"

#include <arpa/inet.h>
#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* --- queues of frames ---------------------------------------------------- */

void stream_queue_init(struct frame_queue *q)
{
    q->first = NULL;
    q->tail = &q->first;
}

void stream_queue_add(struct frame_queue *q, struct net_frame *f)
{
    f->next_ = NULL;
    *q->tail = f;
    q->tail = &f->next_;
}

struct net_frame *stream_queue_take(struct frame_queue *q)
{
    struct net_frame *f = q->first;

    if (f) {
        q->first = f->next_;
        if (!q->first)
            q->tail = &q->first;
    }
    return f;
}

/* Gives back, in order, all that are there now but perhaps the first. */
void stream_queue_give_back(struct frame_queue *q, bool keep_first,
                            int32_t result)
{
    struct net_frame *f = q->first;
    struct net_frame *kept = NULL;

    if (f && keep_first) {
        kept = f;
        f = f->next_;
    }
    /* What `done` hands over anew is not among them. */
    stream_queue_init(q);
    if (kept)
        stream_queue_add(q, kept);
    while (f) {
        struct net_frame *next = f->next_;

        f->done(f, result);
        f = next;
    }
}

/* --- both ways ----------------------------------------------------------- */

void stream_gone(struct net_stream *s, const char *why)
{
    if (s->gone)
        return;
    s->gone = true;
    evloop_fd_del(s->loop, &s->watch);
    s->events->link_down(s->arg, why);
    if (!s->rx.busy)
        stream_queue_give_back(&s->rx.waiting, false, -ENETDOWN);
    if (!s->tx.busy)
        stream_queue_give_back(&s->tx.waiting, false, -ENETDOWN);
}

void stream_watch(struct net_stream *s)
{
    /* A frame that has come in part waits for its rest. */
    bool in = !s->rx.busy && (s->rx.wanted || s->rx.waiting.first);
    bool out = s->tx.full && !s->idle;
    uint32_t events = (in ? POLLIN : 0) | (out ? POLLOUT : 0);

    if (!s->gone && evloop_fd_mod(s->loop, &s->watch, events))
        stream_gone(s, "its socket cannot be watched");
}

/* The frame's bytes from `pos` on into iov[n..]; returns the new n. */
uint32_t stream_slice(const struct net_frame *f, uint32_t pos,
                      struct iovec *iov, uint32_t n, uint32_t max,
                      uint32_t limit)
{
    for (uint32_t i = 1; i <= f->iovcnt && n < max && limit > 0; i++) {
        struct iovec v = f->iov[i];

        if (pos >= v.iov_len) {
            pos -= (uint32_t)v.iov_len;
            continue;
        }
        v.iov_base = (char *)v.iov_base + pos;
        v.iov_len -= pos;
        pos = 0;
        if (v.iov_len > limit)
            v.iov_len = limit;
        limit -= (uint32_t)v.iov_len;
        iov[n++] = v;
    }
    return n;
}

/* --- receiving ----------------------------------------------------------- */

static void stream_on_read(struct ev_io *ev, int32_t result);

/* What has come of a frame, between its memory and ours. */
static void stream_rx_copy(struct stream_rx *rx, const struct net_frame *f,
                           bool back)
{
    uint32_t done = 0;

    for (uint32_t i = 1; i <= f->iovcnt && done < rx->pos; i++) {
        uint32_t take = (uint32_t)min_u64(f->iov[i].iov_len, rx->pos - done);
        uint8_t *part = rx->part + done;

        if (back)
            memcpy(f->iov[i].iov_base, part, take);
        else
            memcpy(part, f->iov[i].iov_base, take);
        done += take;
    }
    rx->has_part = !back;
}

/* Begins the next read, if there is something to read for. */
static void stream_rx_step(struct net_stream *s)
{
    struct stream_rx *rx = &s->rx;
    struct net_frame *f = rx->waiting.first;
    uint32_t n = 0;

    if (rx->busy || s->gone || !f)
        return;
    /* Its room may be another one since a rest. */
    if (rx->left > 0 && (rx->pos == 0 || rx->has_part) && !rx->skip &&
        rx->pos + rx->left > f->bytes) {
        rx->skip = true;
        rx->too_big = true; /* told when this read ends */
    } else if (rx->has_part) {
        stream_rx_copy(rx, f, true);
    }
    rx->has_part = false;
    if (rx->left > 0 && rx->skip) {
        rx->iov[n].iov_base = s->sink;
        rx->iov[n++].iov_len = min_u64(rx->left, sizeof(s->sink));
    } else if (rx->left > 0) {
        n = stream_slice(f, rx->pos, rx->iov, n, STREAM_IOVS - 1, rx->left);
    }
    /* The next prefix comes with the end of this frame. */
    if (!rx->skip || rx->left <= sizeof(s->sink)) {
        rx->iov[n].iov_base = rx->prefix + rx->prefix_got;
        rx->iov[n++].iov_len = STREAM_PREFIX_BYTES - rx->prefix_got;
    }
    rx->busy = true;
    rx->io = (struct ev_io){.op = EV_IO_READV,
                            .fd = s->fd,
                            .iov = rx->iov,
                            .iovcnt = n,
                            .offset_bytes = EV_IO_STREAM,
                            .plain = &s->plain,
                            .fn = stream_on_read,
                            .arg = s};
    evloop_io_submit(s->loop, &rx->io);
}

/* The current frame has come whole. */
static void stream_rx_frame(struct net_stream *s)
{
    struct stream_rx *rx = &s->rx;
    struct net_frame *f;

    if (rx->skip) {
        rx->skip = false;
        return;
    }
    f = stream_queue_take(&rx->waiting);
    f->done(f, (int32_t)rx->pos);
}

/* A prefix is whole. False: it cannot be one. */
static bool stream_rx_length(struct net_stream *s)
{
    struct stream_rx *rx = &s->rx;
    uint32_t len;

    memcpy(&len, rx->prefix, sizeof(len));
    len = ntohl(len);
    if (len < NET_MIN_FRAME || len > NET_MAX_FRAME)
        return false;
    rx->prefix_got = 0;
    rx->left = len;
    rx->pos = 0;
    return true;
}

/* Puts `n` bytes that were read where they belong. */
static bool stream_rx_consume(struct net_stream *s, uint32_t n)
{
    struct stream_rx *rx = &s->rx;
    uint32_t take = (uint32_t)min_u64(n, rx->left);

    rx->pos += take;
    rx->left -= take;
    n -= take;
    if (take > 0 && rx->left == 0)
        stream_rx_frame(s);
    rx->prefix_got += n;
    assert(rx->prefix_got <= STREAM_PREFIX_BYTES);
    return rx->prefix_got < STREAM_PREFIX_BYTES || stream_rx_length(s);
}

/* Frames go back; one that has come in part loses its rest. */
static void stream_rx_drop(struct net_stream *s)
{
    struct stream_rx *rx = &s->rx;

    rx->cancelled = false;
    rx->parked = false;
    rx->wanted = false;
    rx->has_part = false;
    if (rx->left > 0 && rx->pos > 0)
        rx->skip = true;
    stream_queue_give_back(&rx->waiting, false, -ECANCELED);
}

/* Frames go back; what has come of one in part is kept. */
static void stream_rx_park(struct net_stream *s)
{
    struct stream_rx *rx = &s->rx;
    const struct net_frame *f = rx->waiting.first;

    rx->parked = false;
    rx->wanted = false;
    if (f && rx->left > 0 && rx->pos > 0 && !rx->skip && !rx->has_part)
        stream_rx_copy(rx, f, false);
    stream_queue_give_back(&rx->waiting, false, -ECANCELED);
}

/* Nothing more for now: all go back but one that has come in part. */
static void stream_rx_dry(struct net_stream *s)
{
    struct stream_rx *rx = &s->rx;
    bool held = rx->left > 0 && rx->pos > 0 && !rx->skip;

    stream_queue_give_back(&rx->waiting, held, -EAGAIN);
}

/* What a read that ended well or without data means for the frames. */
static void stream_rx_result(struct net_stream *s, int32_t result)
{
    struct stream_rx *rx = &s->rx;

    if (rx->too_big) {
        struct net_frame *f = stream_queue_take(&rx->waiting);

        rx->too_big = false;
        f->done(f, rx->cancelled ? -ECANCELED : -EMSGSIZE);
    }
    if (result > 0 && !stream_rx_consume(s, (uint32_t)result))
        stream_gone(s, "its peer sent a length that no frame has");
    else if (result == 0)
        stream_gone(s, "its peer closed the connection");
    else if (result < 0 && result != -EAGAIN && result != -EINTR)
        stream_gone(s, err_reason(result));
    else if (rx->cancelled)
        stream_rx_drop(s);
    else if (rx->parked)
        stream_rx_park(s);
    else if (result < 0)
        stream_rx_dry(s);
}

static void stream_on_read(struct ev_io *ev, int32_t result)
{
    struct net_stream *s = ev->arg;
    struct stream_rx *rx = &s->rx;

    /* Still busy: what `done` hands over waits until all is in order. */
    if (!s->gone)
        stream_rx_result(s, result);
    rx->busy = false;
    if (s->gone) {
        rx->too_big = false;
        stream_queue_give_back(&rx->waiting, false, -ENETDOWN);
        return;
    }
    if (result >= 0)
        stream_rx_step(s);
    stream_watch(s);
}

static void stream_rx(struct net_back *b, uint16_t pair, struct net_frame *f)
{
    struct net_stream *s = stream_of(b);

    (void)pair;
    assert(f->iovcnt <= STREAM_IOVS - 2);
    s->idle = false;
    s->rx.parked = false;
    memset(&f->hdr, 0, sizeof(f->hdr));
    stream_queue_add(&s->rx.waiting, f);
    stream_rx_step(s);
}

static void stream_rx_wait(struct net_back *b, uint16_t pair)
{
    struct net_stream *s = stream_of(b);

    (void)pair;
    s->idle = false;
    s->rx.wanted = true;
    stream_watch(s);
}

/* --- life ---------------------------------------------------------------- */

static void stream_on_ready(struct ev_fd *w, uint32_t revents)
{
    struct net_stream *s = w->arg;

    if (!(revents & (POLLIN | POLLOUT))) {
        stream_gone(s, "its peer closed the connection");
        return;
    }
    if (revents & POLLOUT) {
        s->tx.full = false;
        stream_tx_step(s);
    }
    if ((revents & POLLIN) && s->rx.wanted) {
        s->rx.wanted = false;
        s->events->readable(s->arg, 0);
    }
    if (revents & POLLIN)
        stream_rx_step(s);
    stream_watch(s);
}

static int stream_start(struct net_back *b, struct evloop *loop,
                        const struct net_events *events, void *arg)
{
    struct net_stream *s = stream_of(b);

    s->loop = loop;
    s->events = events;
    s->arg = arg;
    return evloop_fd_add(loop, &s->watch, s->fd, 0, stream_on_ready, s);
}

static void stream_cancel(struct net_back *b)
{
    struct net_stream *s = stream_of(b);

    s->idle = true;
    s->rx.wanted = false;
    /* The socket never blocks: what is under way ends in the next turn. */
    s->rx.cancelled = s->rx.busy;
    s->tx.cancelled = s->tx.busy;
    if (!s->rx.busy)
        stream_rx_drop(s);
    if (!s->tx.busy)
        stream_tx_drop(s);
    stream_watch(s);
}

static void stream_rest(struct net_back *b)
{
    struct net_stream *s = stream_of(b);

    s->idle = true;
    s->rx.wanted = false;
    s->rx.parked = s->rx.busy;
    s->tx.parked = s->tx.busy;
    if (!s->rx.busy)
        stream_rx_park(s);
    if (!s->tx.busy)
        stream_tx_park(s);
    stream_watch(s);
}

static int stream_set_offloads(struct net_back *b, uint32_t offloads)
{
    (void)b;
    return offloads ? -EOPNOTSUPP : 0; /* never offered */
}

static int stream_set_pairs(struct net_back *b, uint16_t n)
{
    (void)b;
    (void)n; /* there is one, and it is always there */
    return 0;
}

static void stream_free(struct net_back *b)
{
    struct net_stream *s = stream_of(b);

    /* What is left of a frame from before a reset may be on its way: the loop
     * has ended, and a write that never waits has no use for it any more. */
    assert(!s->rx.busy && !s->tx.waiting.first);
    if (s->loop)
        evloop_fd_del(s->loop, &s->watch);
    drop_fd(&s->fd);
    free(s->tx.rest);
    free(s->rx.part);
    free(s);
}

static const struct net_back_ops stream_ops = {
    .start = stream_start,
    .rx_wait = stream_rx_wait,
    .rx = stream_rx,
    .tx = stream_tx,
    .tx_flush = stream_tx_flush,
    .cancel = stream_cancel,
    .rest = stream_rest,
    .set_offloads = stream_set_offloads,
    .set_pairs = stream_set_pairs,
    .free = stream_free,
};

static bool stream_is_socket(int fd)
{
    int type = 0;
    socklen_t len = sizeof(type);

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
           type == SOCK_STREAM;
}

int net_stream_adopt(int fd, struct net_back **out_back, struct errmsg *err)
{
    struct net_stream *s;
    int flags = fcntl(fd, F_GETFL);

    if (!stream_is_socket(fd) || flags < 0 ||
        fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return err_set(err, -ENOTSOCK,
                       "network descriptor %d: no stream socket; give one end "
                       "of a socket pair",
                       fd);
    s = calloc(1, sizeof(*s));
    if (s) {
        s->tx.rest = malloc(NET_MAX_FRAME + STREAM_PREFIX_BYTES);
        s->rx.part = malloc(NET_MAX_FRAME);
    }
    if (!s || !s->tx.rest || !s->rx.part) {
        if (s) {
            free(s->tx.rest);
            free(s->rx.part);
        }
        free(s);
        return err_set(err, -ENOMEM, "network: out of memory");
    }
    s->base.ops = &stream_ops;
    s->base.max_pairs = 1;
    stream_queue_init(&s->rx.waiting);
    stream_queue_init(&s->tx.waiting);
    s->fd = fd;
    *out_back = &s->base;
    return 0;
}

int net_stream_connect(const char *path, struct net_back **out_back,
                       struct errmsg *err)
{
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int rc;

    if (strlen(path) >= sizeof(sa.sun_path))
        return err_set(err, -ENAMETOOLONG,
                       "network socket %s: longer than %zu bytes; use a "
                       "shorter path",
                       path, sizeof(sa.sun_path) - 1);
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        rc = neg_errno();
        return err_set(err, rc,
                       "network socket %s: %s; start what is to listen there "
                       "(e.g. passt) first",
                       path, err_reason(rc));
    }
    rc = net_stream_adopt(fd, out_back, err);
    if (rc == 0)
        (void)take_fd(&fd);
    return rc;
}
