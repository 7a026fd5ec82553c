/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes of streams never wait; on both back ends of the loop. */
#include "tests/harness/loop_run.h"
#include "vmm/evloop.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#define NUM     4u
#define PENDING 12345

struct fixture {
    struct evloop *loop;
    struct ev_io io[NUM];
    struct iovec iov[NUM];
    uint8_t byte[NUM];
    int32_t result[NUM];
    unsigned done;
    bool plain;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    if (evloop_new(*(enum evloop_backend *)*state, &f->loop) != 0) {
        free(f);
        f = NULL;
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    if (f)
        evloop_free(f->loop);
    free(f);
    return 0;
}

static struct fixture *fixture(void **state)
{
    if (!*state)
        skip(); /* this host forbids io_uring */
    return *state;
}

static void on_done(struct ev_io *io, int32_t result)
{
    struct fixture *f = io->arg;

    f->result[io - f->io] = result;
    f->done++;
}

static bool all_done(void *arg)
{
    return ((struct fixture *)arg)->done == NUM;
}

/* NUM one-byte requests, submitted in order. */
static void submit_all(struct fixture *f, int fd, enum ev_io_op op)
{
    f->done = 0;
    for (unsigned i = 0; i < NUM; i++) {
        f->result[i] = PENDING;
        f->iov[i] = (struct iovec){&f->byte[i], 1};
        f->io[i] = (struct ev_io){.op = op,
                                  .fd = fd,
                                  .iov = &f->iov[i],
                                  .iovcnt = 1,
                                  .offset_bytes = EV_IO_STREAM,
                                  .plain = &f->plain,
                                  .fn = on_done,
                                  .arg = f};
        evloop_io_submit(f->loop, &f->io[i]);
    }
    assert_int_equal(f->done, 0); /* never from inside */
}

static void check_reads(struct fixture *f, int fd, int far)
{
    for (int round = 0; round < 3; round++) {
        assert_int_equal(write(far, "ab", 2), 2);
        submit_all(f, fd, EV_IO_READV);
        assert_true(loop_run_until(f->loop, all_done, f));
        assert_int_equal(f->result[0], 1);
        assert_int_equal(f->result[1], 1);
        assert_int_equal(f->result[2], -EAGAIN);
        assert_int_equal(f->result[3], -EAGAIN);
        assert_memory_equal(f->byte, "ab", 2);
    }
}

static void test_empty_socket_answers_at_once_and_in_order(void **state)
{
    struct fixture *f = fixture(state);
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds),
                     0);
    check_reads(f, fds[0], fds[1]);
    close(fds[0]);
    close(fds[1]);
}

static void test_full_socket_answers_at_once(void **state)
{
    struct fixture *f = fixture(state);
    char block[4096] = {0};
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds),
                     0);
    while (write(fds[0], block, sizeof(block)) > 0)
        ;
    while (write(fds[0], block, 1) > 0)
        ;
    submit_all(f, fds[0], EV_IO_WRITEV);
    assert_true(loop_run_until(f->loop, all_done, f));
    for (unsigned i = 0; i < NUM; i++)
        assert_int_equal(f->result[i], -EAGAIN);
    close(fds[0]);
    close(fds[1]);
}

/* A terminal stands for the files that a ring cannot do without waiting. */
static void test_file_without_nowait_is_done_plainly(void **state)
{
    struct fixture *f = fixture(state);
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    struct termios raw;
    int slave;

    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_NONBLOCK);
    assert_true(slave >= 0);
    assert_int_equal(tcgetattr(slave, &raw), 0);
    cfmakeraw(&raw);
    assert_int_equal(tcsetattr(slave, TCSANOW, &raw), 0);
    check_reads(f, slave, master);
    if (evloop_backend(f->loop) == EVLOOP_URING)
        assert_true(f->plain);
    close(slave);
    close(master);
}

#define T(name, b)                                                             \
    cmocka_unit_test_prestate_setup_teardown(name, setup, teardown, b)
#define BOTH(name) T(name, &uring), T(name, &epoll)

int main(void)
{
    static enum evloop_backend uring = EVLOOP_URING;
    static enum evloop_backend epoll = EVLOOP_EPOLL;
    const struct CMUnitTest tests[] = {
        BOTH(test_empty_socket_answers_at_once_and_in_order),
        BOTH(test_full_socket_answers_at_once),
        BOTH(test_file_without_nowait_is_done_plainly),
    };

    return cmocka_run_group_tests_name("evloop_stream", tests, NULL, NULL);
}
