/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_BLK_REQ_H
#define DEVICES_VIRTIO_BLK_REQ_H

/*
 * From a chain to a block request: pure, no fd, thread or allocation.
 * spec: virtio-1.2 5.2.6
 */

#include "devices/virtq.h"

#include <linux/virtio_blk.h>

enum vblk_op {
    VBLK_READ,
    VBLK_WRITE,
    VBLK_FLUSH,
    VBLK_GET_ID,
    VBLK_DISCARD,
    VBLK_WRITE_ZEROES,
};

/* What one discard or write-zeroes request may cover: announced, and held to.
 * A range is 2 GiB at most, so that its work has a bound. */
#define VBLK_MAX_RANGES        16u
#define VBLK_MAX_RANGE_SECTORS (1u << 22)

/* What a request is checked against. */
struct vblk_limits {
    uint64_t capacity_bytes; /* a multiple of 512 */
    bool read_only;
    bool discard;      /* negotiated */
    bool write_zeroes; /* negotiated */
};

struct vblk_range {
    uint64_t offset_bytes;
    uint64_t len_bytes;
    bool may_unmap; /* write zeroes only */
};

struct vblk_req {
    enum vblk_op op;       /* valid when status is OK */
    uint8_t status;        /* VIRTIO_BLK_S_*: else the answer, no work done */
    uint64_t offset_bytes; /* read and write */
    uint32_t data_bytes;   /* read, write: > 0, a multiple of 512, in range */
    uint8_t *status_byte;  /* in guest memory: the last writable byte */
    /* Discard, write zeroes: in range, neighbours joined, at least one. */
    uint32_t num_ranges;
    struct vblk_range ranges[VBLK_MAX_RANGES];
};

/* Where the data of a write begins in the chain's readable part. */
#define VBLK_HEADER_BYTES 16u

/*
 * 0: `out` is a request, or an answer to a bad one. -EPROTO: the chain has no
 * room for a header and a status, so nothing can be answered.
 */
int vblk_parse(const struct vq_chain *chain, const struct vblk_limits *limits,
               struct vblk_req *out) MUST_CHECK;

#endif
