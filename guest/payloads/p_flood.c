/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that breaks rules loops=N times, of the ring and of the registers of
 * every device in turn, and then halts for ever. After the first tenth it says
 * so: tests/kvm looks at the monitor's memory then and at the end.
 */
#include "guest/payloads/virtio.h"

static void break_registers(struct vdev *d)
{
    vd_write(d, VIRTIO_MMIO_STATUS, 0xff);
    vd_write(d, VIRTIO_MMIO_QUEUE_NUM, 0xffffffff);
    vd_write(d, VIRTIO_MMIO_QUEUE_READY, 1);
    vd_write(d, VIRTIO_MMIO_QUEUE_SEL, 0xffff);
    vd_write(d, VIRTIO_MMIO_QUEUE_READY, 1);
    mmio_w64(d->base + VIRTIO_MMIO_CONFIG, UINT64_MAX);
}

static void break_ring(struct vdev *d, uint32_t i)
{
    static uint8_t buffer[64];
    struct vd_seg seg = {buffer, sizeof(buffer), i & 1};

    vd_start(d, 0, vd_poke_queue(d));
    vd_post(d, &seg, 1);
    switch (i % 4) {
    case 0:
        d->ring->avail_idx = (uint16_t)(VD_QSIZE + 1);
        break;
    case 1:
        d->ring->avail_idx = 65535;
        break;
    case 2:
        d->ring->avail[0] = VD_QSIZE;
        break;
    default:
        d->ring->desc[0].addr = UINT64_MAX;
        break;
    }
    vd_kick(d);
    vd_wait_needs_reset(d, "a broken device does not ask for a reset");
    vd_kick(d);
    break_registers(d);
    vd_reset(d);
}

void payload_main(void)
{
    uint32_t loops = (uint32_t)payload_number("loops=", 1000);
    uint32_t num = vd_find_all();

    for (uint32_t i = 0; i < loops; i++) {
        if (i == loops / 10)
            print("warm\n");
        break_ring(&vd_list[i % num], i / num);
    }
    for (uint32_t i = 0; i < num; i++) {
        vd_start(&vd_list[i], 0, vd_poke_queue(&vd_list[i]));
        vd_poke(&vd_list[i]);
        vd_reset(&vd_list[i]);
    }
    print("parked\n");
    payload_park();
}
