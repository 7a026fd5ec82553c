/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_blk_req.h"

#include "vmm/le.h"

#include <string.h>

#define VBLK_SECTOR_BYTES 512u

_Static_assert(sizeof(struct virtio_blk_outhdr) == VBLK_HEADER_BYTES,
               "wire format");

_Static_assert(sizeof(struct virtio_blk_discard_write_zeroes) == 16,
               "wire format");

#define VBLK_UNMAP ((uint32_t)VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP)

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

/* --- ranges: discard, write zeroes. spec: virtio-1.2 5.2.6.2 -------------- */

/* Joins a range to the one before where they touch and want the same. */
static void vblk_add_range(struct vblk_req *out, const struct vblk_range *r)
{
    struct vblk_range *last =
        out->num_ranges ? &out->ranges[out->num_ranges - 1] : NULL;

    if (last && last->may_unmap == r->may_unmap &&
        last->offset_bytes + last->len_bytes == r->offset_bytes)
        last->len_bytes += r->len_bytes;
    else
        out->ranges[out->num_ranges++] = *r;
}

static uint8_t vblk_check_segment(const uint8_t *segment,
                                  const struct vblk_limits *limits,
                                  struct vblk_req *out)
{
    uint64_t capacity = limits->capacity_bytes / VBLK_SECTOR_BYTES;
    uint64_t g_sector = get_le64(
        segment + offsetof(struct virtio_blk_discard_write_zeroes, sector));
    uint32_t g_count =
        get_le32(segment +
                 offsetof(struct virtio_blk_discard_write_zeroes, num_sectors));
    uint32_t g_flags = get_le32(
        segment + offsetof(struct virtio_blk_discard_write_zeroes, flags));
    bool unmap = g_flags & VBLK_UNMAP;
    struct vblk_range r;

    if ((g_flags & ~VBLK_UNMAP) || (unmap && out->op == VBLK_DISCARD))
        return VIRTIO_BLK_S_UNSUPP;
    if (g_count == 0 || g_count > VBLK_MAX_RANGE_SECTORS)
        return VIRTIO_BLK_S_IOERR;
    if (g_sector > capacity || g_count > capacity - g_sector)
        return VIRTIO_BLK_S_IOERR;
    r.offset_bytes = g_sector * VBLK_SECTOR_BYTES;
    r.len_bytes = (uint64_t)g_count * VBLK_SECTOR_BYTES;
    r.may_unmap = unmap;
    vblk_add_range(out, &r);
    return VIRTIO_BLK_S_OK;
}

/* All segments are good or none is carried out. */
static uint8_t vblk_check_segments(const struct vq_chain *chain,
                                   const struct vblk_limits *limits,
                                   struct vblk_req *out)
{
    struct virtio_blk_discard_write_zeroes g_segments[VBLK_MAX_RANGES];
    uint64_t bytes = chain->readable_bytes - VBLK_HEADER_BYTES;
    uint8_t status = VIRTIO_BLK_S_OK;

    if (limits->read_only || chain->writable_bytes != 1 || bytes == 0 ||
        bytes % sizeof(g_segments[0]) || bytes > sizeof(g_segments))
        return VIRTIO_BLK_S_IOERR;
    if (vq_chain_read(chain, VBLK_HEADER_BYTES, g_segments, bytes) != bytes)
        return VIRTIO_BLK_S_IOERR;
    for (size_t i = 0; i < bytes / sizeof(g_segments[0]); i++) {
        status =
            vblk_check_segment((const uint8_t *)&g_segments[i], limits, out);
        if (status != VIRTIO_BLK_S_OK)
            break;
    }
    return status;
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
    case VIRTIO_BLK_T_DISCARD:
        out->op = VBLK_DISCARD;
        if (!limits->discard && !limits->read_only)
            return VIRTIO_BLK_S_UNSUPP;
        return vblk_check_segments(chain, limits, out);
    case VIRTIO_BLK_T_WRITE_ZEROES:
        out->op = VBLK_WRITE_ZEROES;
        if (!limits->write_zeroes && !limits->read_only)
            return VIRTIO_BLK_S_UNSUPP;
        return vblk_check_segments(chain, limits, out);
    default:
        return VIRTIO_BLK_S_UNSUPP;
    }
}

int vblk_parse(const struct vq_chain *chain, const struct vblk_limits *limits,
               struct vblk_req *out)
{
    uint8_t header[VBLK_HEADER_BYTES];
    struct iovec status;

    memset(out, 0, offsetof(struct vblk_req, ranges));
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
