/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zeroes and discards ranges of a disk of sectors=N, whole of which is filled
 * by the host; bad ranges are refused one by one. tests/kvm looks at the file.
 */
#include "guest/payloads/virtio.h"

#define UNMAP   VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP
#define DISCARD (1u << VIRTIO_BLK_F_DISCARD)
#define ZEROES  (1u << VIRTIO_BLK_F_WRITE_ZEROES)

static struct virtio_blk_discard_write_zeroes ranges[2];

static void put(uint32_t i, uint64_t sector, uint32_t count, uint32_t flags)
{
    ranges[i].sector = sector;
    ranges[i].num_sectors = count;
    ranges[i].flags = flags;
}

static uint8_t ask(struct vdev *d, uint32_t type, uint32_t n)
{
    return blk_request(d, type, 0, ranges, n * (uint32_t)sizeof(ranges[0]));
}

static void refusals(struct vdev *d, uint64_t sectors)
{
    put(0, sectors - 1, 2, 0);
    check_eq(ask(d, VIRTIO_BLK_T_DISCARD, 1), VIRTIO_BLK_S_IOERR,
             "a discard past the end");
    put(0, sectors, 1, 0);
    check_eq(ask(d, VIRTIO_BLK_T_WRITE_ZEROES, 1), VIRTIO_BLK_S_IOERR,
             "zeroes past the end");
    put(0, 0, 8, UNMAP);
    check_eq(ask(d, VIRTIO_BLK_T_DISCARD, 1), VIRTIO_BLK_S_UNSUPP,
             "a discard with unmap");
    put(0, 0, 8, 2);
    check_eq(ask(d, VIRTIO_BLK_T_WRITE_ZEROES, 1), VIRTIO_BLK_S_UNSUPP,
             "an unknown flag");
    put(0, 0, 8, 0);
    put(1, ~0ull, 1, 0);
    check_eq(ask(d, VIRTIO_BLK_T_WRITE_ZEROES, 2), VIRTIO_BLK_S_IOERR,
             "a good range and a bad one");
}

void payload_main(void)
{
    uint64_t sectors = payload_number("sectors=", 0);
    struct vdev *d;

    (void)vd_find_all();
    d = vd_find(VIRTIO_ID_BLOCK, 0);
    check(d != NULL, "this test needs a disk");
    vd_start(d, DISCARD | ZEROES, 0);
    refusals(d, sectors);
    put(0, 1, 3, 0);
    put(1, 9, 1, 0);
    check_eq(ask(d, VIRTIO_BLK_T_WRITE_ZEROES, 2), VIRTIO_BLK_S_OK, "zeroes");
    put(0, 512, 512, UNMAP);
    check_eq(ask(d, VIRTIO_BLK_T_WRITE_ZEROES, 1), VIRTIO_BLK_S_OK,
             "zeroes with unmap");
    put(0, 1024, 512, 0);
    put(1, 1536, 512, 0);
    check_eq(ask(d, VIRTIO_BLK_T_DISCARD, 2), VIRTIO_BLK_S_OK, "a discard");
    /* Not negotiated, not done. */
    vd_start(d, 0, 0);
    put(0, 0, 1, 0);
    check_eq(ask(d, VIRTIO_BLK_T_DISCARD, 1), VIRTIO_BLK_S_UNSUPP,
             "a discard without its feature");
    check_eq(ask(d, VIRTIO_BLK_T_WRITE_ZEROES, 1), VIRTIO_BLK_S_UNSUPP,
             "zeroes without their feature");
}
