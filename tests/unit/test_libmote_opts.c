/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/opts.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

struct values {
    bool flag;
    bool other;
    const char *text;
    uint64_t number;
    uint64_t size;
    uint64_t time_ms;
    struct opt_list list;
};

static const struct opt_def defs[] = {
    {"flag", 'f', OPT_FLAG, offsetof(struct values, flag), NULL, "a flag", NULL,
     0, 0},
    {"other", 'o', OPT_FLAG, offsetof(struct values, other), NULL, "another",
     NULL, 0, 0},
    {"text", 't', OPT_TEXT, offsetof(struct values, text), "TEXT", "words",
     "none", 0, 0},
    {"number", 'n', OPT_NUMBER, offsetof(struct values, number), "N", "count",
     "1", 1, 32},
    {"size", 0, OPT_SIZE, offsetof(struct values, size), "SIZE", "memory",
     "512M", 32 * MIB, 4096 * MIB},
    {"time", 0, OPT_DURATION, offsetof(struct values, time_ms), "TIME", "limit",
     NULL, 0, 0},
    {"item", 'i', OPT_LIST, offsetof(struct values, list), "ITEM", "items",
     NULL, 0, 0},
};

static const struct opt_table table = {.usage = "test [options] ARG...",
                                       .summary = "for the test",
                                       .defs = defs,
                                       .count = ARRAY_SIZE(defs),
                                       .notes = "The end.\n"};

/* Splits `line` at blanks into argv of a command and parses that. */
static int parse(const char *line, struct values *v, const char **out_rest,
                 struct mote_err *err)
{
    static char copy[256];
    char *argv[32] = {(char[]){"test"}};
    char *save = NULL;
    int argc = 1;
    int first = 0;
    int rc;

    assert_true(strlen(line) < sizeof(copy));
    (void)strcpy(copy, line);
    for (char *w = strtok_r(copy, " ", &save); w;
         w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    rc = opts_parse(&table, argc, argv, v, &first, err);
    if (out_rest)
        *out_rest = rc == 0 && first < argc ? argv[first] : NULL;
    return rc;
}

static void test_opts_every_form(void **state)
{
    struct values v = {0};
    const char *rest = NULL;

    (void)state;
    assert_int_equal(parse("--flag --text=a=b --number 7 --size 1G "
                           "--time=1.5s -i x --item=y -iz w --flag",
                           &v, &rest, NULL),
                     0);
    assert_true(v.flag);
    assert_false(v.other);
    assert_string_equal(v.text, "a=b");
    assert_int_equal(v.number, 7);
    assert_int_equal(v.size, GIB);
    assert_int_equal(v.time_ms, 1500);
    assert_int_equal(v.list.count, 3);
    assert_string_equal(v.list.items[0], "x");
    assert_string_equal(v.list.items[2], "z");
    assert_null(v.list.items[3]);
    assert_string_equal(rest, "w");
    opts_free(&table, &v);
    assert_null(v.list.items);
}

static void test_opts_letters_together(void **state)
{
    struct values v = {0};

    (void)state;
    assert_int_equal(parse("-fon9", &v, NULL, NULL), 0);
    assert_true(v.flag && v.other);
    assert_int_equal(v.number, 9);
    assert_int_equal(parse("-ft word", &v, NULL, NULL), 0);
    assert_string_equal(v.text, "word");
}

static void test_opts_end_at_dashes_and_operands(void **state)
{
    struct values v = {0};
    const char *rest = NULL;

    (void)state;
    assert_int_equal(parse("-- --flag", &v, &rest, NULL), 0);
    assert_false(v.flag);
    assert_string_equal(rest, "--flag");
    assert_int_equal(parse("cmd --flag", &v, &rest, NULL), 0);
    assert_false(v.flag);
    assert_string_equal(rest, "cmd");
    assert_int_equal(parse("- --flag", &v, &rest, NULL), 0);
    assert_string_equal(rest, "-");
    assert_int_equal(parse("", &v, &rest, NULL), 0);
    assert_null(rest);
}

static void test_opts_plain_numbers_have_a_unit(void **state)
{
    struct values v = {0};

    (void)state;
    assert_int_equal(parse("--size 256 --time 10", &v, NULL, NULL), 0);
    assert_int_equal(v.size, 256 * MIB);
    assert_int_equal(v.time_ms, 10000);
}

static void test_opts_help_wins_where_it_stands(void **state)
{
    struct values v = {0};

    (void)state;
    assert_int_equal(parse("--flag --help --bad", &v, NULL, NULL), 1);
    assert_int_equal(parse("-fh", &v, NULL, NULL), 1);
    assert_int_equal(parse("-- --help", &v, NULL, NULL), 0);
}

static void test_opts_refusals_name_option_and_remedy(void **state)
{
    static const struct {
        const char *line;
        const char *text;
    } cases[] = {
        {"--nope", "option --nope: unknown; `mote test --help` lists them"},
        {"-x", "option -x: unknown"},
        {"--fla", "option --fla: unknown"},
        {"--flags", "option --flags: unknown"},
        {"--text", "option --text: its value is missing; give TEXT"},
        {"-n", "option --number: its value is missing"},
        {"--flag=1", "option --flag: takes no value"},
        {"-n x", "option --number 'x': not a number"},
        {"-n -1", "option --number '-1': not a number"},
        {"-n 0", "option --number '0': out of range; use 1 to 32"},
        {"-n 99999999999999999999999", "out of range; use 1 to 32"},
        {"--size big", "option --size 'big': not a size"},
        {"--size 1M", "option --size '1M': out of range; use 32M to 4096M"},
        {"--time soon", "option --time 'soon': not a time"},
        {"--time=", "option --time '': not a time"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct values v = {0};
        struct mote_err err = {0};

        assert_int_equal(parse(cases[i].line, &v, NULL, &err), -EINVAL);
        if (!strstr(err.text, cases[i].text))
            fail_msg("%s: %s", cases[i].line, err.text);
        assert_null(strchr(err.text, '\n'));
    }
}

static void test_opts_help_has_each_option_and_default(void **state)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    (void)state;
    assert_non_null(f);
    opts_help(f, "mote", &table);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, "usage: mote test [options] ARG...\n"));
    for (size_t i = 0; i < ARRAY_SIZE(defs); i++)
        assert_non_null(strstr(text, defs[i].help));
    assert_non_null(strstr(text, "memory (default: 512M)\n"));
    assert_non_null(strstr(text, "-h, --help"));
    assert_non_null(strstr(text, "The end.\n"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opts_every_form),
        cmocka_unit_test(test_opts_letters_together),
        cmocka_unit_test(test_opts_end_at_dashes_and_operands),
        cmocka_unit_test(test_opts_plain_numbers_have_a_unit),
        cmocka_unit_test(test_opts_help_wins_where_it_stands),
        cmocka_unit_test(test_opts_refusals_name_option_and_remedy),
        cmocka_unit_test(test_opts_help_has_each_option_and_default),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
