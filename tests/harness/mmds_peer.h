/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_MMDS_PEER_H
#define TESTS_HARNESS_MMDS_PEER_H

/*
 * A guest's end of the metadata service, with a TCP of its own that does just
 * what it is told: frames are made and taken apart here without the code under
 * test. Threads: one. Errors: a frame of the service that breaks a rule aborts.
 */

#include "vmm/util.h"

#define MP_IP    0xa9fea9feu /* 169.254.169.254 */
#define MP_GUEST 0x0a070002u /* 10.7.0.2 */
#define MP_FRAME 9000u

enum { MP_FIN = 1, MP_SYN = 2, MP_RST = 4, MP_PSH = 8, MP_ACK = 16 };

/* What a segment of the guest says; the rest is as it should be. */
struct mp_out {
    uint16_t port;     /* the guest's */
    uint16_t dst_port; /* 0: 80 */
    uint32_t seq;
    uint32_t ack;
    uint16_t window;
    uint8_t flags;
    uint16_t mss;      /* 0: no option */
    uint16_t fragment; /* the field of the IPv4 header */
    uint16_t vlan_tags;
    uint8_t protocol; /* 0: TCP */
    bool bad_tcp_sum;
    bool bad_ip_sum;
    uint32_t dst; /* 0: MP_IP */
    uint32_t src; /* 0: MP_GUEST */
    const void *data;
    size_t len;
};

/* Into MP_FRAME bytes; the frame's length. */
size_t mp_put(uint8_t *frame, const struct mp_out *o);
/* A question of the guest's about `ip`. */
size_t mp_put_arp(uint8_t *frame, uint32_t ip);

/* A segment of the service, its checksums checked. */
struct mp_in {
    uint16_t port; /* the guest's */
    uint16_t src_port;
    uint32_t seq;
    uint32_t ack;
    uint16_t window;
    uint8_t flags;
    uint16_t mss;
    const uint8_t *data;
    size_t len;
    bool to_guest; /* it has the guest's own addresses */
};

/* False: it is an answer to ARP, a correct one. */
bool mp_take(const uint8_t *frame, size_t len, struct mp_in *out);

#endif
