/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/mmds_net.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Refusals that wait for room; further ones are not sent: the guest asks
 * again. */
#define NET_MAX_RESETS 8u
/* With all slots taken, a connection that did nothing for so long gives way. */
#define NET_IDLE_NS  2000000000u
#define NET_ISN_STEP 64007u

struct mmds_net {
    const struct mmds_service *service;
    uint32_t next_isn;
    uint16_t mss;
    uint16_t next_conn; /* whose turn it is to send */
    bool owe_arp;
    struct mmds_arp arp; /* the last question */
    uint32_t num_resets;
    struct mmds_seg resets[NET_MAX_RESETS];
    struct mmds_conn conns[MMDS_MAX_CONNS];
    /* At the end: what was never needed is never touched. */
    char in[MMDS_MAX_CONNS][MMDS_REQUEST_MAX];
};

int mmds_net_new(const struct mmds_service *service, uint32_t isn, uint16_t mss,
                 struct mmds_net **out_net)
{
    struct mmds_net *n = calloc(1, sizeof(*n));

    if (!n)
        return -ENOMEM;
    n->service = service;
    n->next_isn = isn;
    n->mss = mss;
    for (size_t i = 0; i < MMDS_MAX_CONNS; i++)
        n->conns[i].in = n->in[i];
    *out_net = n;
    return 0;
}

static void net_count_end(struct mmds_net *n, bool was_there,
                          const struct mmds_conn *c)
{
    if (was_there && c->state == MMDS_CLOSED)
        n->service->counts->connections_destroyed++;
}

void mmds_net_reset(struct mmds_net *n)
{
    for (size_t i = 0; i < MMDS_MAX_CONNS; i++) {
        bool was_there = n->conns[i].state != MMDS_CLOSED;

        mmds_conn_close(&n->conns[i]);
        net_count_end(n, was_there, &n->conns[i]);
    }
    n->owe_arp = false;
    n->num_resets = 0;
}

void mmds_net_free(struct mmds_net *n)
{
    if (!n)
        return;
    mmds_net_reset(n);
    free(n);
}

/* --- requests ------------------------------------------------------------- */

static size_t net_held(const struct mmds_net *n)
{
    size_t sum = 0;

    for (size_t i = 0; i < MMDS_MAX_CONNS; i++)
        sum += n->conns[i].out_len;
    return sum;
}

/* The request that waits in a connection, if it is whole. */
static void net_serve(struct mmds_net *n, struct mmds_conn *c)
{
    bool full = c->in_len == MMDS_REQUEST_MAX;
    struct mmds_response r = {NULL, 0, false};
    int32_t used = 0;

    c->unread = false;
    if (c->in_len > 0)
        used = n->service->respond(n->service->arg, c->in, c->in_len, full, &r);
    if (used > 0) {
        n->service->counts->rx_count++;
        n->service->counts->tx_count++;
        mmds_conn_reply(c, (uint32_t)used, r.data, r.len, r.close);
    } else if (used < 0 || full) {
        n->service->counts->tx_errors++;
        mmds_conn_abort(c);
    } else if (c->peer_closed) {
        mmds_conn_finish(c); /* the rest of a request never comes */
    }
}

static void net_serve_all(struct mmds_net *n)
{
    for (size_t i = 0; i < MMDS_MAX_CONNS; i++) {
        struct mmds_conn *c = &n->conns[i];

        if (mmds_conn_can_reply(c) && (c->unread || c->peer_closed) &&
            net_held(n) < MMDS_MAX_HELD)
            net_serve(n, c);
    }
}

/* --- connections ---------------------------------------------------------- */

static struct mmds_conn *net_find(struct mmds_net *n,
                                  const struct mmds_seg *seg)
{
    for (size_t i = 0; i < MMDS_MAX_CONNS; i++) {
        if (mmds_conn_is(&n->conns[i], seg))
            return &n->conns[i];
    }
    return NULL;
}

/* A free slot, or that of the connection that has been idle for longest. */
static struct mmds_conn *net_slot(struct mmds_net *n, uint64_t now_ns)
{
    struct mmds_conn *idle = &n->conns[0];

    for (size_t i = 0; i < MMDS_MAX_CONNS; i++) {
        struct mmds_conn *c = &n->conns[i];

        if (c->state == MMDS_CLOSED)
            return c;
        if (c->active_ns < idle->active_ns)
            idle = c;
    }
    n->service->counts->tx_errors++;
    if (now_ns - idle->active_ns < NET_IDLE_NS)
        return NULL;
    mmds_conn_close(idle);
    net_count_end(n, true, idle);
    return idle;
}

/* Says that there is no such connection. spec: rfc9293 3.10.7.1 */
static void net_owe_reset(struct mmds_net *n, const struct mmds_seg *seg)
{
    struct mmds_seg *r = &n->resets[n->num_resets];

    if ((seg->flags & MMDS_RST) || n->num_resets == NET_MAX_RESETS)
        return;
    n->num_resets++;
    *r = *seg;
    r->data = NULL;
    r->len = 0;
    r->mss = 0;
    r->window = 0;
    if (seg->flags & MMDS_ACK) {
        r->seq = seg->ack;
        r->ack = 0;
        r->flags = MMDS_RST;
        return;
    }
    r->seq = 0;
    r->ack = seg->seq + seg->len + ((seg->flags & MMDS_SYN) ? 1 : 0) +
             ((seg->flags & MMDS_FIN) ? 1 : 0);
    r->flags = MMDS_RST | MMDS_ACK;
}

static void net_open(struct mmds_net *n, const struct mmds_seg *seg,
                     uint64_t now_ns)
{
    struct mmds_conn *c = NULL;

    if (seg->port == MMDS_PORT &&
        (seg->flags & (MMDS_SYN | MMDS_ACK | MMDS_RST | MMDS_FIN)) == MMDS_SYN)
        c = net_slot(n, now_ns);
    if (!c) {
        net_owe_reset(n, seg);
        return;
    }
    mmds_conn_open(c, seg, n->next_isn, n->mss, now_ns);
    n->next_isn += NET_ISN_STEP;
    n->service->counts->connections_created++;
}

static void net_receive_seg(struct mmds_net *n, const struct mmds_seg *seg,
                            uint64_t now_ns)
{
    struct mmds_conn *c = net_find(n, seg);

    if (!c) {
        net_open(n, seg, now_ns);
        return;
    }
    mmds_conn_receive(c, seg, now_ns);
    net_count_end(n, true, c);
    net_serve_all(n);
}

/* --- frames --------------------------------------------------------------- */

void mmds_net_receive(struct mmds_net *n, const uint8_t *frame, size_t len,
                      bool partial_csum, uint64_t now_ns)
{
    struct mmds_counts *counts = n->service->counts;
    struct mmds_arp arp;
    struct mmds_seg seg;

    counts->rx_accepted++;
    switch (mmds_frame_parse(frame, len, n->service->ip, partial_csum, &arp,
                             &seg)) {
    case MMDS_BAD:
        counts->rx_accepted_err++;
        break;
    case MMDS_NOTHING:
        counts->rx_accepted_unusual++;
        break;
    case MMDS_IS_ARP:
        n->arp = arp;
        n->owe_arp = true;
        break;
    case MMDS_IS_TCP:
        net_receive_seg(n, &seg, now_ns);
        break;
    }
}

void mmds_net_refuse(struct mmds_net *n)
{
    n->service->counts->rx_accepted++;
    n->service->counts->rx_accepted_err++;
}

bool mmds_net_owes(const struct mmds_net *n)
{
    if (n->owe_arp || n->num_resets > 0)
        return true;
    for (size_t i = 0; i < MMDS_MAX_CONNS; i++) {
        if (mmds_conn_owes(&n->conns[i]))
            return true;
    }
    return false;
}

/* A segment of a connection, each in its turn. */
static bool net_emit(struct mmds_net *n, struct mmds_seg *out, uint64_t now_ns)
{
    for (size_t i = 0; i < MMDS_MAX_CONNS; i++) {
        struct mmds_conn *c = &n->conns[(n->next_conn + i) % MMDS_MAX_CONNS];

        if (!mmds_conn_owes(c))
            continue;
        n->next_conn = (uint16_t)((n->next_conn + i + 1) % MMDS_MAX_CONNS);
        if (mmds_conn_emit(c, out, now_ns)) {
            net_count_end(n, true, c);
            return true;
        }
    }
    return false;
}

static size_t net_make(struct mmds_net *n, uint8_t *out, uint64_t now_ns)
{
    struct mmds_seg seg;
    uint32_t ip = n->service->ip;

    if (n->owe_arp) {
        n->owe_arp = false;
        return mmds_put_arp(out, &n->arp, ip);
    }
    if (n->num_resets > 0)
        return mmds_put_seg(out, &n->resets[--n->num_resets], ip);
    if (!net_emit(n, &seg, now_ns))
        return 0;
    return mmds_put_seg(out, &seg, ip);
}

size_t mmds_net_next(struct mmds_net *n, uint8_t *out, uint64_t now_ns)
{
    size_t len = net_make(n, out, now_ns);

    if (len > 0) {
        n->service->counts->tx_frames++;
        n->service->counts->tx_bytes += len;
    }
    return len;
}

/* --- time ----------------------------------------------------------------- */

void mmds_net_expire(struct mmds_net *n, uint64_t now_ns)
{
    for (size_t i = 0; i < MMDS_MAX_CONNS; i++) {
        struct mmds_conn *c = &n->conns[i];
        bool was_aborting = c->aborting;

        mmds_conn_expire(c, now_ns);
        if (c->aborting && !was_aborting)
            n->service->counts->tx_errors++;
    }
}

uint64_t mmds_net_deadline(const struct mmds_net *n)
{
    uint64_t first = 0;

    for (size_t i = 0; i < MMDS_MAX_CONNS; i++) {
        const struct mmds_conn *c = &n->conns[i];

        if (c->state != MMDS_CLOSED && c->timer_ns != 0 &&
            (first == 0 || c->timer_ns < first))
            first = c->timer_ns;
    }
    return first;
}
