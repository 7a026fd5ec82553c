/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_net_req.h"

#include "vmm/le.h"

#include <string.h>

/* --- transmit ------------------------------------------------------------ */

static bool vnet_has(uint64_t features, unsigned bit)
{
    return features & VNET_BIT(bit);
}

/* Where the checksum goes lies inside the frame; no sum can wrap. */
static bool vnet_csum_inside(const struct virtio_net_hdr_v1 *h, uint32_t bytes)
{
    uint32_t end =
        (uint32_t)le16toh(h->csum_start) + le16toh(h->csum_offset) + 2;

    return end <= bytes;
}

/* spec: virtio-1.2 5.1.6.2.1; the header's length is within the frame. */
static bool vnet_gso_ok(const struct virtio_net_hdr_v1 *h, uint64_t features,
                        uint32_t bytes)
{
    uint8_t type = h->gso_type & (uint8_t)~VIRTIO_NET_HDR_GSO_ECN;

    if (type == VIRTIO_NET_HDR_GSO_TCPV4) {
        if (!vnet_has(features, VIRTIO_NET_F_HOST_TSO4))
            return false;
    } else if (type == VIRTIO_NET_HDR_GSO_TCPV6) {
        if (!vnet_has(features, VIRTIO_NET_F_HOST_TSO6))
            return false;
    } else {
        return false; /* never offered: UDP, or no such type */
    }
    if ((h->gso_type & VIRTIO_NET_HDR_GSO_ECN) &&
        !vnet_has(features, VIRTIO_NET_F_HOST_ECN))
        return false;
    return (h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) && h->gso_size != 0 &&
           le16toh(h->hdr_len) <= bytes;
}

int vnet_parse_tx(const struct vq_chain *chain, uint64_t features,
                  struct virtio_net_hdr_v1 *out_hdr, uint32_t *out_bytes)
{
    struct virtio_net_hdr_v1 h;
    uint32_t bytes;

    if (chain->num_writable > 0 ||
        chain->readable_bytes < NET_HDR_BYTES + NET_MIN_FRAME ||
        chain->readable_bytes > NET_HDR_BYTES + NET_MAX_FRAME)
        return -EBADMSG;
    bytes = (uint32_t)chain->readable_bytes - NET_HDR_BYTES;
    if (vq_chain_read(chain, 0, &h, sizeof(h)) != sizeof(h))
        return -EBADMSG;
    h.flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM; /* others are not for us */
    h.num_buffers = 0;
    if (h.flags) {
        if (!vnet_has(features, VIRTIO_NET_F_CSUM) ||
            !vnet_csum_inside(&h, bytes))
            return -EBADMSG;
    } else {
        h.csum_start = 0;
        h.csum_offset = 0;
    }
    if (h.gso_type != VIRTIO_NET_HDR_GSO_NONE) {
        if (!vnet_gso_ok(&h, features, bytes))
            return -EBADMSG;
    } else {
        h.hdr_len = 0;
        h.gso_size = 0;
    }
    *out_hdr = h;
    *out_bytes = bytes;
    return 0;
}

/* --- receive ------------------------------------------------------------- */

/* spec: virtio-1.2 5.1.6.4.1 */
bool vnet_check_rx(struct virtio_net_hdr_v1 *hdr, uint32_t offloads)
{
    uint8_t type = hdr->gso_type & (uint8_t)~VIRTIO_NET_HDR_GSO_ECN;

    if (!(offloads & NET_OFFLOAD_CSUM)) {
        if (hdr->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
            return false;
        hdr->flags = 0;
    }
    hdr->flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID;
    if ((hdr->gso_type & VIRTIO_NET_HDR_GSO_ECN) &&
        !(offloads & NET_OFFLOAD_ECN))
        return false;
    switch (type) {
    case VIRTIO_NET_HDR_GSO_NONE:
        return hdr->gso_type == VIRTIO_NET_HDR_GSO_NONE;
    case VIRTIO_NET_HDR_GSO_TCPV4:
        return offloads & NET_OFFLOAD_TSO4;
    case VIRTIO_NET_HDR_GSO_TCPV6:
        return offloads & NET_OFFLOAD_TSO6;
    default:
        return false;
    }
}

/* --- features ------------------------------------------------------------ */

uint64_t vnet_features_close(uint64_t features)
{
    /* What others need comes before them. */
    static const struct {
        uint8_t feature;
        uint64_t needs_one_of;
    } rules[] = {
        {VIRTIO_NET_F_HOST_TSO4, VNET_BIT(VIRTIO_NET_F_CSUM)},
        {VIRTIO_NET_F_HOST_TSO6, VNET_BIT(VIRTIO_NET_F_CSUM)},
        {VIRTIO_NET_F_HOST_ECN,
         VNET_BIT(VIRTIO_NET_F_HOST_TSO4) | VNET_BIT(VIRTIO_NET_F_HOST_TSO6)},
        {VIRTIO_NET_F_GUEST_TSO4, VNET_BIT(VIRTIO_NET_F_GUEST_CSUM)},
        {VIRTIO_NET_F_GUEST_TSO6, VNET_BIT(VIRTIO_NET_F_GUEST_CSUM)},
        {VIRTIO_NET_F_GUEST_ECN,
         VNET_BIT(VIRTIO_NET_F_GUEST_TSO4) | VNET_BIT(VIRTIO_NET_F_GUEST_TSO6)},
        {VIRTIO_NET_F_MQ, VNET_BIT(VIRTIO_NET_F_CTRL_VQ)},
        {VIRTIO_NET_F_GUEST_ANNOUNCE, VNET_BIT(VIRTIO_NET_F_CTRL_VQ)},
        {VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, VNET_BIT(VIRTIO_NET_F_CTRL_VQ)},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        if (!(features & rules[i].needs_one_of))
            features &= ~VNET_BIT(rules[i].feature);
    }
    return features;
}

uint32_t vnet_offloads_of(uint64_t features)
{
    uint32_t o = 0;

    if (vnet_has(features, VIRTIO_NET_F_GUEST_CSUM))
        o |= NET_OFFLOAD_CSUM;
    if (vnet_has(features, VIRTIO_NET_F_GUEST_TSO4))
        o |= NET_OFFLOAD_TSO4;
    if (vnet_has(features, VIRTIO_NET_F_GUEST_TSO6))
        o |= NET_OFFLOAD_TSO6;
    if (vnet_has(features, VIRTIO_NET_F_GUEST_ECN))
        o |= NET_OFFLOAD_ECN;
    return o;
}

/* --- control ------------------------------------------------------------- */

static int vnet_parse_mq(const struct vq_chain *chain, uint64_t features,
                         uint16_t max_pairs, struct vnet_ctrl *out)
{
    uint8_t g_pairs[sizeof(struct virtio_net_ctrl_mq)];

    if (!vnet_has(features, VIRTIO_NET_F_MQ) ||
        vq_chain_read(chain, 2, g_pairs, sizeof(g_pairs)) != sizeof(g_pairs))
        return -EINVAL;
    out->op = VNET_CTRL_SET_PAIRS;
    out->pairs = get_le16(g_pairs);
    return out->pairs >= 1 && out->pairs <= max_pairs ? 0 : -EINVAL;
}

static int vnet_parse_offloads(const struct vq_chain *chain, uint64_t features,
                               struct vnet_ctrl *out)
{
    const uint64_t all =
        VNET_BIT(VIRTIO_NET_F_GUEST_CSUM) | VNET_BIT(VIRTIO_NET_F_GUEST_TSO4) |
        VNET_BIT(VIRTIO_NET_F_GUEST_TSO6) | VNET_BIT(VIRTIO_NET_F_GUEST_ECN);
    uint8_t g_bytes[8];
    uint64_t want;

    if (!vnet_has(features, VIRTIO_NET_F_CTRL_GUEST_OFFLOADS) ||
        vq_chain_read(chain, 2, g_bytes, sizeof(g_bytes)) != sizeof(g_bytes))
        return -EINVAL;
    want = get_le64(g_bytes);
    /* A combination that could not have been negotiated is none either. */
    if ((want & ~(features & all)) || vnet_features_close(want) != want)
        return -EINVAL;
    out->op = VNET_CTRL_SET_OFFLOADS;
    out->offloads = vnet_offloads_of(want);
    return 0;
}

int vnet_parse_ctrl(const struct vq_chain *chain, uint64_t features,
                    uint16_t max_pairs, struct vnet_ctrl *out)
{
    uint8_t g_head[sizeof(struct virtio_net_ctrl_hdr)];

    memset(out, 0, sizeof(*out));
    if (vq_chain_slice(chain, true, 0, 1, &out->ack, 1) != 1)
        return -EPROTO;
    if (vq_chain_read(chain, 0, g_head, sizeof(g_head)) != sizeof(g_head))
        return -EINVAL;
    if (g_head[0] == VIRTIO_NET_CTRL_MQ &&
        g_head[1] == VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET)
        return vnet_parse_mq(chain, features, max_pairs, out);
    if (g_head[0] == VIRTIO_NET_CTRL_GUEST_OFFLOADS &&
        g_head[1] == VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET)
        return vnet_parse_offloads(chain, features, out);
    if (g_head[0] == VIRTIO_NET_CTRL_ANNOUNCE &&
        g_head[1] == VIRTIO_NET_CTRL_ANNOUNCE_ACK &&
        vnet_has(features, VIRTIO_NET_F_GUEST_ANNOUNCE)) {
        out->op = VNET_CTRL_ANNOUNCED;
        return 0;
    }
    return -EINVAL;
}
