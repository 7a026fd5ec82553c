/* SPDX-License-Identifier: Apache-2.0 */
/* Saved state: what is written is read again, and what was damaged is not. */

#include "vmm/state.h"

#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static const uint8_t id[STATE_ID_BYTES] = {1, 2, 3};

static void write_two(struct state_out *o)
{
    state_out_init(o);
    state_begin(o, "first", 3);
    state_put_u8(o, 0xfe);
    state_put_u16(o, 0x1234);
    state_put_u32(o, 0x56789abc);
    state_put_u64(o, 0x1122334455667788);
    state_put_str(o, "a word");
    state_put_str(o, NULL);
    state_end(o);
    state_begin(o, "second/x", 1);
    state_end(o);
    assert_int_equal(state_finish(o, id), 0);
}

static void test_state_reads_what_was_written(void **unused)
{
    struct state_file f;
    struct state_out o;
    struct state_in in;
    struct errmsg err;
    char text[16];

    (void)unused;
    write_two(&o);
    assert_int_equal(state_open(&f, o.data, o.len_bytes, &err), 0);
    assert_memory_equal(f.id, id, sizeof(id));
    assert_int_equal(state_section(&f, "first", 3, &in, &err), 0);
    assert_int_equal(in.version, 3);
    assert_int_equal(state_get_u8(&in), 0xfe);
    assert_int_equal(state_get_u16(&in), 0x1234);
    assert_int_equal(state_get_u32(&in), 0x56789abc);
    assert_true(state_get_u64(&in) == 0x1122334455667788);
    state_get_str(&in, text, sizeof(text));
    assert_string_equal(text, "a word");
    state_get_str(&in, text, sizeof(text));
    assert_string_equal(text, "");
    assert_int_equal(state_done(&in), 0);
    assert_int_equal(state_section(&f, "second/x", 1, &in, &err), 0);
    assert_int_equal(state_done(&in), 0);
    state_out_fini(&o);
}

static void test_state_lists_its_sections_in_order(void **unused)
{
    struct state_file f;
    struct state_out o;
    struct errmsg err;
    char name[STATE_NAME_MAX + 1];
    uint16_t version;
    uint64_t len;

    (void)unused;
    write_two(&o);
    assert_int_equal(state_open(&f, o.data, o.len_bytes, &err), 0);
    assert_true(state_list(&f, 0, name, &version, &len));
    assert_string_equal(name, "first");
    assert_true(state_list(&f, 1, name, &version, &len));
    assert_string_equal(name, "second/x");
    assert_int_equal(version, 1);
    assert_int_equal(len, 0);
    assert_false(state_list(&f, 2, name, &version, &len));
    state_out_fini(&o);
}

static void test_state_field_past_the_end_is_told_at_the_end(void **unused)
{
    struct state_file f;
    struct state_out o;
    struct state_in in;
    struct errmsg err;

    (void)unused;
    write_two(&o);
    assert_int_equal(state_open(&f, o.data, o.len_bytes, &err), 0);
    assert_int_equal(state_section(&f, "second/x", 1, &in, &err), 0);
    assert_int_equal(state_get_u64(&in), 0);
    assert_int_equal(state_done(&in), -EBADMSG);
    assert_int_equal(state_section(&f, "first", 3, &in, &err), 0);
    (void)state_get_u8(&in);
    assert_int_equal(state_done(&in), -EBADMSG); /* some is left */
    state_out_fini(&o);
}

static void test_state_bool_and_string_are_checked(void **unused)
{
    struct state_out o;
    struct state_file f;
    struct state_in in;
    struct errmsg err;
    char text[4];

    (void)unused;
    state_out_init(&o);
    state_begin(&o, "x", 1);
    state_put_u8(&o, 2);
    state_end(&o);
    state_begin(&o, "long", 1);
    state_put_str(&o, "12345");
    state_end(&o);
    state_begin(&o, "nul", 1);
    state_put_u32(&o, 2);
    state_put_bytes(&o, "a", 2);
    state_end(&o);
    assert_int_equal(state_finish(&o, id), 0);
    assert_int_equal(state_open(&f, o.data, o.len_bytes, &err), 0);
    assert_int_equal(state_section(&f, "x", 1, &in, &err), 0);
    assert_false(state_get_bool(&in));
    assert_int_equal(state_done(&in), -EBADMSG);
    assert_int_equal(state_section(&f, "long", 1, &in, &err), 0);
    state_get_str(&in, text, sizeof(text));
    assert_int_equal(state_done(&in), -EBADMSG);
    assert_int_equal(state_section(&f, "nul", 1, &in, &err), 0);
    state_get_str(&in, text, sizeof(text));
    assert_int_equal(state_done(&in), -EBADMSG);
    state_out_fini(&o);
}

static void test_state_absent_and_newer_sections_are_refused(void **unused)
{
    struct state_file f;
    struct state_out o;
    struct state_in in;
    struct errmsg err;

    (void)unused;
    write_two(&o);
    assert_int_equal(state_open(&f, o.data, o.len_bytes, &err), 0);
    assert_int_equal(state_section(&f, "third", 1, &in, &err), -ENOENT);
    assert_non_null(strstr(err.text, "third"));
    assert_int_equal(state_section(&f, "first", 2, &in, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "version 3"));
    state_out_fini(&o);
}

static void test_state_every_cut_is_refused(void **unused)
{
    struct state_file f;
    struct state_out o;
    struct errmsg err;

    (void)unused;
    write_two(&o);
    for (size_t len = 0; len < o.len_bytes; len++)
        assert_true(state_open(&f, o.data, len, &err) < 0);
    state_out_fini(&o);
}

static void test_state_every_flipped_bit_is_refused(void **unused)
{
    struct state_file f;
    struct state_out o;
    struct errmsg err;

    (void)unused;
    write_two(&o);
    for (size_t bit = 0; bit < o.len_bytes * 8; bit++) {
        o.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_true(state_open(&f, o.data, o.len_bytes, &err) < 0);
        o.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    state_out_fini(&o);
}

static void test_state_newer_version_and_foreign_file_say_so(void **unused)
{
    struct state_file f;
    struct state_out o;
    struct errmsg err;

    (void)unused;
    write_two(&o);
    put_le16(o.data + 8, STATE_VERSION + 1);
    assert_int_equal(state_open(&f, o.data, o.len_bytes, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "version 2"));
    memset(o.data, 'x', o.len_bytes);
    assert_int_equal(state_open(&f, o.data, o.len_bytes, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "no saved state"));
    state_out_fini(&o);
}

static void test_state_grows_past_its_first_room(void **unused)
{
    uint8_t *big = calloc(1, MIB);
    struct state_file f;
    struct state_out o;
    struct state_in in;
    struct errmsg err;

    (void)unused;
    assert_non_null(big);
    state_out_init(&o);
    state_begin(&o, "big", 1);
    state_put_bytes(&o, big, MIB);
    state_end(&o);
    assert_int_equal(state_finish(&o, id), 0);
    assert_int_equal(state_open(&f, o.data, o.len_bytes, &err), 0);
    assert_int_equal(state_section(&f, "big", 1, &in, &err), 0);
    assert_non_null(state_get_ref(&in, MIB));
    assert_int_equal(state_done(&in), 0);
    state_out_fini(&o);
    free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_reads_what_was_written),
        cmocka_unit_test(test_state_lists_its_sections_in_order),
        cmocka_unit_test(test_state_field_past_the_end_is_told_at_the_end),
        cmocka_unit_test(test_state_bool_and_string_are_checked),
        cmocka_unit_test(test_state_absent_and_newer_sections_are_refused),
        cmocka_unit_test(test_state_every_cut_is_refused),
        cmocka_unit_test(test_state_every_flipped_bit_is_refused),
        cmocka_unit_test(test_state_newer_version_and_foreign_file_say_so),
        cmocka_unit_test(test_state_grows_past_its_first_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
