/* SPDX-License-Identifier: Apache-2.0 */
/* What the event loop does once at the end of a turn; on both back ends. */
#include "tests/harness/loop_run.h"
#include "vmm/evloop.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fixture {
    struct evloop *loop;
    struct ev_later later[3];
    struct ev_timer timer[2];
    struct ev_signal signal;
    char order[32];
    unsigned again;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    enum evloop_backend b = *(enum evloop_backend *)*state;

    assert_non_null(f);
    f->signal.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_true(f->signal.fd >= 0);
    if (evloop_new(b, &f->loop) != 0) {
        close(f->signal.fd);
        free(f);
        f = NULL;
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    if (f) {
        evloop_free(f->loop);
        close(f->signal.fd);
    }
    free(f);
    return 0;
}

static struct fixture *fixture(void **state)
{
    if (!*state)
        skip(); /* this host forbids io_uring */
    return *state;
}

static void note(struct fixture *f, char c)
{
    size_t n = strlen(f->order);

    assert_true(n + 1 < sizeof(f->order));
    f->order[n] = c;
}

static uint64_t raised(const struct fixture *f)
{
    uint64_t n = 0;

    return read(f->signal.fd, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

static void on_later(struct ev_later *l)
{
    struct fixture *f = l->arg;

    note(f, (char)('a' + (l - f->later)));
    if (l == &f->later[2] && f->again++ < 2)
        evloop_later(f->loop, l, on_later, f);
}

static void on_timer(struct ev_timer *t)
{
    struct fixture *f = t->arg;

    note(f, (char)('0' + (t - f->timer)));
    /* asked for twice, runs once */
    evloop_later(f->loop, &f->later[0], on_later, f);
}

static void test_later_runs_once_after_all_callbacks(void **state)
{
    struct fixture *f = fixture(state);

    for (int i = 0; i < 2; i++)
        assert_int_equal(
            evloop_timer_arm(f->loop, &f->timer[i], 0, on_timer, f), 0);
    loop_run_for(f->loop, 5);
    assert_true(!strcmp(f->order, "01a") || !strcmp(f->order, "10a"));
}

static void test_later_runs_in_order_and_again_in_the_next_turn(void **state)
{
    struct fixture *f = fixture(state);

    evloop_later(f->loop, &f->later[2], on_later, f);
    evloop_later(f->loop, &f->later[1], on_later, f);
    loop_run_for(f->loop, 5); /* an idle loop does not sleep over them */
    assert_string_equal(f->order, "cbcc");
}

static void test_later_cancelled_does_not_run(void **state)
{
    struct fixture *f = fixture(state);

    evloop_later_cancel(f->loop, &f->later[0]); /* never asked for */
    for (int i = 0; i < 2; i++)
        evloop_later(f->loop, &f->later[i], on_later, f);
    evloop_later_cancel(f->loop, &f->later[1]);
    evloop_later(f->loop, &f->later[1], on_later, f);
    evloop_later_cancel(f->loop, &f->later[0]);
    loop_run_for(f->loop, 5);
    assert_string_equal(f->order, "b");
}

static void test_signal_raises_once_in_a_turn(void **state)
{
    struct fixture *f = fixture(state);

    for (int i = 0; i < 3; i++)
        evloop_signal(f->loop, &f->signal);
    assert_int_equal(raised(f), 0); /* not before the loop waits */
    loop_run_for(f->loop, 5);
    assert_int_equal(raised(f), 1);
    loop_run_for(f->loop, 5);
    assert_int_equal(raised(f), 0);
    evloop_signal(f->loop, &f->signal);
    evloop_signal_cancel(f->loop, &f->signal);
    evloop_signal_cancel(f->loop, &f->signal);
    loop_run_for(f->loop, 5);
    assert_int_equal(raised(f), 0);
}

static void on_last(struct ev_timer *t)
{
    struct fixture *f = t->arg;

    evloop_signal(f->loop, &f->signal);
    evloop_stop(f->loop);
}

static void test_signal_of_the_last_turn_is_not_lost(void **state)
{
    struct fixture *f = fixture(state);

    assert_int_equal(evloop_timer_arm(f->loop, &f->timer[0], 0, on_last, f), 0);
    assert_int_equal(evloop_run(f->loop), 0);
    assert_int_equal(raised(f), 1);
}

static void on_idle_check(struct ev_timer *t)
{
    struct fixture *f = t->arg;

    note(f, 't');
}

/* A success must not wake the loop that waits in the same system call. */
static void test_signal_does_not_spin_the_loop(void **state)
{
    struct fixture *f = fixture(state);

    assert_int_equal(
        evloop_timer_arm(f->loop, &f->timer[0], 0, on_idle_check, f), 0);
    evloop_signal(f->loop, &f->signal);
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(raised(f), 1);
}

static void on_always(struct ev_timer *t)
{
    struct fixture *f = t->arg;

    f->again++;
    assert_int_equal(evloop_timer_arm(f->loop, t, 0, on_always, f), 0);
}

static bool has_note(void *arg)
{
    return ((struct fixture *)arg)->order[0] != '\0';
}

/* What goes on in every turn, as a busy queue does, is one among others. */
static void test_timer_armed_in_every_turn_keeps_no_other_waiting(void **state)
{
    struct fixture *f = fixture(state);
    struct ev_timer also = {0};

    assert_int_equal(evloop_timer_arm(f->loop, &also, 0, on_always, f), 0);
    assert_int_equal(evloop_timer_arm(f->loop, &f->timer[0], 0, on_always, f),
                     0);
    assert_int_equal(evloop_timer_arm(f->loop, &f->timer[1],
                                      util_now_ns() + 2000000, on_idle_check,
                                      f),
                     0);
    assert_true(loop_run_until(f->loop, has_note, f));
    assert_true(f->again >= 4); /* both have gone on */
    evloop_timer_cancel(f->loop, &f->timer[0]);
    evloop_timer_cancel(f->loop, &also);
}

#define T(name, b)                                                             \
    cmocka_unit_test_prestate_setup_teardown(name, setup, teardown, b)
#define BOTH(name) T(name, &uring), T(name, &epoll)

int main(void)
{
    static enum evloop_backend uring = EVLOOP_URING;
    static enum evloop_backend epoll = EVLOOP_EPOLL;
    const struct CMUnitTest tests[] = {
        BOTH(test_later_runs_once_after_all_callbacks),
        BOTH(test_later_runs_in_order_and_again_in_the_next_turn),
        BOTH(test_later_cancelled_does_not_run),
        BOTH(test_signal_raises_once_in_a_turn),
        BOTH(test_signal_of_the_last_turn_is_not_lost),
        BOTH(test_signal_does_not_spin_the_loop),
        BOTH(test_timer_armed_in_every_turn_keeps_no_other_waiting),
    };

    return cmocka_run_group_tests_name("evloop_turn", tests, NULL, NULL);
}
