/* SPDX-License-Identifier: Apache-2.0 */
/* thread: io, apart from opening */
#include "devices/net_stream.h"

#include "vmm/cleanup.h"

#include <arpa/inet.h>
#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define STREAM_PREFIX_BYTES 4u
#define STREAM_IOVS         260u /* in one read or write: any frame's and more */
/*
 * Several frames go with one write only while the kernel takes it whole or not
 * at all. passt (2023) reads on once for the end of a frame that it got in
 * part and loses its place in the stream if even that comes in pieces, which
 * is what becomes of a frame in the middle of a long write.
 */
#define STREAM_WRITE_BYTES 32768u
#define STREAM_SINK_BYTES  4096u

struct frame_queue {
    struct net_frame *first;
    struct net_frame **tail;
};

struct stream_rx {
    struct frame_queue waiting; /* the first gets the frame that comes */
    bool busy;                  /* a read is in the kernel's hands */
    bool wanted;                /* rx_wait() */
    bool cancelled;             /* while busy */
    uint8_t prefix[STREAM_PREFIX_BYTES];
    uint32_t prefix_got;
    uint32_t left; /* bytes of the current frame that have not come; 0: none */
    uint32_t pos;  /* bytes of it that have */
    bool skip;     /* they go nowhere */
    bool too_big;  /* ... because the first frame that waits is too small */
    struct ev_io io;
    struct iovec iov[STREAM_IOVS];
};

struct stream_tx {
    struct frame_queue waiting; /* sent in this order */
    bool busy;
    bool full; /* the socket takes nothing for now */
    bool cancelled;
    uint32_t pos; /* bytes of the first, with its prefix, that are gone */
    /* The end of a frame whose memory is not ours any more; goes first. */
    uint32_t rest_pos;
    uint32_t rest_len;
    uint8_t *rest;
    struct ev_io io;
    struct iovec iov[STREAM_IOVS];
};

struct net_stream {
    struct net_back base; /* first */
    int fd;
    bool gone;
    bool idle;  /* since a cancel: nothing is begun, not even a frame's rest */
    bool plain; /* the loop's note on this socket */
    struct evloop *loop;
    const struct net_events *events;
    void *arg;
    struct ev_fd watch;
    struct stream_rx rx;
    struct stream_tx tx;
    uint8_t sink[STREAM_SINK_BYTES];
};

static struct net_stream *stream_of(struct net_back *b)
{
    return container_of(b, struct net_stream, base);
}

/* --- queues of frames ---------------------------------------------------- */

static void queue_init(struct frame_queue *q)
{
    q->first = NULL;
    q->tail = &q->first;
}

static void queue_add(struct frame_queue *q, struct net_frame *f)
{
    f->next_ = NULL;
    *q->tail = f;
    q->tail = &f->next_;
}

static struct net_frame *queue_take(struct frame_queue *q)
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
static void queue_give_back(struct frame_queue *q, bool keep_first,
                            int32_t result)
{
    struct net_frame *f = q->first;
    struct net_frame *kept = NULL;

    if (f && keep_first) {
        kept = f;
        f = f->next_;
    }
    /* What `done` hands over anew is not among them. */
    queue_init(q);
    if (kept)
        queue_add(q, kept);
    while (f) {
        struct net_frame *next = f->next_;

        f->done(f, result);
        f = next;
    }
}

/* --- both ways ----------------------------------------------------------- */

static void stream_gone(struct net_stream *s, const char *why)
{
    if (s->gone)
        return;
    s->gone = true;
    evloop_fd_del(s->loop, &s->watch);
    s->events->link_down(s->arg, why);
    if (!s->rx.busy)
        queue_give_back(&s->rx.waiting, false, -ENETDOWN);
    if (!s->tx.busy)
        queue_give_back(&s->tx.waiting, false, -ENETDOWN);
}

static void stream_watch(struct net_stream *s)
{
    /* A frame that has come in part waits for its rest. */
    bool in = !s->rx.busy && (s->rx.wanted || s->rx.waiting.first);
    bool out = s->tx.full && !s->idle;
    uint32_t events = (in ? POLLIN : 0) | (out ? POLLOUT : 0);

    if (!s->gone && evloop_fd_mod(s->loop, &s->watch, events))
        stream_gone(s, "its socket cannot be watched");
}

/* The frame's bytes from `pos` on into iov[n..]; returns the new n. */
static uint32_t stream_slice(const struct net_frame *f, uint32_t pos,
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

/* Begins the next read, if there is something to read for. */
static void stream_rx_step(struct net_stream *s)
{
    struct stream_rx *rx = &s->rx;
    struct net_frame *f = rx->waiting.first;
    uint32_t n = 0;

    if (rx->busy || s->gone || !f)
        return;
    if (rx->left > f->bytes && rx->pos == 0 && !rx->skip) {
        rx->skip = true;
        rx->too_big = true; /* told when this read ends */
    }
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
    f = queue_take(&rx->waiting);
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
    rx->wanted = false;
    if (rx->left > 0 && rx->pos > 0)
        rx->skip = true;
    queue_give_back(&rx->waiting, false, -ECANCELED);
}

/* Nothing more for now: all go back but one that has come in part. */
static void stream_rx_dry(struct net_stream *s)
{
    struct stream_rx *rx = &s->rx;
    bool held = rx->left > 0 && rx->pos > 0 && !rx->skip;

    queue_give_back(&rx->waiting, held, -EAGAIN);
}

/* What a read that ended well or without data means for the frames. */
static void stream_rx_result(struct net_stream *s, int32_t result)
{
    struct stream_rx *rx = &s->rx;

    if (rx->too_big) {
        struct net_frame *f = queue_take(&rx->waiting);

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
        queue_give_back(&rx->waiting, false, -ENETDOWN);
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
    memset(&f->hdr, 0, sizeof(f->hdr));
    queue_add(&s->rx.waiting, f);
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

/* --- sending ------------------------------------------------------------- */

static void stream_on_written(struct ev_io *ev, int32_t result);

static void stream_tx_submit(struct net_stream *s, uint32_t iovcnt)
{
    struct stream_tx *tx = &s->tx;

    tx->busy = true;
    tx->io = (struct ev_io){.op = EV_IO_WRITEV,
                            .fd = s->fd,
                            .iov = tx->iov,
                            .iovcnt = iovcnt,
                            .offset_bytes = EV_IO_STREAM,
                            .plain = &s->plain,
                            .fn = stream_on_written,
                            .arg = s};
    evloop_io_submit(s->loop, &tx->io);
}

/* Adds what is left of the frame from `pos` on; its bytes, 0: no room. */
static uint32_t stream_tx_add(struct stream_tx *tx, struct net_frame *f,
                              uint32_t pos, uint32_t *n)
{
    uint32_t left = f->bytes + STREAM_PREFIX_BYTES - pos;

    if (*n + f->iovcnt + 1 > STREAM_IOVS)
        return 0;
    if (pos < STREAM_PREFIX_BYTES) {
        tx->iov[*n].iov_base = f->wire_ + pos;
        tx->iov[(*n)++].iov_len = STREAM_PREFIX_BYTES - pos;
        pos = STREAM_PREFIX_BYTES;
    }
    *n = stream_slice(f, pos - STREAM_PREFIX_BYTES, tx->iov, *n, STREAM_IOVS,
                      f->bytes);
    return left;
}

/* One write: a large frame, or some small ones. */
static void stream_tx_step(struct net_stream *s)
{
    struct stream_tx *tx = &s->tx;
    uint32_t bytes = tx->rest_len - tx->rest_pos;
    uint32_t pos = tx->pos;
    uint32_t n = 0;

    if (tx->busy || tx->full || s->gone || s->idle)
        return;
    if (bytes > 0) {
        tx->iov[n].iov_base = tx->rest + tx->rest_pos;
        tx->iov[n++].iov_len = bytes;
    }
    for (struct net_frame *f = tx->waiting.first; f; f = f->next_) {
        uint32_t more;

        if (bytes > 0 &&
            bytes + f->bytes + STREAM_PREFIX_BYTES > STREAM_WRITE_BYTES)
            break;
        more = stream_tx_add(tx, f, pos, &n);
        if (more == 0)
            break;
        bytes += more;
        pos = 0;
    }
    if (n > 0)
        stream_tx_submit(s, n);
}

static void stream_tx_consume(struct net_stream *s, uint32_t n)
{
    struct stream_tx *tx = &s->tx;
    uint32_t take = (uint32_t)min_u64(n, tx->rest_len - tx->rest_pos);
    struct net_frame *f;

    tx->rest_pos += take;
    tx->pos += n - take;
    while ((f = tx->waiting.first) &&
           tx->pos >= f->bytes + STREAM_PREFIX_BYTES) {
        tx->pos -= f->bytes + STREAM_PREFIX_BYTES;
        (void)queue_take(&tx->waiting);
        f->done(f, 0);
    }
}

/* Frames go back; the end of one that is partly sent is kept as a copy. */
static void stream_tx_drop(struct net_stream *s)
{
    struct stream_tx *tx = &s->tx;
    struct net_frame *f = tx->waiting.first;
    uint32_t n;

    tx->cancelled = false;
    if (f && tx->pos > 0) {
        tx->rest_len = 0;
        tx->rest_pos = 0;
        if (tx->pos < STREAM_PREFIX_BYTES) {
            tx->rest_len = STREAM_PREFIX_BYTES - tx->pos;
            memcpy(tx->rest, f->wire_ + tx->pos, tx->rest_len);
            tx->pos = STREAM_PREFIX_BYTES;
        }
        n = stream_slice(f, tx->pos - STREAM_PREFIX_BYTES, tx->iov, 0,
                         STREAM_IOVS, f->bytes);
        for (uint32_t i = 0; i < n; i++) {
            memcpy(tx->rest + tx->rest_len, tx->iov[i].iov_base,
                   tx->iov[i].iov_len);
            tx->rest_len += (uint32_t)tx->iov[i].iov_len;
        }
        tx->pos = 0;
    }
    queue_give_back(&tx->waiting, false, -ECANCELED);
}

static void stream_on_written(struct ev_io *ev, int32_t result)
{
    struct net_stream *s = ev->arg;
    struct stream_tx *tx = &s->tx;

    /* Still busy: what `done` hands over waits until all is in order. */
    if (!s->gone && result > 0)
        stream_tx_consume(s, (uint32_t)result);
    else if (!s->gone && result < 0 && result != -EAGAIN && result != -EINTR)
        stream_gone(s, "its peer closed the connection");
    tx->full = result == -EAGAIN;
    if (!s->gone && tx->cancelled)
        stream_tx_drop(s);
    tx->busy = false;
    if (s->gone) {
        queue_give_back(&tx->waiting, false, -ENETDOWN);
        return;
    }
    stream_tx_step(s);
    stream_watch(s);
}

static void stream_tx(struct net_back *b, uint16_t pair, struct net_frame *f)
{
    uint32_t len = htonl(f->bytes);

    (void)pair;
    memcpy(f->wire_, &len, sizeof(len));
    queue_add(&stream_of(b)->tx.waiting, f);
}

static void stream_tx_flush(struct net_back *b, uint16_t pair)
{
    struct net_stream *s = stream_of(b);

    (void)pair;
    s->idle = false;
    stream_tx_step(s);
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

    assert(!s->rx.busy && !s->tx.busy);
    if (s->loop)
        evloop_fd_del(s->loop, &s->watch);
    drop_fd(&s->fd);
    free(s->tx.rest);
    free(s);
}

static const struct net_back_ops stream_ops = {
    .start = stream_start,
    .rx_wait = stream_rx_wait,
    .rx = stream_rx,
    .tx = stream_tx,
    .tx_flush = stream_tx_flush,
    .cancel = stream_cancel,
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
    if (s)
        s->tx.rest = malloc(NET_MAX_FRAME + STREAM_PREFIX_BYTES);
    if (!s || !s->tx.rest) {
        free(s);
        return err_set(err, -ENOMEM, "network: out of memory");
    }
    s->base.ops = &stream_ops;
    s->base.max_pairs = 1;
    queue_init(&s->rx.waiting);
    queue_init(&s->tx.waiting);
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
