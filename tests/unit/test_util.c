/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/util.h"

#include "vmm/cleanup.h"
#include "vmm/errmsg.h"
#include "vmm/stop.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static void test_parse_u64_takes_whole_numbers_in_range(void **state)
{
    uint64_t v = 7;

    (void)state;
    assert_int_equal(util_parse_u64("0", 0, 10, &v), 0);
    assert_int_equal(v, 0);
    assert_int_equal(util_parse_u64("18446744073709551615", 0, UINT64_MAX, &v),
                     0);
    assert_true(v == UINT64_MAX);
}

static void test_parse_u64_refuses_everything_else(void **state)
{
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "0x10", "1a"};
    uint64_t v = 7;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(util_parse_u64(bad[i], 0, 100, &v), -EINVAL);
    assert_int_equal(util_parse_u64("101", 0, 100, &v), -ERANGE);
    assert_int_equal(util_parse_u64("0", 1, 100, &v), -ERANGE);
    assert_int_equal(util_parse_u64("18446744073709551616", 0, 100, &v),
                     -ERANGE);
    assert_int_equal(v, 7); /* written on success only */
}

static void test_parse_size_suffixes(void **state)
{
    static const struct {
        const char *text;
        uint64_t want;
    } good[] = {{"512", 512 * MIB}, {"512M", 512 * MIB}, {"1g", GIB},
                {"1GiB", GIB},      {"4KB", 4096},       {"0", 0}};
    static const char *const bad[] = {"", "M", "1X", "1GiBs", "1.5G", "-1M"};
    uint64_t v = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        assert_int_equal(util_parse_size(good[i].text, MIB, &v), 0);
        assert_true(v == good[i].want);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(util_parse_size(bad[i], MIB, &v), -EINVAL);
    assert_int_equal(util_parse_size("99999999999T", 1, &v), -ERANGE);
}

static void test_parse_duration_units_and_fractions(void **state)
{
    static const struct {
        const char *text;
        uint64_t want;
    } good[] = {{"10", 10000},   {"10s", 10000}, {"250ms", 250}, {"2m", 120000},
                {"1h", 3600000}, {"1.5s", 1500}, {"0.25", 250}};
    static const char *const bad[] = {"", "s", "1x", "1.s", ".5", "-1s", "1 s"};
    uint64_t v = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        assert_int_equal(util_parse_duration_ms(good[i].text, &v), 0);
        assert_true(v == good[i].want);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(util_parse_duration_ms(bad[i], &v), -EINVAL);
    assert_int_equal(util_parse_duration_ms("99999999999999999h", &v), -ERANGE);
}

static void test_pread_full_tells_an_early_end(void **state)
{
    CLEANUP_FD int fd = memfd_create("t", 0);
    char buf[8];

    (void)state;
    assert_int_equal(util_write_full(fd, "abcdef", 6), 0);
    assert_int_equal(util_pread_full(fd, buf, 6, 0), 0);
    assert_memory_equal(buf, "abcdef", 6);
    assert_int_equal(util_pread_full(fd, buf, 6, 1), -ENODATA);
}

static void test_open_takes_inherited_descriptors_by_number(void **state)
{
    int fd = memfd_create("t", MFD_CLOEXEC);
    char path[64];
    char buf[4];
    int again;

    (void)state;
    assert_int_equal(util_write_full(fd, "abc", 3), 0);
    (void)snprintf(path, sizeof(path), "/dev/fd/%d/images/root.img", fd);
    again = util_open(path, O_RDWR | O_NONBLOCK);
    assert_true(again >= 0 && again != fd);
    assert_int_equal(util_pread_full(again, buf, 3, 0), 0);
    assert_memory_equal(buf, "abc", 3);
    assert_int_equal(fcntl(again, F_GETFD), FD_CLOEXEC);
    assert_true(fcntl(again, F_GETFL) & O_NONBLOCK);
    drop_fd(&again);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    path[strcspn(path, "i")] = '\0'; /* /dev/fd/N/ */
    again = util_open(path, O_RDONLY);
    assert_true(again >= 0);
    assert_false(fcntl(again, F_GETFL) & O_NONBLOCK);
    drop_fd(&again);
    drop_fd(&fd);
    assert_int_equal(util_open(path, O_RDONLY), -EBADF);
}

static void test_open_refuses_what_a_descriptor_is_not_open_for(void **state)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int at = open("/dev/null", O_PATH | O_CLOEXEC);
    char path[64];

    (void)state;
    (void)snprintf(path, sizeof(path), "/dev/fd/%d", fd);
    assert_int_equal(util_open(path, O_RDWR), -EACCES);
    assert_int_equal(util_open(path, O_WRONLY), -EACCES);
    (void)snprintf(path, sizeof(path), "/dev/fd/%d", at);
    assert_int_equal(util_open(path, O_RDONLY), -EACCES);
    drop_fd(&fd);
    drop_fd(&at);
}

static void test_open_of_other_paths_is_open(void **state)
{
    static const char *const none[] = {"/dev/fd/x", "/dev/fd/-1",
                                       "/dev/fd/",  "/dev/fd/99999999999",
                                       "/none",     "/dev/fd/3x"};
    int fd = util_open("/dev/null", O_RDONLY);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    drop_fd(&fd);
    for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
        fd = util_open(none[i], O_RDWR); /* /dev/fd itself is a directory */
        assert_true(fd == -ENOENT || fd == -EISDIR || fd == -ENOTDIR);
    }
}

static void test_take_fd_and_drop_fd_leave_minus_one(void **state)
{
    int fd = memfd_create("t", 0);
    int taken;

    (void)state;
    taken = take_fd(&fd);
    assert_int_equal(fd, -1);
    assert_true(fcntl(taken, F_GETFD) >= 0);
    drop_fd(&taken);
    assert_int_equal(taken, -1);
    drop_fd(&taken); /* idempotent */
}

static void test_err_set_returns_its_code_and_cuts_long_text(void **state)
{
    struct errmsg err = {""};
    char big[2000];

    (void)state;
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    assert_int_equal(err_set(&err, -EINVAL, "%s", big), -EINVAL);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    assert_int_equal(err_set(NULL, -EIO, "x"), -EIO);
    assert_string_equal(err_reason(-ENOENT), "No such file or directory");
}

static void test_stop_reason_names(void **state)
{
    (void)state;
    assert_string_equal(stop_reason_name(STOP_TRIPLE_FAULT), "triple_fault");
    assert_string_equal(stop_reason_name(STOP_INTERNAL), "internal");
    assert_string_equal(stop_reason_name((enum stop_reason)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_u64_takes_whole_numbers_in_range),
        cmocka_unit_test(test_parse_u64_refuses_everything_else),
        cmocka_unit_test(test_parse_size_suffixes),
        cmocka_unit_test(test_parse_duration_units_and_fractions),
        cmocka_unit_test(test_pread_full_tells_an_early_end),
        cmocka_unit_test(test_open_takes_inherited_descriptors_by_number),
        cmocka_unit_test(test_open_refuses_what_a_descriptor_is_not_open_for),
        cmocka_unit_test(test_open_of_other_paths_is_open),
        cmocka_unit_test(test_take_fd_and_drop_fd_leave_minus_one),
        cmocka_unit_test(test_err_set_returns_its_code_and_cuts_long_text),
        cmocka_unit_test(test_stop_reason_names),
    };

    return cmocka_run_group_tests_name("util", tests, NULL, NULL);
}
