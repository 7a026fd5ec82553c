/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The block device over a disk in memory that completes in any order, also
 * across resets. Each popped request completes once or not at all, nothing is
 * read or written outside the disk, and a read-only disk never changes.
 */
#include "devices/virtio_blk.h"

#include "tests/fuzz/inline_loop.h"
#include "tests/harness/ring_traffic.h"
#include "vmm/le.h"

#include <linux/virtio_blk.h>
#include <string.h>

#define RAM        (256 * KIB)
#define DISK_BYTES (32 * 512u)
#define MAX_HELD   512u
#define MAX_STEPS  150u

struct mem_disk {
    struct disk base;
    struct disk_io *held[MAX_HELD];
    uint32_t num_held;
    uint8_t bytes[DISK_BYTES];
};

struct target {
    struct fdrv d;
    struct fring r;
    struct evloop *loop;
    struct mem_disk disk;
    struct virtio_dev *dev;
    gpa_t pool;
    uint64_t features;
    bool indirect;
};

static void disk_submit(struct disk *disk, struct evloop *loop,
                        struct disk_io *io)
{
    struct mem_disk *m = container_of(disk, struct mem_disk, base);
    uint64_t off = io->offset_bytes;

    (void)loop;
    fuzz_must(m->num_held < MAX_HELD);
    fuzz_must(io->op != DISK_WRITE || !disk->read_only);
    for (uint32_t i = 0; io->op != DISK_FLUSH && i < io->iovcnt; i++) {
        fuzz_must(io->iov[i].iov_len > 0);
        fuzz_must(off <= DISK_BYTES && io->iov[i].iov_len <= DISK_BYTES - off);
        off += io->iov[i].iov_len;
    }
    m->held[m->num_held++] = io;
}

static void disk_free(struct disk *disk)
{
    fuzz_must(container_of(disk, struct mem_disk, base)->num_held == 0);
}

static const struct disk_ops disk_ops = {.submit = disk_submit,
                                         .free = disk_free};

static void complete(struct target *t, uint32_t i, int status)
{
    struct mem_disk *m = &t->disk;
    struct disk_io *io = m->held[i];
    uint8_t *p = m->bytes + io->offset_bytes;

    m->held[i] = m->held[--m->num_held];
    for (uint32_t k = 0; io->op != DISK_FLUSH && k < io->iovcnt; k++) {
        if (io->op == DISK_READ)
            memcpy(io->iov[k].iov_base, p, io->iov[k].iov_len);
        else
            memcpy(p, io->iov[k].iov_base, io->iov[k].iov_len);
        p += io->iov[k].iov_len;
    }
    io->done(io, status);
}

static void add(struct target *t, struct fuzz_in *in)
{
    static const uint8_t types[] = {VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
                                    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID};
    struct fdrv_seg segs[FRING_MAX_SEGS];
    gpa_t header = t->pool + 16u * fuzz_below(in, 64);
    uint8_t type = types[fuzz_below(in, 4)];
    uint16_t n = 0;
    uint8_t h[16] = {0};

    put_le32(h, fuzz_rarely(in, 32) ? fuzz_u32(in) : type);
    put_le64(h + 8, fuzz_rarely(in, 16) ? fuzz_edge(in, DISK_BYTES / 512)
                                        : fuzz_below(in, 32));
    fdrv_write(&t->d, header, h, sizeof(h));
    segs[n++] = (struct fdrv_seg){header, 16, false};
    for (uint32_t k = fuzz_below(in, FRING_MAX_SEGS - 2); k > 0; k--)
        segs[n++] = (struct fdrv_seg){t->pool + 2048 + fuzz_below(in, 65536),
                                      256u * fuzz_below(in, 5),
                                      type != VIRTIO_BLK_T_OUT};
    segs[n++] =
        (struct fdrv_seg){t->pool + 1024 + fuzz_below(in, 256), 1, true};
    fring_add(&t->r, in, segs, n, t->indirect);
}

static int attach(struct target *t)
{
    t->d.next_free = 4096;
    if (fdrv_attach(&t->d, t->dev, 32, t->features))
        return -1;
    fring_init(&t->r, &t->d, 0);
    t->pool = fdrv_alloc(&t->d, 4096 + 65536 + 2048, 16);
    return 0;
}

static void reset(struct target *t)
{
    uint32_t before = t->d.reset_dones;

    if (fdrv_reset(&t->d) == -EINPROGRESS) {
        while (t->disk.num_held > 0)
            complete(t, 0, 0);
        fuzz_must(t->d.reset_dones == before + 1);
    }
    fuzz_must(t->disk.num_held == 0);
}

static void step(struct target *t, struct fuzz_in *in)
{
    switch (fuzz_below(in, 12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        add(t, in);
        break;
    case 4:
    case 5:
    case 6:
        t->dev->ops->queue_kick(t->dev, 0);
        break;
    case 7:
    case 8:
        if (t->disk.num_held > 0)
            complete(t, fuzz_below(in, t->disk.num_held),
                     fuzz_rarely(in, 8) ? -EIO : 0);
        break;
    case 9:
        inline_loop_turn(t->loop);
        break;
    case 10:
        if (fuzz_rarely(in, 8)) {
            reset(t);
            fuzz_must(attach(t) == 0);
        }
        break;
    default:
        fring_disturb(&t->r, in);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target *t = calloc(1, sizeof(*t));
    struct vdev_env env = {0};
    struct vblk_args args = {.id = "fuzz"};

    fuzz_must(t != NULL);
    fdrv_init(&t->d, RAM);
    fuzz_must(evloop_new(EVLOOP_AUTO, &t->loop) == 0);
    env.mem = t->d.mem;
    env.loop = t->loop;
    t->disk.base.ops = &disk_ops;
    t->disk.base.size_bytes = DISK_BYTES;
    t->disk.base.read_only = fuzz_below(&in, 4) == 1;
    fuzz_must(vblk_new(&env, &t->disk.base, &args, &t->dev) == 0);
    t->indirect = fuzz_below(&in, 2);
    t->features = fuzz_below(&in, 2) ? 1ull << VIRTIO_BLK_F_FLUSH : 0;
    if (t->indirect)
        t->features |= 1ull << VIRTIO_RING_F_INDIRECT_DESC;
    if (fuzz_below(&in, 2))
        t->features |= 1ull << VIRTIO_RING_F_EVENT_IDX;
    fuzz_must(attach(t) == 0);
    for (uint32_t i = 0; i < MAX_STEPS && in.left > 0; i++)
        step(t, &in);
    reset(t);
    t->dev->ops->free(t->dev);
    evloop_free(t->loop);
    fdrv_fini(&t->d);
    free(t);
    return 0;
}
