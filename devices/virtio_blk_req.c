/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_blk_req.h"

#include "vmm/le.h"

#include <string.h>

#define VBLK_SECTOR_BYTES 512u

_Static_assert(sizeof(struct virtio_blk_outhdr) == VBLK_HEADER_BYTES,
               "wire format");

/* The used length counts the status byte as well and has 32 bits. */
#define VBLK_MAX_DATA_BYTES (UINT32_MAX - VBLK_SECTOR_BYTES)

static uint8_t vblk_check_range(uint64_t g_sector, uint64_t data_bytes,
                                const struct vblk_limits *limits,
                                struct vblk_req *out)
{
    uint64_t capacity = limits->capacity_bytes / VBLK_SECTOR_BYTES;
    uint64_t count = data_bytes / VBLK_SECTOR_BYTES;

    if (data_bytes == 0 || data_bytes % VBLK_SECTOR_BYTES ||
        data_bytes > VBLK_MAX_DATA_BYTES)
        return VIRTIO_BLK_S_IOERR;
    /* Differences only: no sum or product can wrap. */
    if (g_sector > capacity || count > capacity - g_sector)
        return VIRTIO_BLK_S_IOERR;
    out->offset_bytes = g_sector * VBLK_SECTOR_BYTES;
    out->data_bytes = (uint32_t)data_bytes;
    return VIRTIO_BLK_S_OK;
}

/* Bytes of the chain's writable part before the status byte. */
static uint64_t vblk_in_bytes(const struct vq_chain *chain)
{
    return chain->writable_bytes - 1;
}

static uint8_t vblk_classify(const struct vq_chain *chain, uint32_t g_type,
                             uint64_t g_sector,
                             const struct vblk_limits *limits,
                             struct vblk_req *out)
{
    uint64_t out_bytes = chain->readable_bytes - VBLK_HEADER_BYTES;

    switch (g_type) {
    case VIRTIO_BLK_T_IN:
        out->op = VBLK_READ;
        if (out_bytes != 0)
            return VIRTIO_BLK_S_IOERR;
        return vblk_check_range(g_sector, vblk_in_bytes(chain), limits, out);
    case VIRTIO_BLK_T_OUT:
        out->op = VBLK_WRITE;
        if (limits->read_only || vblk_in_bytes(chain) != 0)
            return VIRTIO_BLK_S_IOERR;
        return vblk_check_range(g_sector, out_bytes, limits, out);
    case VIRTIO_BLK_T_FLUSH:
        out->op = VBLK_FLUSH;
        return VIRTIO_BLK_S_OK;
    case VIRTIO_BLK_T_GET_ID:
        out->op = VBLK_GET_ID;
        if (vblk_in_bytes(chain) < VIRTIO_BLK_ID_BYTES)
            return VIRTIO_BLK_S_IOERR;
        out->data_bytes = VIRTIO_BLK_ID_BYTES;
        return VIRTIO_BLK_S_OK;
    default:
        return VIRTIO_BLK_S_UNSUPP;
    }
}

int vblk_parse(const struct vq_chain *chain, const struct vblk_limits *limits,
               struct vblk_req *out)
{
    uint8_t header[VBLK_HEADER_BYTES];
    struct iovec status;

    memset(out, 0, sizeof(*out));
    if (vq_chain_read(chain, 0, header, sizeof(header)) != sizeof(header))
        return -EPROTO;
    if (chain->writable_bytes == 0 ||
        vq_chain_slice(chain, true, chain->writable_bytes - 1, 1, &status, 1) !=
            1)
        return -EPROTO;
    out->status_byte = status.iov_base;
    out->status = vblk_classify(
        chain, get_le32(header + offsetof(struct virtio_blk_outhdr, type)),
        get_le64(header + offsetof(struct virtio_blk_outhdr, sector)), limits,
        out);
    return 0;
}
