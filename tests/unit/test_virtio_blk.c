/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_blk.h"

#include "devices/disk_raw.h"
#include "tests/harness/fake_driver.h"
#include "tests/harness/loop_run.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RAM       (8 * MIB)
#define SECTORS   64u
#define QSIZE     16u
#define F_FLUSH   (1ull << VIRTIO_BLK_F_FLUSH)
#define F_EVENT   (1ull << VIRTIO_RING_F_EVENT_IDX)
#define MAX_HELD  64u
#define NO_ANSWER 0xee

/* A disk that keeps its requests until the test completes them. */
struct fake_disk {
    struct disk base;
    struct disk_io *held[MAX_HELD];
    unsigned num_held;
    unsigned submitted;
    bool freed;
    int refresh_rc;
    uint64_t new_size_bytes;
};

struct fixture {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct fake_disk disk;
    struct virtio_dev *dev;
    gpa_t status;
    gpa_t data;
};

static void fake_submit(struct disk *disk, struct evloop *loop,
                        struct disk_io *io)
{
    struct fake_disk *fd = container_of(disk, struct fake_disk, base);

    assert_non_null(loop);
    assert_true(fd->num_held < MAX_HELD);
    fd->held[fd->num_held++] = io;
    fd->submitted++;
}

static void fake_free(struct disk *disk)
{
    container_of(disk, struct fake_disk, base)->freed = true;
}

static int fake_refresh(struct disk *disk)
{
    struct fake_disk *fd = container_of(disk, struct fake_disk, base);

    if (fd->refresh_rc == 0)
        disk->size_bytes = fd->new_size_bytes;
    return fd->refresh_rc;
}

static const struct disk_ops fake_ops = {
    .submit = fake_submit,
    .refresh = fake_refresh,
    .free = fake_free,
};
static const struct vblk_args rootfs = {.id = "rootfs"};

static struct disk_io *take_held(struct fixture *f, unsigned i)
{
    struct disk_io *io = f->disk.held[i];

    assert_true(i < f->disk.num_held);
    f->disk.num_held--;
    memmove(&f->disk.held[i], &f->disk.held[i + 1],
            (f->disk.num_held - i) * sizeof(f->disk.held[0]));
    return io;
}

/* Completes the i-th request that the disk holds. */
static void complete(struct fixture *f, unsigned i, int status)
{
    struct disk_io *io = take_held(f, i);

    io->done(io, status);
}

/* What the device does once at the end of a turn of the loop. */
static void end_turn(struct fixture *f)
{
    loop_run_for(f->loop, 0);
}

static void make(void **state, bool read_only, uint64_t features)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct vdev_env env;

    assert_non_null(f);
    fdrv_init(&f->d, RAM);
    log_init(&f->log, -1, LOG_OFF, "test");
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    f->disk.base.ops = &fake_ops;
    f->disk.base.size_bytes = SECTORS * 512u;
    f->disk.base.read_only = read_only;
    env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    assert_int_equal(vblk_new(&env, &f->disk.base, &rootfs, &f->dev), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, features), 0);
    f->status = fdrv_alloc(&f->d, 64, 64);
    f->data = fdrv_alloc(&f->d, 65536, 4096);
    memset(fdrv_ptr(&f->d, f->status, 64), NO_ANSWER, 64);
    *state = f;
}

static int setup(void **state)
{
    make(state, false, F_FLUSH | F_EVENT);
    return 0;
}

static int setup_ro(void **state)
{
    make(state, true, ~0ull);
    return 0;
}

static int setup_no_flush(void **state)
{
    make(state, false, 0);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    if (fdrv_reset(&f->d) == -EINPROGRESS) {
        while (f->disk.num_held > 0)
            complete(f, 0, 0);
    }
    f->dev->ops->free(f->dev);
    assert_true(f->disk.freed);
    evloop_free(f->loop);
    fdrv_fini(&f->d);
    free(f);
    return 0;
}

static struct fdrv_seg header(struct fixture *f, uint32_t type, uint64_t sector)
{
    uint8_t h[16] = {0};

    put_le32(h, type);
    put_le64(h + 8, sector);
    return (struct fdrv_seg){fdrv_put(&f->d, h, 16, 16), 16, false};
}

/* Adds a request whose status byte is the i-th; `len` 0 means no data. */
static uint16_t add(struct fixture *f, unsigned i, uint32_t type,
                    uint64_t sector, uint32_t len)
{
    struct fdrv_seg segs[3] = {header(f, type, sector)};
    uint16_t n = 1;

    if (len > 0)
        segs[n++] = (struct fdrv_seg){f->data, len, type != VIRTIO_BLK_T_OUT};
    segs[n++] = (struct fdrv_seg){f->status + i, 1, true};
    return fdrv_add(&f->d, 0, segs, n);
}

static uint8_t status_of(struct fixture *f, unsigned i)
{
    uint8_t s;

    fdrv_read(&f->d, f->status + i, &s, 1);
    return s;
}

static void expect_used(struct fixture *f, uint16_t head, uint32_t len)
{
    uint32_t h;
    uint32_t l;

    assert_true(fdrv_used(&f->d, 0, &h, &l));
    assert_int_equal(h, head);
    assert_int_equal(l, len);
}

static void expect_no_used(struct fixture *f)
{
    uint32_t h;
    uint32_t l;

    assert_false(fdrv_used(&f->d, 0, &h, &l));
}

/* --- configuration ------------------------------------------------------- */

static void test_vblk_config_describes_the_disk(void **state)
{
    struct fixture *f = *state;
    struct virtio_blk_config c;

    assert_int_equal(f->dev->config_len, sizeof(c));
    f->dev->ops->config_read(f->dev, 0, &c, sizeof(c));
    assert_int_equal(le64toh(c.capacity), SECTORS);
    assert_int_equal(le32toh(c.seg_max), VQ_MAX_SEGS - 2);
    assert_int_equal(le32toh(c.blk_size), 512);
    f->dev->ops->config_read(f->dev, 4, &c, 4);
    assert_true(f->dev->offered & F_FLUSH);
    assert_false(f->dev->offered & (1ull << VIRTIO_BLK_F_RO));
    assert_false(f->dev->offered & (1ull << VIRTIO_BLK_F_DISCARD));
    assert_true(f->dev->offered & (1ull << VIRTIO_BLK_F_WRITE_ZEROES));
}

/* --- requests ------------------------------------------------------------ */

static void test_vblk_read_goes_to_the_disk_and_back(void **state)
{
    struct fixture *f = *state;
    uint16_t h = add(f, 0, VIRTIO_BLK_T_IN, 3, 1024);
    const struct disk_io *io;

    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.num_held, 1);
    io = f->disk.held[0];
    assert_int_equal(io->op, DISK_READ);
    assert_int_equal(io->offset_bytes, 3 * 512);
    assert_int_equal(io->iovcnt, 1);
    assert_ptr_equal(io->iov[0].iov_base, fdrv_ptr(&f->d, f->data, 1024));
    assert_int_equal(io->iov[0].iov_len, 1024);
    assert_int_equal(status_of(f, 0), NO_ANSWER);
    expect_no_used(f);
    complete(f, 0, 0);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_OK);
    expect_used(f, h, 1025);
    end_turn(f);
    assert_int_equal(f->d.signals[0], 1);
}

static void test_vblk_failed_read_gives_an_io_error(void **state)
{
    struct fixture *f = *state;
    uint16_t h = add(f, 0, VIRTIO_BLK_T_IN, 3, 1024);

    fdrv_kick(&f->d, 0);
    complete(f, 0, -EIO);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_IOERR);
    expect_used(f, h, 1);
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_vblk_completions_may_overtake_each_other(void **state)
{
    struct fixture *f = *state;
    uint16_t a = add(f, 0, VIRTIO_BLK_T_IN, 0, 512);
    uint16_t b = add(f, 1, VIRTIO_BLK_T_OUT, 1, 512);

    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.num_held, 2);
    complete(f, 1, 0);
    expect_used(f, b, 1);
    assert_int_equal(status_of(f, 0), NO_ANSWER);
    complete(f, 0, 0);
    expect_used(f, a, 513);
}

static void test_BL_032_flush_completes_after_the_disk_is_synced(void **state)
{
    struct fixture *f = *state;
    uint16_t w = add(f, 0, VIRTIO_BLK_T_OUT, 0, 512);
    uint16_t h;

    fdrv_kick(&f->d, 0);
    complete(f, 0, 0);
    expect_used(f, w, 1);
    h = add(f, 1, VIRTIO_BLK_T_FLUSH, 0, 0);
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.num_held, 1);
    assert_int_equal(f->disk.held[0]->op, DISK_FLUSH);
    assert_int_equal(status_of(f, 1), NO_ANSWER);
    expect_no_used(f);
    complete(f, 0, 0);
    assert_int_equal(status_of(f, 1), VIRTIO_BLK_S_OK);
    expect_used(f, h, 1);
}

static void test_BL_032_failed_sync_gives_an_io_error(void **state)
{
    struct fixture *f = *state;
    uint16_t h = add(f, 0, VIRTIO_BLK_T_FLUSH, 0, 0);

    fdrv_kick(&f->d, 0);
    complete(f, 0, -ENOSPC);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_IOERR);
    expect_used(f, h, 1);
}

/* A driver that did not take FLUSH believes each write to be durable. */
static void test_vblk_write_through_without_the_flush_feature(void **state)
{
    struct fixture *f = *state;
    uint16_t h = add(f, 0, VIRTIO_BLK_T_OUT, 0, 512);

    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.held[0]->op, DISK_WRITE);
    complete(f, 0, 0);
    expect_no_used(f);
    assert_int_equal(f->disk.num_held, 1);
    assert_int_equal(f->disk.held[0]->op, DISK_FLUSH);
    complete(f, 0, 0);
    expect_used(f, h, 1);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_OK);
    /* a failed write is not synced */
    h = add(f, 1, VIRTIO_BLK_T_OUT, 0, 512);
    fdrv_kick(&f->d, 0);
    complete(f, 0, -EIO);
    assert_int_equal(f->disk.num_held, 0);
    expect_used(f, h, 1);
}

static void test_vblk_get_id_is_the_serial(void **state)
{
    struct fixture *f = *state;
    uint16_t h = add(f, 0, VIRTIO_BLK_T_GET_ID, 0, 20);

    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.submitted, 0);
    assert_memory_equal(fdrv_ptr(&f->d, f->data, 20),
                        "rootfs\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_OK);
    expect_used(f, h, 21);
    assert_int_equal(f->d.signals[0], 1);
}

static void test_vblk_bad_requests_never_reach_the_disk(void **state)
{
    struct fixture *f = *state;
    uint16_t a = add(f, 0, VIRTIO_BLK_T_IN, SECTORS, 512);
    uint16_t b = add(f, 1, VIRTIO_BLK_T_OUT, UINT64_MAX, 512);
    uint16_t c = add(f, 2, VIRTIO_BLK_T_IN, 0, 100);
    uint16_t d = add(f, 3, VIRTIO_BLK_T_DISCARD, 0, 16);

    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.submitted, 0);
    expect_used(f, a, 1);
    expect_used(f, b, 1);
    expect_used(f, c, 1);
    expect_used(f, d, 1);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_IOERR);
    assert_int_equal(status_of(f, 1), VIRTIO_BLK_S_IOERR);
    assert_int_equal(status_of(f, 2), VIRTIO_BLK_S_IOERR);
    assert_int_equal(status_of(f, 3), VIRTIO_BLK_S_UNSUPP);
    assert_int_equal(f->d.needs_resets, 0);
    assert_int_equal(f->d.signals[0], 1); /* one for all of them */
}

static void test_vblk_write_to_a_read_only_disk_is_refused(void **state)
{
    struct fixture *f = *state;
    uint16_t h = add(f, 0, VIRTIO_BLK_T_OUT, 0, 512);

    assert_true(f->dev->offered & (1ull << VIRTIO_BLK_F_RO));
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.submitted, 0);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_IOERR);
    expect_used(f, h, 1);
}

static void test_vblk_largest_request_fits(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[VQ_MAX_SEGS];
    uint16_t n = 0;

    segs[n++] = header(f, VIRTIO_BLK_T_IN, 0);
    for (; n < VQ_MAX_SEGS - 1; n++)
        segs[n] = (struct fdrv_seg){f->data + 256u * n, 64, true};
    segs[1].len += 128; /* 254 pieces make 32 sectors */
    segs[n++] = (struct fdrv_seg){f->status, 1, true};
    (void)fdrv_add_indirect(&f->d, 0, segs, n);
    f->dev->vq[0].indirect = true;
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.num_held, 1);
    assert_int_equal(f->disk.held[0]->iovcnt, VQ_MAX_SEGS - 2);
    complete(f, 0, 0);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_OK);
}

/* --- broken drivers ------------------------------------------------------ */

static void test_vblk_chain_without_status_needs_reset(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = header(f, VIRTIO_BLK_T_FLUSH, 0);

    (void)fdrv_add(&f->d, 0, &seg, 1);
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->d.needs_resets, 1);
    assert_true(f->dev->vq[0].broken);
    expect_no_used(f);
}

static void test_BL_042_vblk_stops_at_a_jumping_index(void **state)
{
    struct fixture *f = *state;

    (void)add(f, 0, VIRTIO_BLK_T_IN, 0, 512);
    fdrv_publish(&f->d, 0);
    fdrv_set_avail_idx(&f->d, 0, 65535);
    f->dev->ops->queue_kick(f->dev, 0);
    assert_int_equal(f->d.needs_resets, 1);
    assert_int_equal(f->disk.submitted, 0);
    expect_no_used(f);
}

static void test_vblk_broken_queue_keeps_quiet_about_old_requests(void **state)
{
    struct fixture *f = *state;

    (void)add(f, 0, VIRTIO_BLK_T_IN, 0, 512);
    fdrv_kick(&f->d, 0);
    fdrv_set_avail_idx(&f->d, 0, 1000);
    f->dev->ops->queue_kick(f->dev, 0);
    assert_int_equal(f->d.needs_resets, 1);
    complete(f, 0, 0);
    expect_no_used(f);
}

/* A full queue ends the turn; the timer looks once more. */
static void test_vblk_takes_a_queue_of_requests_per_turn(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[2];

    f->dev->vq[0].indirect = true;
    for (unsigned i = 0; i < QSIZE; i++) {
        segs[0] = header(f, VIRTIO_BLK_T_FLUSH, 0);
        segs[1] = (struct fdrv_seg){f->status + i, 1, true};
        (void)fdrv_add_indirect(&f->d, 0, segs, 2);
    }
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.num_held, QSIZE);
    loop_run_for(f->loop, 5);
    assert_int_equal(f->d.needs_resets, 0);
    while (f->disk.num_held > 0)
        complete(f, 0, 0);
    assert_int_equal(fdrv_used_idx(&f->d, 0), QSIZE);
}

/* --- reset --------------------------------------------------------------- */

static void test_vblk_reset_at_rest_is_immediate(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fdrv_reset(&f->d), 0);
}

static void test_vblk_reset_waits_and_says_nothing_to_the_guest(void **state)
{
    struct fixture *f = *state;

    (void)add(f, 0, VIRTIO_BLK_T_IN, 0, 512);
    (void)add(f, 1, VIRTIO_BLK_T_OUT, 0, 512);
    fdrv_kick(&f->d, 0);
    assert_int_equal(fdrv_reset(&f->d), -EINPROGRESS);
    complete(f, 0, 0);
    assert_int_equal(f->d.reset_dones, 0);
    complete(f, 0, -EIO);
    assert_int_equal(f->d.reset_dones, 1);
    assert_int_equal(status_of(f, 0), NO_ANSWER);
    assert_int_equal(status_of(f, 1), NO_ANSWER);
    assert_int_equal(fdrv_used_idx(&f->d, 0), 0);
    /* and it can be used again */
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, F_FLUSH), 0);
    (void)add(f, 2, VIRTIO_BLK_T_IN, 0, 512);
    fdrv_kick(&f->d, 0);
    complete(f, 0, 0);
    assert_int_equal(status_of(f, 2), VIRTIO_BLK_S_OK);
}

/* --- with a real file ---------------------------------------------------- */

static bool all_used(void *arg)
{
    struct fixture *f = arg;

    return fdrv_used_idx(&f->d, 0) == f->d.q[0].avail_idx;
}

static void real_file(enum evloop_backend backend)
{
    char path[] = "/tmp/mote-test-XXXXXX";
    struct fixture *f = calloc(1, sizeof(*f));
    struct disk *disk = NULL;
    struct vdev_env env;
    char buf[1024];
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 65536), 0);
    fdrv_init(&f->d, RAM);
    log_init(&f->log, -1, LOG_OFF, "test");
    assert_int_equal(evloop_new(backend, &f->loop), 0);
    env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    assert_int_equal(disk_raw_open(path, false, &f->log, &disk, NULL), 0);
    assert_int_equal(vblk_new(&env, disk, &rootfs, &f->dev), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, F_FLUSH), 0);
    f->status = fdrv_alloc(&f->d, 64, 64);
    f->data = fdrv_alloc(&f->d, 4096, 4096);
    memset(fdrv_ptr(&f->d, f->data, 1024), 'x', 1024);
    (void)add(f, 0, VIRTIO_BLK_T_OUT, 10, 1024);
    fdrv_kick(&f->d, 0);
    assert_true(loop_run_until(f->loop, all_used, f));
    (void)add(f, 1, VIRTIO_BLK_T_FLUSH, 0, 0);
    fdrv_kick(&f->d, 0);
    assert_true(loop_run_until(f->loop, all_used, f));
    assert_int_equal(pread(fd, buf, sizeof(buf), 5120), sizeof(buf));
    assert_memory_equal(buf, fdrv_ptr(&f->d, f->data, 1024), 1024);
    assert_int_equal(pwrite(fd, "from the host", 13, 512), 13);
    (void)add(f, 2, VIRTIO_BLK_T_IN, 1, 512);
    fdrv_kick(&f->d, 0);
    assert_true(loop_run_until(f->loop, all_used, f));
    assert_memory_equal(fdrv_ptr(&f->d, f->data, 13), "from the host", 13);
    /* the file is cut behind the device's back: an error, no hang */
    assert_int_equal(ftruncate(fd, 600), 0);
    (void)add(f, 3, VIRTIO_BLK_T_IN, 1, 512);
    (void)add(f, 4, VIRTIO_BLK_T_IN, 0, 512);
    fdrv_kick(&f->d, 0);
    assert_true(loop_run_until(f->loop, all_used, f));
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(status_of(f, i),
                         i == 3 ? VIRTIO_BLK_S_IOERR : VIRTIO_BLK_S_OK);
    assert_int_equal(fdrv_reset(&f->d), 0);
    f->dev->ops->free(f->dev);
    evloop_free(f->loop);
    fdrv_fini(&f->d);
    free(f);
    close(fd);
    unlink(path);
}

static void test_vblk_real_file_by_io_uring(void **state)
{
    (void)state;
    real_file(EVLOOP_AUTO);
}

static void test_vblk_real_file_by_epoll(void **state)
{
    (void)state;
    real_file(EVLOOP_EPOLL);
}

#define T(t)    cmocka_unit_test_setup_teardown(t, setup, teardown)
#define T_RO(t) cmocka_unit_test_setup_teardown(t, setup_ro, teardown)
#define T_NF(t) cmocka_unit_test_setup_teardown(t, setup_no_flush, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_vblk_config_describes_the_disk),
        T(test_vblk_read_goes_to_the_disk_and_back),
        T(test_vblk_failed_read_gives_an_io_error),
        T(test_vblk_completions_may_overtake_each_other),
        T(test_BL_032_flush_completes_after_the_disk_is_synced),
        T(test_BL_032_failed_sync_gives_an_io_error),
        T_NF(test_vblk_write_through_without_the_flush_feature),
        T(test_vblk_get_id_is_the_serial),
        T(test_vblk_bad_requests_never_reach_the_disk),
        T_RO(test_vblk_write_to_a_read_only_disk_is_refused),
        T(test_vblk_largest_request_fits),
        T(test_vblk_chain_without_status_needs_reset),
        T(test_BL_042_vblk_stops_at_a_jumping_index),
        T(test_vblk_broken_queue_keeps_quiet_about_old_requests),
        T(test_vblk_takes_a_queue_of_requests_per_turn),
        T(test_vblk_reset_at_rest_is_immediate),
        T(test_vblk_reset_waits_and_says_nothing_to_the_guest),
        cmocka_unit_test(test_vblk_real_file_by_io_uring),
        cmocka_unit_test(test_vblk_real_file_by_epoll),
    };

    return cmocka_run_group_tests_name("virtio_blk", tests, NULL, NULL);
}
