/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/cmdline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct boot_mmio_dev two_devs[] = {
    {.base = 0xd0000000, .size_bytes = 4096, .gsi = 5},
    {.base = 0xd0001000, .size_bytes = 4096, .gsi = 12},
};
static const struct boot_machine two_dev_machine = {
    .ncpus = 1, .devs = two_devs, .ndevs = 2};

static void expect_built(const char *own, const struct boot_machine *words,
                         const char *user, const char *want)
{
    char out[LAYOUT_CMDLINE_MAX];

    assert_int_equal(cmdline_build(own, words, user, out, NULL), 0);
    assert_string_equal(out, want);
}

static void test_cmdline_ours_come_first(void **state)
{
    (void)state;
    expect_built(NULL, NULL, NULL, "");
    expect_built("", NULL, "", "");
    expect_built("a=1 b", NULL, NULL, "a=1 b");
    expect_built(NULL, NULL, "quiet", "quiet");
    expect_built("a=1", NULL, "quiet", "a=1 quiet");
}

/* BL-004: init gets exactly the words behind the user's double dash. */
static void test_cmdline_nothing_lands_behind_a_double_dash(void **state)
{
    (void)state;
    expect_built("root=/dev/vda", NULL,
                 "console=ttyS0 init=/bin/sh -- -c 'echo  OK'",
                 "root=/dev/vda console=ttyS0 init=/bin/sh -- -c 'echo  OK'");
    expect_built("a", &two_dev_machine, "-- x",
                 "a virtio_mmio.device=4096@0xd0000000:5 "
                 "virtio_mmio.device=4096@0xd0001000:12 -- x");
}

static void test_cmdline_device_words(void **state)
{
    struct boot_machine none = {.ncpus = 1};

    (void)state;
    expect_built(NULL, &none, "x", "x");
    expect_built(NULL, &two_dev_machine, NULL,
                 "virtio_mmio.device=4096@0xd0000000:5 "
                 "virtio_mmio.device=4096@0xd0001000:12");
}

/* BL-005: the longest line passes whole, one byte more is refused. */
static void test_cmdline_limit_is_exact_and_nothing_is_cut(void **state)
{
    char user[LAYOUT_CMDLINE_MAX + 1];
    char out[LAYOUT_CMDLINE_MAX] = "untouched";
    struct errmsg err = {{0}};

    (void)state;
    memset(user, 'u', sizeof(user));
    user[LAYOUT_CMDLINE_MAX - 1 - 4] = '\0';
    assert_int_equal(cmdline_build("own", NULL, user, out, &err), 0);
    assert_int_equal(strlen(out), LAYOUT_CMDLINE_MAX - 1);
    assert_string_equal(out + 4, user);

    strcpy(out, "untouched");
    assert_int_equal(cmdline_build("own4", NULL, user, out, &err), -E2BIG);
    assert_string_equal(out, "untouched");
    assert_string_equal(err.text, "kernel command line: 2048 bytes, of which "
                                  "4 are the monitor's; the kernel takes at "
                                  "most 2047: shorten it by 1");
}

static void test_cmdline_user_check_alone(void **state)
{
    char user[5001];
    struct errmsg err = {{0}};

    (void)state;
    memset(user, 'u', sizeof(user));
    user[5000] = '\0';
    assert_int_equal(cmdline_check_user(user, &err), -E2BIG);
    assert_non_null(strstr(err.text, "at most 2047"));
    user[2047] = '\0';
    assert_int_equal(cmdline_check_user(user, &err), 0);
    user[2047] = 'u';
    user[2048] = '\0';
    assert_int_equal(cmdline_check_user(user, &err), -E2BIG);
    assert_int_equal(cmdline_check_user(NULL, &err), 0);
    assert_int_equal(cmdline_check_user("caf\xc3\xa9 ok", &err), 0);
}

static void test_cmdline_control_characters_are_refused(void **state)
{
    char out[LAYOUT_CMDLINE_MAX];
    struct errmsg err = {{0}};

    (void)state;
    assert_int_equal(cmdline_check_user("quiet\n", &err), -EINVAL);
    assert_string_equal(err.text,
                        "kernel command line: control character 0x0a (line "
                        "feed) at offset 5; remove it, words are separated by "
                        "blanks");
    assert_int_equal(cmdline_check_user("a\tb", &err), -EINVAL);
    assert_int_equal(cmdline_check_user("\x7f", &err), -EINVAL);
    assert_int_equal(cmdline_build(NULL, NULL, "a\x01", out, &err), -EINVAL);
    assert_int_equal(cmdline_build("a\x1b", NULL, "", out, &err), -EINVAL);
    assert_non_null(strstr(err.text, "the monitor's"));
}

static void test_cmdline_own_words_may_not_end_the_kernels(void **state)
{
    char out[LAYOUT_CMDLINE_MAX];

    (void)state;
    assert_int_equal(cmdline_build("a -- b", NULL, "", out, NULL), -EINVAL);
    assert_int_equal(cmdline_build("--", NULL, "", out, NULL), -EINVAL);
    assert_int_equal(cmdline_build("a --", NULL, "", out, NULL), -EINVAL);
    assert_int_equal(cmdline_build("a--b --c=d", NULL, "", out, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cmdline_ours_come_first),
        cmocka_unit_test(test_cmdline_nothing_lands_behind_a_double_dash),
        cmocka_unit_test(test_cmdline_device_words),
        cmocka_unit_test(test_cmdline_limit_is_exact_and_nothing_is_cut),
        cmocka_unit_test(test_cmdline_user_check_alone),
        cmocka_unit_test(test_cmdline_control_characters_are_refused),
        cmocka_unit_test(test_cmdline_own_words_may_not_end_the_kernels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
