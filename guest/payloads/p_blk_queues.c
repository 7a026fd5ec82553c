/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk has queues=N queues, and each reads. What the device announces, the
 * queue one past the last, and requests through each by its own kick.
 */
#include "guest/payloads/virtio.h"

static uint64_t data[VD_SECTOR / 8];

void payload_main(void)
{
    uint32_t queues = (uint32_t)payload_number("queues=", 1);
    uint64_t at = VIRTIO_MMIO_CONFIG +
                  __builtin_offsetof(struct virtio_blk_config, num_queues);
    struct vdev *d;

    (void)vd_find_all();
    d = vd_find(VIRTIO_ID_BLOCK, 0);
    check(d != NULL, "this test needs a disk");
    check_eq(mmio_r16(d->base + at), queues, "queues that it announces");
    for (uint32_t q = 0; q < queues; q++) {
        vd_start(d, queues > 1 ? 1u << VIRTIO_BLK_F_MQ : 0, q);
        for (uint64_t sector = 0; sector < 3; sector++) {
            check_eq(
                blk_request(d, VIRTIO_BLK_T_IN, sector, data, sizeof(data)),
                VIRTIO_BLK_S_OK, "status of a read");
            blk_check(data, sector, 1);
        }
    }
    vd_write(d, VIRTIO_MMIO_QUEUE_SEL, queues);
    check_eq(vd_read(d, VIRTIO_MMIO_QUEUE_NUM_MAX), 0, "one queue too many");
}
