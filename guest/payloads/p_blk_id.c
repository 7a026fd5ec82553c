/* SPDX-License-Identifier: Apache-2.0 */
/* GET_ID gives the drive_id, here `disk_a`, padded by zeroes to 20 bytes. */
#include "guest/payloads/virtio.h"

void payload_main(void)
{
    static const char want[VIRTIO_BLK_ID_BYTES] = "disk_a";
    static char id[VIRTIO_BLK_ID_BYTES];
    struct vdev *d;

    (void)vd_find_all();
    d = vd_find(VIRTIO_ID_BLOCK, 0);
    check(d != NULL, "this test needs a disk");
    vd_start(d, 0, 0);
    for (uint32_t i = 0; i < sizeof(id); i++)
        id[i] = '#';
    check_eq(blk_request(d, VIRTIO_BLK_T_GET_ID, 0, id, sizeof(id)),
             VIRTIO_BLK_S_OK, "status of GET_ID");
    for (uint32_t i = 0; i < sizeof(id); i++)
        check_eq((uint8_t)id[i], (uint8_t)want[i], "a character of the id");
    check_eq(blk_request(d, VIRTIO_BLK_T_GET_ID, 0, id, 19), VIRTIO_BLK_S_IOERR,
             "GET_ID with too little room");
    check_eq(blk_request(d, 0x55, 0, id, 16), VIRTIO_BLK_S_UNSUPP,
             "a request that does not exist");
}
