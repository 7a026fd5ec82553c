/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest_mem.h"

#include "vmm/cleanup.h"
#include "vmm/layout_x86.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOW  LAYOUT_HOLE_START
#define HIGH LAYOUT_HOLE_END

static struct guest_mem *mem(uint64_t bytes)
{
    struct guest_mem *gm = NULL;

    assert_int_equal(gm_new(bytes, &gm), 0);
    return gm;
}

static void test_gm_new_refuses_bad_sizes(void **state)
{
    struct guest_mem *gm = NULL;

    (void)state;
    assert_int_equal(gm_new(0, &gm), -EINVAL);
    assert_int_equal(gm_new(4095, &gm), -EINVAL);
    assert_int_equal(gm_new(LAYOUT_MAX_RAM + 4096, &gm), -EINVAL);
    assert_null(gm);
}

/* BL-008: regions without overlap that add up to what was asked for. */
static void test_BL_008_regions_split_at_the_hole(void **state)
{
    static const uint64_t sizes[] = {64, 3328, 3329, 4096, 16384};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct guest_mem *gm = mem(sizes[i] * MIB);
        uint64_t total = 0;
        uint64_t end = 0;

        for (size_t r = 0; r < gm_region_count(gm); r++) {
            const struct gm_region *reg = gm_region(gm, r);

            assert_true(reg->gpa >= end);
            end = reg->gpa + reg->len_bytes;
            assert_true(end <= LOW || reg->gpa >= HIGH);
            total += reg->len_bytes;
        }
        assert_true(total == sizes[i] * MIB);
        assert_int_equal(gm_region_count(gm), sizes[i] > 3328 ? 2 : 1);
        assert_null(gm_region(gm, 2));
        gm_free(gm);
    }
}

static void test_access_at_the_edges(void **state)
{
    struct guest_mem *gm = mem(3329 * MIB);
    uint8_t b[2] = {1, 2};

    (void)state;
    assert_int_equal(gm_write(gm, LOW - 2, b, 2), 0);
    assert_int_equal(gm_write(gm, LOW - 1, b, 2), -EFAULT);
    assert_int_equal(gm_write(gm, LOW, b, 1), -EFAULT);
    assert_int_equal(gm_write(gm, HIGH - 1, b, 1), -EFAULT);
    assert_int_equal(gm_write(gm, HIGH, b, 2), 0);
    assert_int_equal(gm_write(gm, HIGH + MIB - 1, b, 2), -EFAULT);
    assert_int_equal(gm_read(gm, UINT64_MAX, b, 2), -EFAULT);
    assert_int_equal(gm_read(gm, 0, b, UINT64_MAX), -EFAULT);
    assert_int_equal(gm_read(gm, LOW - 1, b, UINT64_MAX - 1), -EFAULT);
    gm_free(gm);
}

static void test_pointer_is_written_on_success_only(void **state)
{
    struct guest_mem *gm = mem(MIB);
    void *p = NULL;
    const void *q = NULL;

    (void)state;
    assert_int_equal(gm_wptr(gm, MIB - 1, 2, &p), -EFAULT);
    assert_null(p);
    assert_int_equal(gm_rptr(gm, MIB, 1, &q), -EFAULT);
    assert_null(q);
    assert_int_equal(gm_wptr(gm, MIB - 1, 1, &p), 0);
    assert_int_equal(gm_rptr(gm, MIB - 1, 1, &q), 0);
    assert_ptr_equal(p, q);
    gm_free(gm);
}

static void test_map_file_is_private_and_page_aligned(void **state)
{
    struct guest_mem *gm = mem(MIB);
    CLEANUP_FD int fd = memfd_create("t", 0);
    char page[8192];
    char got[4];

    (void)state;
    memset(page, 'k', sizeof(page));
    assert_int_equal(util_write_full(fd, page, sizeof(page)), 0);
    assert_int_equal(gm_map_file(gm, 0x1001, 4096, fd, 0), -EINVAL);
    assert_int_equal(gm_map_file(gm, 0x1000, 4095, fd, 0), -EINVAL);
    assert_int_equal(gm_map_file(gm, 0x1000, 4096, fd, 1), -EINVAL);
    assert_int_equal(gm_map_file(gm, 0x1000, 0, fd, 0), -EINVAL);
    assert_int_equal(gm_map_file(gm, MIB - 4096, 8192, fd, 0), -EFAULT);
    assert_int_equal(gm_map_file(gm, 0x1000, 8192, fd, 0), 0);
    assert_int_equal(gm_read(gm, 0x1ffe, got, 4), 0);
    assert_memory_equal(got, "kkkk", 4);
    assert_int_equal(gm_write(gm, 0x1000, "zz", 2), 0);
    assert_int_equal(util_pread_full(fd, got, 2, 0), 0);
    assert_memory_equal(got, "kk", 2); /* the file is not touched */
    gm_free(gm);
}

/* Pages of the memfd that are really there. */
static uint64_t resident(const struct guest_mem *gm)
{
    struct stat st;

    assert_int_equal(fstat(gm_fd(gm), &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void test_discard_frees_shared_memory_which_reads_zero(void **state)
{
    struct guest_mem *gm = mem(3329 * MIB);
    char b[3] = "xyz";
    uint64_t before = resident(gm);

    (void)state;
    assert_int_equal(gm_write(gm, 0x3ffe, b, 3), 0); /* two pages */
    assert_int_equal(gm_write(gm, HIGH + 0x1000, b, 3), 0);
    assert_int_equal(resident(gm) - before, 3 * 4096);
    assert_int_equal(gm_discard(gm, 0x3000, 4096), 0);
    assert_int_equal(resident(gm) - before, 2 * 4096);
    assert_int_equal(gm_read(gm, 0x3ffe, b, 3), 0);
    assert_memory_equal(b, "\0\0z", 3);
    assert_int_equal(gm_discard(gm, HIGH, MIB), 0);
    assert_int_equal(gm_read(gm, HIGH + 0x1000, b, 3), 0);
    assert_memory_equal(b, "\0\0\0", 3);
    assert_int_equal(gm_write(gm, HIGH + 0x1000, "again", 5), 0);
    gm_free(gm);
}

static void test_discard_refuses_what_is_not_whole_pages_of_ram(void **state)
{
    struct guest_mem *gm = mem(3329 * MIB);

    (void)state;
    assert_int_equal(gm_discard(gm, 0x1001, 4096), -EINVAL);
    assert_int_equal(gm_discard(gm, 0x1000, 4097), -EINVAL);
    assert_int_equal(gm_discard(gm, 0x1000, 0), -EINVAL);
    assert_int_equal(gm_discard(gm, LOW, 4096), -EFAULT);
    assert_int_equal(gm_discard(gm, LOW - 4096, 8192), -EFAULT);
    assert_int_equal(gm_discard(gm, HIGH + MIB - 4096, 8192), -EFAULT);
    assert_int_equal(gm_discard(gm, HIGH - 4096, 8192), -EFAULT);
    assert_int_equal(gm_discard(gm, UINT64_MAX - 4095, 4096), -EFAULT);
    assert_int_equal(gm_discard(gm, 0, UINT64_MAX - 4095), -EFAULT);
    gm_free(gm);
}

/* A private page goes, the file's content shows again; beside it, zero. */
static void test_discard_of_file_mappings_shows_the_file_again(void **state)
{
    struct guest_mem *gm = mem(MIB);
    CLEANUP_FD int fd = memfd_create("t", 0);
    char page[4096];
    char got[3];

    (void)state;
    memset(page, 'k', sizeof(page));
    assert_int_equal(util_write_full(fd, page, sizeof(page)), 0);
    assert_int_equal(gm_map_file(gm, 0x2000, 4096, fd, 0), 0);
    assert_int_equal(gm_write(gm, 0x1fff, "abc", 3), 0);
    assert_int_equal(gm_write(gm, 0x2fff, "de", 2), 0);
    assert_true(gm_discard_zeroes(gm, 0x1000, 4096));
    assert_false(gm_discard_zeroes(gm, 0x1000, 8192));
    assert_false(gm_discard_zeroes(gm, 0x2000, 4096));
    assert_false(gm_discard_zeroes(gm, 0x2000, 8192));
    assert_true(gm_discard_zeroes(gm, 0x3000, 4096));
    assert_int_equal(gm_discard(gm, 0x1000, 3 * 4096), 0);
    assert_int_equal(gm_read(gm, 0x1fff, got, 3), 0);
    assert_memory_equal(got, "\0kk", 3);
    assert_int_equal(gm_read(gm, 0x2fff, got, 2), 0);
    assert_memory_equal(got, "k\0", 2);
    for (int i = 1; i < GM_MAX_FILE_MAPS; i++)
        assert_int_equal(gm_map_file(gm, 0x8000, 4096, fd, 0), 0);
    assert_int_equal(gm_map_file(gm, 0x8000, 4096, fd, 0), -ENOSPC);
    gm_free(gm);
}

static void test_gpa_of_a_pointer_is_where_it_came_from(void **state)
{
    struct guest_mem *gm = mem(3329 * MIB);
    static const gpa_t at[] = {0, LOW - 1, HIGH, HIGH + MIB - 1};
    gpa_t gpa = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
        const void *p = NULL;

        assert_int_equal(gm_rptr(gm, at[i], 1, &p), 0);
        assert_int_equal(gm_gpa_of(gm, p, &gpa), 0);
        assert_true(gpa == at[i]);
    }
    assert_int_equal(gm_gpa_of(gm, &gpa, &gpa), -EFAULT);
    gm_free(gm);
}

/* Of memory over a file with a hole: the file's data, and what was written in
 * the hole; nothing is made there by looking. */
static void next_data_over(int fd)
{
    struct guest_mem *gm = NULL;
    const char data[4096] = {1};
    struct stat before;
    struct stat after;
    uint64_t from = 0;
    uint64_t to = 0;

    assert_int_equal(ftruncate(fd, 8 * MIB), 0);
    assert_int_equal(pwrite(fd, data, sizeof(data), 2 * MIB), sizeof(data));
    assert_int_equal(gm_new_private(8 * MIB, fd, &gm), 0);
    assert_int_equal(gm_write(gm, 5 * MIB, data, sizeof(data)), 0);
    assert_int_equal(fstat(fd, &before), 0);
    assert_true(gm_next_data(gm, 0, &from, &to));
    assert_true(from == 2 * MIB && to == 2 * MIB + 4096);
    assert_true(gm_next_data(gm, to, &from, &to));
    assert_true(from == 5 * MIB && to == 5 * MIB + 4096);
    assert_false(gm_next_data(gm, to, &from, &to));
    assert_true(gm_next_data(gm, 5 * MIB, &from, &to));
    assert_true(from == 5 * MIB && to == 5 * MIB + 4096);
    assert_int_equal(fstat(fd, &after), 0);
    assert_int_equal(after.st_blocks, before.st_blocks);
    gm_free(gm);
}

static void test_next_data_of_private_memory_leaves_holes(void **state)
{
    char path[] = "/tmp/mote-test-XXXXXX";
    int fd = mkstemp(path);

    (void)state;
    next_data_over(memfd_create("base", MFD_CLOEXEC));
    assert_int_equal(unlink(path), 0);
    next_data_over(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gm_new_refuses_bad_sizes),
        cmocka_unit_test(test_BL_008_regions_split_at_the_hole),
        cmocka_unit_test(test_access_at_the_edges),
        cmocka_unit_test(test_pointer_is_written_on_success_only),
        cmocka_unit_test(test_map_file_is_private_and_page_aligned),
        cmocka_unit_test(test_discard_frees_shared_memory_which_reads_zero),
        cmocka_unit_test(test_discard_refuses_what_is_not_whole_pages_of_ram),
        cmocka_unit_test(test_discard_of_file_mappings_shows_the_file_again),
        cmocka_unit_test(test_gpa_of_a_pointer_is_where_it_came_from),
        cmocka_unit_test(test_next_data_of_private_memory_leaves_holes),
    };

    return cmocka_run_group_tests_name("guest_mem", tests, NULL, NULL);
}
