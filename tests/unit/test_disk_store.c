/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disks on real files: holes, zeroes, direct I/O, sizes that change, storage
 * that is full. File systems that a test needs are mounted in a namespace of
 * its own, which takes root.
 */
#include "devices/disk_open.h"

#include "tests/harness/loop_run.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE  (4 * MIB)
#define BLOCK 4096u

struct fixture {
    char dir[64];
    char path[96];
    struct evloop *loop;
    struct errmsg err;
    struct iovec iov[DISK_SCRATCH_IOVS];
};

static enum evloop_backend backend = EVLOOP_AUTO;

/* /var/tmp is on a disk where /tmp may be memory. */
static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    (void)snprintf(f->dir, sizeof(f->dir), "/var/tmp/mote-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof(f->path), "%s/disk", f->dir);
    assert_int_equal(evloop_new(backend, &f->loop), 0);
    *state = f;
    return 0;
}

static int setup_epoll(void **state)
{
    int rc;

    backend = EVLOOP_EPOLL;
    rc = setup(state);
    backend = EVLOOP_AUTO;
    return rc;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    evloop_free(f->loop);
    (void)unlink(f->path);
    assert_int_equal(rmdir(f->dir), 0);
    free(f);
    return 0;
}

/* A file of `size` bytes 'x'. */
static void make_file(const char *path, off_t size)
{
    char buf[BLOCK];
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    memset(buf, 'x', sizeof(buf));
    for (off_t at = 0; at < size; at += (off_t)sizeof(buf)) {
        size_t n = (size_t)min_u64(sizeof(buf), (uint64_t)(size - at));

        assert_int_equal(pwrite(fd, buf, n, at), n);
    }
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

struct wait {
    bool done;
    int status;
};

static void on_done(struct disk_io *io, int status)
{
    struct wait *w = io->arg;

    assert_false(w->done);
    w->done = true;
    w->status = status;
}

static bool is_done(void *arg)
{
    return ((struct wait *)arg)->done;
}

static int run(struct fixture *f, struct disk *disk, struct disk_io *io)
{
    struct wait w = {0};

    io->done = on_done;
    io->arg = &w;
    disk->ops->submit(disk, f->loop, io);
    assert_false(w.done); /* never inside submit */
    assert_true(loop_run_until(f->loop, is_done, &w));
    return w.status;
}

static int range(struct fixture *f, struct disk *disk, enum disk_op op,
                 uint64_t off, uint64_t len, bool may_unmap)
{
    struct disk_io io = {
        .op = op,
        .may_unmap = may_unmap,
        .offset_bytes = off,
        .len_bytes = len,
        .iov = f->iov,
    };

    return run(f, disk, &io);
}

static int transfer(struct fixture *f, struct disk *disk, enum disk_op op,
                    uint64_t off, void *buf, size_t len)
{
    struct disk_io io = {.op = op, .offset_bytes = off, .iov = f->iov};

    f->iov[0] = (struct iovec){buf, len};
    io.iovcnt = 1;
    return run(f, disk, &io);
}

static struct disk *must_open(struct fixture *f, unsigned flags)
{
    struct disk *disk = NULL;
    int rc = disk_open(f->path, flags, NULL, &disk, &f->err);

    if (rc)
        fail_msg("%s", f->err.text);
    return disk;
}

/* /var/tmp may lie on a file system without direct I/O (tmpfs before 6.6). */
static bool has_direct(const struct fixture *f)
{
    int fd = open(f->path, O_RDWR | O_DIRECT | O_CLOEXEC);

    if (fd < 0)
        return false;
    close(fd);
    return true;
}

static blkcnt_t blocks(const struct fixture *f)
{
    struct stat st;

    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_size, SIZE);
    return st.st_blocks;
}

/* The first byte that is not a zero in [from, to) or 'x' elsewhere; SIZE. */
static size_t first_wrong(const struct fixture *f, size_t from, size_t to)
{
    char *p = malloc(SIZE);
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    size_t i = 0;

    if (p && pread(fd, p, SIZE, 0) == (ssize_t)SIZE) {
        while (i < SIZE && p[i] == (i >= from && i < to ? 0 : 'x'))
            i++;
    }
    close(fd);
    free(p);
    return i;
}

static void expect_zeroes(const struct fixture *f, size_t from, size_t to)
{
    assert_int_equal(first_wrong(f, from, to), SIZE);
}

/* --- holes and zeroes ---------------------------------------------------- */

static void test_disk_discard_gives_blocks_back(void **state)
{
    struct fixture *f = *state;
    struct disk *disk;
    blkcnt_t before;

    make_file(f->path, SIZE);
    disk = must_open(f, 0);
    before = blocks(f);
    assert_true(disk->can_discard);
    assert_true(disk->discard_bytes >= 512);
    assert_int_equal(range(f, disk, DISK_DISCARD, MIB, MIB, false), 0);
    assert_true(blocks(f) <= before - (blkcnt_t)(MIB / 512));
    expect_zeroes(f, MIB, 2 * MIB);
    disk->ops->free(disk);
}

static void test_disk_zeroes_with_unmap_give_blocks_back(void **state)
{
    struct fixture *f = *state;
    struct disk *disk;
    blkcnt_t before;

    make_file(f->path, SIZE);
    disk = must_open(f, 0);
    before = blocks(f);
    assert_int_equal(
        range(f, disk, DISK_WRITE_ZEROES, MIB + 512, MIB - 1024, true), 0);
    assert_true(blocks(f) < before);
    expect_zeroes(f, MIB + 512, 2 * MIB - 512);
    disk->ops->free(disk);
}

static void test_disk_zeroes_without_unmap_keep_the_blocks(void **state)
{
    struct fixture *f = *state;
    struct disk *disk;
    blkcnt_t before;

    make_file(f->path, SIZE);
    disk = must_open(f, 0);
    before = blocks(f);
    assert_int_equal(range(f, disk, DISK_WRITE_ZEROES, 512, 3 * MIB, false), 0);
    assert_true(blocks(f) >= before);
    expect_zeroes(f, 512, 3 * MIB + 512);
    assert_int_equal(range(f, disk, DISK_WRITE_ZEROES, SIZE - 512, 512, false),
                     0);
    disk->ops->free(disk);
}

static void test_disk_read_only_knows_no_discard(void **state)
{
    struct fixture *f = *state;
    struct disk *disk;

    make_file(f->path, SIZE);
    disk = must_open(f, DISK_READ_ONLY);
    assert_true(disk->read_only);
    assert_false(disk->can_discard);
    disk->ops->free(disk);
}

/* --- sizes and identity -------------------------------------------------- */

static void test_BL_031_disk_size_follows_the_file(void **state)
{
    struct fixture *f = *state;
    struct disk *disk;

    make_file(f->path, SIZE);
    disk = must_open(f, 0);
    assert_int_equal(truncate(f->path, SIZE + MIB + 100), 0);
    assert_int_equal(disk->size_bytes, SIZE);
    assert_int_equal(disk->ops->refresh(disk), 0);
    assert_int_equal(disk->size_bytes, SIZE + MIB);
    assert_int_equal(truncate(f->path, 100), 0);
    assert_int_equal(disk->ops->refresh(disk), 0);
    assert_int_equal(disk->size_bytes, 0);
    disk->ops->free(disk);
}

static void test_disk_knows_its_file(void **state)
{
    struct fixture *f = *state;
    struct disk *disk;
    struct stat st;

    make_file(f->path, BLOCK);
    for (unsigned flags = 0; flags <= DISK_DIRECT; flags += DISK_DIRECT) {
        if (flags && !has_direct(f))
            break;
        disk = must_open(f, flags);
        assert_int_equal(stat(f->path, &st), 0);
        assert_true(disk->ops->is_file(disk, &st));
        assert_int_equal(stat("/etc/passwd", &st), 0);
        assert_false(disk->ops->is_file(disk, &st));
        assert_int_equal(stat("/dev/null", &st), 0);
        assert_false(disk->ops->is_file(disk, &st));
        disk->ops->free(disk);
    }
}

/* --- direct I/O ---------------------------------------------------------- */

static void odd_requests(struct fixture *f, struct disk *disk)
{
    static const struct {
        uint64_t off;
        size_t len;
        size_t shift;
    } c[] = {{0, 512, 0},          {512, 512, 1},        {BLOCK - 512, 1024, 8},
             {1536, 3 * BLOCK, 3}, {SIZE - 512, 512, 0}, {512, MIB, 1},
             {BLOCK, BLOCK, 0},    {2 * MIB, MIB, 0}};
    char *mem = aligned_alloc(BLOCK, 2 * MIB);
    char *back = aligned_alloc(BLOCK, 2 * MIB);

    assert_true(mem && back);
    for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
        memset(mem, (int)('a' + i), 2 * MIB);
        memset(back, 0, 2 * MIB);
        assert_int_equal(
            transfer(f, disk, DISK_WRITE, c[i].off, mem + c[i].shift, c[i].len),
            0);
        assert_int_equal(
            transfer(f, disk, DISK_READ, c[i].off, back + c[i].shift, c[i].len),
            0);
        assert_memory_equal(back + c[i].shift, mem + c[i].shift, c[i].len);
        /* the neighbours are what they were */
        if (c[i].off >= 512) {
            assert_int_equal(
                transfer(f, disk, DISK_READ, c[i].off - 512, back, 512), 0);
            assert_true(back[511] != (char)('a' + i));
        }
    }
    assert_int_equal(transfer(f, disk, DISK_FLUSH, 0, mem, 0), 0);
    free(mem);
    free(back);
}

static void test_BL_038_direct_file_takes_any_request(void **state)
{
    struct fixture *f = *state;
    struct disk *disk;

    make_file(f->path, SIZE);
    if (!has_direct(f))
        skip();
    disk = must_open(f, DISK_DIRECT);
    odd_requests(f, disk);
    assert_int_equal(range(f, disk, DISK_WRITE_ZEROES, MIB + 512, 10240, false),
                     0);
    assert_int_equal(range(f, disk, DISK_DISCARD, MIB + 512, 512, false), 0);
    disk->ops->free(disk);
}

/* A loop device with sectors of 4 KiB over the file; -1: none to be had. */
static int attach_loop(const char *file, char *out_path, size_t size)
{
    struct loop_config c = {.block_size = BLOCK};
    int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int back = open(file, O_RDWR | O_CLOEXEC);
    int loop = -1;

    for (int tries = 0; ctl >= 0 && back >= 0 && tries < 20; tries++) {
        int n = ioctl(ctl, LOOP_CTL_GET_FREE);

        if (n < 0)
            break;
        (void)snprintf(out_path, size, "/dev/loop%d", n);
        loop = open(out_path, O_RDWR | O_CLOEXEC);
        if (loop < 0)
            break;
        c.fd = (uint32_t)back;
        c.info.lo_flags = LO_FLAGS_AUTOCLEAR;
        if (ioctl(loop, LOOP_CONFIGURE, &c) == 0)
            break;
        close(loop);
        loop = -1; /* somebody was faster */
    }
    if (ctl >= 0)
        close(ctl);
    if (back >= 0)
        close(back);
    return loop;
}

static void loop_device(struct fixture *f, unsigned flags)
{
    char file[96];
    struct disk *disk;
    int loop;

    memcpy(file, f->path, sizeof(file));
    make_file(file, SIZE);
    loop = attach_loop(file, f->path, sizeof(f->path));
    if (loop < 0) {
        memcpy(f->path, file, sizeof(file));
        skip(); /* takes root and a loop device */
    }
    disk = must_open(f, flags);
    odd_requests(f, disk);
    assert_int_equal(range(f, disk, DISK_WRITE_ZEROES, MIB + 512, 10240, false),
                     0);
    assert_int_equal(range(f, disk, DISK_WRITE_ZEROES, MIB + 20480, 8192, true),
                     0);
    assert_int_equal(range(f, disk, DISK_DISCARD, MIB + 512, 512, false), 0);
    assert_int_equal(range(f, disk, DISK_DISCARD, 2 * MIB, MIB, false), 0);
    disk->ops->free(disk);
    close(loop);
    memcpy(f->path, file, sizeof(file));
}

static void test_BL_038_direct_device_of_4k_sectors_takes_any_request(void **s)
{
    loop_device(*s, DISK_DIRECT);
}

static void test_BL_038_cached_device_of_4k_sectors_takes_any_request(void **s)
{
    loop_device(*s, 0);
}

/* --- storage in trouble, each in a process of its own --------------------- */

/* The child exits with 0, or with the number of the step that failed. */
static void in_child(struct fixture *f, int (*fn)(struct fixture *f))
{
    int status = -1;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fn(f));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A small file system of memory over the test's directory; 77: not allowed. */
static int mount_small(struct fixture *f, const char *size)
{
    char options[32];

    (void)snprintf(options, sizeof(options), "size=%s", size);
    if (unshare(CLONE_NEWNS) || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return 77;
    return mount("none", f->dir, "tmpfs", 0, options) ? 77 : 0;
}

static int sparse_file(const struct fixture *f, off_t size)
{
    int fd = open(f->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    int rc = fd < 0 || ftruncate(fd, size);

    close(fd);
    return rc;
}

static int child_full(struct fixture *f)
{
    static char buf[MIB];
    struct disk *disk = NULL;
    int rc = mount_small(f, "2m");

    if (rc)
        return rc;
    if (sparse_file(f, SIZE) || disk_open(f->path, 0, NULL, &disk, &f->err))
        return 1;
    /* all of it or an error: half a write is none */
    if (transfer(f, disk, DISK_WRITE, 0, buf, MIB))
        return 2;
    if (transfer(f, disk, DISK_WRITE, MIB + 512, buf, MIB) != -ENOSPC)
        return 3;
    /* tmpfs has no zero range: they are written, and there is no room */
    if (range(f, disk, DISK_WRITE_ZEROES, 3 * MIB, MIB, false) != -ENOSPC)
        return 4;
    /* what is there still works, and room comes back */
    if (transfer(f, disk, DISK_READ, 0, buf, MIB) ||
        range(f, disk, DISK_DISCARD, 0, 2 * MIB + 65536, false))
        return 5;
    if (transfer(f, disk, DISK_WRITE, 3 * MIB, buf, MIB))
        return 6;
    disk->ops->free(disk);
    return 0;
}

static void test_disk_full_storage_is_an_error_and_recovers(void **state)
{
    in_child(*state, child_full);
}

static int child_tmpfs_zeroes(struct fixture *f)
{
    struct disk *disk = NULL;
    int rc = mount_small(f, "8m");

    if (rc)
        return rc;
    make_file(f->path, SIZE);
    if (disk_open(f->path, 0, NULL, &disk, &f->err))
        return 1;
    /* more than one step of written zeroes; the second time it is known */
    if (range(f, disk, DISK_WRITE_ZEROES, 512, 2 * MIB, false) ||
        range(f, disk, DISK_WRITE_ZEROES, 2 * MIB + 512, BLOCK, false))
        return 2;
    return first_wrong(f, 512, 2 * MIB + 512 + BLOCK) == SIZE ? 0 : 3;
}

/* A limit on the file's size: EFBIG, and no signal kills us. */
static int child_rlimit(struct fixture *f)
{
    struct rlimit lim = {MIB, MIB};
    struct disk *disk = NULL;
    char buf[BLOCK] = {0};

    (void)signal(SIGXFSZ, SIG_IGN);
    if (sparse_file(f, SIZE) || disk_open(f->path, 0, NULL, &disk, &f->err))
        return 1;
    if (setrlimit(RLIMIT_FSIZE, &lim))
        return 2;
    if (transfer(f, disk, DISK_WRITE, 0, buf, BLOCK))
        return 3;
    if (transfer(f, disk, DISK_WRITE, 2 * MIB, buf, BLOCK) != -EFBIG)
        return 4;
    /* half of it fits: still an error */
    if (transfer(f, disk, DISK_WRITE, MIB - 512, buf, BLOCK) != -EFBIG)
        return 5;
    return 0;
}

static void test_disk_file_size_limit_is_an_error(void **state)
{
    in_child(*state, child_rlimit);
}

/* A file system of 4 KiB sectors at the test's directory. */
static int mount_4k(struct fixture *f)
{
    char loop[32];
    char cmd[96];

    if (unshare(CLONE_NEWNS) || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return 77;
    make_file(f->path, SIZE);
    if (attach_loop(f->path, loop, sizeof(loop)) < 0)
        return 77;
    (void)snprintf(cmd, sizeof(cmd), "/sbin/mke2fs -qF -b 4096 %s >&2", loop);
    /* NOLINTNEXTLINE(cert-env33-c): a fixed command in a test */
    if (system(cmd) || mount(loop, f->dir, "ext4", 0, NULL))
        return 77;
    return 0;
}

static int child_odd_size(struct fixture *f)
{
    struct disk *disk = NULL;
    char buf[512] = {0};
    int rc = mount_4k(f);

    if (rc)
        return rc;
    if (sparse_file(f, MIB + 512))
        return 1;
    if (disk_open(f->path, DISK_DIRECT, NULL, &disk, &f->err) != -EINVAL ||
        !strstr(f->err.text, "truncate -s %4096"))
        return 2;
    if (truncate(f->path, MIB + 300) ||
        disk_open(f->path, DISK_DIRECT, NULL, &disk, &f->err) ||
        disk->size_bytes != MIB)
        return 3;
    if (disk->block_bytes != BLOCK ||
        transfer(f, disk, DISK_WRITE, MIB - 512, buf, 512))
        return 4;
    /* grown to a part of a block: that part is not there */
    if (truncate(f->path, MIB + BLOCK + 512) || disk->ops->refresh(disk) ||
        disk->size_bytes != MIB + BLOCK)
        return 5;
    return 0;
}

static void test_disk_direct_refuses_a_size_that_it_cannot_write(void **state)
{
    in_child(*state, child_odd_size);
}

static int child_ramfs(struct fixture *f)
{
    struct disk *disk = NULL;

    if (mount_small(f, "8m"))
        return 77;
    /* a file system that has no direct I/O */
    if (mount("none", f->dir, "ramfs", 0, NULL) || sparse_file(f, SIZE))
        return 77;
    if (disk_open(f->path, DISK_DIRECT, NULL, &disk, &f->err) == 0)
        return 77;
    return strstr(f->err.text, "mote_direct") ? 0 : 2;
}

static void test_disk_direct_is_refused_where_there_is_none(void **state)
{
    in_child(*state, child_ramfs);
}

static int child_no_punch(struct fixture *f)
{
    static char buf[BLOCK];
    struct disk *disk = NULL;

    if (mount_small(f, "8m"))
        return 77;
    if (mount("none", f->dir, "ramfs", 0, NULL))
        return 77;
    make_file(f->path, SIZE);
    if (disk_open(f->path, 0, NULL, &disk, &f->err))
        return 1;
    if (disk->can_discard ||
        range(f, disk, DISK_DISCARD, 0, MIB, false) != -EOPNOTSUPP)
        return 2;
    if (range(f, disk, DISK_WRITE_ZEROES, MIB, 65536, true))
        return 3;
    if (transfer(f, disk, DISK_READ, MIB, buf, BLOCK) || buf[0] ||
        buf[BLOCK - 1])
        return 4;
    return 0;
}

static void test_disk_without_holes_refuses_discard_and_writes_zeroes(void **s)
{
    in_child(*s, child_no_punch);
}

static void test_disk_zeroes_are_written_where_nothing_makes_them(void **state)
{
    in_child(*state, child_tmpfs_zeroes);
}

#define T(t)    cmocka_unit_test_setup_teardown(t, setup, teardown)
#define BOTH(t) T(t), cmocka_unit_test_setup_teardown(t, setup_epoll, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_disk_discard_gives_blocks_back),
        BOTH(test_disk_zeroes_with_unmap_give_blocks_back),
        BOTH(test_disk_zeroes_without_unmap_keep_the_blocks),
        T(test_disk_read_only_knows_no_discard),
        T(test_BL_031_disk_size_follows_the_file),
        T(test_disk_knows_its_file),
        BOTH(test_BL_038_direct_file_takes_any_request),
        BOTH(test_BL_038_direct_device_of_4k_sectors_takes_any_request),
        T(test_BL_038_cached_device_of_4k_sectors_takes_any_request),
        BOTH(test_disk_full_storage_is_an_error_and_recovers),
        BOTH(test_disk_zeroes_are_written_where_nothing_makes_them),
        BOTH(test_disk_file_size_limit_is_an_error),
        T(test_disk_direct_refuses_a_size_that_it_cannot_write),
        T(test_disk_direct_is_refused_where_there_is_none),
        T(test_disk_without_holes_refuses_discard_and_writes_zeroes),
    };

    return cmocka_run_group_tests_name("disk_store", tests, NULL, NULL);
}
