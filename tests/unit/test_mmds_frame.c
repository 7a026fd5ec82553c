/* SPDX-License-Identifier: Apache-2.0 */
/* Which frames are for the metadata service, and what they say. */
#include "devices/mmds_frame.h"

#include "tests/harness/mmds_peer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static bool ours(const uint8_t *frame, size_t len)
{
    /* In memory of just this size, so that a read past it is seen. */
    size_t n = len < MMDS_HEAD_BYTES ? len : MMDS_HEAD_BYTES;
    uint8_t *head = malloc(n ? n : 1);
    bool yes;

    assert_non_null(head);
    memcpy(head, frame, n);
    yes = mmds_frame_is_ours(head, n, MP_IP);
    free(head);
    return yes;
}

static enum mmds_kind parse(const uint8_t *frame, size_t len, bool partial,
                            struct mmds_seg *seg)
{
    uint8_t *copy = malloc(len ? len : 1);
    struct mmds_arp arp;
    enum mmds_kind kind;

    assert_non_null(copy);
    memcpy(copy, frame, len);
    kind = mmds_frame_parse(copy, len, MP_IP, partial, &arp, seg);
    free(copy);
    return kind;
}

static void test_frames_for_the_address_are_told_apart(void **state)
{
    uint8_t f[MP_FRAME];
    struct mp_out o = {.port = 1000, .flags = MP_SYN, .data = "x", .len = 100};
    static const char text[100];
    size_t len;

    (void)state;
    o.data = text;
    for (o.vlan_tags = 0; o.vlan_tags < 20; o.vlan_tags++) {
        len = mp_put(f, &o);
        assert_true(ours(f, len));
    }
    o.dst = MP_IP - 1;
    for (o.vlan_tags = 0; o.vlan_tags < 7; o.vlan_tags++) {
        len = mp_put(f, &o);
        assert_false(ours(f, len));
    }
    /* What cannot be looked behind goes nowhere. */
    o.vlan_tags = 13;
    assert_true(ours(f, mp_put(f, &o)));
    assert_true(ours(f, mp_put_arp(f, MP_IP)));
    assert_false(ours(f, mp_put_arp(f, MP_IP + 1)));
    f[12] = 0x86; /* IPv6 */
    f[13] = 0xdd;
    assert_false(ours(f, 100));
}

static void test_frames_cut_anywhere_are_bad(void **state)
{
    uint8_t f[MP_FRAME];
    const struct mp_out o = {
        .port = 1000, .flags = MP_SYN, .mss = 1000, .data = "hello", .len = 5};
    size_t len = mp_put(f, &o);
    struct mmds_seg seg;

    (void)state;
    assert_int_equal(parse(f, len, false, &seg), MMDS_IS_TCP);
    for (size_t n = 0; n < len; n++) {
        assert_int_equal(parse(f, n, false, &seg), MMDS_BAD);
        assert_int_equal(ours(f, n), n >= 34);
    }
    len = mp_put_arp(f, MP_IP);
    for (size_t n = 0; n < len; n++) {
        assert_int_equal(parse(f, n, false, &seg), MMDS_BAD);
        assert_int_equal(ours(f, n), n >= 42);
    }
}

static void test_a_segment_is_read(void **state)
{
    uint8_t f[MP_FRAME];
    const struct mp_out o = {.port = 1000,
                             .seq = 0xfffffff0,
                             .ack = 7,
                             .window = 500,
                             .flags = MP_ACK | MP_PSH | MP_FIN,
                             .data = "hello",
                             .len = 5};
    size_t len = mp_put(f, &o);
    struct mmds_arp arp;
    struct mmds_seg seg;

    (void)state;
    /* Behind it is what pads a frame, and does not count. */
    memset(f + len, 0xaa, 10);
    assert_int_equal(mmds_frame_parse(f, len + 10, MP_IP, false, &arp, &seg),
                     MMDS_IS_TCP);
    assert_int_equal(seg.peer_ip, MP_GUEST);
    assert_int_equal(seg.peer_port, 1000);
    assert_int_equal(seg.port, 80);
    assert_int_equal(seg.seq, 0xfffffff0);
    assert_int_equal(seg.ack, 7);
    assert_int_equal(seg.window, 500);
    assert_int_equal(seg.flags, MMDS_ACK | MMDS_FIN);
    assert_int_equal(seg.len, 5);
    assert_memory_equal(seg.data, "hello", 5);
}

static void test_what_is_broken_is_refused(void **state)
{
    uint8_t f[MP_FRAME];
    const struct mp_out good = {
        .port = 1000, .flags = MP_SYN, .mss = 1000, .data = "hello", .len = 5};
    struct mp_out o = good;
    struct mmds_seg seg;
    static const struct {
        size_t at;
        uint8_t value;
    } bad[] = {
        {6, 1},     /* the sender's address is for a group */
        {14, 0x65}, /* version */
        {14, 0x44}, /* header too short */
        {14, 0x4f}, /* too long */
        {16, 0xff}, /* total length */
        {46, 0x40}, /* TCP's header too short */
        {46, 0xf0}, /* too long */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        size_t len = mp_put(f, &good);

        f[bad[i].at] = bad[i].value;
        assert_int_equal(parse(f, len, true, &seg), MMDS_BAD);
    }
    o.bad_ip_sum = true;
    assert_int_equal(parse(f, mp_put(f, &o), true, &seg), MMDS_BAD);
    o = good;
    o.bad_tcp_sum = true;
    assert_int_equal(parse(f, mp_put(f, &o), false, &seg), MMDS_BAD);
    assert_int_equal(parse(f, mp_put(f, &o), true, &seg), MMDS_IS_TCP);
    for (uint32_t i = 0; i < 4; i++) {
        static const uint32_t sources[] = {MP_IP, 0xffffffff, 0xe0000001,
                                           0xf0000000};

        o = good;
        o.src = sources[i];
        assert_int_equal(parse(f, mp_put(f, &o), false, &seg), MMDS_BAD);
    }
    o = good;
    o.port = 0;
    assert_int_equal(parse(f, mp_put(f, &o), false, &seg), MMDS_BAD);
    o = good;
    o.dst = MP_IP + 1; /* changed after it was looked at */
    assert_int_equal(parse(f, mp_put(f, &o), false, &seg), MMDS_BAD);
}

static void test_fragments_and_other_protocols_are_nothing(void **state)
{
    uint8_t f[MP_FRAME];
    struct mp_out o = {.port = 1000, .flags = MP_SYN};
    struct mmds_seg seg;

    (void)state;
    o.fragment = 0x2000; /* more follow */
    assert_int_equal(parse(f, mp_put(f, &o), false, &seg), MMDS_NOTHING);
    o.fragment = 1; /* not the first */
    assert_int_equal(parse(f, mp_put(f, &o), false, &seg), MMDS_NOTHING);
    o.fragment = 0x4000; /* do not fragment */
    assert_int_equal(parse(f, mp_put(f, &o), false, &seg), MMDS_IS_TCP);
    o.protocol = 17;
    assert_int_equal(parse(f, mp_put(f, &o), false, &seg), MMDS_NOTHING);
    o.protocol = 0;
    o.vlan_tags = 1;
    assert_int_equal(parse(f, mp_put(f, &o), false, &seg), MMDS_NOTHING);
}

static void test_options_of_a_syn(void **state)
{
    uint8_t f[MP_FRAME];
    const struct mp_out o = {.port = 1000, .flags = MP_SYN, .mss = 0x300};
    size_t len = mp_put(f, &o);
    uint8_t *opts = f + 54;
    struct mmds_seg seg;

    (void)state;
    assert_int_equal(parse(f, len, false, &seg), MMDS_IS_TCP);
    assert_int_equal(seg.mss, 0x300);
    opts[2] = 9; /* past the end */
    assert_int_equal(parse(f, len, true, &seg), MMDS_BAD);
    opts[2] = 0; /* would never end */
    assert_int_equal(parse(f, len, true, &seg), MMDS_BAD);
    opts[2] = 3; /* of another size: not one that we know */
    assert_int_equal(parse(f, len, true, &seg), MMDS_IS_TCP);
    assert_int_equal(seg.mss, 0);
    memset(opts, 1, 7);
    opts[7] = 2; /* its length is missing */
    assert_int_equal(parse(f, len, true, &seg), MMDS_BAD);
}

static void test_arp_is_answered_for_the_address_alone(void **state)
{
    uint8_t f[MP_FRAME];
    uint8_t answer[MMDS_MAX_FRAME];
    size_t len = mp_put_arp(f, MP_IP);
    struct mmds_arp arp;
    struct mmds_seg seg;
    struct mp_in in;

    (void)state;
    assert_int_equal(mmds_frame_parse(f, len, MP_IP, false, &arp, &seg),
                     MMDS_IS_ARP);
    assert_false(mp_take(answer, mmds_put_arp(answer, &arp, MP_IP), &in));
    assert_true(in.to_guest);
    f[21] = 2; /* an answer of the guest's */
    assert_int_equal(parse(f, len, false, &seg), MMDS_NOTHING);
    f[21] = 1;
    f[18] = 8; /* no Ethernet address */
    assert_int_equal(parse(f, len, false, &seg), MMDS_BAD);
    len = mp_put_arp(f, MP_IP);
    f[28] = 0xa9; /* the guest says that the address is its own */
    f[29] = 0xfe;
    f[30] = 0xa9;
    f[31] = 0xfe;
    assert_int_equal(parse(f, len, false, &seg), MMDS_NOTHING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_for_the_address_are_told_apart),
        cmocka_unit_test(test_frames_cut_anywhere_are_bad),
        cmocka_unit_test(test_a_segment_is_read),
        cmocka_unit_test(test_what_is_broken_is_refused),
        cmocka_unit_test(test_fragments_and_other_protocols_are_nothing),
        cmocka_unit_test(test_options_of_a_syn),
        cmocka_unit_test(test_arp_is_answered_for_the_address_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
