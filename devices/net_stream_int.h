/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_NET_STREAM_INT_H
#define DEVICES_NET_STREAM_INT_H

/* Between net_stream.c and net_stream_tx.c; nobody else includes this. */

#include "devices/net_stream.h"

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
    bool parked;                /* the same, by a rest */
    bool has_part; /* the first `pos` bytes of the frame are in `part` */
    uint8_t *part; /* NET_MAX_FRAME */
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
    bool parked;
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

static inline struct net_stream *stream_of(struct net_back *b)
{
    return container_of(b, struct net_stream, base);
}

/* --- net_stream.c -------------------------------------------------------- */

void stream_queue_init(struct frame_queue *q);
void stream_queue_add(struct frame_queue *q, struct net_frame *f);
struct net_frame *stream_queue_take(struct frame_queue *q);
/* Gives back, in order, all that are there now but perhaps the first. */
void stream_queue_give_back(struct frame_queue *q, bool keep_first,
                            int32_t result);
void stream_gone(struct net_stream *s, const char *why);
void stream_watch(struct net_stream *s);
/* The frame's bytes from `pos` on into iov[n..]; returns the new n. */
uint32_t stream_slice(const struct net_frame *f, uint32_t pos,
                      struct iovec *iov, uint32_t n, uint32_t max,
                      uint32_t limit);

/* --- net_stream_tx.c ----------------------------------------------------- */

void stream_tx_step(struct net_stream *s);
/* Frames go back; the end of one that is partly sent is kept. */
void stream_tx_drop(struct net_stream *s);
/* The same for a rest: one that is partly sent counts as sent. */
void stream_tx_park(struct net_stream *s);
void stream_tx(struct net_back *b, uint16_t pair, struct net_frame *f);
void stream_tx_flush(struct net_back *b, uint16_t pair);

#endif
