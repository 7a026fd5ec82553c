/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/mptable.h"

#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* What a reader of the table finds, offset by offset. spec: MP 1.4, 4.1-4.3 */

#define TABLE_HEADER 44u

static uint8_t sum(const uint8_t *p, size_t len)
{
    uint8_t s = 0;

    while (len--)
        s = (uint8_t)(s + *p++);
    return s;
}

static struct guest_mem *write_table(unsigned ncpus, const uint8_t **out_table)
{
    struct boot_machine m = {.ncpus = ncpus};
    struct guest_mem *gm = NULL;
    const void *host = NULL;

    assert_int_equal(gm_new(16 * MIB, &gm), 0);
    assert_int_equal(mptable_write(gm, &m), 0);
    assert_int_equal(gm_rptr(gm, LAYOUT_MP_TABLE, 4096, &host), 0);
    *out_table = host;
    return gm;
}

static void test_mp_pointer_is_at_zero(void **state)
{
    const uint8_t *table;
    struct guest_mem *gm = write_table(1, &table);
    uint8_t p[16];

    (void)state;
    assert_int_equal(gm_read(gm, 0, p, sizeof(p)), 0);
    assert_memory_equal(p, "_MP_", 4);
    assert_int_equal(get_le32(p + 4), LAYOUT_MP_TABLE);
    assert_int_equal(p[8], 1);
    assert_int_equal(p[9], 4);
    assert_int_equal(sum(p, sizeof(p)), 0);
    assert_int_equal(p[11], 0); /* a table follows, no default */
    gm_free(gm);
}

static void test_mp_header_counts_and_adds_up(void **state)
{
    const uint8_t *t;
    struct guest_mem *gm = write_table(3, &t);
    uint16_t len = get_le16(t + 4);

    (void)state;
    assert_memory_equal(t, "PCMP", 4);
    assert_int_equal(t[6], 4);
    assert_int_equal(sum(t, len), 0);
    assert_int_equal(get_le32(t + 36), LAYOUT_LAPIC);
    assert_int_equal(get_le16(t + 34), 3 + 1 + 1 + LAYOUT_IOAPIC_PINS + 2);
    assert_int_equal(len, TABLE_HEADER + 3 * 20 +
                              (1 + 1 + LAYOUT_IOAPIC_PINS + 2) * 8);
    gm_free(gm);
}

static void check_lines(const uint8_t *e, uint8_t ioapic_id)
{
    for (uint8_t pin = 0; pin < LAYOUT_IOAPIC_PINS; pin++, e += 8) {
        assert_int_equal(e[0], 3);
        assert_int_equal(e[1], 0); /* a vectored interrupt */
        assert_int_equal(get_le16(e + 2), 0);
        assert_int_equal(e[4], 0);
        assert_int_equal(e[5], pin);
        assert_int_equal(e[6], ioapic_id);
        assert_int_equal(e[7], pin);
    }
    assert_int_equal(e[0], 4);
    assert_int_equal(e[1], 3); /* ExtINT on LINT0 */
    assert_int_equal(e[7], 0);
    e += 8;
    assert_int_equal(e[0], 4);
    assert_int_equal(e[1], 1); /* NMI on LINT1 of all */
    assert_int_equal(e[6], 0xff);
    assert_int_equal(e[7], 1);
}

static void check_entries(unsigned ncpus)
{
    const uint8_t *t;
    struct guest_mem *gm = write_table(ncpus, &t);
    const uint8_t *e = t + TABLE_HEADER;

    for (unsigned i = 0; i < ncpus; i++, e += 20) {
        assert_int_equal(e[0], 0);
        assert_int_equal(e[1], i);
        assert_int_equal(e[3], i == 0 ? 3 : 1);
    }
    assert_int_equal(e[0], 1);
    assert_memory_equal(e + 2, "ISA   ", 6);
    e += 8;
    assert_int_equal(e[0], 2);
    assert_int_equal(e[1], ncpus);
    assert_int_equal(e[3], 1);
    assert_int_equal(get_le32(e + 4), LAYOUT_IOAPIC);
    check_lines(e + 8, (uint8_t)ncpus);
    gm_free(gm);
}

static void test_mp_entries(void **state)
{
    (void)state;
    check_entries(1);
    check_entries(2);
    check_entries(LAYOUT_MAX_VCPUS);
}

static void test_mp_impossible_cpu_counts_are_refused(void **state)
{
    struct boot_machine m = {.ncpus = 0};
    struct guest_mem *gm = NULL;

    (void)state;
    assert_int_equal(gm_new(16 * MIB, &gm), 0);
    assert_int_equal(mptable_write(gm, &m), -ENOSPC);
    m.ncpus = LAYOUT_MAX_VCPUS + 1;
    assert_int_equal(mptable_write(gm, &m), -ENOSPC);
    gm_free(gm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mp_pointer_is_at_zero),
        cmocka_unit_test(test_mp_header_counts_and_adds_up),
        cmocka_unit_test(test_mp_entries),
        cmocka_unit_test(test_mp_impossible_cpu_counts_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
