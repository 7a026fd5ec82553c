/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that breaks the ring's rules in one way, do=WAY: the device asks
 * for a reset, another device goes on working, and a reset brings the first
 * one back (BL-042). dev=ID is the device, the entropy device without it. With
 * then=park it stops there, so that tests/kvm can see that no thread spins.
 */
#include "guest/payloads/virtio.h"

#define OUTSIDE 0xe0000000ull /* neither RAM nor a device */

struct hostile_way {
    const char *name;
    void (*break_it)(struct vdev *d);
};

static uint8_t buffer[64];

static void post_good(struct vdev *d)
{
    /* Of the direction that this queue has; its content does not matter. */
    struct vd_seg seg = {buffer, sizeof(buffer),
                         vd_poke_queue(d) == 0 &&
                             d->device_id != VIRTIO_ID_BALLOON};

    vd_post(d, &seg, 1);
}

static void idx_jump(struct vdev *d)
{
    post_good(d);
    d->ring->avail_idx = (uint16_t)(VD_QSIZE + 1);
}

static void idx_back(struct vdev *d)
{
    post_good(d);
    d->ring->avail_idx = 65535;
}

static void bad_head(struct vdev *d)
{
    post_good(d);
    d->ring->avail[0] = VD_QSIZE;
}

static void loop(struct vdev *d)
{
    post_good(d);
    d->ring->desc[0].flags |= VRING_DESC_F_NEXT;
    d->ring->desc[0].next = 1;
    d->ring->desc[1] = d->ring->desc[0];
    d->ring->desc[1].next = 0;
}

static void bad_next(struct vdev *d)
{
    post_good(d);
    d->ring->desc[0].flags |= VRING_DESC_F_NEXT;
    d->ring->desc[0].next = VD_QSIZE;
}

static void outside_ram(struct vdev *d)
{
    post_good(d);
    d->ring->desc[0].addr = OUTSIDE;
}

static void across_ram_end(struct vdev *d)
{
    post_good(d);
    d->ring->desc[0].addr = (payload_number("mem=", 128) << 20) - 32;
}

static void wrapping(struct vdev *d)
{
    post_good(d);
    d->ring->desc[0].addr = UINT64_MAX - 31;
}

static void bad_order(struct vdev *d)
{
    const struct vd_seg segs[] = {{buffer, 32, true}, {buffer, 32, false}};

    vd_post(d, segs, 2);
}

/* An indirect table although that feature was not taken. */
static void indirect(struct vdev *d)
{
    static struct vring_desc table;

    table.addr = (uintptr_t)buffer;
    table.len = sizeof(buffer);
    table.flags = VRING_DESC_F_WRITE;
    post_good(d);
    d->ring->desc[0].addr = (uintptr_t)&table;
    d->ring->desc[0].len = sizeof(table);
    d->ring->desc[0].flags = VRING_DESC_F_INDIRECT;
}

static const struct hostile_way ways[] = {
    {"idx_jump", idx_jump},
    {"idx_back", idx_back},
    {"bad_head", bad_head},
    {"loop", loop},
    {"bad_next", bad_next},
    {"outside_ram", outside_ram},
    {"across_ram_end", across_ram_end},
    {"wrapping", wrapping},
    {"bad_order", bad_order},
    {"indirect", indirect},
};

/* The one way that is seen before DRIVER_OK: a ring that is not in RAM. */
static bool break_ring_address(struct vdev *d)
{
    if (!payload_is("do=", "ring_outside_ram"))
        return false;
    vd_negotiate(d, 0);
    vd_write(d, VIRTIO_MMIO_QUEUE_SEL, 0);
    vd_write(d, VIRTIO_MMIO_QUEUE_NUM, VD_QSIZE);
    vd_write(d, VIRTIO_MMIO_QUEUE_DESC_LOW, (uint32_t)OUTSIDE);
    vd_write(d, VIRTIO_MMIO_QUEUE_AVAIL_LOW, (uint32_t)OUTSIDE + 0x1000);
    vd_write(d, VIRTIO_MMIO_QUEUE_USED_LOW, (uint32_t)OUTSIDE + 0x2000);
    vd_write(d, VIRTIO_MMIO_QUEUE_READY, 1);
    check_eq(vd_read(d, VIRTIO_MMIO_QUEUE_READY), 0,
             "QueueReady of a ring outside of RAM");
    return true;
}

static void break_ring(struct vdev *d)
{
    for (uint32_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (!payload_is("do=", ways[i].name))
            continue;
        vd_start(d, 0, vd_poke_queue(d));
        ways[i].break_it(d);
        vd_kick(d);
        return;
    }
    payload_fail("do= names no way to break a ring");
}

void payload_main(void)
{
    uint32_t id = (uint32_t)payload_number("dev=", VIRTIO_ID_RNG);
    struct vdev *bad;
    struct vdev *good;

    (void)vd_find_all();
    bad = vd_find(id, 0);
    good = vd_find(id == VIRTIO_ID_BLOCK ? VIRTIO_ID_RNG : VIRTIO_ID_BLOCK, 0);
    check(bad && good, "this test needs the device, a disk and the entropy "
                       "device");
    vd_start(good, 0, 0);
    vd_poke(good);
    if (!break_ring_address(bad))
        break_ring(bad);
    vd_wait_needs_reset(bad, "the device does not ask for a reset");
    check_eq(bad->ring->used_idx, 0, "used index of the broken ring");
    vd_poke(good);
    if (payload_is("then=", "park")) {
        vd_kick(bad);
        print("parked\n");
        payload_park();
    }
    vd_start(bad, 0, vd_poke_queue(bad)); /* begins with a reset */
    vd_poke(bad);
    vd_poke(good);
}
