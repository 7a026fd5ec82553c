/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The block device over disks in memory that complete in any order, also across
 * resets, swaps and changes of size and limits. Each popped request completes
 * once or not at all, nothing is read or written outside the disk, a read-only
 * disk never changes, and a disk that was swapped out is freed once.
 */
#include "devices/virtio_blk.h"

#include "tests/fuzz/inline_loop.h"
#include "tests/harness/mem_disk.h"
#include "tests/harness/ring_traffic.h"
#include "vmm/le.h"

#include <linux/virtio_blk.h>
#include <string.h>

#define RAM        (512 * KIB)
#define DISK_BYTES (32 * 512u)
#define NUM_QUEUES 2u
#define MAX_STEPS  150u

struct target {
    struct fdrv d;
    struct fring r[NUM_QUEUES];
    struct evloop *loop;
    struct mem_disk disk[2]; /* swapped for each other, and back */
    uint8_t bytes[2][DISK_BYTES];
    struct virtio_dev *dev;
    gpa_t pool;
    uint64_t features;
    bool indirect;
    bool read_only;
    uint32_t now; /* the disk that the device has */
};

/* Something for the readable part behind the header: mostly good ranges. */
static gpa_t put_ranges(struct target *t, struct fuzz_in *in, uint32_t n)
{
    gpa_t at = t->pool + 1536;

    for (uint32_t i = 0; i < n; i++) {
        uint8_t g[16];

        put_le64(g, fuzz_rarely(in, 16) ? fuzz_edge(in, DISK_BYTES / 512)
                                        : fuzz_below(in, 24));
        put_le32(g + 8, fuzz_rarely(in, 16) ? fuzz_u32(in) : fuzz_below(in, 9));
        put_le32(g + 12,
                 fuzz_rarely(in, 16) ? fuzz_u32(in) : fuzz_below(in, 2));
        fdrv_write(&t->d, at + 16u * i, g, sizeof(g));
    }
    return at;
}

static void add(struct target *t, struct fuzz_in *in)
{
    static const uint8_t types[] = {
        VIRTIO_BLK_T_IN,     VIRTIO_BLK_T_OUT,     VIRTIO_BLK_T_FLUSH,
        VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_WRITE_ZEROES};
    struct fdrv_seg segs[FRING_MAX_SEGS];
    gpa_t header = t->pool + 16u * fuzz_below(in, 64);
    uint8_t type = types[fuzz_below(in, ARRAY_SIZE(types))];
    bool ranges =
        type == VIRTIO_BLK_T_DISCARD || type == VIRTIO_BLK_T_WRITE_ZEROES;
    uint16_t n = 0;
    uint8_t h[16] = {0};

    put_le32(h, fuzz_rarely(in, 32) ? fuzz_u32(in) : type);
    put_le64(h + 8, fuzz_rarely(in, 16) ? fuzz_edge(in, DISK_BYTES / 512)
                                        : fuzz_below(in, 32));
    fdrv_write(&t->d, header, h, sizeof(h));
    segs[n++] = (struct fdrv_seg){header, 16, false};
    if (ranges) {
        uint32_t k = 1 + fuzz_below(in, 18);

        segs[n++] = (struct fdrv_seg){put_ranges(t, in, k), 16 * k, false};
    }
    for (uint32_t k = ranges ? 0 : fuzz_below(in, FRING_MAX_SEGS - 2); k > 0;
         k--)
        segs[n++] = (struct fdrv_seg){t->pool + 2048 + fuzz_below(in, 65536),
                                      256u * fuzz_below(in, 5),
                                      type != VIRTIO_BLK_T_OUT};
    segs[n++] =
        (struct fdrv_seg){t->pool + 1024 + fuzz_below(in, 256), 1, true};
    fring_add(&t->r[fuzz_below(in, NUM_QUEUES)], in, segs, n, t->indirect);
}

static int attach(struct target *t)
{
    t->d.next_free = 4096;
    if (fdrv_attach(&t->d, t->dev, 32, t->features))
        return -1;
    for (uint16_t q = 0; q < NUM_QUEUES; q++)
        fring_init(&t->r[q], &t->d, q);
    t->pool = fdrv_alloc(&t->d, 4096 + 65536 + 2048, 16);
    return 0;
}

static void complete_all(struct target *t)
{
    mem_disk_complete_all(&t->disk[0]);
    mem_disk_complete_all(&t->disk[1]);
}

static void reset(struct target *t)
{
    uint32_t before = t->d.reset_dones;

    if (fdrv_reset(&t->d) == -EINPROGRESS) {
        complete_all(t);
        fuzz_must(t->d.reset_dones == before + 1);
    }
    fuzz_must(t->disk[0].num_held == 0 && t->disk[1].num_held == 0);
}

static void init_disk(struct target *t, uint32_t i)
{
    mem_disk_init(&t->disk[i], t->bytes[i], DISK_BYTES);
    t->disk[i].base.read_only = t->read_only;
}

/* Only to a disk that the device has let go of. */
static void swap(struct target *t)
{
    uint32_t other = 1 - t->now;

    if (t->disk[other].base.ops && t->disk[other].freed == 0)
        return;
    init_disk(t, other);
    fuzz_must(vblk_swap(t->dev, &t->disk[other].base) == 0);
    t->now = other;
}

static void change(struct target *t, struct fuzz_in *in)
{
    struct rate_limit_config limit = {{0}, {0}};
    struct mem_disk *m = &t->disk[t->now];

    switch (fuzz_below(in, 4)) {
    case 0:
        swap(t);
        break;
    case 1:
        /* never beyond what is there */
        m->new_size_bytes = 512u * fuzz_below(in, DISK_BYTES / 512 + 1);
        m->base.size_bytes = DISK_BYTES; /* requests in flight were checked */
        fuzz_must(vblk_refresh_size(t->dev) == 0);
        m->base.size_bytes = DISK_BYTES;
        break;
    case 2:
        limit.ops.size = fuzz_below(in, 4);
        limit.ops.refill_ms = fuzz_below(in, 2);
        limit.bandwidth.size = 512u * fuzz_below(in, 4);
        limit.bandwidth.refill_ms = fuzz_below(in, 3);
        vblk_set_rate_limit(t->dev, &limit);
        break;
    default:
        vblk_set_rate_limit(t->dev, &limit);
        break;
    }
}

/* All that was taken is pushed, or back in its ring. */
static void rest(struct target *t)
{
    uint32_t before = t->d.rests;

    if (fdrv_rest(&t->d) == -EINPROGRESS) {
        mem_disk_complete_all(&t->disk[0]);
        mem_disk_complete_all(&t->disk[1]);
        fuzz_must(t->d.rests == before + 1);
    }
    fuzz_must(t->disk[0].num_held == 0 && t->disk[1].num_held == 0);
    for (uint16_t q = 0; q < NUM_QUEUES; q++) {
        const struct virtq *vq = &t->dev->vq[q];

        fuzz_must(vq->broken || vq->next_avail == vq->next_used);
    }
    fdrv_wake(&t->d);
}

static void step(struct target *t, struct fuzz_in *in)
{
    struct mem_disk *m = &t->disk[fuzz_below(in, 2)];

    switch (fuzz_below(in, 14)) {
    case 0:
    case 1:
    case 2:
    case 3:
        add(t, in);
        break;
    case 4:
    case 5:
    case 6:
        t->dev->ops->queue_kick(t->dev, (uint16_t)fuzz_below(in, NUM_QUEUES));
        break;
    case 7:
    case 8:
        if (m->num_held > 0)
            mem_disk_complete(m, fuzz_below(in, m->num_held),
                              fuzz_rarely(in, 8) ? -EIO : 0);
        break;
    case 9:
        inline_loop_turn(t->loop);
        break;
    case 10:
        if (fuzz_rarely(in, 8)) {
            reset(t);
            fuzz_must(attach(t) == 0);
        } else if (fuzz_rarely(in, 4)) {
            rest(t);
        }
        break;
    case 11:
        change(t, in);
        break;
    default:
        fring_disturb(&t->r[fuzz_below(in, NUM_QUEUES)], in);
        break;
    }
}

static void make_device(struct target *t, struct fuzz_in *in)
{
    struct vblk_args args = {.id = "fuzz", .num_queues = NUM_QUEUES};
    struct vdev_env env = {.mem = t->d.mem, .loop = t->loop};

    t->read_only = fuzz_below(in, 4) == 1;
    args.unsafe_cache = fuzz_below(in, 4) == 1;
    init_disk(t, 0);
    fuzz_must(vblk_new(&env, &t->disk[0].base, &args, &t->dev) == 0);
    t->indirect = fuzz_below(in, 2);
    t->features = (1ull << VIRTIO_BLK_F_MQ) | (1ull << VIRTIO_BLK_F_DISCARD) |
                  (1ull << VIRTIO_BLK_F_WRITE_ZEROES);
    if (fuzz_below(in, 2))
        t->features |= 1ull << VIRTIO_BLK_F_FLUSH;
    if (t->indirect)
        t->features |= 1ull << VIRTIO_RING_F_INDIRECT_DESC;
    if (fuzz_below(in, 2))
        t->features |= 1ull << VIRTIO_RING_F_EVENT_IDX;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target *t = calloc(1, sizeof(*t));

    fuzz_must(t != NULL);
    fdrv_init(&t->d, RAM);
    fuzz_must(evloop_new(EVLOOP_AUTO, &t->loop) == 0);
    make_device(t, &in);
    fuzz_must(attach(t) == 0);
    for (uint32_t i = 0; i < MAX_STEPS && in.left > 0; i++)
        step(t, &in);
    reset(t);
    t->dev->ops->free(t->dev);
    fuzz_must(t->disk[t->now].freed == 1);
    evloop_free(t->loop);
    fdrv_fini(&t->d);
    free(t);
    return 0;
}
