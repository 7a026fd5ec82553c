/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/options.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

#define WORDS(...)                                                             \
    (char *[])                                                                 \
    {                                                                          \
        (char *)"mote-vmm", (char *)"--config-file", (char *)"c", __VA_ARGS__, \
            NULL                                                               \
    }

static int parse(char **argv, struct vmm_options *o, struct errmsg *err)
{
    int argc = 0;

    while (argv[argc])
        argc++;
    return options_parse(argc, argv, o, err);
}

static void test_options_counts_go_to_the_exit_file(void **state)
{
    char exits[] = "--count-exits";
    char hz[] = "--profile-hz";
    char file[] = "--exit-file";
    char n[] = "250";
    char e[] = "e";
    struct errmsg err = {""};
    struct vmm_options o;

    (void)state;
    assert_int_equal(parse(WORDS(exits, hz, n, file, e), &o, &err), 0);
    assert_true(o.count_exits);
    assert_int_equal(o.profile_hz, 250);
    assert_int_equal(parse(WORDS(exits), &o, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--exit-file"));
    assert_int_equal(parse(WORDS(hz, n), &o, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--exit-file"));
}

static void test_options_profile_rate_is_bounded(void **state)
{
    char hz[] = "--profile-hz";
    char zero[] = "0";
    char many[] = "10001";
    char word[] = "fast";
    char *bad[] = {zero, many, word};
    struct errmsg err;
    struct vmm_options o;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        err.text[0] = '\0';
        assert_int_equal(parse(WORDS(hz, bad[i]), &o, &err), -EINVAL);
        assert_non_null(strstr(err.text, "--profile-hz"));
    }
}

/* Firecracker's clients may pass them: they hear why not, by name. */
static void test_options_that_cannot_be_honoured_say_why(void **state)
{
    char filter[] = "--seccomp-filter";
    char file[] = "f.bpf";
    char pci[] = "--enable-pci";
    struct errmsg err = {""};
    struct vmm_options o;

    (void)state;
    assert_int_equal(parse(WORDS(filter, file), &o, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--seccomp-filter: f.bpf"));
    assert_int_equal(parse(WORDS(pci), &o, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--enable-pci: not supported"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_counts_go_to_the_exit_file),
        cmocka_unit_test(test_options_profile_rate_is_bounded),
        cmocka_unit_test(test_options_that_cannot_be_honoured_say_why),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
