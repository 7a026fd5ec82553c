/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that the host changes under a running guest (BL_031). The words
 * first=, grown= and shrunk= are its sizes in sectors, in this order; after
 * each the guest says so. All of the present size can be written and read,
 * nothing past it, and the first sector keeps what was written to it.
 */
#include "guest/payloads/virtio.h"

static uint64_t data[VD_SECTOR / 8];

static void size_is(const struct vdev *d, uint64_t sectors)
{
    uint64_t deadline = patience();

    while (mmio_r64(d->base + VIRTIO_MMIO_CONFIG) != sectors) {
        if (over(deadline))
            payload_fail("the size does not change");
    }
}

static void use(struct vdev *d, uint64_t sector)
{
    blk_fill(data, sector, 1);
    check_eq(blk_request(d, VIRTIO_BLK_T_OUT, sector, data, sizeof(data)),
             VIRTIO_BLK_S_OK, "status of a write");
    data[0] = 0;
    check_eq(blk_request(d, VIRTIO_BLK_T_IN, sector, data, sizeof(data)),
             VIRTIO_BLK_S_OK, "status of a read");
    blk_check(data, sector, 1);
}

static void ends_at(struct vdev *d, uint64_t sectors)
{
    use(d, sectors - 1);
    check_eq(blk_request(d, VIRTIO_BLK_T_IN, sectors, data, sizeof(data)),
             VIRTIO_BLK_S_IOERR, "status of a read past the end");
}

static void first_is_kept(struct vdev *d)
{
    check_eq(blk_request(d, VIRTIO_BLK_T_IN, 0, data, sizeof(data)),
             VIRTIO_BLK_S_OK, "status of a read");
    blk_check(data, 0, 1);
}

void payload_main(void)
{
    uint64_t first = payload_number("first=", 0);
    uint64_t grown = payload_number("grown=", 0);
    uint64_t shrunk = payload_number("shrunk=", 0);
    struct vdev *d;

    (void)vd_find_all();
    d = vd_find(VIRTIO_ID_BLOCK, 0);
    check(d != NULL, "this test needs a disk");
    vd_start(d, 0, 0);
    size_is(d, first);
    use(d, 0);
    ends_at(d, first);
    print("first\n");
    size_is(d, grown);
    first_is_kept(d);
    ends_at(d, grown);
    print("grown\n");
    size_is(d, shrunk);
    ends_at(d, shrunk);
    print("shrunk\n");
}
