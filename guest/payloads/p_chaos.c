/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver without sense: for loops=N steps it takes a device at random, sets
 * up some of its queues, offers chains of random shape, kicks, writes the
 * configuration space, stops queues and resets, in any order, from seed=N.
 * Then all devices are left as they are, and it parks: what the monitor does
 * from there on, and whether it ends well, is what tests/kvm looks at.
 */
#include "guest/payloads/virtio.h"

#define QUEUES 16u
#define BYTES  65536u

/* One for each queue number, whichever device uses it. */
static struct vd_ring rings[QUEUES];
static uint16_t avail[QUEUES];
static uint8_t bytes[BYTES] __attribute__((aligned(4096)));
static uint64_t state;

static uint32_t rnd(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 16) % below);
}

static void queue_set(struct vdev *d, uint32_t q)
{
    volatile uint64_t *p = (volatile uint64_t *)&rings[q];
    uint64_t at = (uint64_t)(uintptr_t)&rings[q];

    for (uint32_t i = 0; i <= offsetof(struct vd_ring, avail_event) / 8; i++)
        p[i] = 0;
    avail[q] = 0;
    vd_write(d, VIRTIO_MMIO_QUEUE_SEL, q);
    vd_write(d, VIRTIO_MMIO_QUEUE_NUM, VD_QSIZE);
    vd_write(d, VIRTIO_MMIO_QUEUE_DESC_LOW, (uint32_t)at);
    vd_write(d, VIRTIO_MMIO_QUEUE_AVAIL_LOW,
             (uint32_t)(uintptr_t)&rings[q].avail_flags);
    vd_write(d, VIRTIO_MMIO_QUEUE_USED_LOW,
             (uint32_t)(uintptr_t)&rings[q].used_flags);
    vd_write(d, VIRTIO_MMIO_QUEUE_READY, 1);
}

static void start(struct vdev *d)
{
    uint32_t features[2];

    vd_write(d, VIRTIO_MMIO_STATUS, 0);
    vd_write(d, VIRTIO_MMIO_STATUS, 1);
    vd_write(d, VIRTIO_MMIO_STATUS, 3);
    for (uint32_t i = 0; i < 2; i++) {
        vd_write(d, VIRTIO_MMIO_DEVICE_FEATURES_SEL, i);
        features[i] = vd_read(d, VIRTIO_MMIO_DEVICE_FEATURES);
        if (rnd(2))
            features[i] &= rnd(0xffffffffu);
        vd_write(d, VIRTIO_MMIO_DRIVER_FEATURES_SEL, i);
        vd_write(d, VIRTIO_MMIO_DRIVER_FEATURES, features[i] | (i ? 1u : 0u));
    }
    vd_write(d, VIRTIO_MMIO_STATUS, 11);
    for (uint32_t q = 0; q < QUEUES; q++) {
        if (rnd(4))
            queue_set(d, q);
    }
    vd_write(d, VIRTIO_MMIO_STATUS, 15);
}

/* A chain of up to four descriptors; now and then a senseless one. */
static void offer(uint32_t q)
{
    uint32_t n = 1 + rnd(4);
    uint32_t first_write = rnd(n + 1);
    uint32_t first = rnd(VD_QSIZE);

    for (uint32_t i = 0; i < n; i++) {
        struct vring_desc *d = &rings[q].desc[(first + i) % VD_QSIZE];

        d->addr = (uint64_t)(uintptr_t)bytes + rnd(BYTES / 2);
        d->len = rnd(8) ? rnd(600) : rnd(BYTES / 2);
        d->flags = (uint16_t)((i + 1 < n ? VRING_DESC_F_NEXT : 0) |
                              (i >= first_write ? VRING_DESC_F_WRITE : 0));
        d->next = (uint16_t)((first + i + 1) % VD_QSIZE);
        if (rnd(200) == 0)
            d->flags = (uint16_t)rnd(8);
        if (rnd(200) == 0)
            d->addr = (1ull << 28 | rnd(0xffffffffu)) << rnd(32);
    }
    rings[q].avail[avail[q] % VD_QSIZE] = (uint16_t)first;
    avail[q]++;
    rings[q].avail_idx = avail[q];
    rings[q].used_event = (uint16_t)(rings[q].used_idx + rnd(3));
}

/* Something that looks like a request of some device. */
static void scribble(void)
{
    for (uint32_t i = 0; i < 64; i++)
        bytes[rnd(BYTES)] = (uint8_t)rnd(rnd(2) ? 256 : 6);
    for (uint32_t i = 0; i < 600; i += 4)
        *(volatile uint32_t *)&bytes[i] = rnd(8) ? rnd(16) : rnd(0xffffffffu);
}

static void step(struct vdev *d)
{
    uint32_t q = rnd(QUEUES);

    switch (rnd(20)) {
    case 0:
    case 1:
        start(d);
        break;
    case 2:
        vd_write(d, VIRTIO_MMIO_STATUS, 0);
        break;
    case 3:
        vd_write(d, VIRTIO_MMIO_QUEUE_SEL, q);
        vd_write(d, VIRTIO_MMIO_QUEUE_READY, 0);
        break;
    case 4:
        vd_write(d, VIRTIO_MMIO_CONFIG + 4 * rnd(16), rnd(0xffffffffu));
        break;
    case 5:
        vd_write(d, 4 * rnd(64), rnd(0xffffffffu));
        break;
    case 6:
        scribble();
        break;
    default:
        for (uint32_t i = rnd(4); i < 4; i++) {
            q = rnd(8);
            /* Mostly no more than the ring can hold. */
            if ((uint16_t)(avail[q] - rings[q].used_idx) < VD_QSIZE ||
                rnd(100) == 0)
                offer(q);
            vd_write(d, VIRTIO_MMIO_QUEUE_NOTIFY, q);
        }
    }
}

void payload_main(void)
{
    uint32_t loops = (uint32_t)payload_number("loops=", 1000);
    uint32_t num = vd_find_all();
    struct vdev *d = &vd_list[0];

    state = payload_number("seed=", 1) * 0x9e3779b97f4a7c15ull | 1;
    for (uint32_t i = 0; i < loops; i++) {
        if (rnd(16) == 0)
            d = &vd_list[rnd(num)];
        /* A balloon would take this program's own pages. */
        if (d->device_id != VIRTIO_ID_BALLOON)
            step(d);
    }
    print("parked\n");
    payload_park();
}
