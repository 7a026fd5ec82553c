/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first disk lets one request of a sector pass in an hour. The second one
 * answers while a request waits on the first, which can be reset meanwhile and
 * still keeps its limit.
 */
#include "guest/payloads/virtio.h"

static uint64_t data[VD_SECTOR / 8];
static struct virtio_blk_outhdr header = {.type = VIRTIO_BLK_T_IN};
static volatile uint8_t status = 0xee;

/* A read that nobody waits for. */
static void post_read(struct vdev *d)
{
    static uint8_t lost[VD_SECTOR];
    const struct vd_seg segs[] = {{&header, sizeof(header), false},
                                  {lost, sizeof(lost), true},
                                  {&status, 1, true}};

    vd_post(d, segs, 3);
    vd_kick(d);
}

static void read_some(struct vdev *d)
{
    for (uint64_t sector = 0; sector < 4; sector++) {
        check_eq(blk_request(d, VIRTIO_BLK_T_IN, sector, data, sizeof(data)),
                 VIRTIO_BLK_S_OK, "status of a read of the other disk");
        blk_check(data, sector, 1);
    }
}

void payload_main(void)
{
    struct vdev *slow;
    struct vdev *fast;

    (void)vd_find_all();
    slow = vd_find(VIRTIO_ID_BLOCK, 0);
    fast = vd_find(VIRTIO_ID_BLOCK, 1);
    check(slow != NULL && fast != NULL, "this test needs two disks");
    vd_start(fast, 0, 0);
    vd_start(slow, 0, 0);
    check_eq(blk_request(slow, VIRTIO_BLK_T_IN, 0, data, sizeof(data)),
             VIRTIO_BLK_S_OK, "status of the first read");
    for (uint32_t i = 0; i < 3; i++) {
        post_read(slow);
        read_some(fast);
        check_eq(status, 0xee, "status of a request that waits");
        vd_reset(slow);
        vd_start(slow, 0, 0);
    }
}
