/* SPDX-License-Identifier: Apache-2.0 */
/* A read-only disk says so, reads, and refuses writes: those of a driver that
 * looked, and those of one that did not. tests/kvm compares the file. */
#include "guest/payloads/virtio.h"

void payload_main(void)
{
    static uint64_t data[VD_SECTOR / 8];
    struct vdev *d;

    (void)vd_find_all();
    d = vd_find(VIRTIO_ID_BLOCK, 0);
    check(d != NULL, "this test needs a disk");
    vd_write(d, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 0);
    check(vd_read(d, VIRTIO_MMIO_DEVICE_FEATURES) & 1u << VIRTIO_BLK_F_RO,
          "the disk does not offer VIRTIO_BLK_F_RO");
    for (uint32_t ro = 0; ro < 2; ro++) {
        vd_start(d, ro << VIRTIO_BLK_F_RO, 0);
        check_eq(blk_request(d, VIRTIO_BLK_T_IN, 2, data, sizeof(data)),
                 VIRTIO_BLK_S_OK, "read of a read-only disk");
        blk_fill(data, 2, 1);
        check_eq(blk_request(d, VIRTIO_BLK_T_OUT, 2, data, sizeof(data)),
                 VIRTIO_BLK_S_IOERR, "write to a read-only disk");
    }
}
