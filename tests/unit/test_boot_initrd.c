/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/initrd.h"

#include "tests/harness/fake_kernel.h"
#include "vmm/cleanup.h"
#include "vmm/layout_x86.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KERNEL_END (17 * MIB + 5)

static void expect_refused(const char *path, const char *reason)
{
    struct errmsg err = {{0}};
    struct initrd rd;

    assert_true(initrd_open(path, &rd, &err) < 0);
    if (!strstr(err.text, reason) || strncmp(err.text, "initrd ", 7))
        fail_msg("\"%s\" lacks \"%s\"", err.text, reason);
}

static void test_initrd_bad_files_are_named(void **state)
{
    struct fake_buf empty = {NULL, 0};
    char path[64];
    int fd;

    (void)state;
    expect_refused("/nonexistent/initrd", "no such file");
    expect_refused("/tmp", "is a directory");
    expect_refused("/dev/zero", "is a character device");
    fd = fake_file(&empty, path);
    expect_refused(path, "is empty");
    drop_fd(&fd);
}

static void expect_placed(uint64_t size, gpa_t base)
{
    struct initrd rd = {.path = "I", .fd = -1, .size_bytes = size};

    assert_int_equal(initrd_place(&rd, KERNEL_END, 32 * MIB, NULL), 0);
    assert_int_equal(rd.base, base);
}

static void test_initrd_is_as_high_as_it_fits(void **state)
{
    (void)state;
    expect_placed(1, 32 * MIB - 4096);
    expect_placed(4096, 32 * MIB - 4096);
    expect_placed(4097, 32 * MIB - 8192);
    expect_placed(15 * MIB - 4096, 17 * MIB + 4096); /* all the room */
}

static void expect_no_room(uint64_t size, gpa_t kernel_end)
{
    struct initrd rd = {.path = "I", .fd = -1, .size_bytes = size};
    struct errmsg err = {{0}};

    assert_int_equal(initrd_place(&rd, kernel_end, 32 * MIB, &err), -ENOMEM);
    assert_non_null(strstr(err.text, "initrd I: its "));
    assert_non_null(strstr(err.text, "do not fit"));
}

static void test_initrd_too_large_is_refused(void **state)
{
    (void)state;
    expect_no_room(15 * MIB - 4095, KERNEL_END);
    expect_no_room(32 * MIB, KERNEL_END);
    expect_no_room(UINT64_MAX, KERNEL_END);
    expect_no_room(1, 32 * MIB);
    expect_no_room(1, 33 * MIB);
}

static void check_loaded(size_t len)
{
    struct fake_buf file = {malloc(len), len};
    struct guest_mem *gm = NULL;
    const void *host = NULL;
    struct initrd rd;
    char path[64];
    int fd;

    assert_non_null(file.bytes);
    for (size_t i = 0; i < len; i++)
        file.bytes[i] = (uint8_t)(i * 31 + i / 4096);
    fd = fake_file(&file, path);
    assert_int_equal(gm_new(32 * MIB, &gm), 0);
    assert_int_equal(initrd_open(path, &rd, NULL), 0);
    assert_int_equal(rd.size_bytes, len);
    assert_int_equal(initrd_place(&rd, KERNEL_END, 32 * MIB, NULL), 0);
    assert_int_equal(initrd_load(&rd, gm, NULL), 0);
    initrd_close(&rd);
    initrd_close(&rd);
    drop_fd(&fd);
    assert_int_equal(gm_rptr(gm, rd.base, len, &host), 0);
    assert_memory_equal(host, file.bytes, len);
    gm_free(gm);
    fake_buf_free(&file);
}

static void test_initrd_bytes_arrive_whole(void **state)
{
    (void)state;
    check_loaded(1);
    check_loaded(4096);
    check_loaded(64 * KIB - 1);
    check_loaded(64 * KIB);
    check_loaded(64 * KIB + 1);
    check_loaded(3 * MIB + 777);
}

static void test_initrd_that_shrinks_is_an_error(void **state)
{
    uint8_t bytes[9000] = {1};
    struct fake_buf file = {bytes, sizeof(bytes)};
    struct guest_mem *gm = NULL;
    struct errmsg err = {{0}};
    struct initrd rd;
    char path[64];
    int fd = fake_file(&file, path);

    (void)state;
    assert_int_equal(gm_new(32 * MIB, &gm), 0);
    assert_int_equal(initrd_open(path, &rd, NULL), 0);
    assert_int_equal(initrd_place(&rd, KERNEL_END, 32 * MIB, NULL), 0);
    assert_int_equal(ftruncate(fd, 10), 0);
    assert_int_equal(initrd_load(&rd, gm, &err), -ENODATA);
    assert_non_null(strstr(err.text, "got shorter"));
    initrd_close(&rd);
    drop_fd(&fd);
    gm_free(gm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_initrd_bad_files_are_named),
        cmocka_unit_test(test_initrd_is_as_high_as_it_fits),
        cmocka_unit_test(test_initrd_too_large_is_refused),
        cmocka_unit_test(test_initrd_bytes_arrive_whole),
        cmocka_unit_test(test_initrd_that_shrinks_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
