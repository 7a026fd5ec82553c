/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata service against a guest that breaks the rules of TCP. */
#include "devices/mmds_net.h"

#include "tests/harness/mmds_link.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* --- what a hostile guest does ----------------------------------------------
 */

static void test_connections_are_bounded_and_idle_ones_give_way(void **state)
{
    struct ml_link l;
    struct ml_peer first;
    struct ml_peer p;

    (void)state;
    ml_init(&l);
    first = ml_dial(&l, 1);
    for (uint16_t i = 1; i < MMDS_MAX_CONNS; i++)
        assert_true(ml_dial(&l, (uint16_t)(i + 1)).synced);
    p = ml_dial(&l, 100);
    assert_true(p.rst); /* all are busy */
    assert_int_equal(l.counts.connections_created, MMDS_MAX_CONNS);
    l.now += 3000 * ML_MS;
    ml_say(&first, 0, "3\n"); /* not idle any more */
    ml_drain(&first);
    p = ml_dial(&l, 101);
    assert_true(p.synced);
    ml_say(&first, 0, "4\n");
    ml_drain(&first);
    assert_int_equal(first.got, 7);
    assert_int_equal(l.counts.connections_destroyed, 1);
    ml_fini(&l);
}

static void test_responses_are_bounded(void **state)
{
    struct ml_link l;
    struct ml_peer p[3];
    struct mp_in in;

    (void)state;
    ml_init(&l);
    for (uint16_t i = 0; i < 3; i++)
        p[i] = ml_dial(&l, (uint16_t)(i + 1));
    for (uint16_t i = 0; i < 3; i++) {
        ml_say(&p[i], 0, "2000000\n");
    }
    /* The first two fill what may be held; the third waits. */
    assert_int_equal(l.asked, 2);
    while (ml_hear(&l, &in))
        ;
    ml_say(&p[0], MP_RST, NULL);
    ml_say(&p[1], 0, NULL);
    assert_int_equal(l.asked, 3);
    ml_fini(&l);
}

static void test_strangers_get_a_reset(void **state)
{
    static const struct {
        struct mp_out o;
        bool answered;
        uint32_t seq;
        uint32_t ack;
    } rows[] = {
        {{.port = 5, .dst_port = 81, .flags = MP_SYN, .seq = 9}, true, 0, 10},
        {{.port = 5, .flags = MP_ACK, .ack = 77, .seq = 9}, true, 77, 0},
        {{.port = 5, .flags = MP_SYN | MP_ACK, .ack = 77}, true, 77, 0},
        {{.port = 5, .flags = MP_FIN, .seq = 9}, true, 0, 10},
        {{.port = 5, .flags = 0, .seq = 9, .data = "abc", .len = 3},
         true,
         0,
         12},
        {{.port = 5, .flags = MP_RST, .seq = 9}, false, 0, 0},
        {{.port = 5, .flags = MP_RST | MP_SYN, .seq = 9}, false, 0, 0},
    };
    struct ml_link l;
    struct mp_in in;

    (void)state;
    ml_init(&l);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ml_send(&l, &rows[i].o);
        assert_int_equal(ml_hear(&l, &in), rows[i].answered);
        if (!rows[i].answered)
            continue;
        assert_true(in.flags & MP_RST);
        assert_int_equal(in.seq, rows[i].seq);
        if (in.flags & MP_ACK)
            assert_int_equal(in.ack, rows[i].ack);
    }
    for (int i = 0; i < 1000; i++)
        ml_send(&l, &rows[0].o);
    l.frames = 0;
    while (ml_hear(&l, &in))
        ;
    assert_in_range(l.frames, 1, 10);
    assert_int_equal(l.counts.connections_created, 0);
    ml_fini(&l);
}

static void test_wrong_numbers_change_nothing(void **state)
{
    struct ml_link l;
    struct ml_peer p;
    struct ml_peer q;
    struct mp_in in;

    (void)state;
    ml_init(&l);
    p = ml_dial(&l, 1000);
    q = p;
    q.ack += 1; /* acknowledges what was never sent */
    ml_say(&q, 0, "5\n");
    assert_true(ml_hear(&l, &in));
    assert_int_equal(in.len, 0);
    assert_int_equal(in.ack, p.seq);
    assert_int_equal(l.asked, 0);
    q = p;
    q.seq -= 1; /* a reset from outside the window */
    ml_say(&q, MP_RST, NULL);
    q.seq += 1 + MMDS_REQUEST_MAX + 1;
    ml_say(&q, MP_RST, NULL);
    ml_say(&p, MP_SYN, NULL); /* a stray one */
    assert_true(ml_hear(&l, &in));
    assert_int_equal(in.flags, MP_ACK);
    ml_say(&p, 0, "5\n");
    ml_drain(&p);
    assert_int_equal(p.got, 5);
    ml_say(&p, MP_RST, NULL);
    assert_int_equal(l.counts.connections_destroyed, 1);
    ml_fini(&l);
}

static void test_a_request_without_end_is_reset(void **state)
{
    struct ml_link l;
    struct ml_peer p;
    struct mp_in in;
    char piece[1001];

    (void)state;
    memset(piece, 'x', 1000);
    piece[1000] = '\0';
    ml_init(&l);
    p = ml_dial(&l, 1000);
    for (int i = 0; i < 8 && !p.rst; i++) {
        ml_say(&p, 0, piece);
        assert_true(ml_hear(&l, &in));
        assert_int_equal(in.window,
                         MMDS_REQUEST_MAX - 1000u * (unsigned)(i + 1));
    }
    ml_say(&p, 0, piece); /* more than the window */
    assert_true(ml_hear(&l, &in));
    assert_true(in.flags & MP_RST);
    assert_int_equal(l.counts.connections_destroyed, 1);
    /* The service itself refuses. */
    p = ml_dial(&l, 1001);
    ml_say(&p, 0, "!\n");
    assert_true(ml_hear(&l, &in));
    assert_true(in.flags & MP_RST);
    /* Half a request, and then nothing more. */
    p = ml_dial(&l, 1002);
    ml_say(&p, MP_FIN, "12");
    ml_drain(&p);
    assert_true(p.fin);
    assert_int_equal(l.counts.connections_destroyed, 3);
    ml_fini(&l);
}

static void test_other_frames_are_counted(void **state)
{
    uint8_t f[MP_FRAME];
    const struct mp_out udp = {.port = 53, .protocol = 17};
    const struct mp_out bad = {
        .port = 53, .flags = MP_SYN, .bad_tcp_sum = true};
    struct ml_link l;
    struct mp_in in;

    (void)state;
    ml_init(&l);
    ml_send(&l, &udp);
    ml_send(&l, &bad);
    assert_false(ml_hear(&l, &in));
    assert_int_equal(l.counts.rx_accepted, 2);
    assert_int_equal(l.counts.rx_accepted_unusual, 1);
    assert_int_equal(l.counts.rx_accepted_err, 1);
    mmds_net_refuse(l.net);
    assert_int_equal(l.counts.rx_accepted_err, 2);
    for (int i = 0; i < 100; i++)
        mmds_net_receive(l.net, f, mp_put_arp(f, MP_IP), false, l.now);
    assert_false(ml_hear(&l, &in)); /* one answer, to the last question */
    assert_int_equal(l.frames, 1);
    assert_false(mmds_net_owes(l.net));
    ml_fini(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connections_are_bounded_and_idle_ones_give_way),
        cmocka_unit_test(test_responses_are_bounded),
        cmocka_unit_test(test_strangers_get_a_reset),
        cmocka_unit_test(test_wrong_numbers_change_nothing),
        cmocka_unit_test(test_a_request_without_end_is_reset),
        cmocka_unit_test(test_other_frames_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
