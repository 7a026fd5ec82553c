/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_MMDS_NET_H
#define DEVICES_MMDS_NET_H

/*
 * The metadata service on one guest's link: answers ARP for its address and
 * takes TCP connections to its port 80. What is asked there is another module's
 * matter, behind struct mmds_service. Frames come in one by one and are asked
 * for one by one; there is no queue of frames, no timer and no thread in here.
 *
 * What a guest can make it hold is bounded: MMDS_MAX_CONNS connections, each
 * with one request of MMDS_REQUEST_MAX bytes and one response; no further
 * response is made while MMDS_MAX_HELD bytes of them wait.
 *
 * Ownership: the service is borrowed. Threads: the loop's.
 */

#include "devices/mmds_tcp.h"

#define MMDS_PORT      80u
#define MMDS_MAX_CONNS 30u
#define MMDS_MAX_HELD  ((size_t)2 << 20)

/* Since the start, of all links that share them. */
struct mmds_counts {
    uint64_t rx_accepted;         /* frames to the service */
    uint64_t rx_accepted_err;     /* of them: broken */
    uint64_t rx_accepted_unusual; /* of them: nothing that it answers */
    uint64_t rx_count;            /* requests */
    uint64_t tx_bytes;
    uint64_t tx_frames;
    uint64_t tx_count;  /* responses */
    uint64_t tx_errors; /* connections given up, or refused for their number */
    uint64_t connections_created;
    uint64_t connections_destroyed;
};

struct mmds_response {
    char *data; /* malloc'd, at least a byte; the taker's */
    size_t len;
    bool close; /* the connection's last one */
};

struct mmds_service {
    uint32_t ip; /* host byte order */
    struct mmds_counts *counts;
    /*
     * The request that `data` begins with: its bytes, and *out filled; 0 if it
     * is not whole yet; or -errno, and then the connection is reset. `full`:
     * no more bytes can come. Neither keeps nor changes `data`.
     */
    int32_t (*respond)(void *arg, const char *data, size_t len, bool full,
                       struct mmds_response *out);
    void *arg;
};

struct mmds_net;

/* `isn`: a random number. `mss`: the largest segment that the link takes. */
int mmds_net_new(const struct mmds_service *service, uint32_t isn, uint16_t mss,
                 struct mmds_net **out_net) MUST_CHECK;
void mmds_net_free(struct mmds_net *n); /* NULL is fine */
/* The guest's driver begins anew: no connection is left. */
void mmds_net_reset(struct mmds_net *n);

/*
 * A whole frame of the guest, a copy, for which mmds_frame_is_ours() holds.
 * `partial_csum`: see mmds_frame_parse().
 */
void mmds_net_receive(struct mmds_net *n, const uint8_t *frame, size_t len,
                      bool partial_csum, uint64_t now_ns);
/* One that was too large to be copied. */
void mmds_net_refuse(struct mmds_net *n);

/* Whether mmds_net_next() would give a frame. */
bool mmds_net_owes(const struct mmds_net *n);
/* The next frame for the guest into MMDS_MAX_FRAME bytes; its length, or 0. */
size_t mmds_net_next(struct mmds_net *n, uint8_t *out, uint64_t now_ns);
/* What was not acknowledged in time is sent again, or given up. */
void mmds_net_expire(struct mmds_net *n, uint64_t now_ns);
/* When mmds_net_expire() has to be called; 0: nothing waits. */
uint64_t mmds_net_deadline(const struct mmds_net *n);

#endif
