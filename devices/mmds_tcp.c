/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/mmds_tcp.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/*
 * Nothing is lost on the way to a guest's ring, but its kernel may drop; and
 * where ring 0 is emulated an acknowledgement can take a while.
 */
#define TCP_RETRY_NS    500000000u
#define TCP_MAX_TRIES   6u /* each waits twice as long: 63 s in all */
#define TCP_MIN_MSS     64u
#define TCP_DEFAULT_MSS 536u /* rfc9293 3.7.1 */
#define TCP_MIN_WINDOW  1u   /* a closed window is probed by one byte */

/* spec: rfc9293 3.4: numbers wrap. */
static bool seq_before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

/* --- opening -------------------------------------------------------------- */

void mmds_conn_open(struct mmds_conn *c, const struct mmds_seg *syn,
                    uint32_t isn, uint16_t mss, uint64_t now_ns)
{
    uint32_t theirs = syn->mss ? syn->mss : TCP_DEFAULT_MSS;

    assert(c->state == MMDS_CLOSED && !c->out);
    memset(c, 0, offsetof(struct mmds_conn, in));
    c->state = MMDS_SYN_RECEIVED;
    memcpy(c->mac, syn->mac, sizeof(c->mac));
    c->peer_ip = syn->peer_ip;
    c->peer_port = syn->peer_port;
    c->port = syn->port;
    c->mss = (uint16_t)min_u64(min_u64(mss, MMDS_MAX_MSS), theirs);
    if (c->mss < TCP_MIN_MSS)
        c->mss = TCP_MIN_MSS;
    c->active_ns = now_ns;
    c->rcv_nxt = syn->seq + 1; /* data of a SYN comes again */
    c->owe_ack = true;
    c->snd_una = isn;
    c->snd_nxt = isn;
    c->snd_max = isn;
    c->out_seq = isn + 1;
    c->window = syn->window;
}

bool mmds_conn_is(const struct mmds_conn *c, const struct mmds_seg *seg)
{
    return c->state != MMDS_CLOSED && c->peer_port == seg->peer_port &&
           c->peer_ip == seg->peer_ip && c->port == seg->port;
}

/* --- ending --------------------------------------------------------------- */

void mmds_conn_close(struct mmds_conn *c)
{
    free(c->out);
    c->out = NULL;
    c->out_len = 0;
    c->state = MMDS_CLOSED;
}

void mmds_conn_finish(struct mmds_conn *c)
{
    c->closing = true;
}

void mmds_conn_abort(struct mmds_conn *c)
{
    c->aborting = true;
}

/* --- what is to be sent --------------------------------------------------- */

/* The number behind the last byte of the response. */
static uint32_t conn_out_end(const struct mmds_conn *c)
{
    return c->out_seq + (uint32_t)c->out_len;
}

/* The number behind all that there is to send, our FIN included. */
static uint32_t conn_end(const struct mmds_conn *c)
{
    return conn_out_end(c) + (c->closing ? 1 : 0);
}

static uint32_t conn_room(const struct mmds_conn *c)
{
    return MMDS_REQUEST_MAX - c->in_len;
}

/* How far the guest lets us send now. */
static uint32_t conn_limit(const struct mmds_conn *c)
{
    uint32_t window = c->window;

    /* After a time without an answer one byte is sent against its will. */
    if (window < TCP_MIN_WINDOW && c->tries > 0)
        window = TCP_MIN_WINDOW;
    return c->snd_una + window;
}

static bool conn_owes_data(const struct mmds_conn *c)
{
    return c->state == MMDS_OPEN && seq_before(c->snd_nxt, conn_end(c)) &&
           seq_before(c->snd_nxt, conn_limit(c));
}

bool mmds_conn_owes(const struct mmds_conn *c)
{
    if (c->state == MMDS_CLOSED)
        return false;
    return c->aborting || c->owe_ack || conn_owes_data(c);
}

static void conn_arm(struct mmds_conn *c, uint64_t now_ns)
{
    c->timer_ns = now_ns + ((uint64_t)TCP_RETRY_NS << c->tries);
}

/* Waits for an acknowledgement, or for a window; or for nothing. */
static void conn_watch(struct mmds_conn *c, uint64_t now_ns)
{
    if (c->snd_una == conn_end(c) && c->state == MMDS_OPEN)
        c->timer_ns = 0;
    else if (c->timer_ns == 0)
        conn_arm(c, now_ns);
}

static void conn_head(struct mmds_conn *c, struct mmds_seg *out)
{
    memset(out, 0, sizeof(*out));
    memcpy(out->mac, c->mac, sizeof(out->mac));
    out->peer_ip = c->peer_ip;
    out->peer_port = c->peer_port;
    out->port = c->port;
    out->seq = c->snd_max; /* else an ACK would look like an old one */
    out->ack = c->rcv_nxt;
    out->flags = MMDS_ACK;
    out->window = (uint16_t)conn_room(c);
    c->told_window = conn_room(c);
    c->owe_ack = false;
}

static void conn_emit_syn(struct mmds_conn *c, struct mmds_seg *out)
{
    conn_head(c, out);
    out->seq = c->snd_una;
    out->flags = MMDS_SYN | MMDS_ACK;
    out->mss = c->mss;
    c->snd_nxt = c->snd_una + 1;
    c->snd_max = c->snd_nxt;
}

static void conn_emit_data(struct mmds_conn *c, struct mmds_seg *out)
{
    uint32_t off = c->snd_nxt - c->out_seq;
    uint32_t n = (uint32_t)min_u64(c->mss, conn_limit(c) - c->snd_nxt);

    out->seq = c->snd_nxt;
    if (off < c->out_len) {
        out->len = (uint32_t)min_u64(n, c->out_len - off);
        out->data = (const uint8_t *)c->out + off;
    }
    c->snd_nxt += out->len;
    if (c->closing && c->snd_nxt == conn_out_end(c) && out->len < n) {
        out->flags |= MMDS_FIN;
        c->snd_nxt++;
    }
    if (seq_before(c->snd_max, c->snd_nxt))
        c->snd_max = c->snd_nxt;
}

/* Both directions are at their end, and the guest knows. */
static bool conn_is_over(const struct mmds_conn *c)
{
    return c->state == MMDS_OPEN && c->peer_closed && c->closing &&
           !c->owe_ack && c->snd_una == conn_end(c);
}

bool mmds_conn_emit(struct mmds_conn *c, struct mmds_seg *out, uint64_t now_ns)
{
    if (!mmds_conn_owes(c))
        return false;
    if (c->aborting) {
        conn_head(c, out);
        out->flags = MMDS_RST | MMDS_ACK;
        mmds_conn_close(c);
        return true;
    }
    if (c->state == MMDS_SYN_RECEIVED) {
        conn_emit_syn(c, out);
    } else {
        bool data = conn_owes_data(c);

        conn_head(c, out);
        if (data)
            conn_emit_data(c, out);
    }
    conn_watch(c, now_ns);
    if (conn_is_over(c))
        mmds_conn_close(c);
    return true;
}

void mmds_conn_expire(struct mmds_conn *c, uint64_t now_ns)
{
    if (c->state == MMDS_CLOSED || c->timer_ns == 0 || now_ns < c->timer_ns)
        return;
    if (c->tries == TCP_MAX_TRIES) {
        c->timer_ns = 0;
        mmds_conn_abort(c);
        return;
    }
    c->tries++;
    conn_arm(c, now_ns);
    c->snd_nxt = c->snd_una;
    if (c->state == MMDS_SYN_RECEIVED)
        c->owe_ack = true;
}

/* --- what the guest sends ------------------------------------------------- */

/* A SYN that comes again, or a stray one: an answer says where we are. */
static void conn_receive_syn(struct mmds_conn *c, const struct mmds_seg *seg)
{
    c->owe_ack = true;
    if (c->state == MMDS_SYN_RECEIVED && seg->seq + 1 == c->rcv_nxt)
        c->snd_nxt = c->snd_una;
}

/* False: the segment acknowledges what was never sent. */
static bool conn_take_ack(struct mmds_conn *c, const struct mmds_seg *seg,
                          uint64_t now_ns)
{
    if (seq_before(c->snd_max, seg->ack))
        return false;
    if (seq_before(seg->ack, c->snd_una))
        return true; /* old news; its window too */
    if (c->window == 0 && seg->window > 0)
        c->snd_nxt = c->snd_una; /* what went to a closed window is lost */
    if (seg->ack != c->snd_una || (c->window == 0 && seg->window > 0)) {
        c->tries = 0;
        c->timer_ns = 0;
        c->active_ns = now_ns;
    }
    c->snd_una = seg->ack;
    if (seq_before(c->snd_nxt, c->snd_una))
        c->snd_nxt = c->snd_una;
    c->window = seg->window;
    if (c->state == MMDS_SYN_RECEIVED && c->snd_una == c->out_seq)
        c->state = MMDS_OPEN;
    conn_watch(c, now_ns);
    return true;
}

/* The response is through: its memory goes, numbers go on. */
static void conn_drop_sent(struct mmds_conn *c)
{
    if (!c->out || seq_before(c->snd_una, conn_out_end(c)))
        return;
    c->out_seq = conn_out_end(c);
    free(c->out);
    c->out = NULL;
    c->out_len = 0;
}

/* The part of the segment that is next in order. */
static void conn_take_data(struct mmds_conn *c, const struct mmds_seg *seg,
                           uint64_t now_ns)
{
    uint32_t old = c->rcv_nxt - seg->seq;
    uint32_t n;

    if (seg->len == 0 && !(seg->flags & MMDS_FIN))
        return;
    c->owe_ack = true;
    if (seq_before(c->rcv_nxt, seg->seq) || old > seg->len || c->peer_closed)
        return; /* a gap, or all of it is known */
    n = (uint32_t)min_u64(seg->len - old, conn_room(c));
    if (n > 0)
        memcpy(c->in + c->in_len, seg->data + old, n);
    c->in_len += n;
    c->rcv_nxt += n;
    c->told_window -= (uint32_t)min_u64(n, c->told_window);
    c->unread = true;
    c->active_ns = now_ns;
    if ((seg->flags & MMDS_FIN) && old + n == seg->len) {
        c->rcv_nxt++;
        c->peer_closed = true;
    }
}

void mmds_conn_receive(struct mmds_conn *c, const struct mmds_seg *seg,
                       uint64_t now_ns)
{
    if (c->aborting)
        return;
    if (seg->flags & MMDS_RST) {
        /* Only what is in the window is the guest's own. rfc9293 3.10.7.4 */
        if (seg->seq - c->rcv_nxt <= conn_room(c))
            mmds_conn_close(c);
        return;
    }
    if (seg->flags & MMDS_SYN) {
        conn_receive_syn(c, seg);
        return;
    }
    if (!(seg->flags & MMDS_ACK))
        return;
    if (!conn_take_ack(c, seg, now_ns)) {
        c->owe_ack = true;
        return;
    }
    if (c->state != MMDS_OPEN)
        return;
    conn_drop_sent(c);
    conn_take_data(c, seg, now_ns);
    if (conn_is_over(c))
        mmds_conn_close(c);
}

/* --- responses ------------------------------------------------------------ */

bool mmds_conn_can_reply(const struct mmds_conn *c)
{
    return c->state == MMDS_OPEN && !c->out && !c->closing && !c->aborting;
}

void mmds_conn_reply(struct mmds_conn *c, uint32_t used, char *data, size_t len,
                     bool close)
{
    assert(mmds_conn_can_reply(c) && used <= c->in_len && len > 0);
    c->in_len -= used;
    memmove(c->in, c->in + used, c->in_len);
    c->unread = true;
    if (c->told_window < c->mss)
        c->owe_ack = true; /* there is room again */
    c->out = data;
    c->out_len = len;
    c->closing = close;
}
