/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VSOCK_PKT_H
#define DEVICES_VSOCK_PKT_H

/*
 * The header of a virtio-vsock packet: between its wire form and a struct in
 * host byte order, and the checks that need no connection. Pure.
 *
 * Ownership: none. Threads: any. Errors: -errno as told below.
 * spec: virtio-1.2 5.10.6
 */

#include "devices/virtq.h"

#include <linux/virtio_vsock.h>

#define VSOCK_HDR_BYTES ((uint32_t)sizeof(struct virtio_vsock_hdr))
#define VSOCK_SHUT_BOTH (VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND)

struct vsock_pkt {
    uint64_t src_cid;
    uint64_t dst_cid;
    uint32_t src_port;
    uint32_t dst_port;
    uint32_t len; /* bytes of payload behind the header */
    uint16_t type;
    uint16_t op;
    uint32_t flags;
    uint32_t buf_alloc; /* the sender's receive buffer, bytes */
    uint32_t fwd_cnt;   /* bytes the sender has freed there, free running */
};

void vsock_pkt_encode(const struct vsock_pkt *pkt,
                      struct virtio_vsock_hdr *out_hdr);
void vsock_pkt_decode(const struct virtio_vsock_hdr *hdr,
                      struct vsock_pkt *out_pkt);

/*
 * Reads a packet from a chain of the tx queue, whatever its descriptors look
 * like. `out_pkt` is filled in every case but -ENOMSG.
 *   0        a stream packet from this guest to the host
 *  -ENOMSG   no whole header, or not from this guest: nobody to answer
 *  -ENXIO    for another CID or of another type: to be answered by a reset
 *  -EPROTO   no such operation, or longer than its chain: the connection, if
 *            there is one, ends by a reset
 */
int vsock_pkt_parse(const struct vq_chain *c, uint64_t guest_cid,
                    struct vsock_pkt *out_pkt) MUST_CHECK;

/* The reset that answers `pkt`. */
struct vsock_pkt vsock_pkt_reset_for(const struct vsock_pkt *pkt);

#endif
