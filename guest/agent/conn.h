/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of the host: HELLO, frames in, frames out.
 *
 * Receiving: never more than the owner has room for, so nothing is parked
 * here but one message that has not come in whole.
 * Sending: frames are gathered and go out after the batch of events in one
 * system call; the owner must stop producing while conn_full().
 * A closed connection stays allocated until the batch is over.
 */
#ifndef GUEST_AGENT_CONN_H
#define GUEST_AGENT_CONN_H

#include "guest/agent/agent.h"

/* Unsent bytes at which the owner is to stop. */
#define CONN_HIGH_WATER (128u << 10)

enum conn_state {
    CONN_HELLO,   /* nothing heard yet */
    CONN_IDLE,    /* between operations */
    CONN_COMMAND, /* a command runs */
    CONN_OVER,    /* last frame queued or sent; input is thrown away */
    CONN_DEAD,    /* closed */
};

struct conn_ops {
    /* Bytes of input there is room for now; 0 pauses, see conn_update. */
    size_t (*room)(const struct conn *conn);
    /* A whole message; data lives until the return. */
    void (*message)(struct conn *conn, uint8_t type, uint8_t flags,
                    const uint8_t *data, size_t length);
    /* A piece of a STDIN frame. */
    void (*data)(struct conn *conn, const uint8_t *data, size_t length);
    /* The host went away. Not called for a close of our own. */
    void (*gone)(struct conn *conn);
    /* No longer conn_full(). */
    void (*drained)(struct conn *conn);
};

struct conn {
    struct loop_source source;
    struct agent *agent;
    const struct conn_ops *ops;
    struct conn *next, *next_dirty;
    enum conn_state state;
    struct cmd *cmd; /* while CONN_COMMAND */
    bool dirty;      /* in agent->dirty */
    bool blocked;    /* the socket took no more */
    bool shut;       /* our sending side is shut down */
    bool reset;      /* it did not end: the machine was restored elsewhere */
    /* input */
    uint8_t head[CODEC_HEADER];
    uint8_t head_length;
    bool joining; /* the message goes on in the next frame */
    struct mote_frame frame;
    uint32_t frame_left;
    uint8_t *message;
    size_t message_length, message_capacity;
    /* output */
    uint8_t *out;
    size_t out_at, out_length, out_capacity;
};

/* Takes over the connected non-blocking socket fd, also on failure. Sends our
 * HELLO. */
struct conn *conn_new(struct agent *agent, const struct conn_ops *ops, int fd);

/* Queues a frame. Out of memory closes the connection, as if it had gone. */
void conn_send(struct conn *conn, uint8_t type, const void *payload,
               size_t length);

/* Reads once from fd, at most `max` bytes, and queues them as a data frame.
 * Returns their number, 0 at the end, or a negative errno of read. */
int conn_send_from(struct conn *conn, uint8_t type, int fd, size_t max);

/* Queues an ERROR frame; the connection is over then. */
void conn_fail(struct conn *conn, uint32_t error, int errno_value,
               const char *text);

/* To be called when room() or the wish to read changed. */
void conn_update(struct conn *conn);

bool conn_full(const struct conn *conn);
void conn_close(struct conn *conn);
/* Closes it and tells the owner as if the host had gone. */
void conn_vanish(struct conn *conn);

/* After a batch: sends what was queued, frees what was closed. */
void conn_flush_all(struct agent *agent);

#endif
