/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/codec.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

static void test_hello_of_ours_agrees_with_itself(void **state)
{
    uint8_t hello[CODEC_HEADER];
    uint16_t version = 0;

    (void)state;
    codec_hello_encode(hello);
    assert_memory_equal(hello, "MOTE\1\0\1\0", CODEC_HEADER);
    assert_int_equal(codec_hello_agree(hello, &version), 0);
    assert_int_equal(version, 1);
}

static void test_hello_of_a_later_host_agrees_on_our_highest(void **state)
{
    uint16_t version = 0;

    (void)state;
    assert_int_equal(
        codec_hello_agree((const uint8_t *)"MOTE\1\0\x09\1", &version), 0);
    assert_int_equal(version, MOTE_VERSION_HIGHEST);
}

static void test_hello_bad_is_refused_and_leaves_the_version(void **state)
{
    static const struct {
        const char *bytes;
        int want;
    } cases[] = {
        {"mote\1\0\1\0", -EPROTO},          /* magic */
        {"MOTE\0\0\1\0", -EPROTO},          /* there is no version 0 */
        {"MOTE\3\0\2\0", -EPROTO},          /* empty range */
        {"MOTE\2\0\2\0", -EPROTONOSUPPORT}, /* later than ours */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint16_t version = 77;

        assert_int_equal(
            codec_hello_agree((const uint8_t *)cases[i].bytes, &version),
            cases[i].want);
        assert_int_equal(version, 77);
    }
}

static void test_frame_header_round_trip(void **state)
{
    uint8_t head[CODEC_HEADER];
    struct mote_frame frame;

    (void)state;
    codec_frame_encode(head, MOTE_T_START, MOTE_FRAME_MORE, MOTE_FRAME_MAX);
    assert_memory_equal(head, "\0\0\x10\0\1\1\0\0", CODEC_HEADER);
    assert_int_equal(codec_frame_decode(head, &frame), 0);
    assert_int_equal(frame.length, MOTE_FRAME_MAX);
    assert_int_equal(frame.type, MOTE_T_START);
    assert_int_equal(frame.flags, MOTE_FRAME_MORE);
}

static void test_frame_header_bad_is_refused(void **state)
{
    struct mote_frame frame;

    (void)state;
    assert_int_equal(
        codec_frame_decode((const uint8_t *)"\1\0\x10\0\1\0\0\0", &frame),
        -EMSGSIZE);
    assert_int_equal(
        codec_frame_decode((const uint8_t *)"\0\0\0\0\1\4\0\0", &frame),
        -EPROTO);
    assert_int_equal(
        codec_frame_decode((const uint8_t *)"\0\0\0\0\1\0\0\1", &frame),
        -EPROTO);
}

static void test_attributes_written_are_read_back(void **state)
{
    uint8_t bytes[256];
    struct codec_writer w;
    struct codec_iter it;
    struct codec_attr a;
    uint8_t u8 = 0;
    uint32_t u32 = 0;
    uint64_t u64 = 0;

    (void)state;
    codec_writer_init(&w, bytes, sizeof(bytes));
    codec_put_text(&w, MOTE_ATTR_ARG, "hi");
    codec_put_text(&w, MOTE_ATTR_ARG, "");
    codec_put_u8(&w, MOTE_ATTR_STDIN, 0xfe);
    codec_put_u32(&w, MOTE_ATTR_PID, 0x01020304);
    codec_put_u64(&w, MOTE_ATTR_TIME_NS, 0x0102030405060708);
    assert_false(w.overflow);

    codec_iter_init(&it, w.data, w.length);
    assert_int_equal(codec_iter_next(&it, &a), 1);
    assert_int_equal(a.type, MOTE_ATTR_ARG);
    assert_int_equal(a.length, 2);
    assert_memory_equal(a.value, "hi", 2);
    assert_int_equal(codec_iter_next(&it, &a), 1);
    assert_int_equal(a.length, 0);
    assert_int_equal(codec_iter_next(&it, &a), 1);
    assert_int_equal(codec_attr_u8(&a, &u8), 0);
    assert_int_equal(u8, 0xfe);
    assert_int_equal(codec_iter_next(&it, &a), 1);
    assert_int_equal(codec_attr_u32(&a, &u32), 0);
    assert_int_equal(u32, 0x01020304);
    assert_int_equal(codec_iter_next(&it, &a), 1);
    assert_int_equal(codec_attr_u64(&a, &u64), 0);
    assert_true(u64 == 0x0102030405060708);
    assert_int_equal(codec_iter_next(&it, &a), 0);
}

static void test_writer_full_overflows_and_stays_so(void **state)
{
    uint8_t bytes[12];
    struct codec_writer w;

    (void)state;
    codec_writer_init(&w, bytes, sizeof(bytes));
    codec_put_u32(&w, 1, 5);
    assert_false(w.overflow);
    codec_put_bytes(&w, 1, NULL, 0);
    assert_true(w.overflow);
    assert_int_equal(w.length, 12);
    codec_writer_init(&w, bytes, sizeof(bytes));
    codec_put_u64(&w, 1, 5);
    assert_true(w.overflow);
    codec_put_u8(&w, 1, 5); /* would fit */
    assert_int_equal(w.length, 0);
}

static void test_attribute_cut_off_is_refused_at_every_length(void **state)
{
    static const uint8_t whole[] = {1, 0, 0, 0, 3, 0, 0, 0, 'a', 'b', 'c'};

    (void)state;
    for (size_t length = 1; length < sizeof(whole); length++) {
        struct codec_iter it;
        struct codec_attr a;

        codec_iter_init(&it, whole, length);
        assert_int_equal(codec_iter_next(&it, &a), -EPROTO);
    }
}

static void test_attribute_of_greatest_length_does_not_wrap(void **state)
{
    static const uint8_t bad[] = {1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0};
    struct codec_iter it;
    struct codec_attr a;

    (void)state;
    codec_iter_init(&it, bad, sizeof(bad));
    assert_int_equal(codec_iter_next(&it, &a), -EPROTO);
}

static void test_attribute_flags_required_is_told_others_refused(void **state)
{
    static const uint8_t required[] = {9, 0, 1, 0, 0, 0, 0, 0};
    static const uint8_t unknown[] = {9, 0, 2, 0, 0, 0, 0, 0};
    struct codec_iter it;
    struct codec_attr a;

    (void)state;
    codec_iter_init(&it, required, sizeof(required));
    assert_int_equal(codec_iter_next(&it, &a), 1);
    assert_true(a.required);
    codec_iter_init(&it, unknown, sizeof(unknown));
    assert_int_equal(codec_iter_next(&it, &a), -EPROTO);
}

static void test_fixed_values_of_another_length_are_refused(void **state)
{
    static const uint8_t bytes[64];
    struct codec_attr a = {.value = bytes, .length = 3};
    struct mote_rlimit rlimit;
    struct mote_pty_size pty;
    struct mote_route route;
    struct mote_ip ip;
    uint8_t u8;
    uint32_t u32;
    uint64_t u64;
    bool yes;

    (void)state;
    assert_int_equal(codec_attr_u8(&a, &u8), -EPROTO);
    assert_int_equal(codec_attr_u32(&a, &u32), -EPROTO);
    assert_int_equal(codec_attr_u64(&a, &u64), -EPROTO);
    assert_int_equal(codec_attr_bool(&a, &yes), -EPROTO);
    assert_int_equal(codec_attr_rlimit(&a, &rlimit), -EPROTO);
    assert_int_equal(codec_attr_pty(&a, &pty), -EPROTO);
    assert_int_equal(codec_attr_ip(&a, &ip), -EPROTO);
    assert_int_equal(codec_attr_route(&a, &route), -EPROTO);
}

static void test_bool_takes_0_and_1_only(void **state)
{
    uint8_t byte = 0;
    struct codec_attr a = {.value = &byte, .length = 1};
    bool yes = true;

    (void)state;
    assert_int_equal(codec_attr_bool(&a, &yes), 0);
    assert_false(yes);
    byte = 1;
    assert_int_equal(codec_attr_bool(&a, &yes), 0);
    assert_true(yes);
    byte = 2;
    assert_int_equal(codec_attr_bool(&a, &yes), -EPROTO);
}

static void test_text_with_nul_or_too_long_is_refused(void **state)
{
    struct codec_attr a = {.value = (const uint8_t *)"ab\0c", .length = 2};

    (void)state;
    assert_int_equal(codec_attr_text(&a, 2), 0);
    assert_int_equal(codec_attr_text(&a, 1), -EMSGSIZE);
    a.length = 4;
    assert_int_equal(codec_attr_text(&a, 4), -EPROTO);
}

static void test_rlimit_and_terminal_size_are_decoded(void **state)
{
    static const uint8_t limit[24] = {7, 0, 0, 0, 0, 0, 0, 0, 1,
                                      2, 0, 0, 0, 0, 0, 0, 3};
    static const uint8_t reserved[24] = {7, 0, 0, 0, 1};
    static const uint8_t size[8] = {40, 0, 120, 0, 1, 1, 2, 1};
    struct codec_attr a = {.value = limit, .length = 24};
    struct mote_rlimit rlimit;
    struct mote_pty_size pty;

    (void)state;
    assert_int_equal(codec_attr_rlimit(&a, &rlimit), 0);
    assert_int_equal(rlimit.resource, 7);
    assert_int_equal(rlimit.soft, 513);
    assert_int_equal(rlimit.hard, 3);
    a.value = reserved;
    assert_int_equal(codec_attr_rlimit(&a, &rlimit), -EPROTO);
    a.value = size;
    a.length = 8;
    assert_int_equal(codec_attr_pty(&a, &pty), 0);
    assert_int_equal(pty.rows, 40);
    assert_int_equal(pty.columns, 120);
    assert_int_equal(pty.width, 257);
    assert_int_equal(pty.height, 258);
}

static void test_addresses_need_a_family_and_a_prefix_it_has(void **state)
{
    uint8_t bytes[40] = {4, 32};
    struct codec_attr a = {.value = bytes, .length = 20};
    struct mote_route route;
    struct mote_ip ip;

    (void)state;
    assert_int_equal(codec_attr_ip(&a, &ip), 0);
    bytes[1] = 33;
    assert_int_equal(codec_attr_ip(&a, &ip), -EPROTO);
    bytes[0] = 6;
    assert_int_equal(codec_attr_ip(&a, &ip), 0);
    bytes[1] = 129;
    assert_int_equal(codec_attr_ip(&a, &ip), -EPROTO);
    bytes[0] = 5;
    bytes[1] = 0;
    assert_int_equal(codec_attr_ip(&a, &ip), -EPROTO);
    bytes[0] = 4;
    bytes[3] = 1; /* reserved */
    assert_int_equal(codec_attr_ip(&a, &ip), -EPROTO);
    bytes[3] = 0;
    bytes[4] = 0x64;
    bytes[24] = 10;
    a.length = 40;
    assert_int_equal(codec_attr_route(&a, &route), 0);
    assert_int_equal(route.metric, 0x64);
    assert_int_equal(route.gateway[0], 10);
}

static void test_exit_usage_and_mark_have_their_wire_form(void **state)
{
    const struct mote_exit end = {
        .kind = MOTE_EXIT_SIGNAL, .flags = MOTE_EXIT_TIMED_OUT, .value = 9};
    const struct mote_usage usage = {1, 2, 3, 4};
    uint8_t bytes[128];
    struct codec_writer w;

    (void)state;
    codec_writer_init(&w, bytes, sizeof(bytes));
    codec_put_exit(&w, &end);
    assert_memory_equal(bytes, "\x21\0\0\0\x08\0\0\0\2\1\0\0\x09\0\0\0", 16);
    codec_writer_init(&w, bytes, sizeof(bytes));
    codec_put_usage(&w, &usage);
    assert_int_equal(w.length, 40);
    assert_int_equal(codec_get64(bytes + 8), 1);
    assert_int_equal(codec_get64(bytes + 32), 4);
    codec_writer_init(&w, bytes, sizeof(bytes));
    codec_put_mark(&w, MOTE_MARK_READY, 5);
    assert_memory_equal(
        bytes, "\x42\0\0\0\x10\0\0\0\4\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0", 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello_of_ours_agrees_with_itself),
        cmocka_unit_test(test_hello_of_a_later_host_agrees_on_our_highest),
        cmocka_unit_test(test_hello_bad_is_refused_and_leaves_the_version),
        cmocka_unit_test(test_frame_header_round_trip),
        cmocka_unit_test(test_frame_header_bad_is_refused),
        cmocka_unit_test(test_attributes_written_are_read_back),
        cmocka_unit_test(test_writer_full_overflows_and_stays_so),
        cmocka_unit_test(test_attribute_cut_off_is_refused_at_every_length),
        cmocka_unit_test(test_attribute_of_greatest_length_does_not_wrap),
        cmocka_unit_test(test_attribute_flags_required_is_told_others_refused),
        cmocka_unit_test(test_fixed_values_of_another_length_are_refused),
        cmocka_unit_test(test_bool_takes_0_and_1_only),
        cmocka_unit_test(test_text_with_nul_or_too_long_is_refused),
        cmocka_unit_test(test_rlimit_and_terminal_size_are_decoded),
        cmocka_unit_test(test_addresses_need_a_family_and_a_prefix_it_has),
        cmocka_unit_test(test_exit_usage_and_mark_have_their_wire_form),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
