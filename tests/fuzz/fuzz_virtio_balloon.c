/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The balloon's five queues, its writable configuration and what the host asks
 * of it meanwhile. Any page may go at any time, the rings' own included, and
 * figures stay within the RAM.
 */
#include "devices/virtio_balloon.h"

#include "tests/fuzz/inline_loop.h"
#include "tests/harness/ring_traffic.h"
#include "vmm/le.h"

#include <linux/virtio_balloon.h>
#include <string.h>

#define RAM        (512 * KIB)
#define PAGE       4096u
#define NUM_QUEUES 5u
#define MAX_STEPS  150u
#define INFLATE    0u
#define STATS      2u
#define HINT       3u

struct target {
    struct fdrv d;
    struct fring r[NUM_QUEUES];
    struct evloop *loop;
    struct virtio_dev *dev;
    gpa_t pool; /* 64 KiB */
    uint64_t features;
};

static void attach(struct target *t)
{
    t->d.next_free = PAGE;
    fuzz_must(fdrv_attach(&t->d, t->dev, 16, t->features) == 0);
    for (uint16_t q = 0; q < NUM_QUEUES; q++)
        fring_init(&t->r[q], &t->d, q);
    t->pool = fdrv_alloc(&t->d, 65536, PAGE);
}

/* Page numbers: mostly runs in RAM. */
static void put_pfns(struct target *t, struct fuzz_in *in, gpa_t at, uint32_t n)
{
    uint32_t pfn = fuzz_below(in, RAM / PAGE + 4);

    for (uint32_t i = 0; i < n; i++) {
        uint8_t b[4];

        if (fuzz_rarely(in, 8))
            pfn = (uint32_t)fuzz_edge(in, RAM / PAGE);
        put_le32(b, pfn);
        fdrv_write(&t->d, at + 4ull * i, b, sizeof(b));
        pfn += fuzz_rarely(in, 4) ? UINT32_MAX : 1;
    }
}

static void put_stats(struct target *t, struct fuzz_in *in, gpa_t at,
                      uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint8_t b[10];

        put_le16(b, (uint16_t)fuzz_edge(in, VBALLOON_NUM_STATS));
        put_le64(b + 2, i);
        fdrv_write(&t->d, at + 10ull * i, b, sizeof(b));
    }
}

static void add(struct target *t, struct fuzz_in *in, uint16_t q)
{
    struct fdrv_seg segs[FRING_MAX_SEGS];
    uint16_t n = (uint16_t)(1 + fuzz_below(in, 4));
    uint32_t len = 1 + fuzz_below(in, 16);

    for (uint16_t i = 0; i < n; i++) {
        gpa_t at = t->pool + fuzz_below(in, 32768);

        segs[i] = (struct fdrv_seg){at, 4 * len, false};
        if (q == STATS) {
            segs[i].len = 10 * len;
            put_stats(t, in, at, len);
        } else if (q <= STATS) {
            put_pfns(t, in, at, len);
        } else if (q == HINT && fuzz_below(in, 2)) {
            uint8_t b[4];

            put_le32(b, fuzz_below(in, 8));
            fdrv_write(&t->d, at, b, sizeof(b));
            segs[i].len = 4;
        } else {
            segs[i].gpa = fuzz_below(in, RAM / PAGE) * PAGE;
            segs[i].len = len * (fuzz_rarely(in, 8) ? 777 : PAGE);
            segs[i].writable = true;
        }
    }
    fring_add(&t->r[q], in, segs, n, fuzz_below(in, 2));
}

static void host_side(struct target *t, struct fuzz_in *in)
{
    struct vballoon_info info;
    struct vballoon_hinting h;

    switch (fuzz_below(in, 5)) {
    case 0:
        (void)!vballoon_set_target(t->dev, fuzz_edge(in, RAM));
        break;
    case 1:
        (void)!vballoon_set_stats_interval(t->dev, fuzz_u8(in));
        break;
    case 2:
        (void)!vballoon_hinting_start(t->dev, fuzz_below(in, 2));
        break;
    case 3:
        (void)!vballoon_hinting_stop(t->dev);
        break;
    default:
        break;
    }
    vballoon_get(t->dev, &info);
    fuzz_must(info.target_bytes <= RAM && info.actual_bytes <= RAM);
    fuzz_must(info.stats_valid < 1u << VBALLOON_NUM_STATS);
    fuzz_must(vballoon_hinting_status(t->dev, &h) == 0);
    fuzz_must(t->d.dev->vq[HINT].size == 0 || h.host_cmd < 256);
}

static void config_access(struct target *t, struct fuzz_in *in)
{
    uint32_t len = 1u << fuzz_below(in, 4);
    uint32_t off = fuzz_below(in, t->dev->config_len);
    uint8_t b[8];

    if (len > t->dev->config_len - off)
        return;
    put_le64(b, fuzz_edge(in, fuzz_u8(in)));
    if (fuzz_below(in, 2))
        t->dev->ops->config_write(t->dev, off, b, len);
    else
        t->dev->ops->config_read(t->dev, off, b, len);
}

static void step(struct target *t, struct fuzz_in *in)
{
    switch (fuzz_below(in, 12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        add(t, in, (uint16_t)fuzz_below(in, NUM_QUEUES));
        break;
    case 4:
    case 5:
    case 6:
        t->dev->ops->queue_kick(t->dev, (uint16_t)fuzz_below(in, NUM_QUEUES));
        break;
    case 7:
        if (fuzz_rarely(in, 4)) /* a pause */
            fuzz_must(fdrv_rest(&t->d) == 0);
        inline_loop_turn(t->loop);
        if (t->dev->resting)
            fdrv_wake(&t->d);
        break;
    case 8:
        config_access(t, in);
        break;
    case 9:
        if (fuzz_rarely(in, 8)) {
            fuzz_must(fdrv_reset(&t->d) == 0);
            attach(t);
        }
        break;
    case 10:
        host_side(t, in);
        break;
    default:
        fring_disturb(&t->r[fuzz_below(in, NUM_QUEUES)], in);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target *t = calloc(1, sizeof(*t));
    struct vballoon_args args = {.target_bytes = RAM / 2,
                                 .stats_interval_s = 1,
                                 .deflate_on_oom = true,
                                 .hinting = true,
                                 .reporting = true};
    struct vdev_env env = {0};

    fuzz_must(t != NULL);
    fdrv_init(&t->d, RAM);
    fuzz_must(evloop_new(EVLOOP_AUTO, &t->loop) == 0);
    env.mem = t->d.mem;
    env.loop = t->loop;
    fuzz_must(vballoon_new(&env, &args, &t->dev) == 0);
    t->features = t->dev->offered | (uint64_t)fuzz_below(&in, 4)
                                        << VIRTIO_RING_F_INDIRECT_DESC;
    /* Poisoning, and any other feature, may be declined. */
    if (fuzz_below(&in, 2))
        t->features &= ~(1ull << VIRTIO_BALLOON_F_PAGE_POISON);
    if (fuzz_rarely(&in, 4))
        t->features &= ~(uint64_t)fuzz_u8(&in);
    attach(t);
    for (uint32_t i = 0; i < MAX_STEPS && in.left > 0; i++)
        step(t, &in);
    fuzz_must(fdrv_reset(&t->d) == 0);
    t->dev->ops->free(t->dev);
    evloop_free(t->loop);
    fdrv_fini(&t->d);
    free(t);
    return 0;
}
