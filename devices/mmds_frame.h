/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_MMDS_FRAME_H
#define DEVICES_MMDS_FRAME_H

/*
 * Frames between a guest and the metadata address: which ones are for it, what
 * they say, and ours. Pure: no fd, clock or allocation. Addresses and ports are
 * numbers of the host's byte order. Every byte of a frame is hostile; callers
 * hand in copies, never the guest's own memory.
 * spec: rfc826 (ARP), rfc791 (IPv4), rfc9293 (TCP)
 */

#include "vmm/util.h"

#define MMDS_MAC_BYTES 6u
/* What mmds_frame_is_ours() needs to see of a frame. */
#define MMDS_HEAD_BYTES 64u
/* The largest frame of ours: headers and a segment for an MTU of 1500. */
#define MMDS_MAX_MSS   1460u
#define MMDS_MAX_FRAME (14u + 40u + MMDS_MAX_MSS)

extern const uint8_t mmds_mac[MMDS_MAC_BYTES];

/*
 * Whether a frame of the guest, of which `head` are the first `len` bytes (all
 * of them, or MMDS_HEAD_BYTES), is for `ip`: an IPv4 packet to it or an ARP
 * question about it, also behind VLAN tags. Nobody else may get such a frame.
 * More tags than one can look behind count as well: then it is nobody's.
 */
bool mmds_frame_is_ours(const uint8_t *head, size_t len, uint32_t ip);

struct mmds_arp {
    uint8_t mac[MMDS_MAC_BYTES]; /* who asks */
    uint32_t ip;
};

enum mmds_flag { MMDS_FIN = 1, MMDS_SYN = 2, MMDS_RST = 4, MMDS_ACK = 16 };

/* A TCP segment; `data` points into the frame, or is the sender's. */
struct mmds_seg {
    uint8_t mac[MMDS_MAC_BYTES]; /* the guest's */
    uint32_t peer_ip;            /* the guest's, as is the port */
    uint16_t peer_port;
    uint16_t port; /* ours */
    uint32_t seq;
    uint32_t ack;
    uint16_t window;
    uint8_t flags; /* enum mmds_flag, no others */
    uint16_t mss;  /* of a SYN; 0: it names none */
    const uint8_t *data;
    uint32_t len;
};

enum mmds_kind {
    MMDS_BAD,     /* broken: a length, a checksum, an address */
    MMDS_NOTHING, /* fine, and nothing that we answer: UDP, a fragment */
    MMDS_IS_ARP,
    MMDS_IS_TCP,
};

/*
 * `partial_csum`: the guest left the checksum of TCP to its device. One of
 * *arp and *seg is filled, as the result says.
 */
enum mmds_kind mmds_frame_parse(const uint8_t *frame, size_t len, uint32_t ip,
                                bool partial_csum, struct mmds_arp *arp,
                                struct mmds_seg *seg);

/* The answer to `to`, into a buffer of MMDS_MAX_FRAME bytes; its length. */
size_t mmds_put_arp(uint8_t *out, const struct mmds_arp *to, uint32_t ip);
/* seg->len is at most MMDS_MAX_MSS, less 4 with an mss. */
size_t mmds_put_seg(uint8_t *out, const struct mmds_seg *seg, uint32_t ip);

#endif
