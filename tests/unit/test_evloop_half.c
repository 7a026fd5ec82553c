/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that has sent all that it will, while nobody wants to read. */
#include "vmm/evloop.h"

#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

struct fixture {
    struct evloop *loop;
    struct ev_fd w;
    int s[2];
    uint32_t told;
    uint32_t calls;
};

static void on_event(struct ev_fd *w, uint32_t revents)
{
    struct fixture *f = w->arg;
    char b[4096];

    f->told |= revents;
    f->calls++;
    if (revents & POLLHUP)
        evloop_fd_del(f->loop, w);
    else if (revents & POLLIN)
        (void)!recv(w->fd, b, 1, MSG_DONTWAIT);
}

static bool was_told_hup(void *arg)
{
    return ((struct fixture *)arg)->told & POLLHUP;
}

static bool was_told_out(void *arg)
{
    return ((struct fixture *)arg)->told & POLLOUT;
}

static bool was_called_five_times(void *arg)
{
    return ((struct fixture *)arg)->calls >= 5;
}

static void begin(struct fixture *f, enum evloop_backend be, uint32_t events)
{
    memset(f, 0, sizeof(*f));
    assert_int_equal(evloop_new(be, &f->loop), 0);
    assert_int_equal(socketpair(AF_UNIX,
                                SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                                f->s),
                     0);
    assert_int_equal(
        evloop_fd_add(f->loop, &f->w, f->s[0], events, on_event, f), 0);
}

static void end(struct fixture *f)
{
    evloop_fd_del(f->loop, &f->w);
    evloop_free(f->loop);
    drop_fd(&f->s[0]);
    drop_fd(&f->s[1]);
}

static void quiet_until_it_closes(enum evloop_backend be)
{
    struct fixture f;

    begin(&f, be, POLLHUP);
    assert_int_equal(shutdown(f.s[1], SHUT_WR), 0);
    assert_true(loop_run_is_idle(f.loop));
    assert_int_equal(f.told, 0);
    drop_fd(&f.s[1]);
    assert_true(loop_run_until(f.loop, was_told_hup, &f));
    end(&f);
}

static void full_until_it_reads(enum evloop_backend be)
{
    struct fixture f;
    char b[4096] = {0};

    begin(&f, be, POLLOUT);
    while (send(f.s[0], b, sizeof(b), MSG_DONTWAIT) > 0)
        ;
    assert_int_equal(shutdown(f.s[1], SHUT_WR), 0);
    assert_true(loop_run_is_idle(f.loop));
    assert_int_equal(f.told, 0);
    while (recv(f.s[1], b, sizeof(b), MSG_DONTWAIT) > 0)
        ;
    assert_true(loop_run_until(f.loop, was_told_out, &f));
    /* Level-triggered, as ever. */
    f.calls = 0;
    assert_true(loop_run_until(f.loop, was_called_five_times, &f));
    end(&f);
}

/* Quiet, then asked for input after all: each byte of it is told. */
static void reads_after_all(enum evloop_backend be)
{
    struct fixture f;

    begin(&f, be, POLLHUP);
    assert_int_equal(send(f.s[1], "12345", 5, 0), 5);
    assert_int_equal(shutdown(f.s[1], SHUT_WR), 0);
    assert_true(loop_run_is_idle(f.loop));
    assert_int_equal(evloop_fd_mod(f.loop, &f.w, POLLIN), 0);
    assert_true(loop_run_until(f.loop, was_called_five_times, &f));
    assert_int_equal(evloop_fd_mod(f.loop, &f.w, POLLHUP), 0);
    assert_true(loop_run_is_idle(f.loop));
    assert_false(was_told_hup(&f));
    drop_fd(&f.s[1]);
    assert_true(loop_run_until(f.loop, was_told_hup, &f));
    end(&f);
}

/* Removed while quiet; the struct is used again at once. */
static void removed_while_quiet(enum evloop_backend be)
{
    struct fixture f;

    begin(&f, be, POLLHUP);
    assert_int_equal(shutdown(f.s[1], SHUT_WR), 0);
    loop_run_for(f.loop, 20);
    evloop_fd_del(f.loop, &f.w);
    loop_run_for(f.loop, 20);
    assert_int_equal(evloop_fd_add(f.loop, &f.w, f.s[0], POLLHUP, on_event, &f),
                     0);
    assert_true(loop_run_is_idle(f.loop));
    evloop_fd_del(f.loop, &f.w);
    drop_fd(&f.s[1]);
    loop_run_for(f.loop, 20);
    assert_int_equal(f.told, 0);
    end(&f);
}

#define BOTH(name)                                                             \
    static void test_##name##_uring(void **state)                              \
    {                                                                          \
        (void)state;                                                           \
        name(EVLOOP_URING);                                                    \
    }                                                                          \
    static void test_##name##_epoll(void **state)                              \
    {                                                                          \
        (void)state;                                                           \
        name(EVLOOP_EPOLL);                                                    \
    }

BOTH(quiet_until_it_closes)
BOTH(full_until_it_reads)
BOTH(reads_after_all)
BOTH(removed_while_quiet)

#define T(name)                                                                \
    cmocka_unit_test(test_##name##_uring), cmocka_unit_test(test_##name##_epoll)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(quiet_until_it_closes),
        T(full_until_it_reads),
        T(reads_after_all),
        T(removed_while_quiet),
    };

    return cmocka_run_group_tests_name("evloop_half", tests, NULL, NULL);
}
