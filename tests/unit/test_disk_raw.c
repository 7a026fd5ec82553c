/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/disk_raw.h"

#include "tests/harness/loop_run.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct fixture {
    char dir[32];
    char path[64];
    struct log log;
    struct errmsg err;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/mote-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof(f->path), "%s/disk", f->dir);
    log_init(&f->log, memfd_create("log", MFD_CLOEXEC), LOG_INFO, "test");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    (void)unlink(f->path);
    (void)rmdir(f->path);
    assert_int_equal(rmdir(f->dir), 0);
    close(f->log.fd);
    free(f);
    return 0;
}

static void make_file(struct fixture *f, off_t size, mode_t mode)
{
    int fd = open(f->path, O_CREAT | O_RDWR, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* Opening fails with one line that names the disk, the reason, the remedy. */
static void expect_refused(struct fixture *f, bool read_only, int rc,
                           const char *reason)
{
    struct disk *disk = NULL;

    memset(&f->err, 0, sizeof(f->err));
    assert_int_equal(disk_raw_open(f->path, read_only, &f->log, &disk, &f->err),
                     rc);
    assert_null(disk);
    assert_non_null(strstr(f->err.text, f->path));
    assert_non_null(strstr(f->err.text, reason));
    assert_non_null(strchr(f->err.text, ';'));
    assert_null(strchr(f->err.text, '\n'));
    /* no message is fine as well */
    assert_int_equal(disk_raw_open(f->path, read_only, NULL, &disk, NULL), rc);
}

static struct disk *must_open(struct fixture *f, bool read_only)
{
    struct disk *disk = NULL;

    assert_int_equal(disk_raw_open(f->path, read_only, &f->log, &disk, &f->err),
                     0);
    assert_non_null(disk);
    return disk;
}

static size_t log_text(struct fixture *f, char *buf, size_t size)
{
    ssize_t n = pread(f->log.fd, buf, size - 1, 0);

    assert_true(n >= 0);
    buf[n] = '\0';
    return (size_t)n;
}

/* --- refusals ------------------------------------------------------------ */

static void test_disk_raw_missing_file_is_refused(void **state)
{
    struct stat st;

    expect_refused(*state, false, -ENOENT, "No such file");
    expect_refused(*state, true, -ENOENT, "check the path");
    /* and not created */
    assert_int_equal(stat(((struct fixture *)*state)->path, &st), -1);
}

static void test_disk_raw_directory_is_refused(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(mkdir(f->path, 0700), 0);
    expect_refused(f, false, -EISDIR, "is a directory");
    expect_refused(f, true, -EISDIR, "is a directory");
}

static void test_disk_raw_empty_file_is_refused(void **state)
{
    make_file(*state, 0, 0600);
    expect_refused(*state, false, -EINVAL, "is empty");
}

static void test_disk_raw_file_below_a_sector_is_refused(void **state)
{
    make_file(*state, 511, 0600);
    expect_refused(*state, true, -EINVAL, "511 bytes");
}

/* Nobody is at the other end: opening must not wait. */
static void test_disk_raw_fifo_is_refused_at_once(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(mkfifo(f->path, 0600), 0);
    expect_refused(f, true, -EINVAL, "neither a regular file");
    expect_refused(f, false, -EINVAL, "neither a regular file");
}

static void test_disk_raw_socket_is_refused(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    expect_refused(f, false, -ENXIO, "cannot open");
    close(fd);
}

static void test_disk_raw_character_device_is_refused(void **state)
{
    struct fixture *f = *state;

    (void)snprintf(f->path, sizeof(f->path), "/dev/zero");
    expect_refused(f, false, -EINVAL, "neither a regular file");
    (void)snprintf(f->path, sizeof(f->path), "%s/disk", f->dir);
}

static void test_disk_raw_unreadable_file_is_refused(void **state)
{
    struct fixture *f = *state;

    if (geteuid() == 0) {
        /* Root reads everything: be somebody else for a moment. */
        assert_int_equal(chmod(f->dir, 0711), 0);
        make_file(f, 4096, 0444);
        assert_int_equal(seteuid(65534), 0);
        expect_refused(f, false, -EACCES, "attach it read-only");
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(chmod(f->path, 0), 0);
        assert_int_equal(seteuid(65534), 0);
        expect_refused(f, true, -EACCES, "make it readable");
        assert_int_equal(seteuid(0), 0);
        return;
    }
    make_file(f, 4096, 0444);
    expect_refused(f, false, -EACCES, "attach it read-only");
    assert_int_equal(chmod(f->path, 0), 0);
    expect_refused(f, true, -EACCES, "make it readable");
}

static void test_disk_raw_second_user_of_a_writable_disk_is_refused(void **s)
{
    struct fixture *f = *s;
    struct disk *first;
    struct disk *second;

    make_file(f, 4096, 0600);
    first = must_open(f, false);
    expect_refused(f, false, -EBUSY, "in use by another");
    expect_refused(f, true, -EBUSY, "in use by another");
    first->ops->free(first);
    first = must_open(f, true);
    second = must_open(f, true); /* readers share */
    expect_refused(f, false, -EBUSY, "in use by another");
    first->ops->free(first);
    second->ops->free(second);
    first = must_open(f, false);
    first->ops->free(first);
}

/* --- sizes --------------------------------------------------------------- */

static void test_BL_030_tail_below_a_sector_stays_untouched(void **state)
{
    struct fixture *f = *state;
    char text[512];
    struct stat st;
    struct disk *disk;

    make_file(f, MIB + 300, 0600);
    disk = must_open(f, false);
    assert_int_equal(disk->size_bytes, MIB);
    disk->ops->free(disk);
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_size, MIB + 300);
    (void)log_text(f, text, sizeof(text));
    assert_non_null(strstr(text, "last 300 bytes"));
    /* one line */
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void test_disk_raw_whole_sectors_give_no_warning(void **state)
{
    struct fixture *f = *state;
    char text[512];
    struct disk *disk;

    make_file(f, 512, 0600);
    disk = must_open(f, true);
    assert_int_equal(disk->size_bytes, 512);
    assert_true(disk->read_only);
    disk->ops->free(disk);
    assert_int_equal(log_text(f, text, sizeof(text)), 0);
}

/* --- requests ------------------------------------------------------------ */

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

static int run(struct evloop *loop, struct disk *disk, enum disk_op op,
               uint64_t off, struct iovec *iov, uint32_t n)
{
    struct wait w = {0};
    struct disk_io io = {
        .op = op,
        .offset_bytes = off,
        .iov = iov,
        .iovcnt = n,
        .done = on_done,
        .arg = &w,
    };

    disk->ops->submit(disk, loop, &io);
    assert_false(w.done); /* never inside submit */
    assert_true(loop_run_until(loop, is_done, &w));
    return w.status;
}

static void requests(struct fixture *f, enum evloop_backend backend)
{
    char a[700];
    char b[324];
    char back[1024];
    struct iovec w[] = {{a, sizeof(a)}, {b, sizeof(b)}};
    struct iovec r[] = {{back, 1}, {back + 1, 1000}, {back + 1001, 23}};
    struct iovec past[] = {{back, 1024}};
    struct evloop *loop = NULL;
    struct disk *disk;

    memset(a, 'a', sizeof(a));
    memset(b, 'b', sizeof(b));
    make_file(f, 8192 + 100, 0600);
    assert_int_equal(evloop_new(backend, &loop), 0);
    disk = must_open(f, false);
    assert_int_equal(run(loop, disk, DISK_WRITE, 512, w, 2), 0);
    assert_int_equal(run(loop, disk, DISK_FLUSH, 0, NULL, 0), 0);
    assert_int_equal(run(loop, disk, DISK_READ, 512, r, 3), 0);
    assert_memory_equal(back, a, 700);
    assert_memory_equal(back + 700, b, 324);
    /* the file ends in the middle of what is read */
    assert_int_equal(run(loop, disk, DISK_READ, 8192 - 512, past, 1), -EIO);
    disk->ops->free(disk);
    evloop_free(loop);
}

static void test_disk_raw_requests_by_io_uring(void **state)
{
    requests(*state, EVLOOP_AUTO);
}

static void test_disk_raw_requests_by_epoll(void **state)
{
    requests(*state, EVLOOP_EPOLL);
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_disk_raw_missing_file_is_refused),
        T(test_disk_raw_directory_is_refused),
        T(test_disk_raw_empty_file_is_refused),
        T(test_disk_raw_file_below_a_sector_is_refused),
        T(test_disk_raw_fifo_is_refused_at_once),
        T(test_disk_raw_socket_is_refused),
        T(test_disk_raw_character_device_is_refused),
        T(test_disk_raw_unreadable_file_is_refused),
        T(test_disk_raw_second_user_of_a_writable_disk_is_refused),
        T(test_BL_030_tail_below_a_sector_stays_untouched),
        T(test_disk_raw_whole_sectors_give_no_warning),
        T(test_disk_raw_requests_by_io_uring),
        T(test_disk_raw_requests_by_epoll),
    };

    return cmocka_run_group_tests_name("disk_raw", tests, NULL, NULL);
}
