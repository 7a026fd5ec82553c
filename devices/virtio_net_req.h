/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_NET_REQ_H
#define DEVICES_VIRTIO_NET_REQ_H

/*
 * What a guest's driver says about a frame and in a control request, checked.
 * Pure: no fd, thread or allocation. Raw values are copied once, and the copy
 * is what the caller hands on.
 * spec: virtio-1.2 5.1.6.2, 5.1.6.5
 */

#include "devices/net_back.h"
#include "devices/virtq.h"

#define VNET_BIT(bit) (1ull << (bit))

/*
 * A chain of a transmit queue: its header goes to *out_hdr, normalised (fields
 * that the frame does not use are 0), the frame's size to *out_bytes.
 * `features`: what the driver accepted. -EBADMSG: the frame is to be dropped.
 */
int vnet_parse_tx(const struct vq_chain *chain, uint64_t features,
                  struct virtio_net_hdr_v1 *out_hdr,
                  uint32_t *out_bytes) MUST_CHECK;

/*
 * Whether a guest with `features`, and with `offloads` (NET_OFFLOAD_*) turned
 * on, may get a frame with this header; what it must not see of a frame that
 * is fine is cleared.
 */
bool vnet_check_rx(struct virtio_net_hdr_v1 *hdr, uint32_t offloads);

/* Without those whose requirements are not among them. 5.1.3.1 */
uint64_t vnet_features_close(uint64_t features);
/* The guest offload features (VIRTIO_NET_F_GUEST_*) as NET_OFFLOAD_*. */
uint32_t vnet_offloads_of(uint64_t features);

enum vnet_ctrl_op {
    VNET_CTRL_SET_PAIRS,
    VNET_CTRL_SET_OFFLOADS,
    VNET_CTRL_ANNOUNCED, /* the guest has told where it is */
};
struct vnet_ctrl {
    enum vnet_ctrl_op op;
    uint16_t pairs;    /* 1 .. max_pairs */
    uint32_t offloads; /* within those negotiated */
    struct iovec ack;  /* one byte for the answer */
};

/*
 * A chain of the control queue. out->ack is set whenever there is room for an
 * answer. -EPROTO: there is none; -EINVAL: to be answered with an error.
 */
int vnet_parse_ctrl(const struct vq_chain *chain, uint64_t features,
                    uint16_t max_pairs, struct vnet_ctrl *out) MUST_CHECK;

#endif
