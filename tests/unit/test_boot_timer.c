/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/boot_timer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct fixture {
    struct log log;
    struct boot_timer *timer;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    log_init(&f->log, memfd_create("log", MFD_CLOEXEC), LOG_INFO, "t");
    assert_true(f->log.fd >= 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    boot_timer_free(f->timer);
    close(f->log.fd);
    free(f);
    return 0;
}

static void start(struct fixture *f, uint64_t ago_ns, int64_t cpu_offset)
{
    const struct boot_timer_args args = {
        .log = &f->log,
        .start_ns = util_now_ns() - ago_ns,
        .cpu_offset = cpu_offset,
    };

    assert_int_equal(boot_timer_new(&args, &f->timer), 0);
}

static void put(struct fixture *f, uint64_t off, uint64_t v, uint32_t len)
{
    boot_timer_bus_ops.write(f->timer, off, &v, len);
}

/* The log's text; the number of its lines. */
static int lines(struct fixture *f, char *text, size_t size)
{
    ssize_t n = pread(f->log.fd, text, size - 1, 0);
    int num = 0;

    assert_true(n >= 0);
    text[n] = '\0';
    for (const char *c = text; *c; c++)
        num += *c == '\n';
    return num;
}

static void test_boot_timer_line_has_time_and_cpu_time(void **state)
{
    struct fixture *f = *state;
    unsigned long long us, ms, cpu_us, cpu_ms;
    char text[4096];

    start(f, 3000000000, 60000000);
    put(f, 0, BOOT_TIMER_VALUE, 1);
    assert_int_equal(lines(f, text, sizeof(text)), 1);
    assert_int_equal(
        sscanf(text,
               "t: Guest-boot-time = %llu us %llu ms, %llu CPU us %llu CPU ms",
               &us, &ms, &cpu_us, &cpu_ms),
        4);
    assert_true(us >= 3000000 && us / 1000 == ms);
    assert_true(cpu_us >= 60000000 && cpu_us / 1000 == cpu_ms);
}

/* What a jailer says cannot make a time negative. */
static void test_boot_timer_cpu_time_never_wraps(void **state)
{
    struct fixture *f = *state;
    char text[4096];

    start(f, 1000, INT64_MIN / 2);
    put(f, 0, BOOT_TIMER_VALUE, 4);
    assert_int_equal(lines(f, text, sizeof(text)), 1);
    assert_non_null(strstr(text, " 0 CPU us 0 CPU ms\n"));
}

static void test_boot_timer_other_accesses_do_nothing(void **state)
{
    struct fixture *f = *state;
    char text[4096];
    uint64_t v = 0;

    start(f, 1000, 0);
    put(f, 0, BOOT_TIMER_VALUE - 1, 1);
    put(f, 1, BOOT_TIMER_VALUE, 1);
    put(f, BOOT_TIMER_BYTES - 1, BOOT_TIMER_VALUE, 1);
    put(f, 0, BOOT_TIMER_VALUE | 1u << 8, 2);
    boot_timer_bus_ops.read(f->timer, 0, &v, 8);
    assert_int_equal(v, 0);
    assert_int_equal(lines(f, text, sizeof(text)), 0);
}

static void
test_boot_timer_writes_without_end_do_not_flood_the_log(void **state)
{
    struct fixture *f = *state;
    char text[4096];

    start(f, 1000, 0);
    for (int i = 0; i < 1000; i++)
        put(f, 0, BOOT_TIMER_VALUE, 1);
    assert_int_equal(lines(f, text, sizeof(text)), 10);
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_boot_timer_line_has_time_and_cpu_time),
        T(test_boot_timer_cpu_time_never_wraps),
        T(test_boot_timer_other_accesses_do_nothing),
        T(test_boot_timer_writes_without_end_do_not_flood_the_log),
    };

    return cmocka_run_group_tests_name("boot_timer", tests, NULL, NULL);
}
