/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/conn.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/agent/text.h"

/* Output memory kept over a pause; more is given back. */
#define CONN_KEEP 4096u

/* ---- output ------------------------------------------------------------- */

bool conn_full(const struct conn *conn)
{
    return conn->out_length - conn->out_at >= CONN_HIGH_WATER;
}

/*
 * A restored machine finds all its connections reset by the transport. Only
 * that gives a vsock socket which was connected the error ECONNRESET: a host
 * that goes away, whichever way, is the end of its stream. Reading says
 * ENOTCONN then; the socket keeps its own error until it is asked.
 */
static bool conn_was_reset(const struct conn *conn, int error)
{
    int domain = 0;
    socklen_t length = sizeof(domain);

    if (conn->state == CONN_HELLO ||
        getsockopt(conn->source.fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) <
            0 ||
        (domain != AF_VSOCK && !conn->agent->reset_is_restore))
        return false;
    length = sizeof(error);
    return error == ECONNRESET || (getsockopt(conn->source.fd, SOL_SOCKET,
                                              SO_ERROR, &error, &length) == 0 &&
                                   error == ECONNRESET);
}

/* It ended, with this errno value of the last call or 0. */
static void conn_lost(struct conn *conn, int error)
{
    conn->reset = conn_was_reset(conn, error);
    conn->ops->gone(conn);
    conn_close(conn);
}

void conn_vanish(struct conn *conn)
{
    conn_lost(conn, 0);
}

static void conn_dirty(struct conn *conn)
{
    if (conn->dirty)
        return;
    conn->dirty = true;
    conn->next_dirty = conn->agent->dirty;
    conn->agent->dirty = conn;
}

static void conn_queue(struct conn *conn, const void *bytes, size_t length)
{
    size_t need;

    if (conn->state == CONN_DEAD || length == 0)
        return;
    if (conn->out_at > 0 && conn->out_length + length > conn->out_capacity) {
        /* A slow reader never empties it: take back what it has read. */
        conn->out_length -= conn->out_at;
        memmove(conn->out, conn->out + conn->out_at, conn->out_length);
        conn->out_at = 0;
    }
    need = conn->out_length + length;
    if (need > conn->out_capacity) {
        size_t capacity = conn->out_capacity ? conn->out_capacity : 1024;
        uint8_t *out;

        while (capacity < need)
            capacity *= 2;
        out = pool_grow(&conn->agent->pool, conn->out, conn->out_length,
                        capacity);
        if (!out) {
            conn_vanish(conn);
            return;
        }
        conn->out = out;
        conn->out_capacity = capacity;
    }
    memcpy(conn->out + conn->out_length, bytes, length);
    conn->out_length += length;
    conn_dirty(conn);
}

/* One send. Returns bytes taken, 0 if the socket is full, -1 if it is gone. */
static ssize_t conn_push(struct conn *conn, const uint8_t *bytes, size_t length)
{
    ssize_t sent =
        send(conn->source.fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent >= 0)
        return sent;
    /* ENOTCONN: a connection of ours that is still being made. */
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS ||
        errno == ENOTCONN)
        return 0;
    return -1;
}

static void conn_flush(struct conn *conn)
{
    bool was_full = conn_full(conn);
    size_t length = conn->out_length - conn->out_at;
    ssize_t sent;

    if (conn->state == CONN_DEAD)
        return;
    if (length > 0) {
        sent = conn_push(conn, conn->out + conn->out_at, length);
        if (sent < 0) {
            conn_lost(conn, errno);
            return;
        }
        conn->out_at += (size_t)sent;
    }
    conn->blocked = conn->out_at < conn->out_length;
    if (!conn->blocked) {
        conn->out_at = conn->out_length = 0;
        if (conn->out_capacity > CONN_KEEP) {
            pool_put(&conn->agent->pool, conn->out);
            conn->out = NULL;
            conn->out_capacity = 0;
        }
        if (conn->state == CONN_OVER && !conn->shut) {
            conn->shut = true;
            shutdown(conn->source.fd, SHUT_WR);
        }
    }
    if (was_full && !conn_full(conn))
        conn->ops->drained(conn);
    conn_update(conn);
}

void conn_send(struct conn *conn, uint8_t type, const void *payload,
               size_t length)
{
    uint8_t head[CODEC_HEADER];

    codec_frame_encode(head, type, 0, (uint32_t)length);
    conn_queue(conn, head, sizeof(head));
    conn_queue(conn, payload, length);
}

int conn_send_from(struct conn *conn, uint8_t type, int fd, size_t max)
{
    uint8_t *scratch = conn->agent->scratch;
    size_t total, sent = 0;
    ssize_t got;

    if (max > AGENT_CHUNK)
        max = AGENT_CHUNK;
    got = read(fd, scratch + CODEC_HEADER, max);
    if (got <= 0)
        return got < 0 ? -errno : 0;
    total = CODEC_HEADER + (size_t)got;
    codec_frame_encode(scratch, type, 0, (uint32_t)got);
    /* Little is worth gathering with what follows; much is worth no copy. */
    if (total > CONN_KEEP && conn->out_length == 0) {
        ssize_t taken = conn_push(conn, scratch, total);

        if (taken < 0) {
            conn_lost(conn, errno);
            return (int)got;
        }
        sent = (size_t)taken;
    }
    conn_queue(conn, scratch + sent, total - sent);
    return (int)got;
}

void conn_fail(struct conn *conn, uint32_t error, int errno_value,
               const char *text)
{
    uint8_t bytes[640];
    struct codec_writer w;

    codec_writer_init(&w, bytes, sizeof(bytes));
    codec_put_u32(&w, MOTE_ATTR_ERROR, error);
    codec_put_text(&w, MOTE_ATTR_TEXT, text);
    if (errno_value > 0)
        codec_put_u32(&w, MOTE_ATTR_ERRNO, (uint32_t)errno_value);
    conn_send(conn, MOTE_T_ERROR, w.data, w.length);
    if (conn->state != CONN_DEAD)
        conn->state = CONN_OVER;
}

/* ---- input -------------------------------------------------------------- */

/* The peer broke the rules: nothing that follows can be understood. */
static void conn_violation(struct conn *conn, const char *what)
{
    conn->ops->gone(conn);
    conn_fail(conn, MOTE_ERR_PROTOCOL, 0, what);
}

static void conn_hello(struct conn *conn)
{
    uint16_t version;

    switch (codec_hello_agree(conn->head, &version)) {
    case 0:
        conn->state = CONN_IDLE;
        break;
    case -EPROTONOSUPPORT:
        conn_fail(conn, MOTE_ERR_VERSION, 0,
                  "this agent speaks version 1 of the protocol only");
        break;
    default:
        conn_fail(conn, MOTE_ERR_PROTOCOL, 0,
                  "not a mote agent connection: bad HELLO");
        break;
    }
}

static void conn_message_end(struct conn *conn)
{
    conn->joining = conn->frame.flags & MOTE_FRAME_MORE;
    if (conn->joining)
        return;
    conn->ops->message(conn, conn->frame.type, conn->frame.flags, conn->message,
                       conn->message_length);
    if (conn->message) {
        /* Environments carry secrets: leave none behind in our memory. */
        explicit_bzero(conn->message, conn->message_length);
        pool_put(&conn->agent->pool, conn->message);
        conn->message = NULL;
    }
    conn->message_length = conn->message_capacity = 0;
}

static void conn_frame(struct conn *conn)
{
    uint8_t joined_type = conn->frame.type;
    int err = codec_frame_decode(conn->head, &conn->frame);
    size_t need;

    if (err == -EMSGSIZE) {
        conn_violation(conn, "frame is longer than 1 MiB");
        return;
    }
    if (err < 0) {
        conn_violation(conn, "malformed frame header");
        return;
    }
    conn->frame_left = conn->frame.length;
    if (conn->joining && conn->frame.type != joined_type) {
        conn_violation(conn, "a frame of another type inside a message");
        return;
    }
    if (conn->frame.type == MOTE_T_STDIN) {
        if (conn->frame.flags != 0)
            conn_violation(conn, "flags on a data frame");
        return;
    }
    need = conn->message_length + conn->frame.length;
    if (need > MOTE_MESSAGE_MAX) {
        conn_violation(conn, "message is longer than 4 MiB");
        return;
    }
    if (need > conn->message_capacity) {
        uint8_t *message = pool_grow(&conn->agent->pool, conn->message,
                                     conn->message_length, need);

        if (!message) {
            conn_violation(conn, "out of memory for a message");
            return;
        }
        conn->message = message;
        conn->message_capacity = need;
    }
    if (conn->frame.length == 0)
        conn_message_end(conn);
}

static void conn_payload(struct conn *conn, const uint8_t *bytes, size_t length)
{
    conn->frame_left -= (uint32_t)length;
    if (conn->frame.type == MOTE_T_STDIN) {
        conn->ops->data(conn, bytes, length);
        return;
    }
    if (conn->message) { /* always, as the frame is not empty */
        memcpy(conn->message + conn->message_length, bytes, length);
        conn->message_length += length;
    }
    if (conn->frame_left == 0)
        conn_message_end(conn);
}

static void conn_feed(struct conn *conn, const uint8_t *bytes, size_t length)
{
    while (length > 0 && conn->state < CONN_OVER) {
        size_t take;

        if (conn->frame_left > 0) {
            take = length < conn->frame_left ? length : conn->frame_left;
            conn_payload(conn, bytes, take);
        } else {
            take = CODEC_HEADER - conn->head_length;
            if (take > length)
                take = length;
            memcpy(conn->head + conn->head_length, bytes, take);
            conn->head_length = (uint8_t)(conn->head_length + take);
            if (conn->head_length == CODEC_HEADER) {
                conn->head_length = 0;
                if (conn->state == CONN_HELLO)
                    conn_hello(conn);
                else
                    conn_frame(conn);
            }
        }
        bytes += take;
        length -= take;
    }
}

static size_t conn_room(const struct conn *conn)
{
    size_t room = AGENT_CHUNK;

    if (conn->state == CONN_COMMAND)
        room = conn->ops->room(conn);
    else if (conn->state == CONN_IDLE && conn_full(conn))
        room = 0; /* it asks and asks, and does not read the answers */
    return room < AGENT_CHUNK ? room : AGENT_CHUNK;
}

static void conn_receive(struct conn *conn, size_t room)
{
    uint8_t *bytes = conn->agent->input;
    ssize_t got = recv(conn->source.fd, bytes, room, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return; /* e.g. a connect that failed shows at the next event */
    if (got <= 0) {
        conn_lost(conn, got < 0 ? errno : 0);
        return;
    }
    conn_feed(conn, bytes, (size_t)got);
}

static void conn_ready(struct loop_source *source, uint32_t events)
{
    struct conn *conn = (struct conn *)source;
    size_t room = conn_room(conn);

    if (events & EPOLLOUT) {
        conn->blocked = false;
        conn_dirty(conn);
    }
    if (room > 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)))
        conn_receive(conn, room);
    else if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
        conn_vanish(conn);
    conn_update(conn);
}

void conn_update(struct conn *conn)
{
    /* RDHUP: a host that leaves is noticed even while its input waits. */
    uint32_t events = EPOLLRDHUP;

    if (conn->state == CONN_DEAD)
        return;
    if (conn_room(conn) > 0)
        events |= EPOLLIN;
    if (conn->blocked)
        events |= EPOLLOUT;
    if (loop_watch(&conn->agent->loop, &conn->source, events) < 0)
        conn_vanish(conn);
}

/* ---- life --------------------------------------------------------------- */

struct conn *conn_new(struct agent *agent, const struct conn_ops *ops, int fd)
{
    struct conn *conn = pool_get(&agent->pool, sizeof(*conn));
    uint8_t hello[CODEC_HEADER];

    if (!conn) {
        close(fd);
        return NULL;
    }
    memset(conn, 0, sizeof(*conn));
    conn->agent = agent;
    conn->ops = ops;
    conn->source.fd = fd;
    conn->source.ready = conn_ready;
    conn->next = agent->conns;
    agent->conns = conn;
    codec_hello_encode(hello);
    conn_queue(conn, hello, sizeof(hello));
    conn_update(conn);
    return conn->state == CONN_DEAD ? NULL : conn;
}

void conn_close(struct conn *conn)
{
    struct agent *agent = conn->agent;
    struct conn **at = &agent->conns;

    if (conn->state == CONN_DEAD)
        return;
    conn->state = CONN_DEAD;
    agent->closed_some = true;
    loop_close(&agent->loop, &conn->source);
    while (*at != conn)
        at = &(*at)->next;
    *at = conn->next;
    conn->next = agent->dead;
    agent->dead = conn;
}

void conn_flush_all(struct agent *agent)
{
    /* Flushing may queue more (a drained command goes on): until none is. */
    while (agent->dirty) {
        struct conn *conn = agent->dirty;

        agent->dirty = conn->next_dirty;
        conn->dirty = false;
        conn_flush(conn);
    }
    while (agent->dead) {
        struct conn *conn = agent->dead;

        agent->dead = conn->next;
        pool_put(&agent->pool, conn->message);
        pool_put(&agent->pool, conn->out);
        pool_put(&agent->pool, conn);
    }
}
