/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/payloads/virtio.h"

#include <linux/virtio_vsock.h>

#define VD_MAGIC 0x74726976u /* spec: virtio-1.2 4.2.2 */

struct vdev vd_list[VD_MAX];

static struct vd_ring vd_rings[VD_MAX];
static uint32_t vd_num;

/* virtio_mmio.device=SIZE@BASE:IRQ. spec: Linux drivers/virtio/Kconfig */
uint32_t vd_find_all(void)
{
    const char *p = payload_cmdline();

    vd_num = 0;
    while ((p = next_word(p, "virtio_mmio.device="))) {
        struct vdev *d = &vd_list[vd_num];

        check(vd_num < VD_MAX, "more devices than VD_MAX");
        (void)parse_number(&p);
        check(*p == '@', "virtio_mmio.device= has no base");
        p++;
        d->base = parse_number(&p);
        check(*p == ':', "virtio_mmio.device= has no interrupt");
        p++;
        d->gsi = (uint32_t)parse_number(&p);
        d->ring = &vd_rings[vd_num];
        check_eq(vd_read(d, VIRTIO_MMIO_MAGIC_VALUE), VD_MAGIC, "virtio magic");
        check_eq(vd_read(d, VIRTIO_MMIO_VERSION), 2, "virtio-mmio version");
        d->device_id = vd_read(d, VIRTIO_MMIO_DEVICE_ID);
        vd_num++;
    }
    check(vd_num > 0, "no virtio_mmio.device= on the command line");
    return vd_num;
}

struct vdev *vd_find(uint32_t device_id, uint32_t n)
{
    for (uint32_t i = 0; i < vd_num; i++) {
        if (vd_list[i].device_id == device_id && n-- == 0)
            return &vd_list[i];
    }
    return NULL;
}

void vd_reset(struct vdev *d)
{
    uint64_t deadline = patience();

    vd_write(d, VIRTIO_MMIO_STATUS, 0);
    while (vd_read(d, VIRTIO_MMIO_STATUS) != 0)
        check(!over(deadline), "reset of a virtio device never ends");
}

static void vd_status(const struct vdev *d, uint32_t bit)
{
    uint32_t want = vd_read(d, VIRTIO_MMIO_STATUS) | bit;

    vd_write(d, VIRTIO_MMIO_STATUS, want);
    check_eq(vd_read(d, VIRTIO_MMIO_STATUS), want, "virtio device status");
}

void vd_negotiate(struct vdev *d, uint32_t low_features)
{
    vd_reset(d);
    vd_status(d, VIRTIO_CONFIG_S_ACKNOWLEDGE);
    vd_status(d, VIRTIO_CONFIG_S_DRIVER);
    vd_write(d, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
    vd_write(d, VIRTIO_MMIO_DRIVER_FEATURES, low_features);
    vd_write(d, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
    vd_write(d, VIRTIO_MMIO_DRIVER_FEATURES, 1u << (VIRTIO_F_VERSION_1 - 32));
    vd_status(d, VIRTIO_CONFIG_S_FEATURES_OK);
}

static void vd_address(const struct vdev *d, uint32_t reg_low,
                       const volatile void *at)
{
    uint64_t a = (uintptr_t)at;

    vd_write(d, reg_low, (uint32_t)a);
    vd_write(d, reg_low + 4, (uint32_t)(a >> 32));
}

void vd_set_queue(struct vdev *d, uint32_t queue)
{
    struct vd_ring *r = d->ring;

    d->queue = queue;
    d->next_used = 0;
    r->avail_flags = 0;
    r->avail_idx = 0;
    r->used_idx = 0;
    vd_write(d, VIRTIO_MMIO_QUEUE_SEL, queue);
    check(vd_read(d, VIRTIO_MMIO_QUEUE_NUM_MAX) >= VD_QSIZE,
          "a virtio queue is missing or too small");
    vd_write(d, VIRTIO_MMIO_QUEUE_NUM, VD_QSIZE);
    vd_address(d, VIRTIO_MMIO_QUEUE_DESC_LOW, r->desc);
    vd_address(d, VIRTIO_MMIO_QUEUE_AVAIL_LOW, &r->avail_flags);
    vd_address(d, VIRTIO_MMIO_QUEUE_USED_LOW, &r->used_flags);
    vd_write(d, VIRTIO_MMIO_QUEUE_READY, 1);
}

void vd_driver_ok(struct vdev *d)
{
    vd_status(d, VIRTIO_CONFIG_S_DRIVER_OK);
}

void vd_start(struct vdev *d, uint32_t low_features, uint32_t queue)
{
    vd_negotiate(d, low_features);
    vd_set_queue(d, queue);
    check_eq(vd_read(d, VIRTIO_MMIO_QUEUE_READY), 1, "QueueReady");
    vd_driver_ok(d);
}

/* --- requests ------------------------------------------------------------ */

void vd_post(struct vdev *d, const struct vd_seg *segs, uint32_t n)
{
    struct vd_ring *r = d->ring;

    for (uint32_t i = 0; i < n; i++) {
        uint16_t flags = segs[i].device_writes ? VRING_DESC_F_WRITE : 0;

        if (i + 1 < n)
            flags |= VRING_DESC_F_NEXT;
        r->desc[i].addr = (uintptr_t)segs[i].at;
        r->desc[i].len = segs[i].len_bytes;
        r->desc[i].flags = flags;
        r->desc[i].next = (uint16_t)(i + 1);
    }
    r->avail[r->avail_idx % VD_QSIZE] = 0;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    r->avail_idx++;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void vd_kick(struct vdev *d)
{
    vd_write(d, VIRTIO_MMIO_QUEUE_NOTIFY, d->queue);
}

uint32_t vd_wait(struct vdev *d)
{
    struct vd_ring *r = d->ring;
    uint64_t deadline = patience();
    uint32_t len;

    while (r->used_idx == d->next_used)
        check(!over(deadline), "a virtio request never completes");
    len = r->used[d->next_used % VD_QSIZE].len;
    check_eq(r->used[d->next_used % VD_QSIZE].id, 0, "head in the used ring");
    d->next_used++;
    check_eq(r->used_idx, d->next_used, "used index");
    return len;
}

void vd_wait_needs_reset(struct vdev *d, const char *what)
{
    uint64_t deadline = patience();

    while (!(vd_read(d, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_NEEDS_RESET))
        check(!over(deadline), what);
}

/* --- block --------------------------------------------------------------- */

uint8_t blk_request(struct vdev *d, uint32_t type, uint64_t sector, void *data,
                    uint32_t len_bytes)
{
    static struct virtio_blk_outhdr header;
    static volatile uint8_t status;
    bool to_disk = type == VIRTIO_BLK_T_OUT || type == VIRTIO_BLK_T_DISCARD ||
                   type == VIRTIO_BLK_T_WRITE_ZEROES;
    struct vd_seg segs[3] = {{&header, sizeof(header), false}};
    uint32_t n = 1;

    header.type = type;
    header.sector = sector;
    status = 0xee;
    if (len_bytes > 0)
        segs[n++] = (struct vd_seg){data, len_bytes, !to_disk};
    segs[n++] = (struct vd_seg){&status, 1, true};
    vd_post(d, segs, n);
    vd_kick(d);
    (void)vd_wait(d);
    return status;
}

static uint64_t blk_word(uint64_t sector, uint32_t i)
{
    return (sector << 32) + i;
}

void blk_fill(uint64_t *data, uint64_t sector, uint32_t sectors)
{
    uint32_t words = sectors * VD_SECTOR / 8;

    for (uint32_t i = 0; i < words; i++)
        data[i] = blk_word(sector + i / 64, i % 64);
}

void blk_check(const uint64_t *data, uint64_t sector, uint32_t sectors)
{
    uint32_t words = sectors * VD_SECTOR / 8;

    for (uint32_t i = 0; i < words; i++)
        check_eq(data[i], blk_word(sector + i / 64, i % 64), "data of a disk");
}

/* --- any device ---------------------------------------------------------- */

uint32_t vd_poke_queue(const struct vdev *d)
{
    /* These transmit on queue 1. */
    return d->device_id == VIRTIO_ID_CONSOLE ||
           d->device_id == VIRTIO_ID_VSOCK || d->device_id == VIRTIO_ID_NET;
}

void vd_poke(struct vdev *d)
{
    static uint64_t buffer[VD_SECTOR / 8];
    static uint8_t page[4096] __attribute__((aligned(4096)));
    static uint32_t pfn;
    /* A packet from a wrong address: taken and dropped. */
    static const struct virtio_vsock_hdr packet = {.src_cid = 1, .dst_cid = 1};
    struct vd_seg seg = {buffer, 16, true};

    switch (d->device_id) {
    case VIRTIO_ID_BLOCK:
        check_eq(blk_request(d, VIRTIO_BLK_T_IN, 0, buffer, VD_SECTOR),
                 VIRTIO_BLK_S_OK, "read of sector 0");
        return;
    case VIRTIO_ID_CONSOLE:
        seg = (struct vd_seg){"+", 1, false};
        break;
    case VIRTIO_ID_VSOCK:
        seg = (struct vd_seg){&packet, sizeof(packet), false};
        break;
    case VIRTIO_ID_NET:
        /* A header and an empty frame. */
        seg = (struct vd_seg){buffer, 12 + 60, false};
        break;
    case VIRTIO_ID_BALLOON:
        pfn = (uint32_t)((uintptr_t)page / sizeof(page));
        seg = (struct vd_seg){&pfn, sizeof(pfn), false};
        break;
    default:
        break;
    }
    vd_post(d, &seg, 1);
    vd_kick(d);
    (void)vd_wait(d);
}
