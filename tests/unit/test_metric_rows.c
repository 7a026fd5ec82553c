/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/metric_rows.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

struct counts {
    uint64_t a;
    uint64_t b;
    struct span span;
    struct histogram histogram;
};

static const struct metric_row rows[] = {
    METRIC_ROW("b", struct counts, b),
    METRIC_ROW("a", struct counts, a),
    {"span", offsetof(struct counts, span), METRIC_SPAN},
    {"h", offsetof(struct counts, histogram), METRIC_HISTOGRAM},
};

static json_int_t number(json_t *o, const char *group, const char *key)
{
    const json_t *v = json_object_get(json_object_get(o, group), key);

    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

static json_int_t bucket(json_t *line, size_t i)
{
    const json_t *h = json_object_get(json_object_get(line, "g"), "h");

    assert_int_equal(json_array_size(h), HISTOGRAM_BUCKETS);
    return json_integer_value(json_array_get(h, i));
}

static void add(json_t *line, const struct counts *now,
                const struct counts *told)
{
    metric_rows_add(metric_group(line, "g"), rows, ARRAY_SIZE(rows), now, told);
}

static void test_counter_histogram_buckets_are_powers_of_two(void **state)
{
    struct histogram h = {{0}};

    (void)state;
    histogram_add(&h, 0);
    histogram_add(&h, 999);
    histogram_add(&h, 1000);
    histogram_add(&h, 1999);
    histogram_add(&h, 2000);
    histogram_add(&h, 3999);
    histogram_add(&h, 1024000);
    histogram_add(&h, UINT64_MAX);
    assert_int_equal(h.n[0], 2);
    assert_int_equal(h.n[1], 2);
    assert_int_equal(h.n[2], 2);
    assert_int_equal(h.n[11], 1); /* 1024 us */
    assert_int_equal(h.n[HISTOGRAM_BUCKETS - 1], 1);
}

static void test_counter_span_knows_least_and_most(void **state)
{
    struct span s = {0};

    (void)state;
    span_add(&s, 5000);
    span_add(&s, 2000);
    span_add(&s, 9000);
    assert_int_equal(s.min_ns, 2000);
    assert_int_equal(s.max_ns, 9000);
    assert_int_equal(s.sum_ns, 16000);
}

static void test_metric_rows_say_the_increase(void **state)
{
    struct counts told = {.a = 5, .b = 7};
    struct counts now = {.a = 6, .b = 70};
    json_t *line = json_object();

    (void)state;
    span_add(&told.span, 2500);
    now.span = told.span;
    span_add(&now.span, 8600);
    histogram_add(&told.histogram, 3000);
    now.histogram = told.histogram;
    histogram_add(&now.histogram, 3000);
    add(line, &now, &told);
    assert_int_equal(number(line, "g", "a"), 1);
    assert_int_equal(number(line, "g", "b"), 63);
    assert_int_equal(bucket(line, 2), 1);
    {
        json_t *g = json_object_get(line, "g");

        assert_int_equal(number(g, "span", "min_us"), 2);
        assert_int_equal(number(g, "span", "max_us"), 8);
        assert_int_equal(number(g, "span", "sum_us"), 9); /* 11.1 less 2.5 */
    }
    json_decref(line);
}

/* Parts of a microsecond are told once they make a whole one. */
static void test_metric_span_loses_no_part_of_a_microsecond(void **state)
{
    struct counts told = {0};
    json_int_t sum = 0;

    (void)state;
    for (int i = 0; i < 10; i++) {
        struct counts now = told;
        json_t *line = json_object();

        span_add(&now.span, 300);
        add(line, &now, &told);
        sum += number(json_object_get(line, "g"), "span", "sum_us");
        told = now;
        json_decref(line);
    }
    assert_int_equal(sum, 3);
}

static void test_metric_rows_of_several_devices_add_up(void **state)
{
    struct counts one = {.a = 1};
    struct counts two = {.a = 20};
    struct counts idle = {0};
    const struct counts none = {0};
    json_t *line = json_object();
    json_t *g;

    (void)state;
    span_add(&one.span, 7000);
    span_add(&two.span, 3000);
    span_add(&two.span, 4000);
    histogram_add(&one.histogram, 0);
    histogram_add(&two.histogram, 0);
    add(line, NULL, NULL); /* the keys, before there is anything */
    assert_int_equal(number(line, "g", "a"), 0);
    assert_int_equal(bucket(line, 0), 0);
    add(line, &one, &none);
    add(line, &two, &none);
    add(line, &idle, &none); /* has no least time */
    g = json_object_get(line, "g");
    assert_int_equal(number(line, "g", "a"), 21);
    assert_int_equal(number(g, "span", "min_us"), 3);
    assert_int_equal(number(g, "span", "max_us"), 7);
    assert_int_equal(number(g, "span", "sum_us"), 14);
    assert_int_equal(bucket(line, 0), 2);
    json_decref(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counter_histogram_buckets_are_powers_of_two),
        cmocka_unit_test(test_counter_span_knows_least_and_most),
        cmocka_unit_test(test_metric_rows_say_the_increase),
        cmocka_unit_test(test_metric_span_loses_no_part_of_a_microsecond),
        cmocka_unit_test(test_metric_rows_of_several_devices_add_up),
    };

    return cmocka_run_group_tests_name("metric_rows", tests, NULL, NULL);
}
