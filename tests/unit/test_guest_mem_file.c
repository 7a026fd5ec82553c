/* SPDX-License-Identifier: Apache-2.0 */
/* Guest memory in the order of its file: private copies of one, what of it can
 * be something else than zeroes, and which pages were written. */

#include "vmm/guest_mem.h"

#include "vmm/cleanup.h"
#include "vmm/dirty.h"
#include "vmm/kvm.h"
#include "vmm/layout_x86.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOW   LAYOUT_HOLE_START
#define HIGH  LAYOUT_HOLE_END
#define PAGE  4096u
#define LARGE (3329 * MIB)

static struct guest_mem *mem(uint64_t bytes)
{
    struct guest_mem *gm = NULL;

    assert_int_equal(gm_new(bytes, &gm), 0);
    return gm;
}

static void poke(struct guest_mem *gm, gpa_t gpa)
{
    assert_int_equal(gm_write(gm, gpa, "x", 1), 0);
}

/* --- private copies ------------------------------------------------------- */

static void test_private_memory_is_the_file_and_never_writes_it(void **state)
{
    int fd = memfd_create("ram", MFD_CLOEXEC);
    struct guest_mem *a = NULL;
    struct guest_mem *b = NULL;
    char byte = 0;

    (void)state;
    assert_int_equal(ftruncate(fd, (off_t)LARGE + PAGE), 0);
    assert_int_equal(pwrite(fd, "l", 1, (off_t)LOW - 1), 1);
    assert_int_equal(pwrite(fd, "h", 1, (off_t)LOW), 1);
    assert_int_equal(gm_new_private(LARGE, dup(fd), &a), 0);
    assert_int_equal(gm_new_private(LARGE, dup(fd), &b), 0);
    assert_int_equal(gm_read(a, LOW - 1, &byte, 1), 0);
    assert_int_equal(byte, 'l');
    assert_int_equal(gm_read(a, HIGH, &byte, 1), 0);
    assert_int_equal(byte, 'h');
    poke(a, LOW - 1);
    poke(a, 0);
    assert_int_equal(gm_read(b, LOW - 1, &byte, 1), 0);
    assert_int_equal(byte, 'l');
    assert_int_equal(pread(fd, &byte, 1, (off_t)LOW - 1), 1);
    assert_int_equal(byte, 'l');
    /* Given back it is what the file holds. */
    assert_int_equal(gm_discard(a, LOW - PAGE, PAGE), 0);
    assert_int_equal(gm_read(a, LOW - 1, &byte, 1), 0);
    assert_int_equal(byte, 'l');
    assert_false(gm_discard_zeroes(a, LOW - PAGE, PAGE));
    gm_free(a);
    gm_free(b);
    assert_int_equal(pread(fd, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    (void)close(fd);
}

static void test_private_memory_refused_leaves_the_file_to_its_owner(void **s)
{
    int fd = memfd_create("ram", MFD_CLOEXEC);
    struct guest_mem *gm = NULL;
    struct stat st;

    (void)s;
    assert_int_equal(gm_new_private(0, fd, &gm), -EINVAL);
    assert_int_equal(gm_new_private(PAGE + 1, fd, &gm), -EINVAL);
    assert_null(gm);
    assert_int_equal(fstat(fd, &st), 0);
    (void)close(fd);
}

static void test_private_memory_without_a_file_is_empty(void **state)
{
    struct guest_mem *gm = NULL;
    uint64_t from = 1;
    uint64_t to = 1;
    char byte = 1;

    (void)state;
    assert_int_equal(gm_new_private(2 * PAGE, -1, &gm), 0);
    assert_int_equal(gm_fd(gm), -1);
    assert_int_equal(gm_read(gm, PAGE, &byte, 1), 0);
    assert_int_equal(byte, 0);
    /* Nobody knows what of it is there: all may be. */
    assert_true(gm_next_data(gm, 0, &from, &to));
    assert_true(from == 0 && to == 2 * PAGE);
    assert_false(gm_next_data(gm, to, &from, &to));
    gm_free(gm);
}

/* --- in the order of the file --------------------------------------------- */

static void test_linear_ranges_lie_in_one_region(void **state)
{
    struct guest_mem *gm = mem(LARGE);
    const void *p = NULL;

    (void)state;
    assert_int_equal(gm_rptr(gm, HIGH, 1, &p), 0);
    assert_ptr_equal(gm_linear(gm, LOW, MIB), p);
    assert_int_equal(gm_rptr(gm, LOW - PAGE, PAGE, &p), 0);
    assert_ptr_equal(gm_linear(gm, LOW - PAGE, PAGE), p);
    assert_null(gm_linear(gm, LOW - PAGE, PAGE + 1));
    assert_null(gm_linear(gm, LOW, MIB + 1));
    assert_null(gm_linear(gm, LARGE, 0));
    assert_null(gm_linear(gm, UINT64_MAX, 1));
    assert_null(gm_linear(gm, 0, UINT64_MAX));
    gm_free(gm);
}

/* Walks all ranges: each in order, none empty; how much they are. */
static uint64_t walk(const struct guest_mem *gm, uint64_t *first, size_t *num)
{
    uint64_t from = 0;
    uint64_t to = 0;
    uint64_t total = 0;

    *num = 0;
    while (gm_next_data(gm, to, &from, &to)) {
        if (*num == 0)
            *first = from;
        assert_true(from < to && to <= gm_ram_bytes(gm));
        assert_non_null(gm_linear(gm, from, to - from));
        total += to - from;
        (*num)++;
    }
    return total;
}

static void test_next_data_finds_what_was_written_and_no_more(void **state)
{
    struct guest_mem *gm = mem(LARGE);
    uint64_t first = 0;
    size_t num;

    (void)state;
    assert_true(walk(gm, &first, &num) == 0);
    poke(gm, HIGH + MIB - 1);
    assert_true(walk(gm, &first, &num) == PAGE);
    assert_true(first == LARGE - PAGE);
    poke(gm, LOW - 1);
    poke(gm, HIGH);
    poke(gm, 5 * PAGE);
    assert_true(walk(gm, &first, &num) == 4 * PAGE);
    assert_true(first == 5 * PAGE);
    assert_true(num == 4); /* never across the two regions */
    poke(gm, 0);
    assert_true(walk(gm, &first, &num) == 5 * PAGE);
    assert_true(first == 0);
    gm_free(gm);
}

static void test_next_data_has_mapped_files_wherever_they_are(void **state)
{
    struct guest_mem *gm = mem(LARGE);
    int fd = memfd_create("kernel", MFD_CLOEXEC);
    uint64_t first = 0;
    size_t num;

    (void)state;
    assert_int_equal(ftruncate(fd, 64 * PAGE), 0);
    assert_int_equal(gm_map_file(gm, 16 * PAGE, 4 * PAGE, fd, 0), 0);
    assert_int_equal(gm_map_file(gm, 20 * PAGE, 2 * PAGE, fd, 0), 0);
    assert_int_equal(gm_map_file(gm, LOW - PAGE, PAGE, fd, 0), 0);
    assert_int_equal(gm_map_file(gm, HIGH, PAGE, fd, 0), 0);
    assert_int_equal(gm_map_file(gm, HIGH + MIB - PAGE, PAGE, fd, 0), 0);
    assert_true(walk(gm, &first, &num) == 9 * PAGE);
    assert_true(first == 16 * PAGE);
    poke(gm, 15 * PAGE);
    poke(gm, 22 * PAGE);
    assert_true(walk(gm, &first, &num) == 11 * PAGE);
    assert_true(first == 15 * PAGE);
    /* From the middle of one. */
    {
        uint64_t from = 0;
        uint64_t to = 0;

        assert_true(gm_next_data(gm, 17 * PAGE, &from, &to));
        assert_true(from == 17 * PAGE && to == 20 * PAGE);
    }
    gm_free(gm);
    (void)close(fd);
}

/* --- what was written ----------------------------------------------------- */

static uint64_t bits[(LARGE / PAGE + 63) / 64];

static bool has(uint64_t page)
{
    return bits[page / 64] >> page % 64 & 1;
}

static uint64_t take(const struct guest_mem *gm)
{
    uint64_t n = 0;

    memset(bits, 0, sizeof(bits));
    gm_take_dirty(gm, bits);
    for (size_t i = 0; i < ARRAY_SIZE(bits); i++)
        n += (uint64_t)__builtin_popcountll(bits[i]);
    return n;
}

static void test_writes_are_noted_by_the_pages_of_the_file(void **state)
{
    struct guest_mem *gm = mem(LARGE);
    void *p = NULL;
    const void *r = NULL;
    char buf[2 * PAGE] = {1};

    (void)state;
    poke(gm, 0);
    assert_true(take(gm) == 0); /* nobody asked yet */
    assert_int_equal(gm_track_writes(gm), 0);
    assert_int_equal(gm_track_writes(gm), 0);
    assert_true(take(gm) == 0);
    poke(gm, 7 * PAGE - 1);
    assert_int_equal(gm_write(gm, 9 * PAGE - 1, buf, PAGE + 2), 0);
    assert_int_equal(gm_wptr(gm, HIGH, 1, &p), 0);
    assert_int_equal(gm_rptr(gm, 100 * PAGE, 1, &r), 0);
    assert_int_equal(gm_read(gm, 100 * PAGE, buf, 1), 0);
    assert_true(take(gm) == 5);
    assert_true(has(6) && has(8) && has(9) && has(10) && has(LOW / PAGE));
    assert_true(take(gm) == 0);
    gm_free(gm);
}

static void test_marks_stay_within_ram(void **state)
{
    struct guest_mem *gm = mem(LARGE);
    void *p = NULL;

    (void)state;
    assert_int_equal(gm_track_writes(gm), 0);
    gm_mark_dirty(gm, LOW, PAGE); /* the hole */
    gm_mark_dirty(gm, HIGH + MIB, PAGE);
    gm_mark_dirty(gm, UINT64_MAX, PAGE);
    gm_mark_dirty(gm, 0, 0);
    assert_int_equal(gm_wptr(gm, LOW - 1, 2, &p), -EFAULT);
    assert_int_equal(gm_write(gm, LOW - 1, "ab", 2), -EFAULT);
    assert_true(take(gm) == 0);
    gm_mark_dirty(gm, LOW - 1, UINT64_MAX);
    assert_true(take(gm) == 1);
    assert_true(has(LOW / PAGE - 1));
    gm_mark_dirty(gm, HIGH + MIB - 1, 2);
    assert_true(take(gm) == 1);
    assert_true(has(LARGE / PAGE - 1));
    gm_free(gm);
}

/* --- a log that cannot be read -------------------------------------------- */

static void test_dirty_that_fails_forgets_nothing(void **state)
{
    struct guest_mem *gm = mem(16 * MIB);
    struct kvm kvm = {.sys_fd = -1, .vm_fd = -1};
    struct errmsg err = {""};
    struct dirty d;

    (void)state;
    dirty_init(&d, &kvm, gm);
    dirty_clear(&d);
    assert_true(d.words == 16 * MIB / PAGE / 64);
    assert_true(dirty_start(&d, &err) < 0);
    assert_true(err.text[0] != '\0');
    assert_false(d.on);
    d.bits[0] = 5;
    poke(gm, 9 * PAGE);
    assert_true(dirty_collect(&d, true, &err) < 0);
    assert_true(d.bits[0] == 5);
    memset(bits, 0, sizeof(bits));
    gm_take_dirty(gm, bits);
    assert_true(bits[0] == 1u << 9); /* still noted for the next time */
    dirty_fini(&d);
    dirty_fini(&d);
    gm_free(gm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_private_memory_is_the_file_and_never_writes_it),
        cmocka_unit_test(
            test_private_memory_refused_leaves_the_file_to_its_owner),
        cmocka_unit_test(test_private_memory_without_a_file_is_empty),
        cmocka_unit_test(test_linear_ranges_lie_in_one_region),
        cmocka_unit_test(test_next_data_finds_what_was_written_and_no_more),
        cmocka_unit_test(test_next_data_has_mapped_files_wherever_they_are),
        cmocka_unit_test(test_writes_are_noted_by_the_pages_of_the_file),
        cmocka_unit_test(test_marks_stay_within_ram),
        cmocka_unit_test(test_dirty_that_fails_forgets_nothing),
    };

    return cmocka_run_group_tests_name("guest_mem_file", tests, NULL, NULL);
}
