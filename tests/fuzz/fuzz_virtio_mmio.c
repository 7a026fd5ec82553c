/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport, with the entropy device behind it: register accesses of any
 * width at any offset, among bring-ups that mostly work. The device runs only
 * with features that were offered and queues that were checked.
 */
#include "devices/virtio_mmio.h"

#include "devices/virtio_rng.h"
#include "tests/fuzz/inline_loop.h"
#include "tests/harness/ring_traffic.h"
#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <string.h>
#include <sys/eventfd.h>

#define RAM       (64 * KIB)
#define MAX_STEPS 150u
#define VERSION_1 (1ull << VIRTIO_F_VERSION_1)

struct target {
    struct fdrv d;
    struct fring r;
    struct evloop *loop;
    struct virtio_dev *dev;
    struct virtio_mmio *m;
    gpa_t pool;
    bool rings; /* laid out at least once */
};

static uint32_t rd(struct target *t, uint32_t off)
{
    uint8_t b[4] = {0};

    virtio_mmio_bus_ops.read(t->m, off, b, sizeof(b));
    return get_le32(b);
}

static void wr(struct target *t, uint32_t off, uint32_t v)
{
    uint8_t b[4];

    put_le32(b, v);
    virtio_mmio_bus_ops.write(t->m, off, b, sizeof(b));
}

static void negotiate(struct target *t, struct fuzz_in *in)
{
    uint64_t f = VERSION_1 |
                 ((uint64_t)fuzz_below(in, 4) << VIRTIO_RING_F_INDIRECT_DESC);

    if (fuzz_rarely(in, 16))
        f ^= 1ull << fuzz_below(in, 64);
    wr(t, VIRTIO_MMIO_STATUS, 1);
    wr(t, VIRTIO_MMIO_STATUS, 3);
    wr(t, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
    wr(t, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)f);
    wr(t, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
    wr(t, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)(f >> 32));
    wr(t, VIRTIO_MMIO_STATUS, 11);
}

static void setup_queue(struct target *t, struct fuzz_in *in)
{
    uint32_t num = 1u << fuzz_below(in, 7);
    uint64_t a[3];

    t->d.next_free = 4096;
    fdrv_queue_init(&t->d, 0, (uint16_t)num, false);
    fring_init(&t->r, &t->d, 0);
    t->pool = fdrv_alloc(&t->d, 8192, 1);
    t->rings = true;
    a[0] = t->d.q[0].desc;
    a[1] = t->d.q[0].avail;
    a[2] = t->d.q[0].used;
    if (fuzz_rarely(in, 8))
        a[fuzz_below(in, 3)] = fuzz_edge(in, RAM);
    if (fuzz_rarely(in, 8))
        num = (uint32_t)fuzz_edge(in, 64);
    wr(t, VIRTIO_MMIO_QUEUE_SEL, fuzz_rarely(in, 16) ? fuzz_u32(in) : 0);
    wr(t, VIRTIO_MMIO_QUEUE_NUM, num);
    for (uint32_t i = 0; i < 3; i++) {
        wr(t, VIRTIO_MMIO_QUEUE_DESC_LOW + 16 * i, (uint32_t)a[i]);
        wr(t, VIRTIO_MMIO_QUEUE_DESC_LOW + 16 * i + 4, (uint32_t)(a[i] >> 32));
    }
    wr(t, VIRTIO_MMIO_QUEUE_READY, 1);
}

static void access_any(struct target *t, struct fuzz_in *in)
{
    uint32_t len = 1u << fuzz_below(in, 4);
    uint32_t off =
        fuzz_rarely(in, 8) ? fuzz_below(in, 4096) : fuzz_below(in, 256);
    uint8_t b[8] = {0};

    if (off + len > 4096)
        off = 4096 - len;
    if (fuzz_below(in, 2)) {
        put_le64(b, fuzz_edge(in, fuzz_u8(in)));
        virtio_mmio_bus_ops.write(t->m, off, b, len);
    } else {
        virtio_mmio_bus_ops.read(t->m, off, b, len);
        for (uint32_t i = len; i < sizeof(b); i++)
            fuzz_must(b[i] == 0);
    }
}

static void request(struct target *t, struct fuzz_in *in)
{
    struct fdrv_seg segs[3];
    uint16_t n = (uint16_t)(1 + fuzz_below(in, 3));

    if (!t->rings)
        return;
    for (uint16_t i = 0; i < n; i++)
        segs[i] = (struct fdrv_seg){t->pool + fuzz_below(in, 4096),
                                    fuzz_below(in, 512), true};
    fring_add(&t->r, in, segs, n, fuzz_below(in, 2));
    if (fuzz_rarely(in, 16))
        fring_disturb(&t->r, in);
    wr(t, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
    inline_loop_turn(t->loop);
}

static void check(struct target *t)
{
    uint32_t status = rd(t, VIRTIO_MMIO_STATUS);
    const struct virtq *vq = &t->dev->vq[0];

    fuzz_must((status & ~0xcfu) == 0);
    if (status & VIRTIO_CONFIG_S_DRIVER_OK) {
        fuzz_must(status & VIRTIO_CONFIG_S_FEATURES_OK);
        fuzz_must(t->dev->features & VERSION_1);
        fuzz_must((t->dev->features & ~(VERSION_1 | 3ull << 28)) == 0);
    } else {
        fuzz_must(vq->size == 0);
    }
    fuzz_must(vq->size <= t->dev->queue_max[0]);
}

static void step(struct target *t, struct fuzz_in *in)
{
    switch (fuzz_below(in, 10)) {
    case 0:
        negotiate(t, in);
        break;
    case 1:
        setup_queue(t, in);
        break;
    case 2:
        wr(t, VIRTIO_MMIO_STATUS, 15);
        break;
    case 3:
    case 4:
        request(t, in);
        break;
    case 5:
        if (fuzz_rarely(in, 4)) {
            wr(t, VIRTIO_MMIO_STATUS, 0);
        } else if (fuzz_rarely(in, 8)) {
            wr(t, VIRTIO_MMIO_QUEUE_SEL, 0);
            wr(t, VIRTIO_MMIO_QUEUE_READY, 0);
            fuzz_must(rd(t, VIRTIO_MMIO_QUEUE_READY) == 0 ||
                      (rd(t, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_FAILED));
        }
        break;
    case 6:
        if (fuzz_rarely(in, 16))
            virtio_needs_reset(t->dev);
        else
            virtio_config_changed(t->dev);
        break;
    case 7:
        inline_loop_turn(t->loop);
        break;
    default:
        access_any(t, in);
        break;
    }
    check(t);
}

static void on_down(void *arg)
{
    *(bool *)arg = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target *t = calloc(1, sizeof(*t));
    CLEANUP_FD int irq_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct vdev_env env = {0};
    bool down = false;

    fuzz_must(t != NULL && irq_fd >= 0);
    fdrv_init(&t->d, RAM);
    fuzz_must(evloop_new(EVLOOP_AUTO, &t->loop) == 0);
    env.mem = t->d.mem;
    env.loop = t->loop;
    fuzz_must(vrng_new(&env, &t->dev) == 0);
    fuzz_must(virtio_mmio_new(t->dev, irq_fd, &t->m) == 0);
    for (uint32_t i = 0; i < MAX_STEPS && in.left > 0; i++)
        step(t, &in);
    virtio_mmio_cancel_waits(t->m);
    virtio_mmio_shutdown(t->m, on_down, &down);
    fuzz_must(down);
    virtio_mmio_free(t->m);
    evloop_free(t->loop);
    fdrv_fini(&t->d);
    free(t);
    return 0;
}
