/* SPDX-License-Identifier: Apache-2.0 */
/* Requests past the end, across it, or with sums that wrap fail one by one;
 * the last sector works, and the disk goes on. sectors=N is its size. */
#include "guest/payloads/virtio.h"

static uint64_t data[2 * VD_SECTOR / 8];

static void refused(struct vdev *d, uint64_t sector, uint32_t len)
{
    check_eq(blk_request(d, VIRTIO_BLK_T_IN, sector, data, len),
             VIRTIO_BLK_S_IOERR, "read outside of the disk");
    check_eq(blk_request(d, VIRTIO_BLK_T_OUT, sector, data, len),
             VIRTIO_BLK_S_IOERR, "write outside of the disk");
}

void payload_main(void)
{
    uint64_t sectors = payload_number("sectors=", 0);
    struct vdev *d;

    (void)vd_find_all();
    d = vd_find(VIRTIO_ID_BLOCK, 0);
    check(d != NULL, "this test needs a disk");
    vd_start(d, 1u << VIRTIO_BLK_F_FLUSH, 0);
    refused(d, sectors, VD_SECTOR);
    refused(d, sectors - 1, 2 * VD_SECTOR);
    refused(d, sectors + 1, VD_SECTOR);
    refused(d, UINT64_MAX, VD_SECTOR);
    refused(d, UINT64_MAX / VD_SECTOR + 1, VD_SECTOR); /* 512 n wraps to 0 */
    refused(d, 0, VD_SECTOR - 1);
    refused(d, 0, 0);
    blk_fill(data, sectors - 1, 1);
    check_eq(blk_request(d, VIRTIO_BLK_T_OUT, sectors - 1, data, VD_SECTOR),
             VIRTIO_BLK_S_OK, "write of the last sector");
    for (uint32_t i = 0; i < VD_SECTOR / 8; i++)
        data[i] = 0;
    check_eq(blk_request(d, VIRTIO_BLK_T_IN, sectors - 1, data, VD_SECTOR),
             VIRTIO_BLK_S_OK, "read of the last sector");
    blk_check(data, sectors - 1, 1);
}
