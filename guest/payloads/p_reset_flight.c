/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that resets device dev=ID loops=N times while requests are in
 * flight: the reset ends each time, the device writes nothing afterwards, and
 * it works in the end.
 */
#include "guest/payloads/virtio.h"

#include <linux/virtio_vsock.h>

#define DATA_BYTES 65536u
#define PAGE       4096u
#define NUM_PFNS   1024u
#define MARK       0x6b72616d6b72616dull
#define SPARE      (32ull << 20) /* memory that nothing else uses */

static uint64_t data[DATA_BYTES / 8] __attribute__((aligned(4096)));

/* A request that keeps the device busy for a while. */
static void post_long(struct vdev *d)
{
    static struct virtio_blk_outhdr header = {.type = VIRTIO_BLK_T_IN};
    static const struct virtio_vsock_hdr packet = {
        .src_cid = 3, .dst_cid = 2, .dst_port = 1, .type = 1, .op = 1};
    static uint32_t pfns[NUM_PFNS];
    static volatile uint8_t status;
    struct vd_seg segs[3] = {{data, DATA_BYTES, true}};
    uint32_t n = 1;

    switch (d->device_id) {
    case VIRTIO_ID_BLOCK:
        segs[0] = (struct vd_seg){&header, sizeof(header), false};
        segs[1] = (struct vd_seg){data, DATA_BYTES, true};
        segs[2] = (struct vd_seg){&status, 1, true};
        n = 3;
        break;
    case VIRTIO_ID_CONSOLE:
        segs[0].device_writes = false;
        break;
    case VIRTIO_ID_NET:
        segs[0] = (struct vd_seg){data, 12 + 1514, false};
        break;
    case VIRTIO_ID_VSOCK:
        segs[0] = (struct vd_seg){&packet, sizeof(packet), false};
        break;
    case VIRTIO_ID_BALLOON:
        /* Pages apart from each other cost the most. */
        for (uint32_t i = 0; i < NUM_PFNS && pfns[0] == 0; i++)
            pfns[NUM_PFNS - 1 - i] = (uint32_t)(SPARE / PAGE) + 2 * i;
        segs[0] = (struct vd_seg){pfns, sizeof(pfns), false};
        break;
    default:
        break;
    }
    vd_post(d, segs, n);
}

/* The same request as often as the ring has entries. */
static void fill_ring(struct vdev *d)
{
    post_long(d);
    for (uint32_t i = 0; i < VD_QSIZE; i++)
        d->ring->avail[i] = 0;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    d->ring->avail_idx = VD_QSIZE;
}

/* Its header's fields are read: none may ask for anything. */
static void clear_header(void)
{
    data[0] = 0;
    data[1] = 0;
}

static void mark_data(void)
{
    for (uint32_t i = 0; i < DATA_BYTES; i += PAGE)
        data[i / 8] = MARK;
}

static void check_marks(void)
{
    for (uint32_t i = 0; i < DATA_BYTES; i += PAGE)
        check_eq(data[i / 8], MARK, "memory after the reset");
}

void payload_main(void)
{
    uint32_t loops = (uint32_t)payload_number("loops=", 100);
    uint32_t id = (uint32_t)payload_number("dev=", VIRTIO_ID_BLOCK);
    struct vdev *d;

    (void)vd_find_all();
    d = vd_find(id, 0);
    check(d != NULL, "this test needs the device that dev= names");
    for (uint32_t i = 0; i < loops; i++) {
        uint16_t used;

        vd_start(d, 0, vd_poke_queue(d));
        clear_header();
        fill_ring(d);
        vd_kick(d);
        for (uint32_t k = 0; k < i % 64; k++)
            (void)vd_read(d, VIRTIO_MMIO_VENDOR_ID);
        check_eq(vd_read(d, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_NEEDS_RESET,
                 0, "NEEDS_RESET of a good driver");
        vd_reset(d);
        used = d->ring->used_idx;
        mark_data();
        for (uint32_t k = 0; k < 8; k++)
            (void)vd_read(d, VIRTIO_MMIO_CONFIG); /* some time goes by */
        check_eq(d->ring->used_idx, used, "used index after the reset");
        check_marks();
    }
    vd_start(d, 0, vd_poke_queue(d));
    vd_poke(d);
}
