/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/vsock_unix.h"

#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* The socket file, the clients before their line, and running out of fds. */

struct fixture {
    struct evloop *loop;
    struct vsu *u;
    char dir[64];
    char path[200];
    struct errmsg err;
    uint32_t connects;
    int fds[64];
    uint32_t ports[64];
};

static void on_connect(void *arg, int fd, uint32_t port)
{
    struct fixture *f = arg;

    assert_true(f->connects < ARRAY_SIZE(f->fds));
    f->fds[f->connects] = fd;
    f->ports[f->connects++] = port;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    assert_int_equal(evloop_new(EVLOOP_EPOLL, &f->loop), 0);
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/vsu.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof(f->path), "%s/v.sock", f->dir);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    vsu_free(f->u);
    for (uint32_t i = 0; i < f->connects; i++)
        vsu_close(&f->fds[i]);
    evloop_free(f->loop);
    (void)unlink(f->path);
    assert_int_equal(rmdir(f->dir), 0); /* nothing else was left there */
    free(f);
    return 0;
}

static int open_at(struct fixture *f, const char *path, struct vsu **out_u)
{
    const struct vsu_args args = {
        .loop = f->loop,
        .path = path,
        .fn = on_connect,
        .arg = f,
        .wait_ns = 30000000,
    };

    memset(&f->err, 0, sizeof(f->err));
    return vsu_new(&args, out_u, &f->err);
}

static void on_stop(struct ev_timer *t)
{
    evloop_stop(t->arg);
}

static void turn(struct fixture *f, uint32_t ms)
{
    struct ev_timer t = {0};

    assert_int_equal(evloop_timer_arm(f->loop, &t,
                                      util_now_ns() + ms * 1000000ull, on_stop,
                                      f->loop),
                     0);
    assert_int_equal(evloop_run(f->loop), 0);
    evloop_timer_cancel(f->loop, &t);
}

static int unix_socket(const char *path, bool server)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc;

    assert_true(fd >= 0);
    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%.107s", path);
    if (server) {
        rc = bind(fd, (const struct sockaddr *)&addr, sizeof(addr));
        assert_int_equal(rc, 0);
        return fd;
    }
    rc = connect(fd, (const struct sockaddr *)&addr, sizeof(addr));
    if (rc < 0)
        drop_fd(&fd);
    return fd;
}

static bool is_closed(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

/* --- the file ------------------------------------------------------------ */

static void test_unix_file_is_private_and_removed(void **state)
{
    struct fixture *f = *state;
    mode_t old = umask(0);
    struct stat st;

    assert_int_equal(open_at(f, f->path, &f->u), 0);
    (void)umask(old);
    assert_int_equal(lstat(f->path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0600);
    vsu_free(f->u);
    f->u = NULL;
    assert_int_equal(lstat(f->path, &st), -1);
    assert_int_equal(errno, ENOENT);
}

static void test_unix_path_lengths(void **state)
{
    struct fixture *f = *state;
    char path[200];
    size_t dir = strlen(f->dir);
    int fd = -1;

    memset(path, 'x', sizeof(path));
    memcpy(path, f->dir, dir);
    path[dir] = '/';
    path[108] = '\0';
    assert_int_equal(open_at(f, path, &f->u), -ENAMETOOLONG);
    assert_non_null(strstr(f->err.text, "107"));
    path[107] = '\0';
    assert_int_equal(open_at(f, path, &f->u), 0);
    assert_int_equal(vsu_dial(f->u, 1, &fd), -ENAMETOOLONG);
    vsu_free(f->u);
    f->u = NULL;
    /* BL-023: 100 bytes, and a port whose suffix has 11 more */
    path[100] = '\0';
    assert_int_equal(open_at(f, path, &f->u), 0);
    assert_int_equal(vsu_dial(f->u, 4294967294u, &fd), -ENAMETOOLONG);
    assert_int_equal(vsu_dial(f->u, 999999, &fd), -ENOENT); /* just fits */
    vsu_free(f->u);
    f->u = NULL;
    assert_int_equal(open_at(f, "", &f->u), -EINVAL);
    assert_int_equal(open_at(f, "/nonexistent/v.sock", &f->u), -ENOENT);
    assert_non_null(strstr(f->err.text, "/nonexistent/v.sock"));
}

/* BL-022 */
static void test_unix_stale_socket_is_replaced(void **state)
{
    struct fixture *f = *state;
    int fd = unix_socket(f->path, true);

    (void)close(fd); /* as after kill -9 */
    assert_int_equal(open_at(f, f->path, &f->u), 0);
    fd = unix_socket(f->path, false);
    assert_true(fd >= 0);
    (void)close(fd);
}

/* BL-022 */
static void test_unix_live_socket_is_refused_and_left_alone(void **state)
{
    struct fixture *f = *state;
    CLEANUP_FD int fd = unix_socket(f->path, true);
    int peer = -1;

    assert_int_equal(listen(fd, 5), 0);
    assert_int_equal(open_at(f, f->path, &f->u), -EADDRINUSE);
    assert_non_null(strstr(f->err.text, "another process listens"));
    peer = unix_socket(f->path, false);
    assert_true(peer >= 0);
    (void)close(peer);
}

/* BL-022 */
static void test_unix_full_backlog_counts_as_live(void **state)
{
    struct fixture *f = *state;
    CLEANUP_FD int fd = unix_socket(f->path, true);
    int peers[4];

    assert_int_equal(listen(fd, 0), 0);
    for (size_t i = 0; i < ARRAY_SIZE(peers); i++)
        peers[i] = unix_socket(f->path, false);
    assert_int_equal(open_at(f, f->path, &f->u), -EADDRINUSE);
    for (size_t i = 0; i < ARRAY_SIZE(peers); i++)
        drop_fd(&peers[i]);
}

/* BL-022 */
static void test_unix_plain_file_is_never_deleted(void **state)
{
    struct fixture *f = *state;
    CLEANUP_FD int fd = open(f->path, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    struct stat st;

    assert_int_equal(write(fd, "precious", 8), 8);
    assert_int_equal(open_at(f, f->path, &f->u), -EEXIST);
    assert_non_null(strstr(f->err.text, "not a socket"));
    assert_int_equal(lstat(f->path, &st), 0);
    assert_int_equal(st.st_size, 8);
}

static void test_unix_symlink_is_never_followed_or_deleted(void **state)
{
    struct fixture *f = *state;
    struct stat st;

    assert_int_equal(symlink("/nonexistent/elsewhere", f->path), 0);
    assert_int_equal(open_at(f, f->path, &f->u), -EEXIST);
    assert_int_equal(lstat(f->path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

static void test_unix_file_of_a_successor_is_not_removed(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    char moved[220];
    int fd;

    assert_int_equal(open_at(f, f->path, &f->u), 0);
    /* Ours moves away, so that the other one cannot get its inode number. */
    (void)snprintf(moved, sizeof(moved), "%s.old", f->path);
    assert_int_equal(rename(f->path, moved), 0);
    fd = unix_socket(f->path, true);
    vsu_free(f->u);
    f->u = NULL;
    assert_int_equal(lstat(f->path, &st), 0);
    assert_int_equal(unlink(moved), 0);
    (void)close(fd);
}

/* --- clients ------------------------------------------------------------- */

static void test_unix_silent_clients_are_closed_in_time(void **state)
{
    struct fixture *f = *state;
    CLEANUP_FD int fd = -1;
    CLEANUP_FD int half = -1;
    uint64_t begin = util_now_ns();

    assert_int_equal(open_at(f, f->path, &f->u), 0);
    fd = unix_socket(f->path, false);
    half = unix_socket(f->path, false);
    assert_int_equal(send(half, "CONN", 4, MSG_NOSIGNAL), 4);
    turn(f, 5);
    assert_int_equal(vsu_num_waiting(f->u), 2);
    while (vsu_num_waiting(f->u) > 0) {
        assert_true(util_now_ns() - begin < 10000000000ull);
        turn(f, 5);
    }
    assert_true(util_now_ns() - begin >= 30000000);
    assert_true(is_closed(fd));
    assert_true(is_closed(half));
    assert_int_equal(f->connects, 0);
}

static void test_unix_silent_clients_are_bounded(void **state)
{
    struct fixture *f = *state;
    static int fds[VSU_WAIT_MAX + 10];
    uint32_t closed = 0;

    assert_int_equal(open_at(f, f->path, &f->u), 0);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = unix_socket(f->path, false);
    for (int i = 0; i < 6; i++)
        turn(f, 0);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        closed += is_closed(fds[i]);
    assert_int_equal(vsu_num_waiting(f->u), VSU_WAIT_MAX);
    assert_int_equal(closed, 10);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        drop_fd(&fds[i]);
    for (int i = 0; i < 10; i++)
        turn(f, 0);
    assert_int_equal(vsu_num_waiting(f->u), 0);
}

static void test_unix_line_is_taken_and_the_rest_left(void **state)
{
    struct fixture *f = *state;
    CLEANUP_FD int fd = -1;
    char buf[16];

    assert_int_equal(open_at(f, f->path, &f->u), 0);
    fd = unix_socket(f->path, false);
    assert_int_equal(send(fd, "CONNECT 7\nrest", 14, MSG_NOSIGNAL), 14);
    turn(f, 5);
    assert_int_equal(f->connects, 1);
    assert_int_equal(f->ports[0], 7);
    assert_int_equal(recv(f->fds[0], buf, sizeof(buf), MSG_DONTWAIT), 4);
    assert_memory_equal(buf, "rest", 4);
}

static void test_unix_line_of_a_client_that_left_counts(void **state)
{
    struct fixture *f = *state;
    int fd;

    assert_int_equal(open_at(f, f->path, &f->u), 0);
    fd = unix_socket(f->path, false);
    assert_int_equal(send(fd, "CONNECT 7\n", 10, MSG_NOSIGNAL), 10);
    (void)close(fd);
    fd = unix_socket(f->path, false);
    assert_int_equal(send(fd, "CONNECT", 7, MSG_NOSIGNAL), 7);
    (void)close(fd);
    turn(f, 5);
    turn(f, 0);
    assert_int_equal(f->connects, 1);
    assert_int_equal(vsu_num_waiting(f->u), 0);
}

/* --- without fds --------------------------------------------------------- */

static uint32_t highest_fd(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    (void)close(fd);
    return (uint32_t)fd;
}

static void test_unix_without_fds_clients_are_refused_at_once(void **state)
{
    struct fixture *f = *state;
    struct rlimit old;
    struct rlimit low;
    int fds[8];

    assert_int_equal(open_at(f, f->path, &f->u), 0);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = unix_socket(f->path, false);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = highest_fd();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    turn(f, 5);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        assert_true(is_closed(fds[i]));
        drop_fd(&fds[i]);
    }
    /* And it works again. */
    fds[0] = unix_socket(f->path, false);
    assert_int_equal(send(fds[0], "CONNECT 7\n", 10, MSG_NOSIGNAL), 10);
    turn(f, 5);
    assert_int_equal(f->connects, 1);
    drop_fd(&fds[0]);
}

/* A pause takes nothing of their time, and nothing of what they say. */
static void test_unix_rest_stops_the_time_of_clients(void **state)
{
    struct fixture *f = *state;
    int fds[2];

    assert_int_equal(open_at(f, f->path, &f->u), 0);
    for (int i = 0; i < 2; i++)
        fds[i] = unix_socket(f->path, false);
    turn(f, 1);
    assert_int_equal(vsu_num_waiting(f->u), 2);
    vsu_rest(f->u);
    vsu_rest(f->u);
    assert_int_equal(send(fds[1], "CONNECT 7\n", 10, MSG_NOSIGNAL), 10);
    turn(f, 60); /* twice of what they have */
    assert_int_equal(vsu_num_waiting(f->u), 2);
    assert_int_equal(f->connects, 0);
    vsu_wake(f->u);
    vsu_wake(f->u);
    turn(f, 1);
    assert_int_equal(f->connects, 1);
    while (vsu_num_waiting(f->u) > 0)
        turn(f, 1);
    assert_true(is_closed(fds[0]));
    drop_fd(&fds[0]);
    drop_fd(&fds[1]);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_unix_file_is_private_and_removed),
        T(test_unix_path_lengths),
        T(test_unix_stale_socket_is_replaced),
        T(test_unix_live_socket_is_refused_and_left_alone),
        T(test_unix_full_backlog_counts_as_live),
        T(test_unix_plain_file_is_never_deleted),
        T(test_unix_symlink_is_never_followed_or_deleted),
        T(test_unix_file_of_a_successor_is_not_removed),
        T(test_unix_silent_clients_are_closed_in_time),
        T(test_unix_silent_clients_are_bounded),
        T(test_unix_rest_stops_the_time_of_clients),
        T(test_unix_line_is_taken_and_the_rest_left),
        T(test_unix_line_of_a_client_that_left_counts),
        T(test_unix_without_fds_clients_are_refused_at_once),
    };

    return cmocka_run_group_tests_name("vsock_unix", tests, NULL, NULL);
}
