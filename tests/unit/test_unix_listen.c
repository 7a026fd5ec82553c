/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/unix_listen.h"

#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/mote-listen-XXXXXX";
static char path[64];

static int set_up(void **state)
{
    (void)state;
    memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/s", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir);
}

static int dial_path(int *out_fd)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    memcpy(addr.sun_path, path, strlen(path));
    return unix_dial(&addr, out_fd);
}

static void test_listens_and_removes_its_file(void **state)
{
    struct unix_listen l = UNIX_LISTEN_NONE;
    struct errmsg err = {""};
    struct stat st;
    int fd = -1;

    (void)state;
    assert_int_equal(unix_listen_open(&l, "test socket", path, 4, &err), 0);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(dial_path(&fd), 0);
    drop_fd(&fd);
    unix_listen_close(&l);
    assert_int_equal(lstat(path, &st), -1);
    unix_listen_close(&l); /* idempotent */
}

static void test_close_leaves_a_file_that_is_not_ours(void **state)
{
    struct unix_listen l = UNIX_LISTEN_NONE;
    struct errmsg err = {""};
    struct stat st;
    int fd;

    (void)state;
    assert_int_equal(unix_listen_open(&l, "test socket", path, 4, &err), 0);
    assert_int_equal(unlink(path), 0);
    fd = open(path, O_CREAT | O_RDWR, 0600);
    assert_true(fd >= 0);
    drop_fd(&fd);
    unix_listen_close(&l);
    assert_int_equal(lstat(path, &st), 0);
}

static void test_refuses_a_live_owner(void **state)
{
    struct unix_listen l = UNIX_LISTEN_NONE;
    struct unix_listen second = UNIX_LISTEN_NONE;
    struct errmsg err = {""};
    int fd = -1;

    (void)state;
    assert_int_equal(unix_listen_open(&l, "test socket", path, 4, &err), 0);
    assert_int_equal(unix_listen_open(&second, "test socket", path, 4, &err),
                     -EADDRINUSE);
    assert_non_null(strstr(err.text, "another process listens"));
    assert_int_equal(second.fd, -1);
    assert_int_equal(dial_path(&fd), 0); /* it still listens */
    drop_fd(&fd);
    unix_listen_close(&l);
}

static void test_refuses_a_file_that_is_no_socket(void **state)
{
    struct unix_listen l = UNIX_LISTEN_NONE;
    struct errmsg err = {""};
    struct stat st;
    int fd = open(path, O_CREAT | O_RDWR, 0600);

    (void)state;
    drop_fd(&fd);
    assert_int_equal(unix_listen_open(&l, "test socket", path, 4, &err),
                     -EEXIST);
    assert_non_null(strstr(err.text, "not a socket"));
    assert_int_equal(lstat(path, &st), 0);
}

static void test_refuses_bad_paths(void **state)
{
    struct unix_listen l = UNIX_LISTEN_NONE;
    struct errmsg err = {""};
    char name[128];

    (void)state;
    assert_int_equal(unix_listen_open(&l, "test socket", "", 4, &err), -EINVAL);
    memset(name, 'a', sizeof(name));
    name[UNIX_LISTEN_PATH_MAX + 1] = '\0';
    assert_int_equal(unix_listen_open(&l, "test socket", name, 4, &err),
                     -ENAMETOOLONG);
    assert_non_null(strstr(err.text, "107"));
    assert_int_equal(
        unix_listen_open(&l, "test socket", "/nonexistent/s", 4, &err),
        -ENOENT);
    assert_non_null(strstr(err.text, "check the directory"));
    assert_int_equal(l.fd, -1);
}

static void wait_for_end(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

/* A child that listens, says so by the pipe, and waits to be killed. */
static pid_t listening_child(bool polled_by_a_ring)
{
    int told[2];
    char c;
    pid_t pid;

    assert_int_equal(pipe(told), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct unix_listen l = UNIX_LISTEN_NONE;
        struct errmsg err = {""};
        struct io_uring ring;

        if (unix_listen_open(&l, "test socket", path, 4, &err))
            _exit(1);
        if (polled_by_a_ring && io_uring_queue_init(8, &ring, 0) == 0) {
            io_uring_prep_poll_add(io_uring_get_sqe(&ring), l.fd, POLLIN);
            (void)io_uring_submit(&ring);
        }
        (void)!write(told[1], "x", 1);
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(told[0], &c, 1), 1);
    close(told[0]);
    close(told[1]);
    return pid;
}

static void kill_and_replace(bool polled_by_a_ring)
{
    struct unix_listen l = UNIX_LISTEN_NONE;
    struct errmsg err = {""};
    pid_t pid = listening_child(polled_by_a_ring);

    assert_int_equal(kill(pid, SIGKILL), 0);
    wait_for_end(pid);
    assert_int_equal(unix_listen_open(&l, "test socket", path, 4, &err), 0);
    unix_listen_close(&l);
}

static void test_BL_022_replaces_the_socket_of_a_dead_process(void **state)
{
    (void)state;
    kill_and_replace(false);
}

/* The ring kept the socket listening for a moment: "another process". */
static void test_BL_022_killed_while_its_ring_polls_the_socket(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++)
        kill_and_replace(true);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_listens_and_removes_its_file),
        CASE(test_close_leaves_a_file_that_is_not_ours),
        CASE(test_refuses_a_live_owner),
        CASE(test_refuses_a_file_that_is_no_socket),
        CASE(test_refuses_bad_paths),
        CASE(test_BL_022_replaces_the_socket_of_a_dead_process),
        CASE(test_BL_022_killed_while_its_ring_polls_the_socket),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
