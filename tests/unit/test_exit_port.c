/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/exit_port.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

struct fixture {
    struct exit_port *p;
    int stops;
    enum stop_reason reason;
    uint32_t detail;
    int marks;
    uint8_t last_mark;
};

static struct fixture fx;

static void on_stop(void *arg, enum stop_reason reason, uint32_t detail)
{
    struct fixture *f = arg;

    f->stops++;
    f->reason = reason;
    f->detail = detail;
}

static void on_mark(void *arg, uint8_t mark)
{
    struct fixture *f = arg;

    f->marks++;
    f->last_mark = mark;
}

static void make(bool test_enabled)
{
    struct exit_port_args args = {
        .stop = {on_stop, &fx},
        .test_enabled = test_enabled,
        .start_ns = util_now_ns(),
        .mark = on_mark,
        .mark_arg = &fx,
    };

    memset(&fx, 0, sizeof(fx));
    assert_int_equal(exit_port_new(&args, &fx.p), 0);
}

static int setup(void **state)
{
    (void)state;
    make(false);
    return 0;
}

static int setup_test(void **state)
{
    (void)state;
    make(true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    exit_port_free(fx.p);
    return 0;
}

static void out(uint64_t off, uint8_t v)
{
    exit_port_bus_ops.write(fx.p, off, &v, 1);
}

static void test_exit_port_reasons_are_told_apart(void **state)
{
    static const enum stop_reason want[] = {STOP_NONE, STOP_POWEROFF,
                                            STOP_REBOOT, STOP_HALT, STOP_PANIC};

    (void)state;
    for (uint8_t i = 1; i <= 4; i++) {
        out(0, i);
        assert_int_equal(fx.stops, i);
        assert_int_equal(fx.reason, want[i]);
    }
}

static void test_exit_port_unknown_reason_does_nothing(void **state)
{
    (void)state;
    out(0, 0);
    for (unsigned v = 5; v < 256; v++)
        out(0, (uint8_t)v);
    assert_int_equal(fx.stops, 0);
}

static void test_exit_port_test_result_only_where_enabled(void **state)
{
    (void)state;
    out(1, 7);
    assert_int_equal(fx.stops, 0);
}

static void test_exit_port_test_result_ends_the_vm(void **state)
{
    (void)state;
    out(1, 7);
    assert_int_equal(fx.stops, 1);
    assert_int_equal(fx.reason, STOP_TEST);
    assert_int_equal(fx.detail, 7);
}

static void test_exit_port_marks_carry_their_time(void **state)
{
    struct exit_port_mark m[4];

    (void)state;
    out(4, 3);
    out(4, 9);
    assert_int_equal(fx.marks, 2);
    assert_int_equal(fx.last_mark, 9);
    assert_int_equal(exit_port_marks(fx.p, m, 4), 2);
    assert_int_equal(m[0].mark, 3);
    assert_int_equal(m[1].mark, 9);
    assert_true(m[0].at_ns <= m[1].at_ns);
    assert_true(m[1].at_ns < 60000000000ull);
    assert_int_equal(exit_port_marks(fx.p, m, 1), 1);
}

static void test_exit_port_marks_are_bounded(void **state)
{
    struct exit_port_mark m[EXIT_PORT_MAX_MARKS + 1];

    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        out(4, (uint8_t)i);
    assert_int_equal(fx.marks, EXIT_PORT_MAX_MARKS);
    assert_int_equal(exit_port_marks(fx.p, m, ARRAY_SIZE(m)),
                     EXIT_PORT_MAX_MARKS);
    assert_int_equal(m[EXIT_PORT_MAX_MARKS - 1].mark, EXIT_PORT_MAX_MARKS - 1);
}

static void test_exit_port_other_accesses_do_nothing(void **state)
{
    static const uint8_t data[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    uint8_t b[8] = {0};

    (void)state;
    exit_port_bus_ops.write(fx.p, 0, data, 2);
    exit_port_bus_ops.write(fx.p, 0, data, 4);
    exit_port_bus_ops.write(fx.p, 0, data, 8);
    for (uint64_t off = 2; off < 8; off++) {
        if (off != 4)
            out(off, 1);
    }
    for (uint64_t off = 0; off < 8; off++)
        exit_port_bus_ops.read(fx.p, off, b, 1);
    assert_int_equal(b[0], 0);
    assert_int_equal(fx.stops, 0);
    assert_int_equal(fx.marks, 0);
}

#define T(t)      cmocka_unit_test_setup_teardown(t, setup, teardown)
#define T_TEST(t) cmocka_unit_test_setup_teardown(t, setup_test, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_exit_port_reasons_are_told_apart),
        T(test_exit_port_unknown_reason_does_nothing),
        T(test_exit_port_test_result_only_where_enabled),
        T_TEST(test_exit_port_test_result_ends_the_vm),
        T(test_exit_port_marks_carry_their_time),
        T(test_exit_port_marks_are_bounded),
        T(test_exit_port_other_accesses_do_nothing),
    };

    return cmocka_run_group_tests_name("exit_port", tests, NULL, NULL);
}
