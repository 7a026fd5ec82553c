/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a pattern to three places of a disk, flushes, reads it back.
 * tests/kvm finds the same bytes in the file. sectors=N is the disk's size.
 */
#include "guest/payloads/virtio.h"

#define AT_ONCE 4u

static uint64_t data[AT_ONCE * VD_SECTOR / 8];

static void write_at(struct vdev *d, uint64_t sector)
{
    blk_fill(data, sector, AT_ONCE);
    check_eq(blk_request(d, VIRTIO_BLK_T_OUT, sector, data, sizeof(data)),
             VIRTIO_BLK_S_OK, "status of a write");
}

static void read_at(struct vdev *d, uint64_t sector)
{
    for (uint32_t i = 0; i < AT_ONCE * VD_SECTOR / 8; i++)
        data[i] = 0;
    check_eq(blk_request(d, VIRTIO_BLK_T_IN, sector, data, sizeof(data)),
             VIRTIO_BLK_S_OK, "status of a read");
    blk_check(data, sector, AT_ONCE);
}

void payload_main(void)
{
    uint64_t sectors = payload_number("sectors=", 0);
    struct vdev *d;

    (void)vd_find_all();
    d = vd_find(VIRTIO_ID_BLOCK, 0);
    check(d != NULL, "this test needs a disk");
    check_eq(mmio_r64(d->base + VIRTIO_MMIO_CONFIG), sectors, "capacity");
    vd_start(d, 1u << VIRTIO_BLK_F_FLUSH, 0);
    write_at(d, 0);
    write_at(d, 7);
    write_at(d, sectors - AT_ONCE);
    check_eq(blk_request(d, VIRTIO_BLK_T_FLUSH, 0, NULL, 0), VIRTIO_BLK_S_OK,
             "status of a flush");
    read_at(d, sectors - AT_ONCE);
    read_at(d, 7);
    /* The first place again, in pieces and with the length told back. */
    {
        static struct virtio_blk_outhdr header = {.type = VIRTIO_BLK_T_IN};
        static volatile uint8_t status = 0xee;
        const struct vd_seg segs[] = {{&header, 8, false},
                                      {(char *)&header + 8, 8, false},
                                      {data, 100, true},
                                      {(char *)data + 100, 924, true},
                                      {&status, 1, true}};

        vd_post(d, segs, 5);
        vd_kick(d);
        check_eq(vd_wait(d), 1025, "used length of a read of 1024 bytes");
        check_eq(status, VIRTIO_BLK_S_OK, "status of a read in pieces");
        blk_check(data, 0, 2);
    }
}
