/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/xsave_x86.h"

#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

#define HEADER 512u
#define MXCSR  24u
#define XMM    160u
#define AVX    576u
#define OPMASK 832u

#define CR3   0x1000u
#define GVA   0xffff888000005040ull
#define GPA   0x5040u
#define PT    0x4000u
#define PT_AT (PT + 5 * 8u)
#define RW    0x3u
#define USER  0x7u
#define DIRTY 0x40u
#define HUGE  0x80u

static struct xsave_layout layout(void)
{
    struct xsave_layout l;

    memset(&l, 0, sizeof(l));
    l.known = 0x27; /* x87, SSE, AVX, opmask */
    l.part[2].offset = AVX;
    l.part[2].bytes = 256;
    l.part[5].offset = OPMASK;
    l.part[5].bytes = 64;
    return l;
}

static void test_decode_knows_the_two_forms_of_linux(void **state)
{
    static const uint8_t save[] = {0x48, 0x0f, 0xae, 0x27, 0x90};
    static const uint8_t restore[] = {0x48, 0x0f, 0xae, 0x2f};
    static const uint8_t other[][4] = {
        {0x48, 0x0f, 0xae, 0x37}, /* xsaveopt64 (%rdi) */
        {0x48, 0x0f, 0xc7, 0x27}, /* xsavec64 (%rdi) */
        {0x48, 0x0f, 0xae, 0x20}, /* xsave64 (%rax) */
        {0x0f, 0xae, 0x27, 0x90}, /* xsave (%rdi) */
    };

    (void)state;
    assert_int_equal(xsave_decode(save, sizeof(save)), XSAVE_INSN_SAVE);
    assert_int_equal(xsave_decode(restore, 4), XSAVE_INSN_RESTORE);
    assert_int_equal(xsave_decode(restore, 3), XSAVE_INSN_NONE);
    for (size_t i = 0; i < ARRAY_SIZE(other); i++)
        assert_int_equal(xsave_decode(other[i], 4), XSAVE_INSN_NONE);
}

static void test_area_ends_with_its_last_part(void **state)
{
    struct xsave_layout l = layout();

    (void)state;
    assert_int_equal(xsave_area_bytes(&l, 0), XSAVE_MIN_BYTES);
    assert_int_equal(xsave_area_bytes(&l, 0x3), XSAVE_MIN_BYTES);
    assert_int_equal(xsave_area_bytes(&l, 0x7), AVX + 256);
    assert_int_equal(xsave_area_bytes(&l, ~0ull), OPMASK + 64);
}

static void test_layout_of_this_processor_fits(void **state)
{
    struct xsave_layout l;

    (void)state;
    xsave_read_layout(&l);
    assert_int_equal(l.known & 3, 3);
    assert_true(xsave_area_bytes(&l, ~0ull) <= XSAVE_MAX_BYTES);
}

static void test_store_writes_the_asked_parts_alone(void **state)
{
    struct xsave_layout l = layout();
    uint8_t from[XSAVE_MAX_BYTES];
    uint8_t area[XSAVE_MAX_BYTES];

    (void)state;
    memset(from, 0xaa, sizeof(from));
    put_le64(from + HEADER, 0x7);
    memset(area, 0x55, sizeof(area));
    put_le64(area + HEADER, 0x21);
    xsave_store(&l, 0x6, from, area);
    assert_int_equal(area[0], 0x55); /* x87 */
    assert_int_equal(area[MXCSR], 0xaa);
    assert_int_equal(area[XMM + 255], 0xaa);
    assert_int_equal(area[XMM + 256], 0x55); /* the kernel's bytes */
    assert_int_equal(area[AVX], 0xaa);
    assert_int_equal(area[AVX + 255], 0xaa);
    assert_int_equal(area[OPMASK], 0x55);
    assert_int_equal(get_le64(area + HEADER), 0x27);
}

static void test_store_of_an_unused_part_clears_its_bit(void **state)
{
    struct xsave_layout l = layout();
    uint8_t from[XSAVE_MAX_BYTES] = {0};
    uint8_t area[XSAVE_MAX_BYTES] = {0};

    (void)state;
    put_le64(from + HEADER, 0x3);
    put_le64(area + HEADER, 0x7);
    xsave_store(&l, ~0ull, from, area);
    assert_int_equal(get_le64(area + HEADER), 0x3);
}

static void test_load_sets_asked_parts_and_leaves_others(void **state)
{
    struct xsave_layout l = layout();
    uint8_t to[XSAVE_MAX_BYTES];
    uint8_t area[XSAVE_MAX_BYTES] = {0};

    (void)state;
    memset(to, 0x55, sizeof(to));
    put_le64(to + HEADER, 0x27);
    memset(area + XMM, 0xaa, 256);
    memset(area + AVX, 0xbb, 256);
    put_le32(area + MXCSR, 0x1f80);
    put_le64(area + HEADER, 0x6);
    assert_int_equal(xsave_load(&l, 0x27, 0x6, area, to), 0);
    assert_int_equal(to[0], 0x55);
    assert_int_equal(get_le32(to + MXCSR), 0x1f80);
    assert_int_equal(to[XMM], 0xaa);
    assert_int_equal(to[AVX + 255], 0xbb);
    assert_int_equal(to[OPMASK], 0x55);
    assert_int_equal(get_le64(to + HEADER), 0x27);
}

/* A part that the area does not hold gets its default; MXCSR is loaded. */
static void test_load_of_an_empty_area_resets(void **state)
{
    struct xsave_layout l = layout();
    uint8_t to[XSAVE_MAX_BYTES];
    uint8_t area[XSAVE_MAX_BYTES] = {0};

    (void)state;
    memset(to, 0x55, sizeof(to));
    put_le64(to + HEADER, 0x27);
    put_le32(area + MXCSR, 0x1fa0);
    assert_int_equal(xsave_load(&l, 0x27, ~0ull, area, to), 0);
    assert_int_equal(get_le64(to + HEADER), 0x2);
    assert_int_equal(get_le32(to + MXCSR), 0x1fa0);
    assert_int_equal(to[XMM], 0);
    assert_int_equal(to[XMM + 255], 0);
}

static void load_is_refused(uint8_t *area, uint64_t xcr0)
{
    struct xsave_layout l = layout();
    uint8_t to[XSAVE_MAX_BYTES];
    uint8_t before[XSAVE_MAX_BYTES];

    memset(to, 0x55, sizeof(to));
    put_le64(to + HEADER, 0x7);
    memcpy(before, to, sizeof(to));
    assert_int_equal(xsave_load(&l, xcr0, ~0ull, area, to), -EINVAL);
    assert_memory_equal(to, before, sizeof(to));
}

static void test_load_refuses_what_the_processor_refuses(void **state)
{
    uint8_t area[XSAVE_MAX_BYTES] = {0};

    (void)state;
    put_le64(area + HEADER, 0x4); /* AVX, which is switched off */
    load_is_refused(area, 0x3);
    put_le64(area + HEADER, 1ull << 63);
    load_is_refused(area, 0x27);
    put_le64(area + HEADER, 0);
    put_le64(area + HEADER + 8, 1ull << 63); /* the compacted form */
    load_is_refused(area, 0x27);
    put_le64(area + HEADER + 8, 0);
    put_le64(area + HEADER + 16, 1);
    load_is_refused(area, 0x27);
    put_le64(area + HEADER + 16, 0);
    put_le32(area + MXCSR, 0x40000);
    load_is_refused(area, 0x27);
}

/* --- page tables ---------------------------------------------------------- */

struct tables {
    struct guest_mem *gm;
};

static void set_entry(const struct guest_mem *gm, gpa_t at, uint64_t pte)
{
    uint8_t e[8];

    put_le64(e, pte);
    assert_int_equal(gm_write(gm, at, e, sizeof(e)), 0);
}

static int set_up(void **state)
{
    static struct tables t;

    assert_int_equal(gm_new(0x10000, &t.gm), 0);
    set_entry(t.gm, CR3 + (GVA >> 39 & 511) * 8, 0x2000 | USER);
    set_entry(t.gm, 0x2000, 0x3000 | USER);
    set_entry(t.gm, 0x3000, PT | USER);
    set_entry(t.gm, PT_AT, 0x5000 | RW);
    *state = &t;
    return 0;
}

static int tear_down(void **state)
{
    struct tables *t = *state;

    gm_free(t->gm);
    return 0;
}

static int walk(const struct tables *t, bool write, gpa_t *gpa, uint32_t *code)
{
    struct xsave_walk w = {.cr3 = CR3 | 0x18, .levels = 4, .write = write};

    return xsave_translate(t->gm, &w, GVA, gpa, code);
}

static void test_walk_finds_a_page(void **state)
{
    gpa_t gpa = 0;
    uint32_t code = 0;

    assert_int_equal(walk(*state, true, &gpa, &code), 0);
    assert_int_equal(gpa, GPA);
}

static void test_walk_finds_a_large_page(void **state)
{
    struct tables *t = *state;
    gpa_t gpa = 0;
    uint32_t code = 0;

    set_entry(t->gm, 0x3000, 0x200000 | RW | HUGE);
    assert_int_equal(walk(t, true, &gpa, &code), 0);
    assert_int_equal(gpa, 0x200000 + GPA);
}

static void test_walk_of_five_levels(void **state)
{
    struct tables *t = *state;
    struct xsave_walk w = {.cr3 = 0x6000, .levels = 5};
    gpa_t gpa = 0;
    uint32_t code = 0;

    set_entry(t->gm, 0x6000 + (GVA >> 48 & 511) * 8, CR3 | RW);
    assert_int_equal(xsave_translate(t->gm, &w, GVA, &gpa, &code), 0);
    assert_int_equal(gpa, GPA);
}

static void test_walk_faults_say_why(void **state)
{
    struct tables *t = *state;
    gpa_t gpa = 0;
    uint32_t code = 0;

    set_entry(t->gm, PT_AT, 0x5000 | 1);
    assert_int_equal(walk(t, false, &gpa, &code), 0);
    assert_int_equal(walk(t, true, &gpa, &code), -EFAULT);
    assert_int_equal(code, 3); /* present, write */
    set_entry(t->gm, PT_AT, 0x5000 | USER);
    assert_int_equal(walk(t, true, &gpa, &code), -EFAULT); /* clean */
    set_entry(t->gm, PT_AT, 0x5000 | USER | DIRTY);
    assert_int_equal(walk(t, true, &gpa, &code), 0);
    set_entry(t->gm, 0x2000, 0x3000 | 5); /* read only from here on */
    assert_int_equal(walk(t, true, &gpa, &code), -EFAULT);
    set_entry(t->gm, PT_AT, 0);
    assert_int_equal(walk(t, true, &gpa, &code), -EFAULT);
    assert_int_equal(code, 2);
    assert_int_equal(walk(t, false, &gpa, &code), -EFAULT);
    assert_int_equal(code, 0);
}

static void test_walk_through_tables_outside_memory_is_refused(void **state)
{
    struct tables *t = *state;
    gpa_t gpa = 0;
    uint32_t code = 0;

    set_entry(t->gm, 0x3000, 0x7ffffff000 | RW);
    assert_int_equal(walk(t, false, &gpa, &code), -EIO);
}

#define WALK(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_knows_the_two_forms_of_linux),
        cmocka_unit_test(test_area_ends_with_its_last_part),
        cmocka_unit_test(test_layout_of_this_processor_fits),
        cmocka_unit_test(test_store_writes_the_asked_parts_alone),
        cmocka_unit_test(test_store_of_an_unused_part_clears_its_bit),
        cmocka_unit_test(test_load_sets_asked_parts_and_leaves_others),
        cmocka_unit_test(test_load_of_an_empty_area_resets),
        cmocka_unit_test(test_load_refuses_what_the_processor_refuses),
        WALK(test_walk_finds_a_page),
        WALK(test_walk_finds_a_large_page),
        WALK(test_walk_of_five_levels),
        WALK(test_walk_faults_say_why),
        WALK(test_walk_through_tables_outside_memory_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
