/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/args.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static const struct args_row rows[] = {
    {"file", "FILE", "a file"},
    {"file-name", "NAME", "a longer name of the same beginning"},
    {"quiet", NULL, "a switch"},
};

static struct args_row row(size_t i)
{
    return i < ARRAY_SIZE(rows) ? rows[i] : (struct args_row){NULL, NULL, NULL};
}

static const struct args_table table = {
    .row = row, .hint = "see the manual", .help_column = 18};

/* One step over two words, of which the second may be NULL. */
static int step(const char *first, const char *second, int *at,
                struct args_found *out, struct errmsg *err)
{
    char words[2][64];
    char *argv[] = {words[0], second ? words[1] : NULL, NULL};
    static char value[64];
    int rc;

    (void)snprintf(words[0], sizeof(words[0]), "%s", first);
    (void)snprintf(words[1], sizeof(words[1]), "%s", second ? second : "");
    *at = 0;
    err->text[0] = '\0';
    rc = args_next(&table, argv, at, out, err);
    if (rc == 0 && out->value) {
        (void)snprintf(value, sizeof(value), "%s", out->value);
        out->value = value;
    }
    return rc;
}

static void test_args_value_in_the_next_word_or_after_the_sign(void **state)
{
    struct args_found f;
    struct errmsg err;
    int at;

    (void)state;
    assert_int_equal(step("--file", "x", &at, &f, &err), 0);
    assert_int_equal(at, 2);
    assert_int_equal(f.index, 0);
    assert_string_equal(f.value, "x");
    assert_int_equal(step("--file-name=a=b", "x", &at, &f, &err), 0);
    assert_int_equal(at, 1);
    assert_int_equal(f.index, 1);
    assert_string_equal(f.value, "a=b");
    /* A value may look like an option. */
    assert_int_equal(step("--file", "--quiet", &at, &f, &err), 0);
    assert_string_equal(f.value, "--quiet");
    assert_int_equal(at, 2);
}

static void test_args_switch_takes_one_word_and_no_value(void **state)
{
    struct args_found f;
    struct errmsg err;
    int at;

    (void)state;
    assert_int_equal(step("--quiet", "x", &at, &f, &err), 0);
    assert_int_equal(at, 1);
    assert_int_equal(f.index, 2);
    assert_null(f.value);
    assert_int_equal(step("--quiet=1", NULL, &at, &f, &err), -EINVAL);
    assert_string_equal(err.text, "--quiet: takes no value");
}

static void test_args_missing_or_empty_value_is_refused(void **state)
{
    struct args_found f;
    struct errmsg err;
    int at;

    (void)state;
    assert_int_equal(step("--file", NULL, &at, &f, &err), -EINVAL);
    assert_string_equal(err.text, "--file: needs a value (FILE)");
    assert_int_equal(step("--file=", "x", &at, &f, &err), -EINVAL);
    assert_int_equal(step("--file", "", &at, &f, &err), -EINVAL);
    assert_int_equal(at, 0); /* nothing was taken */
}

static void test_args_unknown_words_are_refused_by_name(void **state)
{
    static const char *const bad[] = {"--fil", "--files",  "-file", "file",
                                      "--",    "--=value", "",      "--quie=1"};
    struct args_found f;
    struct errmsg err;
    char want[96];
    int at;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(step(bad[i], "x", &at, &f, &err), -EINVAL);
        (void)snprintf(want, sizeof(want),
                       "%s: unknown argument; see the manual", bad[i]);
        assert_string_equal(err.text, want);
    }
}

static void test_args_rows_are_printed_in_columns(void **state)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    (void)state;
    assert_non_null(out);
    args_print_rows(&table, out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(
        text, "  --file FILE        a file\n"
              "  --file-name NAME   a longer name of the same beginning\n"
              "  --quiet            a switch\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_args_value_in_the_next_word_or_after_the_sign),
        cmocka_unit_test(test_args_switch_takes_one_word_and_no_value),
        cmocka_unit_test(test_args_missing_or_empty_value_is_refused),
        cmocka_unit_test(test_args_unknown_words_are_refused_by_name),
        cmocka_unit_test(test_args_rows_are_printed_in_columns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
