/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_MMDS_LINK_H
#define TESTS_HARNESS_MMDS_LINK_H

/*
 * A link with the metadata service, and ends of connections to it that obey
 * the test: nothing is sent, acknowledged or lost by itself. Misuse, and a
 * service that breaks TCP's rules, fail the test. Threads: one.
 */

#include "devices/mmds_net.h"
#include "tests/harness/mmds_peer.h"

#define ML_MS  UINT64_C(1000000)
#define ML_ISN 0xfffffff0u /* the service's: numbers wrap early */

/*
 * The service of these tests: a request is a line. "N\n" is answered by N
 * bytes, "CN\n" ends the connection then; "!\n" is an error.
 */
struct ml_link {
    struct mmds_net *net;
    struct mmds_counts counts;
    struct mmds_service service;
    uint64_t now;
    uint32_t asked;
    size_t frames; /* that came from the service, of all kinds */
    /* Where frames go instead of to `net`; NULL: there. */
    void (*send)(void *arg, const uint8_t *frame, size_t len);
    size_t (*next)(void *arg, uint8_t *out); /* 0: there is none */
    void *arg;
};

/* One end of a connection. */
struct ml_peer {
    struct ml_link *l;
    uint16_t port;
    uint32_t seq; /* next to send */
    uint32_t ack; /* next that is expected */
    uint16_t window;
    size_t got; /* bytes of responses, in order */
    bool synced;
    bool fin;
    bool rst;
};

/* The i-th byte of every response. */
char ml_byte(size_t i);

void ml_init(struct ml_link *l);
void ml_fini(struct ml_link *l);
void ml_send(struct ml_link *l, const struct mp_out *o);
/* The next segment of the service; false: there is none. */
bool ml_hear(struct ml_link *l, struct mp_in *in);

struct ml_peer ml_dial(struct ml_link *l, uint16_t port);
void ml_say(struct ml_peer *p, uint8_t flags, const char *text);
/* What a segment means to its connection. */
void ml_take(struct ml_peer *p, const struct mp_in *in);
/* All that the service has to say, each piece acknowledged. */
void ml_drain(struct ml_peer *p);
void ml_bye(struct ml_peer *p);

#endif
