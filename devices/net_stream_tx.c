/* SPDX-License-Identifier: Apache-2.0 */
/* Frames into a stream. thread: io */
#include "devices/net_stream_int.h"

#include <arpa/inet.h>
#include <string.h>

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
void stream_tx_step(struct net_stream *s)
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
        (void)stream_queue_take(&tx->waiting);
        f->done(f, 0);
    }
}

/* The end of a frame that is partly sent is kept as a copy; false: none is. */
static bool stream_tx_copy_end(struct stream_tx *tx)
{
    const struct net_frame *f = tx->waiting.first;
    uint32_t n;

    if (!f || tx->pos == 0)
        return false;
    tx->rest_len = 0;
    tx->rest_pos = 0;
    if (tx->pos < STREAM_PREFIX_BYTES) {
        tx->rest_len = STREAM_PREFIX_BYTES - tx->pos;
        memcpy(tx->rest, f->wire_ + tx->pos, tx->rest_len);
        tx->pos = STREAM_PREFIX_BYTES;
    }
    n = stream_slice(f, tx->pos - STREAM_PREFIX_BYTES, tx->iov, 0, STREAM_IOVS,
                     f->bytes);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(tx->rest + tx->rest_len, tx->iov[i].iov_base,
               tx->iov[i].iov_len);
        tx->rest_len += (uint32_t)tx->iov[i].iov_len;
    }
    tx->pos = 0;
    return true;
}

void stream_tx_drop(struct net_stream *s)
{
    struct stream_tx *tx = &s->tx;

    tx->cancelled = false;
    tx->parked = false;
    (void)stream_tx_copy_end(tx);
    stream_queue_give_back(&tx->waiting, false, -ECANCELED);
}

void stream_tx_park(struct net_stream *s)
{
    struct stream_tx *tx = &s->tx;

    tx->parked = false;
    if (stream_tx_copy_end(tx)) {
        struct net_frame *f = stream_queue_take(&tx->waiting);

        f->done(f, 0);
    }
    stream_queue_give_back(&tx->waiting, false, -ECANCELED);
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
    else if (!s->gone && tx->parked)
        stream_tx_park(s);
    tx->busy = false;
    if (s->gone) {
        stream_queue_give_back(&tx->waiting, false, -ENETDOWN);
        return;
    }
    stream_tx_step(s);
    stream_watch(s);
}

void stream_tx(struct net_back *b, uint16_t pair, struct net_frame *f)
{
    uint32_t len = htonl(f->bytes);

    (void)pair;
    memcpy(f->wire_, &len, sizeof(len));
    stream_queue_add(&stream_of(b)->tx.waiting, f);
}

void stream_tx_flush(struct net_back *b, uint16_t pair)
{
    struct net_stream *s = stream_of(b);

    (void)pair;
    s->idle = false;
    s->tx.parked = false;
    stream_tx_step(s);
    stream_watch(s);
}
