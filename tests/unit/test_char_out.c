/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of descriptors; order, loss and flushing are in test_uart.c. */
#include "devices/char_out.h"

#include "tests/harness/loop_run.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

struct fixture {
    struct evloop *loop;
    int from; /* where the output shows, non-blocking */
    char got[65536 * 4];
    size_t num_got;
    size_t want;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    (void)signal(SIGPIPE, SIG_IGN);
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    evloop_free(f->loop);
    free(f);
    return 0;
}

static bool take(void *arg)
{
    struct fixture *f = arg;
    ssize_t n = read(f->from, f->got + f->num_got, sizeof(f->got) - f->num_got);

    if (n > 0)
        f->num_got += (size_t)n;
    return f->num_got >= f->want;
}

static struct char_out *make(struct fixture *f, int fd)
{
    struct char_out *co = NULL;

    assert_int_equal(char_out_new(f->loop, NULL, "t", fd, &co), 0);
    return co;
}

static void expect_output(struct fixture *f, const char *text)
{
    f->want = strlen(text);
    f->num_got = 0;
    assert_true(loop_run_until(f->loop, take, f));
    assert_int_equal(f->num_got, f->want);
    assert_memory_equal(f->got, text, f->want);
}

static void test_char_out_to_a_file_goes_on_at_its_offset(void **state)
{
    struct fixture *f = *state;
    int fd = memfd_create("out", MFD_CLOEXEC);
    struct char_out *co = make(f, fd);
    char buf[16] = {0};

    assert_int_equal(write(fd, "abc", 3), 3);
    char_out_write(co, "def", 3);
    loop_run_for(f->loop, 10);
    assert_int_equal(pread(fd, buf, sizeof(buf), 0), 6);
    assert_memory_equal(buf, "abcdef", 6);
    char_out_free(co);
    assert_true(fcntl(fd, F_GETFD) >= 0); /* still the caller's */
    close(fd);
}

static void test_char_out_to_a_socket_never_waits(void **state)
{
    struct fixture *f = *state;
    static char big[65536];
    struct char_out *co;
    int s[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
    assert_int_equal(fcntl(s[0], F_SETFL, O_NONBLOCK), 0);
    co = make(f, s[1]);
    f->from = s[0];
    char_out_write(co, "hello", 5);
    expect_output(f, "hello");
    for (int i = 0; i < 50; i++) {
        char_out_write(co, big, sizeof(big));
        loop_run_for(f->loop, 2);
    }
    assert_true(char_out_dropped(co) > 0);
    assert_false(fcntl(s[1], F_GETFL) & O_NONBLOCK);
    close(s[0]);
    loop_run_for(f->loop, 10);
    char_out_free(co);
    close(s[1]);
}

static int open_pty(int *out_master)
{
    struct termios t;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    int slave;

    assert_true(master >= 0);
    assert_int_equal(grantpt(master), 0);
    assert_int_equal(unlockpt(master), 0);
    slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(slave >= 0);
    assert_int_equal(tcgetattr(slave, &t), 0);
    cfmakeraw(&t);
    assert_int_equal(tcsetattr(slave, TCSANOW, &t), 0);
    *out_master = master;
    return slave;
}

static void test_char_out_to_a_terminal_leaves_its_flags(void **state)
{
    struct fixture *f = *state;
    static char big[65536];
    struct char_out *co;
    int master;
    int slave = open_pty(&master);

    assert_int_equal(fcntl(master, F_SETFL, O_NONBLOCK), 0);
    f->from = master;
    co = make(f, slave);
    char_out_write(co, "prompt", 6);
    expect_output(f, "prompt");
    assert_false(fcntl(slave, F_GETFL) & O_NONBLOCK);
    /* nobody reads it, as after Ctrl-S */
    for (int i = 0; i < 4; i++) {
        char_out_write(co, big, sizeof(big));
        loop_run_for(f->loop, 2);
    }
    assert_true(char_out_dropped(co) > 0);
    char_out_free(co);
    close(slave);
    close(master);
}

/* Opening a pty's master again would make another pty. */
static void test_char_out_to_a_pty_master(void **state)
{
    struct fixture *f = *state;
    struct char_out *co;
    int master;
    int slave = open_pty(&master);

    assert_int_equal(fcntl(slave, F_SETFL, O_NONBLOCK), 0);
    f->from = slave;
    co = make(f, master);
    char_out_write(co, "typed", 5);
    expect_output(f, "typed");
    char_out_free(co);
    close(slave);
    close(master);
}

static void test_char_out_to_the_null_device(void **state)
{
    struct fixture *f = *state;
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    struct char_out *co = make(f, fd);

    char_out_write(co, "x", 1);
    loop_run_for(f->loop, 10);
    assert_int_equal(char_out_dropped(co), 0);
    char_out_free(co);
    close(fd);
}

/* /dev/full: an error that is no hang-up. */
static void test_char_out_to_a_full_device_gives_up(void **state)
{
    struct fixture *f = *state;
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct char_out *co = make(f, fd);

    char_out_write(co, "abc", 3);
    loop_run_for(f->loop, 10);
    char_out_write(co, "de", 2);
    assert_int_equal(char_out_dropped(co), 5);
    char_out_flush(co, 100);
    char_out_free(co);
    close(fd);
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_char_out_to_a_file_goes_on_at_its_offset),
        T(test_char_out_to_a_socket_never_waits),
        T(test_char_out_to_a_terminal_leaves_its_flags),
        T(test_char_out_to_a_pty_master),
        T(test_char_out_to_the_null_device),
        T(test_char_out_to_a_full_device_gives_up),
    };

    return cmocka_run_group_tests_name("char_out", tests, NULL, NULL);
}
