/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/tally.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>

static void test_tally_rows_come_by_count_then_key(void **state)
{
    struct tally_row *rows = NULL;
    struct tally *t = NULL;
    uint64_t dropped = 1;
    size_t n = 0;

    (void)state;
    assert_int_equal(tally_new(64, &t), 0);
    assert_int_equal(tally_rows(t, &rows, &n, &dropped), 0);
    assert_null(rows);
    assert_int_equal(n, 0);
    for (unsigned i = 0; i < 3; i++)
        tally_add(t, 0xffffffff81000000u);
    tally_add(t, 7);
    tally_add(t, 0);
    assert_int_equal(tally_rows(t, &rows, &n, &dropped), 0);
    assert_int_equal(n, 3);
    assert_int_equal(dropped, 0);
    assert_true(rows[0].key == 0xffffffff81000000u && rows[0].count == 3);
    assert_true(rows[1].key == 0 && rows[1].count == 1);
    assert_true(rows[2].key == 7 && rows[2].count == 1);
    free(rows);
    tally_free(t);
    tally_free(NULL);
}

/* A guest that chooses the numbers: nothing is lost without being told. */
static void test_tally_full_table_counts_what_it_drops(void **state)
{
    struct tally_row *rows = NULL;
    struct tally *t = NULL;
    uint64_t dropped = 0;
    uint64_t sum = 0;
    size_t n = 0;

    (void)state;
    assert_int_equal(tally_new(16, &t), 0);
    for (uint64_t key = 0; key < 1000; key++)
        tally_add(t, key << 12);
    assert_int_equal(tally_rows(t, &rows, &n, &dropped), 0);
    assert_int_equal(n, 16);
    for (size_t i = 0; i < n; i++)
        sum += rows[i].count;
    assert_int_equal(sum + dropped, 1000);
    free(rows);
    tally_free(t);
}

static void test_tally_too_many_slots_are_refused(void **state)
{
    struct tally *t = NULL;

    (void)state;
    assert_int_equal(tally_new((size_t)1 << 63, &t), -ENOMEM);
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tally_rows_come_by_count_then_key),
        cmocka_unit_test(test_tally_full_table_counts_what_it_drops),
        cmocka_unit_test(test_tally_too_many_slots_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
