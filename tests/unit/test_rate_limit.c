/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/rate_limit.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)
#define START  (7 * SECOND)

static struct rate_limit limit_bytes(uint64_t size, uint64_t burst,
                                     uint64_t refill_ms)
{
    const struct rate_limit_config c = {
        .bandwidth = {size, burst, refill_ms},
    };
    struct rate_limit r;

    rate_limit_set(&r, &c, START);
    return r;
}

/* Takes requests of `bytes` one after the other; the time of the last one. */
static uint64_t run_requests(struct rate_limit *r, unsigned n, uint64_t bytes)
{
    uint64_t now = START;

    for (unsigned i = 0; i < n; i++) {
        uint64_t again = rate_limit_take(r, bytes, now);

        if (again == 0)
            continue;
        assert_true(again > now);
        now = again;
        assert_true(rate_limit_take(r, bytes, now) == 0);
    }
    return now - START;
}

static void test_zeroed_limits_nothing(void **state)
{
    const struct rate_limit_config none = {0};
    struct rate_limit r = {0};

    (void)state;
    assert_true(rate_limit_take(&r, UINT64_MAX, 1) == 0);
    rate_limit_set(&r, &none, START);
    for (int i = 0; i < 1000; i++)
        assert_true(rate_limit_take(&r, UINT64_MAX, START) == 0);
}

static void test_bytes_come_at_the_set_rate(void **state)
{
    struct rate_limit r = limit_bytes(4096, 0, 1000);
    uint64_t took;

    (void)state;
    /* The bucket starts full: 8 requests at once, then 8 a second. */
    took = run_requests(&r, 8 + 80, 512);
    assert_in_range(took, 10 * SECOND - MS, 10 * SECOND + MS);
}

static void test_operations_are_counted_apart(void **state)
{
    const struct rate_limit_config c = {.ops = {10, 0, 100}};
    struct rate_limit r;
    uint64_t took;

    (void)state;
    rate_limit_set(&r, &c, START);
    took = run_requests(&r, 10 + 100, 1 << 20);
    assert_in_range(took, SECOND - MS, SECOND + MS);
}

static void test_stricter_bucket_decides(void **state)
{
    const struct rate_limit_config c = {.bandwidth = {1 << 20, 0, 1000},
                                        .ops = {1, 0, 1000}};
    struct rate_limit r;

    (void)state;
    rate_limit_set(&r, &c, START);
    assert_true(rate_limit_take(&r, 10, START) == 0);
    assert_in_range(rate_limit_take(&r, 10, START), START + SECOND,
                    START + SECOND + MS);
}

static void test_burst_comes_once(void **state)
{
    struct rate_limit r = limit_bytes(1000, 5000, 1000);
    uint64_t took;

    (void)state;
    took = run_requests(&r, 6 + 4, 1000); /* 5000 burst, 1000 full bucket */
    assert_in_range(took, 4 * SECOND - MS, 4 * SECOND + MS);
}

static void test_BL_036_request_above_the_bucket_passes(void **state)
{
    struct rate_limit r = limit_bytes(4096, 0, 1000);
    uint64_t again;

    (void)state;
    assert_true(rate_limit_take(&r, 1 << 20, START) == 0);
    /* It left a debt: the next one waits until that is paid. */
    again = rate_limit_take(&r, 4096, START);
    assert_in_range(again, START + 256 * SECOND - MS,
                    START + 256 * SECOND + MS);
    assert_true(rate_limit_take(&r, 4096, again) == 0);
}

static void test_refused_request_takes_nothing(void **state)
{
    struct rate_limit r = limit_bytes(1000, 0, 1000);
    uint64_t again;

    (void)state;
    assert_true(rate_limit_take(&r, 1000, START) == 0);
    again = rate_limit_take(&r, 1000, START);
    for (int i = 0; i < 10; i++)
        assert_true(rate_limit_take(&r, 1000, START) == again);
    assert_true(rate_limit_take(&r, 1000, again) == 0);
}

static void test_slow_refill_loses_no_time(void **state)
{
    struct rate_limit r = limit_bytes(10, 0, 1000);

    (void)state;
    assert_true(rate_limit_take(&r, 10, START) == 0);
    /* Asked every millisecond, a token still comes every 100. */
    for (unsigned ms = 1; ms < 1000; ms++)
        assert_true(rate_limit_take(&r, 10, START + ms * MS) != 0);
    assert_true(rate_limit_take(&r, 10, START + SECOND + 1) == 0);
}

static void test_clock_that_stands_still_or_steps_back(void **state)
{
    struct rate_limit r = limit_bytes(10, 0, 1000);

    (void)state;
    assert_true(rate_limit_take(&r, 10, START) == 0);
    assert_true(rate_limit_take(&r, 10, START - SECOND) > START);
    assert_true(rate_limit_take(&r, 10, START) > START);
}

static void test_extreme_values_end_in_no_overflow(void **state)
{
    static const uint64_t v[] = {1, 2, 1000, UINT32_MAX, INT64_MAX, UINT64_MAX};
    struct rate_limit r;

    (void)state;
    for (size_t s = 0; s < ARRAY_SIZE(v); s++) {
        for (size_t t = 0; t < ARRAY_SIZE(v); t++) {
            for (size_t n = 0; n < ARRAY_SIZE(v); n++) {
                r = limit_bytes(v[s], v[n], v[t]);
                for (uint64_t now = START; now < START + 3; now++) {
                    uint64_t again = rate_limit_take(&r, v[n], now);

                    assert_true(again == 0 || again > now);
                }
                assert_true(rate_limit_take(&r, 1, UINT64_MAX - 1) != 1);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeroed_limits_nothing),
        cmocka_unit_test(test_bytes_come_at_the_set_rate),
        cmocka_unit_test(test_operations_are_counted_apart),
        cmocka_unit_test(test_stricter_bucket_decides),
        cmocka_unit_test(test_burst_comes_once),
        cmocka_unit_test(test_BL_036_request_above_the_bucket_passes),
        cmocka_unit_test(test_refused_request_takes_nothing),
        cmocka_unit_test(test_slow_refill_loses_no_time),
        cmocka_unit_test(test_clock_that_stands_still_or_steps_back),
        cmocka_unit_test(test_extreme_values_end_in_no_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
