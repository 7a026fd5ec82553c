/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_FAKE_NET_H
#define TESTS_HARNESS_FAKE_NET_H

/*
 * A network back end that does what the test says and nothing by itself:
 * frames that the device hands over stay until fnet_run(). Sent frames are
 * kept, frames to receive come from a list.
 *
 * Ownership: the device frees the back end; what it holds lives on in struct
 * fnet, which is the test's. Threads: one.
 */

#include "devices/net_back.h"

#define FNET_MAX_FRAMES 256u

struct fnet_frame {
    struct virtio_net_hdr_v1 hdr;
    uint32_t bytes;
    uint8_t *data; /* malloc'd */
};

struct fnet {
    struct net_back base; /* first */
    const struct net_events *events;
    void *arg;
    /* held until fnet_run() */
    struct net_frame *rx[NET_MAX_PAIRS][FNET_MAX_FRAMES];
    uint32_t num_rx[NET_MAX_PAIRS];
    struct net_frame *tx[FNET_MAX_FRAMES];
    uint32_t num_tx;
    /* to be received on a pair */
    struct fnet_frame in[NET_MAX_PAIRS][FNET_MAX_FRAMES];
    uint32_t num_in[NET_MAX_PAIRS];
    /* what was sent */
    struct fnet_frame out[FNET_MAX_FRAMES];
    uint32_t num_out;
    int tx_result;
    int set_result; /* of set_offloads and set_pairs */
    bool wait[NET_MAX_PAIRS];
    uint32_t waits;
    uint32_t flushes;
    uint32_t cancels;
    uint32_t rests;
    bool rest_keeps;   /* frames end by themselves, as those of a TAP do */
    bool cancel_keeps; /* frames stay with us after a cancel */
    uint32_t offloads;
    uint16_t active_pairs;
    bool freed;
};

void fnet_init(struct fnet *n, uint16_t pairs, bool vnet_hdr, uint32_t mtu);
void fnet_fini(struct fnet *n);
/* Lines up a frame of `bytes`, whose i-th byte is seed + i. hdr may be NULL. */
void fnet_feed(struct fnet *n, uint16_t pair, uint32_t bytes, uint8_t seed,
               const struct virtio_net_hdr_v1 *hdr);
/* Completes what is held, and what that leads to; tells readers that wait. */
void fnet_run(struct fnet *n);
/* One completion of a held receive or transmit frame; false: none is held. */
bool fnet_step_rx(struct fnet *n, uint16_t pair);
bool fnet_step_tx(struct fnet *n);
void fnet_give_back(struct fnet *n, int32_t result);
void fnet_link_down(struct fnet *n);

#endif
