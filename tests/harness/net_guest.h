/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_NET_GUEST_H
#define TESTS_HARNESS_NET_GUEST_H

/* A network device, its fake back end and a driver of it, for unit tests. */

#include "devices/virtio_net.h"
#include "tests/harness/fake_driver.h"
#include "tests/harness/fake_net.h"

#define NG_BIT(b) (1ull << VIRTIO_NET_F_##b)
#define NG_GUEST                                                               \
    (NG_BIT(GUEST_CSUM) | NG_BIT(GUEST_TSO4) | NG_BIT(GUEST_TSO6) |            \
     NG_BIT(GUEST_ECN))
#define NG_HOST                                                                \
    (NG_BIT(CSUM) | NG_BIT(HOST_TSO4) | NG_BIT(HOST_TSO6) | NG_BIT(HOST_ECN))
#define NG_EVENT (1ull << VIRTIO_RING_F_EVENT_IDX)
#define NG_RX    0u
#define NG_TX    1u
#define NG_QSIZE 256u
#define NG_HDR   12u

struct net_guest {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct fnet net;
    struct virtio_dev *dev;
};

struct ng_args {
    uint16_t pairs; /* 0: 1 */
    uint16_t qsize; /* 0: NG_QSIZE */
    bool plain;     /* a network without vnet headers */
    uint32_t mtu;   /* of the network */
    uint64_t features;
    struct vnet_args vnet;
};

struct net_guest *ng_new(const struct ng_args *args);
void ng_free(struct net_guest *g);
void ng_attach(struct net_guest *g, uint16_t qsize, uint64_t features);
/* Adds `n` receive buffers of `bytes` each, kicks; the first's address. */
gpa_t ng_add_rx(struct net_guest *g, uint16_t q, uint32_t n, uint32_t bytes);
/* Adds one frame to send in one buffer behind a header; does not kick. */
uint16_t ng_add_tx(struct net_guest *g, uint16_t q, uint32_t bytes,
                   uint8_t seed);
/* Runs the network and the loop until nothing moves. */
void ng_settle(struct net_guest *g);
struct vnet_stats ng_stats(struct net_guest *g);
/* The next `n` used entries of q; their lengths. Aborts if there are fewer. */
void ng_take(struct net_guest *g, uint16_t q, uint32_t n, uint32_t *out_len);
bool ng_none_used(struct net_guest *g, uint16_t q);
/* One control request; its answer, or 0xee when none came. */
uint8_t ng_ctrl(struct net_guest *g, uint16_t q, const void *bytes,
                uint32_t len);

#endif
