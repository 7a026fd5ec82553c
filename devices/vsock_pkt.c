/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/vsock_pkt.h"

#include <endian.h>
#include <linux/vm_sockets.h>
#include <string.h>

_Static_assert(sizeof(struct virtio_vsock_hdr) == 44, "wire format");

void vsock_pkt_encode(const struct vsock_pkt *pkt,
                      struct virtio_vsock_hdr *out_hdr)
{
    out_hdr->src_cid = htole64(pkt->src_cid);
    out_hdr->dst_cid = htole64(pkt->dst_cid);
    out_hdr->src_port = htole32(pkt->src_port);
    out_hdr->dst_port = htole32(pkt->dst_port);
    out_hdr->len = htole32(pkt->len);
    out_hdr->type = htole16(pkt->type);
    out_hdr->op = htole16(pkt->op);
    out_hdr->flags = htole32(pkt->flags);
    out_hdr->buf_alloc = htole32(pkt->buf_alloc);
    out_hdr->fwd_cnt = htole32(pkt->fwd_cnt);
}

void vsock_pkt_decode(const struct virtio_vsock_hdr *hdr,
                      struct vsock_pkt *out_pkt)
{
    out_pkt->src_cid = le64toh(hdr->src_cid);
    out_pkt->dst_cid = le64toh(hdr->dst_cid);
    out_pkt->src_port = le32toh(hdr->src_port);
    out_pkt->dst_port = le32toh(hdr->dst_port);
    out_pkt->len = le32toh(hdr->len);
    out_pkt->type = le16toh(hdr->type);
    out_pkt->op = le16toh(hdr->op);
    out_pkt->flags = le32toh(hdr->flags);
    out_pkt->buf_alloc = le32toh(hdr->buf_alloc);
    out_pkt->fwd_cnt = le32toh(hdr->fwd_cnt);
}

int vsock_pkt_parse(const struct vq_chain *c, uint64_t guest_cid,
                    struct vsock_pkt *out_pkt)
{
    struct virtio_vsock_hdr hdr;
    struct vsock_pkt p;

    /* The header is copied out once; only the copy is looked at. */
    if (vq_chain_read(c, 0, &hdr, sizeof(hdr)) != sizeof(hdr))
        return -ENOMSG;
    vsock_pkt_decode(&hdr, &p);
    if (p.src_cid != guest_cid)
        return -ENOMSG;
    *out_pkt = p;
    if (p.dst_cid != VMADDR_CID_HOST || p.type != VIRTIO_VSOCK_TYPE_STREAM)
        return -ENXIO;
    if (p.op == VIRTIO_VSOCK_OP_INVALID ||
        p.op > VIRTIO_VSOCK_OP_CREDIT_REQUEST)
        return -EPROTO;
    if (p.len > c->readable_bytes - sizeof(hdr))
        return -EPROTO;
    return 0;
}

struct vsock_pkt vsock_pkt_reset_for(const struct vsock_pkt *pkt)
{
    return (struct vsock_pkt){
        .src_cid = pkt->dst_cid,
        .dst_cid = pkt->src_cid,
        .src_port = pkt->dst_port,
        .dst_port = pkt->src_port,
        .type = pkt->type, /* the guest looks the socket up by type too */
        .op = VIRTIO_VSOCK_OP_RST,
    };
}
