/* SPDX-License-Identifier: Apache-2.0 */
/* Drives of the configuration on real files, and other files for them. */
#include "vmm/drive.h"

#include "devices/virtio_blk.h"
#include "tests/harness/fake_driver.h"
#include "tests/harness/loop_run.h"
#include "vmm/cow_file.h"
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

#define RAM   (8 * MIB)
#define BYTES 65536u

struct fixture {
    char dir[64];
    char a[96];
    char b[96];
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct config_drive drive;
    struct virtio_dev *dev;
    struct errmsg err;
    gpa_t data;
    gpa_t status;
};

/* A file of `size` bytes `fill`. */
static void make_file(const char *path, size_t size, int fill)
{
    char *p = malloc(size ? size : 1);
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);

    assert_true(p && fd >= 0);
    memset(p, fill, size);
    assert_int_equal(write(fd, p, size), size);
    close(fd);
    free(p);
}

static struct fixture *prepare(void)
{
    struct fixture *f = calloc(1, sizeof(*f));
    static char id[] = "disk";

    assert_non_null(f);
    (void)snprintf(f->dir, sizeof(f->dir), "/var/tmp/mote-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->a, sizeof(f->a), "%s/a", f->dir);
    (void)snprintf(f->b, sizeof(f->b), "%s/b", f->dir);
    make_file(f->a, BYTES, 'a');
    make_file(f->b, 2 * BYTES, 'b');
    fdrv_init(&f->d, RAM);
    log_init(&f->log, -1, LOG_OFF, "test");
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    f->drive =
        (struct config_drive){.id = id, .path = f->a, .cache = CACHE_WRITEBACK};
    return f;
}

static void start(struct fixture *f)
{
    const struct vdev_env env = {f->d.mem, f->loop, &f->log};

    if (drive_new(&env, &f->drive, 2, &f->dev, &f->err))
        fail_msg("%s", f->err.text);
    assert_int_equal(fdrv_attach(&f->d, f->dev, 16, ~0ull), 0);
    f->data = fdrv_alloc(&f->d, 4096, 4096);
    f->status = fdrv_alloc(&f->d, 1, 1);
}

static int setup(void **state)
{
    struct fixture *f = prepare();

    start(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fdrv_reset(&f->d), 0);
    f->dev->ops->free(f->dev);
    evloop_free(f->loop);
    fdrv_fini(&f->d);
    (void)unlink(f->a);
    (void)unlink(f->b);
    assert_int_equal(rmdir(f->dir), 0);
    free(f);
    return 0;
}

static bool is_used(void *arg)
{
    struct fixture *f = arg;

    return fdrv_used_idx(&f->d, 0) == f->d.q[0].avail_idx;
}

/* Reads a sector; its first byte, or -1 for an error. */
static int read_sector(struct fixture *f, uint64_t sector)
{
    uint8_t h[16] = {0};
    uint8_t got[2];
    uint32_t head;
    uint32_t len;

    put_le32(h, VIRTIO_BLK_T_IN);
    put_le64(h + 8, sector);
    {
        const struct fdrv_seg segs[3] = {
            {fdrv_put(&f->d, h, 16, 16), 16, false},
            {f->data, 512, true},
            {f->status, 1, true},
        };

        (void)fdrv_add(&f->d, 0, segs, 3);
    }
    fdrv_kick(&f->d, 0);
    assert_true(loop_run_until(f->loop, is_used, f));
    assert_true(fdrv_used(&f->d, 0, &head, &len));
    fdrv_read(&f->d, f->data, got, 1);
    fdrv_read(&f->d, f->status, got + 1, 1);
    return got[1] == VIRTIO_BLK_S_OK ? got[0] : -1;
}

static uint64_t sectors(struct fixture *f)
{
    uint8_t b[8];

    f->dev->ops->config_read(f->dev, 0, b, 8);
    return get_le64(b);
}

static void test_drive_is_made_as_configured(void **state)
{
    struct fixture *f = *state;
    struct vdev_env env = f->dev->env;
    struct config_drive d = f->drive;
    struct virtio_dev *dev = NULL;

    assert_int_equal(f->dev->num_queues, 2);
    assert_true(f->dev->offered & (1ull << VIRTIO_BLK_F_FLUSH));
    assert_int_equal(read_sector(f, 0), 'a');
    d.path = f->b;
    d.cache = CACHE_UNSAFE;
    assert_int_equal(drive_new(&env, &d, 32, &dev, &f->err), 0);
    assert_int_equal(dev->num_queues, 4);
    assert_false(dev->offered & (1ull << VIRTIO_BLK_F_FLUSH));
    dev->ops->free(dev);
    d.read_only = true;
    d.engine = ENGINE_ASYNC;
    if (evloop_fallback_errno(f->loop) == 0) {
        assert_int_equal(drive_new(&env, &d, 1, &dev, &f->err), 0);
        assert_true(dev->offered & (1ull << VIRTIO_BLK_F_RO));
        dev->ops->free(dev);
    }
    d.path = f->dir;
    assert_int_equal(drive_new(&env, &d, 1, &dev, &f->err), -EISDIR);
}

static void test_BL_031_another_file_takes_its_place(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(drive_set_path(f->dev, &f->drive, f->b, &f->err), 0);
    assert_int_equal(sectors(f), 2 * BYTES / 512);
    assert_int_equal(f->d.config_changes, 1);
    assert_int_equal(read_sector(f, BYTES / 512), 'b');
    /* and the first is free again */
    assert_int_equal(drive_set_path(f->dev, &f->drive, f->a, &f->err), 0);
    assert_int_equal(read_sector(f, 0), 'a');
    assert_int_equal(read_sector(f, BYTES / 512), -1); /* smaller */
}

static void test_BL_031_the_same_file_that_grew(void **state)
{
    struct fixture *f = *state;
    char link_path[128];

    assert_int_equal(truncate(f->a, 64 * MIB), 0);
    assert_int_equal(drive_set_path(f->dev, &f->drive, f->a, &f->err), 0);
    assert_int_equal(sectors(f), 64 * MIB / 512);
    assert_int_equal(read_sector(f, 64 * MIB / 512 - 1), 0);
    /* by another name */
    (void)snprintf(link_path, sizeof(link_path), "%s/link", f->dir);
    assert_int_equal(symlink(f->a, link_path), 0);
    assert_int_equal(truncate(f->a, BYTES), 0);
    assert_int_equal(drive_set_path(f->dev, &f->drive, link_path, &f->err), 0);
    assert_int_equal(sectors(f), BYTES / 512);
    assert_int_equal(read_sector(f, BYTES / 512), -1);
    unlink(link_path);
}

/* The path's file was replaced by another one: that is a swap. */
static void test_BL_031_the_same_path_with_a_new_file(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(rename(f->b, f->a), 0);
    assert_int_equal(read_sector(f, 0), 'a');
    assert_int_equal(drive_set_path(f->dev, &f->drive, f->a, &f->err), 0);
    assert_int_equal(read_sector(f, 0), 'b');
}

static void test_BL_031_a_bad_file_leaves_the_old_one(void **state)
{
    struct fixture *f = *state;
    char missing[128];

    (void)snprintf(missing, sizeof(missing), "%s/none", f->dir);
    assert_int_equal(drive_set_path(f->dev, &f->drive, missing, &f->err),
                     -ENOENT);
    assert_non_null(strstr(f->err.text, missing));
    assert_int_equal(drive_set_path(f->dev, &f->drive, f->dir, &f->err),
                     -EISDIR);
    make_file(f->b, 0, 0);
    assert_int_equal(drive_set_path(f->dev, &f->drive, f->b, &f->err), -EINVAL);
    assert_non_null(strstr(f->err.text, "is empty"));
    assert_int_equal(f->d.config_changes, 0);
    assert_int_equal(sectors(f), BYTES / 512);
    assert_int_equal(read_sector(f, 0), 'a');
}

static void test_BL_031_a_file_in_use_elsewhere_is_refused(void **state)
{
    struct fixture *f = *state;
    struct fixture *other = prepare();

    start(other);
    assert_int_equal(drive_set_path(f->dev, &f->drive, other->a, &f->err),
                     -EBUSY);
    assert_int_equal(read_sector(f, 0), 'a');
    teardown((void **)&other);
}

/* --- copy-on-write files --------------------------------------------------
 */

static void make_cow(struct fixture *f, const char *path, const char *base)
{
    if (cow_create(path, base, COW_BASE_RAW, 0, &f->err))
        fail_msg("%s", f->err.text);
}

static void test_drive_of_format_cow_stands_for_its_chain(void **state)
{
    struct fixture *f = *state;
    struct vdev_env env = f->dev->env;
    struct config_drive d = f->drive;
    struct virtio_dev *dev = NULL;
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/c", f->dir);
    make_cow(f, path, f->b);
    d.path = path;
    d.cow = true;
    assert_int_equal(drive_new(&env, &d, 1, &dev, &f->err), 0);
    assert_true(dev->offered & (1ull << VIRTIO_BLK_F_FLUSH));
    dev->ops->free(dev);
    d.cache = CACHE_UNSAFE;
    assert_int_equal(drive_new(&env, &d, 1, &dev, &f->err), 0);
    dev->ops->free(dev);
    (void)unlink(path);
    assert_int_equal(drive_new(&env, &d, 1, &dev, &f->err), -ENOENT);
    assert_non_null(strstr(f->err.text, path));
}

/* What a guest can write into a raw disk never changes what the disk is. */
static void test_drive_of_format_raw_is_never_taken_for_another(void **state)
{
    struct fixture *f = *state;
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/c", f->dir);
    make_cow(f, path, f->b);
    assert_int_equal(drive_set_path(f->dev, &f->drive, path, &f->err), 0);
    assert_int_equal(read_sector(f, 0), 'm'); /* of the magic */
    assert_int_equal(sectors(f), 3 * BYTES / 512);
    (void)unlink(path);
}

static void test_drive_of_format_cow_is_swapped_for_another(void **state)
{
    struct fixture *f = *state;
    struct config_drive d = f->drive;
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/c", f->dir);
    make_cow(f, path, f->b);
    d.cow = true;
    assert_int_equal(drive_set_path(f->dev, &d, path, &f->err), 0);
    assert_int_equal(sectors(f), 2 * BYTES / 512);
    assert_int_equal(read_sector(f, 0), 'b');
    /* the same again, and a raw image, which it is not */
    assert_int_equal(drive_set_path(f->dev, &d, path, &f->err), 0);
    assert_int_equal(drive_set_path(f->dev, &d, f->a, &f->err), -EINVAL);
    assert_non_null(strstr(f->err.text, "no copy-on-write disk"));
    assert_int_equal(read_sector(f, 0), 'b');
    (void)unlink(path);
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_drive_is_made_as_configured),
        T(test_BL_031_another_file_takes_its_place),
        T(test_BL_031_the_same_file_that_grew),
        T(test_BL_031_the_same_path_with_a_new_file),
        T(test_BL_031_a_bad_file_leaves_the_old_one),
        T(test_BL_031_a_file_in_use_elsewhere_is_refused),
        T(test_drive_of_format_cow_stands_for_its_chain),
        T(test_drive_of_format_raw_is_never_taken_for_another),
        T(test_drive_of_format_cow_is_swapped_for_another),
    };

    return cmocka_run_group_tests_name("drive", tests, NULL, NULL);
}
