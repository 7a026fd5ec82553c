/* SPDX-License-Identifier: Apache-2.0 */
/* What the block device counts of its requests, and how it times them. */
#include "devices/virtio_blk.h"

#include "tests/harness/fake_driver.h"
#include "tests/harness/loop_run.h"
#include "tests/harness/mem_disk.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <linux/virtio_blk.h>
#include <stdlib.h>
#include <string.h>

#define RAM     (16 * MIB)
#define SECTORS 64u
#define QSIZE   32u

struct fixture {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct mem_disk disk;
    struct mem_disk other;
    struct virtio_dev *dev;
    gpa_t status;
    gpa_t data;
};

static int make(void **state, const struct vblk_args *args)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct vdev_env env;

    assert_non_null(f);
    fdrv_init(&f->d, RAM);
    log_init(&f->log, -1, LOG_OFF, "test");
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    mem_disk_init(&f->disk, NULL, SECTORS * 512u);
    mem_disk_init(&f->other, NULL, SECTORS * 512u);
    env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    assert_int_equal(vblk_new(&env, &f->disk.base, args, &f->dev), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, ~0ull), 0);
    f->status = fdrv_alloc(&f->d, 256, 64);
    f->data = fdrv_alloc(&f->d, MIB, 4096);
    *state = f;
    return 0;
}

static int setup(void **state)
{
    static const struct vblk_args args = {.id = "a"};

    return make(state, &args);
}

static int setup_limited(void **state)
{
    static const struct vblk_args args = {
        .id = "a", .limit = {.ops = {.size = 1, .refill_ms = 20}}};

    return make(state, &args);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    if (fdrv_reset(&f->d) == -EINPROGRESS)
        mem_disk_complete_all(&f->disk);
    f->dev->ops->free(f->dev);
    evloop_free(f->loop);
    fdrv_fini(&f->d);
    free(f);
    return 0;
}

static void add(struct fixture *f, uint32_t type, uint64_t sector, uint32_t len)
{
    uint8_t h[16] = {0};
    struct fdrv_seg segs[3];
    uint16_t n = 0;

    put_le32(h, type);
    put_le64(h + 8, sector);
    segs[n++] = (struct fdrv_seg){fdrv_put(&f->d, h, 16, 16), 16, false};
    if (len > 0)
        segs[n++] = (struct fdrv_seg){f->data, len, type != VIRTIO_BLK_T_OUT};
    segs[n++] = (struct fdrv_seg){f->status, 1, true};
    (void)fdrv_add(&f->d, 0, segs, n);
}

static struct vblk_stats stats(struct fixture *f)
{
    struct vblk_stats s;

    vblk_get_stats(f->dev, &s);
    return s;
}

static uint64_t total(const struct histogram *h)
{
    uint64_t n = 0;

    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        n += h->n[i];
    return n;
}

static void test_vblk_counts_requests_when_they_are_done(void **state)
{
    struct fixture *f = *state;
    struct vblk_stats s;

    add(f, VIRTIO_BLK_T_IN, 0, 1024);
    add(f, VIRTIO_BLK_T_IN, 8, 512);
    add(f, VIRTIO_BLK_T_OUT, 1, 2048);
    add(f, VIRTIO_BLK_T_FLUSH, 0, 0);
    fdrv_kick(&f->d, 0);
    s = stats(f);
    assert_int_equal(s.reads + s.writes + s.flushes, 0);
    mem_disk_complete_all(&f->disk);
    s = stats(f);
    assert_int_equal(s.reads, 2);
    assert_int_equal(s.read_bytes, 1536);
    assert_int_equal(s.writes, 1);
    assert_int_equal(s.write_bytes, 2048);
    assert_int_equal(s.flushes, 1);
    assert_int_equal(s.failed + s.refused, 0);
    assert_int_equal(total(&s.read_us), 2);
    assert_int_equal(total(&s.write_us), 1);
    assert_int_equal(total(&s.flush_us), 1);
    assert_true(s.read_time.min_ns > 0 &&
                s.read_time.min_ns <= s.read_time.max_ns &&
                s.read_time.max_ns <= s.read_time.sum_ns);
}

static void test_vblk_counts_failures_apart_from_refusals(void **state)
{
    struct fixture *f = *state;
    struct vblk_stats s;

    add(f, VIRTIO_BLK_T_IN, 0, 512);
    add(f, VIRTIO_BLK_T_OUT, SECTORS, 512); /* outside */
    add(f, 99, 0, 512);                     /* no such request */
    fdrv_kick(&f->d, 0);
    mem_disk_complete(&f->disk, 0, -EIO);
    s = stats(f);
    assert_int_equal(s.failed, 1);
    assert_int_equal(s.refused, 2);
    assert_int_equal(s.reads + s.writes, 0);
    assert_int_equal(s.read_bytes + s.write_bytes, 0);
    assert_int_equal(total(&s.read_us), 0);
}

static void test_vblk_counts_updates_and_those_that_fail(void **state)
{
    struct fixture *f = *state;
    struct vblk_stats s;

    f->disk.new_size_bytes = SECTORS * 512u;
    assert_int_equal(vblk_refresh_size(f->dev), 0);
    f->disk.refresh_rc = -EIO;
    assert_int_equal(vblk_refresh_size(f->dev), -EIO);
    f->other.base.read_only = true;
    assert_int_equal(vblk_swap(f->dev, &f->other.base), -EINVAL);
    f->other.base.read_only = false;
    assert_int_equal(vblk_swap(f->dev, &f->other.base), 0);
    s = stats(f);
    assert_int_equal(s.updates, 2);
    assert_int_equal(s.update_fails, 2);
}

static bool second_is_there(void *arg)
{
    return ((struct fixture *)arg)->disk.submitted >= 2;
}

static void test_vblk_counts_what_the_limiter_does(void **state)
{
    struct fixture *f = *state;

    add(f, VIRTIO_BLK_T_IN, 0, 512);
    add(f, VIRTIO_BLK_T_IN, 0, 512);
    fdrv_kick(&f->d, 0);
    assert_int_equal(stats(f).throttled, 1);
    assert_true(loop_run_until(f->loop, second_is_there, f));
    assert_true(stats(f).limiter_events >= 1);
    mem_disk_complete_all(&f->disk);
    assert_int_equal(stats(f).reads, 2);
}

static void test_virtio_counts_of_every_device(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(f->dev->counts.broken, 0);
    virtio_config_changed(f->dev);
    virtio_needs_reset(f->dev);
    assert_int_equal(f->dev->counts.config_updates, 1);
    assert_int_equal(f->dev->counts.broken, 1);
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_vblk_counts_requests_when_they_are_done),
        T(test_vblk_counts_failures_apart_from_refusals),
        T(test_vblk_counts_updates_and_those_that_fail),
        cmocka_unit_test_setup_teardown(test_vblk_counts_what_the_limiter_does,
                                        setup_limited, teardown),
        T(test_virtio_counts_of_every_device),
    };

    return cmocka_run_group_tests_name("virtio_blk_counts", tests, NULL, NULL);
}
