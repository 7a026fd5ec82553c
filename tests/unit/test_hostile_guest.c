/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What style.md asks of every device, asked of every device: broken rings,
 * accesses to the configuration space, requests of odd shapes, resets at any
 * time. A new device needs one row in the table.
 */
#include "devices/disk_raw.h"
#include "devices/virtio_balloon.h"
#include "devices/virtio_blk.h"
#include "devices/virtio_console.h"
#include "devices/virtio_rng.h"
#include "devices/virtio_vsock.h"
#include "tests/harness/fake_driver.h"
#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <endian.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RAM      (16 * MIB)
#define QSIZE    16u
#define INDIRECT (1ull << VIRTIO_RING_F_INDIRECT_DESC)

struct fixture {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct vdev_env env;
    char dir[32];
    char path[64];
    struct virtio_dev *dev;
    gpa_t buf; /* 1 MiB */
};

/* --- the devices --------------------------------------------------------- */

static struct virtio_dev *make_blk(struct fixture *f)
{
    CLEANUP_FD int fd = open(f->path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    const struct vblk_args args = {.id = "d"};
    struct disk *disk = NULL;
    struct virtio_dev *dev = NULL;

    assert_int_equal(ftruncate(fd, 65536), 0);
    assert_int_equal(disk_raw_open(f->path, 0, &f->log, &disk, NULL), 0);
    assert_int_equal(vblk_new(&f->env, disk, &args, &dev), 0);
    return dev;
}

static struct virtio_dev *make_rng(struct fixture *f)
{
    struct virtio_dev *dev = NULL;

    assert_int_equal(vrng_new(&f->env, &dev), 0);
    return dev;
}

static struct virtio_dev *make_console(struct fixture *f)
{
    struct vcon_args args = {
        .in_fd = -1, .out_fd = -1, .cols = 80, .rows = 25, .num_ports = 1};
    struct virtio_dev *dev = NULL;

    args.ports[0] = (struct vcon_port_args){"p", f->path};
    assert_int_equal(vcon_new(&f->env, &args, &dev, NULL), 0);
    return dev;
}

static struct virtio_dev *make_balloon(struct fixture *f)
{
    const struct vballoon_args args = {.stats_interval_s = 3600,
                                       .deflate_on_oom = true,
                                       .hinting = true,
                                       .reporting = true};
    struct virtio_dev *dev = NULL;

    assert_int_equal(vballoon_new(&f->env, &args, &dev), 0);
    return dev;
}

static struct virtio_dev *make_vsock(struct fixture *f)
{
    struct virtio_dev *dev = NULL;

    assert_int_equal(vvsock_new(&f->env, 3, f->path, &dev, NULL), 0);
    return dev;
}

struct device {
    const char *name;
    struct virtio_dev *(*make)(struct fixture *f);
    /* Queues that are looked into at a kick; of the others buffers are taken
     * when there is something to put into them. */
    uint32_t eager;
    /* Queues where a chain of any shape is a request, if a bad one. */
    uint32_t any_shape;
    /* Queues that keep buffers although there is nothing wrong with them. */
    uint32_t keeps;
    uint64_t writable_config; /* bit n: byte n may change */
};

static const struct device devices[] = {
    {"blk", make_blk, 0x1, 0, 0, 0},
    {"rng", make_rng, 0x1, 0x1, 0, 0},
    {"console", make_console, 0x2a, 0x2a, 0, 0},
    {"balloon", make_balloon, 0x1f, 0x1f, 0x4, 0xf0f0},
    {"vsock", make_vsock, 0x2, 0x2, 0, 0},
};

/* --- fixture ------------------------------------------------------------- */

static void begin(struct fixture *f, const struct device *dev,
                  uint64_t ring_features)
{
    memset(f, 0, sizeof(*f));
    fdrv_init(&f->d, RAM);
    log_init(&f->log, -1, LOG_WARN, "test");
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    f->env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/mote-hg-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof(f->path), "%s/x", f->dir);
    f->dev = dev->make(f);
    assert_int_equal(
        fdrv_attach(&f->d, f->dev, QSIZE, f->dev->offered | ring_features), 0);
    f->buf = fdrv_alloc(&f->d, MIB, 4096);
}

static bool reset_is_done(void *arg)
{
    return ((struct fixture *)arg)->d.reset_dones > 0;
}

/* At once, or when the last request has ended. */
static void reset(struct fixture *f)
{
    int rc;

    f->d.reset_dones = 0;
    rc = fdrv_reset(&f->d);
    if (rc == -EINPROGRESS)
        assert_true(loop_run_until(f->loop, reset_is_done, f));
    else
        assert_int_equal(rc, 0);
}

static void end(struct fixture *f)
{
    reset(f);
    f->dev->ops->free(f->dev);
    evloop_free(f->loop);
    (void)unlink(f->path);
    assert_int_equal(rmdir(f->dir), 0);
    fdrv_fini(&f->d);
}

/* --- broken rings -------------------------------------------------------- */

static uint16_t put_one(struct fixture *f, uint16_t q)
{
    struct fdrv_seg seg = {f->buf, 64, true};

    return fdrv_add(&f->d, q, &seg, 1);
}

static void fault_idx_jump(struct fixture *f, uint16_t q)
{
    (void)put_one(f, q);
    fdrv_set_avail_idx(&f->d, q, (uint16_t)(f->d.q[q].size + 1));
}

static void fault_idx_back(struct fixture *f, uint16_t q)
{
    (void)put_one(f, q);
    fdrv_set_avail_idx(&f->d, q, 65535);
}

static void fault_head(struct fixture *f, uint16_t q)
{
    (void)put_one(f, q);
    fdrv_set_avail_entry(&f->d, q, 0, f->d.q[q].size);
    fdrv_publish(&f->d, q);
}

static void fault_head_max(struct fixture *f, uint16_t q)
{
    (void)put_one(f, q);
    fdrv_set_avail_entry(&f->d, q, 0, 0xffff);
    fdrv_publish(&f->d, q);
}

/* The only descriptor of a request becomes this. */
static void set_desc(struct fixture *f, uint16_t q, uint64_t addr, uint32_t len,
                     uint16_t flags, uint16_t next)
{
    uint16_t head = put_one(f, q);

    fdrv_set_desc(&f->d, q, head, addr, len, flags,
                  next == 0xfffe ? head : next);
    fdrv_publish(&f->d, q);
}

static void fault_next(struct fixture *f, uint16_t q)
{
    set_desc(f, q, f->buf, 64, VRING_DESC_F_NEXT, f->d.q[q].size);
}

static void fault_loop(struct fixture *f, uint16_t q)
{
    set_desc(f, q, f->buf, 64, VRING_DESC_F_NEXT, 0xfffe);
}

static void fault_outside(struct fixture *f, uint16_t q)
{
    set_desc(f, q, RAM, 1, VRING_DESC_F_WRITE, 0);
}

static void fault_across_end(struct fixture *f, uint16_t q)
{
    set_desc(f, q, RAM - 63, 64, 0, 0);
}

static void fault_wrap(struct fixture *f, uint16_t q)
{
    set_desc(f, q, UINT64_MAX - 31, 64, 0, 0);
}

static void fault_huge(struct fixture *f, uint16_t q)
{
    set_desc(f, q, f->buf, UINT32_MAX, VRING_DESC_F_WRITE, 0);
}

static void fault_order(struct fixture *f, uint16_t q)
{
    struct fdrv_seg segs[] = {{f->buf, 64, true}, {f->buf + 64, 64, false}};

    (void)fdrv_add(&f->d, q, segs, 2);
    fdrv_publish(&f->d, q);
}

static void fault_indirect_length(struct fixture *f, uint16_t q)
{
    set_desc(f, q, f->buf, 17, VRING_DESC_F_INDIRECT, 0);
}

static void fault_indirect_empty(struct fixture *f, uint16_t q)
{
    set_desc(f, q, f->buf, 0, VRING_DESC_F_INDIRECT, 0);
}

static void fault_indirect_long(struct fixture *f, uint16_t q)
{
    set_desc(f, q, f->buf, 16 * 1025, VRING_DESC_F_INDIRECT, 0);
}

static void fault_indirect_outside(struct fixture *f, uint16_t q)
{
    set_desc(f, q, RAM, 16, VRING_DESC_F_INDIRECT, 0);
}

static void fault_indirect_nested(struct fixture *f, uint16_t q)
{
    struct vring_desc inner = {htole64(f->buf), htole32(16),
                               htole16(VRING_DESC_F_INDIRECT), 0};

    fdrv_write(&f->d, f->buf, &inner, sizeof(inner));
    set_desc(f, q, f->buf, 16, VRING_DESC_F_INDIRECT, 0);
}

static const struct fault {
    const char *name;
    void (*fn)(struct fixture *f, uint16_t q);
} faults[] = {
    {"idx_jump", fault_idx_jump},
    {"idx_back", fault_idx_back},
    {"head", fault_head},
    {"head_max", fault_head_max},
    {"next", fault_next},
    {"loop", fault_loop},
    {"outside", fault_outside},
    {"across_end", fault_across_end},
    {"wrap", fault_wrap},
    {"huge", fault_huge},
    {"order", fault_order},
    {"indirect_length", fault_indirect_length},
    {"indirect_empty", fault_indirect_empty},
    {"indirect_long", fault_indirect_long},
    {"indirect_outside", fault_indirect_outside},
    {"indirect_nested", fault_indirect_nested},
};

/* Stops, says so, uses nothing, rests, and works again after a reset. */
static void one_fault(const struct device *dev, uint16_t q,
                      const struct fault *fault)
{
    struct fixture f;
    uint32_t before;

    begin(&f, dev, INDIRECT);
    fault->fn(&f, q);
    f.dev->ops->queue_kick(f.dev, q);
    if (f.d.needs_resets == 0)
        fail_msg("%s, queue %u, %s: no NEEDS_RESET", dev->name, q, fault->name);
    before = f.d.needs_resets;
    loop_run_for(f.loop, 2);
    assert_int_equal(f.d.needs_resets,
                     before); /* and goes on about it no more */
    for (uint16_t i = 0; i < f.dev->num_queues; i++)
        assert_int_equal(fdrv_used_idx(&f.d, i), 0);
    reset(&f);
    assert_int_equal(fdrv_attach(&f.d, f.dev, QSIZE, f.dev->offered | INDIRECT),
                     0);
    assert_false(f.dev->vq[q].broken);
    end(&f);
}

static void test_BL_042_every_ring_fault_stops_every_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        for (uint16_t q = 0; q < VIRTIO_MAX_QUEUES; q++) {
            for (size_t k = 0; k < ARRAY_SIZE(faults); k++) {
                if (devices[i].eager & 1u << q)
                    one_fault(&devices[i], q, &faults[k]);
            }
        }
    }
}

/* A table that was not agreed upon. */
static void test_indirect_not_negotiated_stops_every_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        struct fixture f;
        uint16_t q = (uint16_t)__builtin_ctz(devices[i].eager);

        begin(&f, &devices[i], 0);
        set_desc(&f, q, f.buf, 16, VRING_DESC_F_INDIRECT, 0);
        f.dev->ops->queue_kick(f.dev, q);
        assert_true(f.d.needs_resets > 0);
        end(&f);
    }
}

/* --- the configuration space --------------------------------------------- */

static void test_config_by_every_offset_and_width(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        const struct device *dev = &devices[i];
        struct fixture f;
        uint8_t all[256] = {0};
        uint8_t got[8];
        uint8_t ones[8];

        begin(&f, dev, 0);
        memset(ones, 0xff, sizeof(ones));
        assert_true(f.dev->config_len <= sizeof(all));
        if (f.dev->config_len)
            f.dev->ops->config_read(f.dev, 0, all, f.dev->config_len);
        for (uint32_t off = 0; off < f.dev->config_len; off++) {
            for (uint32_t len = 1; len <= 8 && off + len <= f.dev->config_len;
                 len *= 2) {
                f.dev->ops->config_read(f.dev, off, got, len);
                assert_memory_equal(got, all + off, len);
            }
        }
        for (uint32_t off = 0; off < f.dev->config_len; off++) {
            for (uint32_t len = 1; len <= 8 && off + len <= f.dev->config_len;
                 len *= 2) {
                if (f.dev->ops->config_write)
                    f.dev->ops->config_write(f.dev, off, ones, len);
            }
        }
        for (uint32_t off = 0; off < f.dev->config_len; off++) {
            f.dev->ops->config_read(f.dev, off, got, 1);
            if (got[0] != all[off] && !(dev->writable_config & 1ull << off))
                fail_msg("%s: byte %u was written", dev->name, off);
        }
        end(&f);
    }
}

/* --- requests of odd shapes ---------------------------------------------- */

static const struct fdrv_seg shapes[][3] = {
    {{0, 0, false}},
    {{0, 0, true}},
    {{0, 1, false}},
    {{0, 1, true}},
    {{0, 7, false}, {64, 1, false}, {128, 3, true}},
    {{0, 4096, true}, {8192, 4096, true}, {16384, 1, true}},
    {{1, 4095, false}, {8191, 3, false}, {16385, 2, true}},
    {{0, 65536, false}, {65536, 65536, false}, {131072, 65536, true}},
};

static uint64_t shape_room(const struct fdrv_seg *s)
{
    uint64_t room = 0;

    for (int i = 0; i < 3; i++)
        room += s[i].writable ? s[i].len : 0;
    return room;
}

struct all_back {
    struct fixture *f;
    uint16_t q;
    uint16_t want;
};

static bool all_came_back(void *arg)
{
    struct all_back *a = arg;

    return fdrv_used_idx(&a->f->d, a->q) == a->want;
}

static void odd_requests(struct fixture *f, uint16_t q, bool kept)
{
    uint16_t head[ARRAY_SIZE(shapes)];
    uint32_t seen = 0;
    uint16_t want = ARRAY_SIZE(shapes) - kept;
    struct all_back a = {f, q, want};
    uint32_t h;
    uint32_t len;

    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        struct fdrv_seg segs[3];

        memcpy(segs, shapes[i], sizeof(segs));
        for (int k = 0; k < 3; k++)
            segs[k].gpa += f->buf;
        head[i] = fdrv_add_indirect(&f->d, q, segs, shapes[i][1].len ? 3 : 1);
    }
    fdrv_kick(&f->d, q);
    assert_true(loop_run_until(f->loop, all_came_back, &a));
    while (fdrv_used(&f->d, q, &h, &len)) {
        size_t i = 0;

        while (i < ARRAY_SIZE(shapes) && head[i] != h)
            i++;
        assert_true(i < ARRAY_SIZE(shapes));
        assert_false(seen & 1u << i); /* exactly once */
        seen |= 1u << i;
        assert_true(len <= shape_room(shapes[i]));
    }
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_odd_requests_complete_once_and_within_their_room(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        for (uint16_t q = 0; q < VIRTIO_MAX_QUEUES; q++) {
            struct fixture f;

            if (!(devices[i].any_shape & 1u << q))
                continue;
            begin(&f, &devices[i], INDIRECT);
            odd_requests(&f, q, devices[i].keeps & 1u << q);
            end(&f);
        }
    }
}

/* --- resets -------------------------------------------------------------- */

/* Whatever is in flight: afterwards nothing of the guest's is written. */
static void test_reset_at_any_time_silences_every_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        struct fixture f;

        begin(&f, &devices[i], INDIRECT);
        for (int round = 0; round < 20; round++) {
            uint16_t used[VIRTIO_MAX_QUEUES];

            for (uint16_t q = 0; q < f.dev->num_queues; q++) {
                struct fdrv_seg segs[] = {{f.buf, 4096, false},
                                          {f.buf + 65536, 65536, true},
                                          {f.buf + 131072, 1, true}};

                for (uint16_t n = 0; n < QSIZE / 4; n++)
                    (void)fdrv_add(&f.d, q, segs, 3);
                fdrv_kick(&f.d, q);
            }
            if (round % 3 == 0)
                loop_run_for(f.loop, 1);
            reset(&f);
            memset(fdrv_ptr(&f.d, f.buf, MIB), 0x77, MIB);
            for (uint16_t q = 0; q < f.dev->num_queues; q++)
                used[q] = fdrv_used_idx(&f.d, q);
            loop_run_for(f.loop, 1);
            for (uint16_t q = 0; q < f.dev->num_queues; q++)
                assert_int_equal(fdrv_used_idx(&f.d, q), used[q]);
            for (size_t b = 0; b < MIB; b += 512)
                assert_int_equal(*(uint8_t *)fdrv_ptr(&f.d, f.buf + b, 1),
                                 0x77);
            f.d.next_free = 4096; /* the rings take the same place again */
            assert_int_equal(
                fdrv_attach(&f.d, f.dev, QSIZE, f.dev->offered | INDIRECT), 0);
            f.buf = fdrv_alloc(&f.d, MIB, 4096);
        }
        end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_BL_042_every_ring_fault_stops_every_device),
        cmocka_unit_test(test_indirect_not_negotiated_stops_every_device),
        cmocka_unit_test(test_config_by_every_offset_and_width),
        cmocka_unit_test(test_odd_requests_complete_once_and_within_their_room),
        cmocka_unit_test(test_reset_at_any_time_silences_every_device),
    };

    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("hostile_guest", tests, NULL, NULL);
}
