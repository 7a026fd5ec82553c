/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/bench_svg.h"
#include "tools/mote/bench_table.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void test_quantile_is_a_value_that_came(void **state)
{
    double v[] = {5, 1, 4, 2, 3};

    (void)state;
    bench_sort(v, 5);
    assert_true(bench_quantile(v, 5, 0.5) == 3);
    assert_true(bench_quantile(v, 5, 0.95) == 5);
    assert_true(bench_quantile(v, 4, 0.5) == 2); /* half are not above it */
    assert_true(bench_quantile(v, 5, 0) == 1);
    assert_true(bench_quantile(v, 5, 1) == 5);
    assert_true(bench_quantile(v, 1, 0.95) == 1);
}

static void test_rows_json_leaves_out_what_has_no_values(void **state)
{
    struct bench_row rows[2] = {{.key = "a_ms", .label = "a", .unit = "ms"},
                                {.key = "b_ms", .label = "b", .unit = "ms"}};
    json_t *doc;
    json_t *b;

    (void)state;
    assert_int_equal(bench_row_add(&rows[1], 7), 0);
    assert_int_equal(bench_row_add(&rows[1], 3), 0);
    doc = bench_rows_json(rows, 2);
    assert_null(json_object_get(doc, "a_ms"));
    b = json_object_get(doc, "b_ms");
    assert_int_equal(json_integer_value(json_object_get(b, "n")), 2);
    assert_true(json_real_value(json_object_get(b, "p50")) == 3);
    assert_true(json_real_value(json_object_get(b, "max")) == 7);
    json_decref(doc);
    bench_row_fini(&rows[1]);
    bench_row_fini(&rows[1]);
}

static char *draw(const struct svg_chart *c)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    assert_non_null(f);
    svg_write(f, c);
    assert_int_equal(fclose(f), 0);
    return text;
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;

    for (const char *p = text; (p = strstr(p, word)); p++)
        n++;
    return n;
}

static void test_svg_stacks_parts_and_names_them(void **state)
{
    static const char *const parts[] = {"first", "second", "third"};
    const struct svg_bar bars[] = {{"mote", {10, -1, 30}},
                                   {"qemu", {40, 0, 40}}};
    const struct svg_chart c = {.title = "T",
                                .note = "N",
                                .unit = "ms",
                                .parts = parts,
                                .part_count = 3,
                                .bars = bars,
                                .bar_count = 2};
    char *text = draw(&c);

    (void)state;
    assert_int_equal(strncmp(text, "<svg xmlns=", 11), 0);
    assert_non_null(strstr(text, "</svg>\n"));
    /* the longest bar fills the width, the other a half of it */
    assert_non_null(strstr(text, "x=\"120.0\" y=\"56.0\" width=\"80.0\""));
    assert_non_null(strstr(text, "x=\"200.0\" y=\"56.0\" width=\"240.0\""));
    assert_non_null(strstr(text, "x=\"440.0\" y=\"104.0\" width=\"320.0\""));
    assert_non_null(strstr(text, ">40 ms</text>"));
    assert_non_null(strstr(text, ">80 ms</text>"));
    /* four parts that are there, each with its name; a legend of two */
    assert_int_equal(count(text, "<title>"), 4);
    assert_int_equal(count(text, "width=\"14\""), 2);
    assert_null(strstr(text, "second"));
    assert_null(strstr(text, "href")); /* it needs no other file */
    free(text);
}

static void test_svg_text_cannot_become_markup(void **state)
{
    static const char *const parts[] = {"<b>&"};
    const struct svg_bar bars[] = {{"<script>\n", {1}}};
    const struct svg_chart c = {.title = "a<b",
                                .note = "\x01",
                                .unit = "\"ms\">",
                                .parts = parts,
                                .part_count = 1,
                                .bars = bars,
                                .bar_count = 1};
    char *text = draw(&c);

    (void)state;
    assert_null(strstr(text, "<script>"));
    assert_null(strstr(text, "<b>"));
    assert_null(strchr(text, '\x01'));
    assert_non_null(strstr(text, "&lt;b&gt;&amp;"));
    free(text);
}

static void test_svg_without_any_value_is_still_a_file(void **state)
{
    static const char *const parts[] = {"first"};
    const struct svg_bar bars[] = {{"mote", {-1}}};
    const struct svg_chart c = {.title = "",
                                .note = "",
                                .unit = "ms",
                                .parts = parts,
                                .part_count = 1,
                                .bars = bars,
                                .bar_count = 1};
    char *text = draw(&c);

    (void)state;
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    assert_non_null(strstr(text, "</svg>"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantile_is_a_value_that_came),
        cmocka_unit_test(test_rows_json_leaves_out_what_has_no_values),
        cmocka_unit_test(test_svg_stacks_parts_and_names_them),
        cmocka_unit_test(test_svg_text_cannot_become_markup),
        cmocka_unit_test(test_svg_without_any_value_is_still_a_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
