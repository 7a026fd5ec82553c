/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_MMDS_TCP_H
#define DEVICES_MMDS_TCP_H

/*
 * One TCP connection that a guest has opened to the metadata service: requests
 * come in, one response at a time goes out. Segments are made when there is
 * room for them, so nothing queues: what the connection owes is in its state.
 * Pure: no fd, clock or thread; nothing is allocated. What does not arrive in
 * order is dropped, and comes again.
 *
 * Ownership: the response's memory is the connection's from mmds_conn_reply()
 * until mmds_conn_sent_all(), mmds_conn_close() or the end; it is malloc'd.
 * spec: rfc9293 3.10
 */

#include "devices/mmds_frame.h"

#define MMDS_REQUEST_MAX 8192u /* bytes of one request, and of the window */

enum mmds_state {
    MMDS_CLOSED, /* the slot is free */
    MMDS_SYN_RECEIVED,
    MMDS_OPEN,
};

struct mmds_conn {
    enum mmds_state state;
    uint8_t mac[MMDS_MAC_BYTES];
    uint32_t peer_ip;
    uint16_t peer_port;
    uint16_t port;
    uint16_t mss;
    uint64_t active_ns; /* the guest's last word that moved something */
    /* towards us */
    uint32_t rcv_nxt;
    bool peer_closed; /* its FIN is taken: nothing more comes */
    bool owe_ack;
    uint32_t told_window; /* what the guest may still send, as it knows */
    /* towards the guest */
    uint32_t snd_una;
    uint32_t snd_nxt;
    uint32_t snd_max;  /* the furthest that was ever sent */
    uint32_t window;   /* that the guest offers, from snd_una on */
    bool closing;      /* a FIN follows the response */
    bool aborting;     /* a RST follows, then the end */
    uint8_t tries;     /* of what waits to be acknowledged */
    uint64_t timer_ns; /* when to try again; 0: nothing waits */
    char *out;         /* the response; its first byte has number out_seq */
    size_t out_len;
    uint32_t out_seq;
    bool unread; /* nobody has looked at in[] since it changed */
    uint32_t in_len;
    char
        *in; /* of the request, in order: MMDS_REQUEST_MAX bytes of the owner */
};

/*
 * A SYN for a free slot, whose `in` is set. `isn` is our first sequence number,
 * `mss` what the link takes.
 */
void mmds_conn_open(struct mmds_conn *c, const struct mmds_seg *syn,
                    uint32_t isn, uint16_t mss, uint64_t now_ns);
bool mmds_conn_is(const struct mmds_conn *c, const struct mmds_seg *seg);
/* A segment of this connection. Its slot may be free afterwards. */
void mmds_conn_receive(struct mmds_conn *c, const struct mmds_seg *seg,
                       uint64_t now_ns);

/* Whether a response may be given: the last one is acknowledged. */
bool mmds_conn_can_reply(const struct mmds_conn *c);
/* The request's `used` bytes are done with; `data` is the response. */
void mmds_conn_reply(struct mmds_conn *c, uint32_t used, char *data, size_t len,
                     bool close);
/* A FIN follows what is still to be sent. Idempotent. */
void mmds_conn_finish(struct mmds_conn *c);
/* The guest is told that it is over, by RST. */
void mmds_conn_abort(struct mmds_conn *c);
/* Ends it without a word; the slot is free. Idempotent. */
void mmds_conn_close(struct mmds_conn *c);

/* The next segment that the guest is owed. False: none for now. */
bool mmds_conn_emit(struct mmds_conn *c, struct mmds_seg *out, uint64_t now_ns);
/* Whether mmds_conn_emit() would give one. */
bool mmds_conn_owes(const struct mmds_conn *c);
/* Time to send again what was not acknowledged; it may be the end. */
void mmds_conn_expire(struct mmds_conn *c, uint64_t now_ns);

#endif
