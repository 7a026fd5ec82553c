/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata service on a link, against a guest's TCP of the test's own. */
#include "devices/mmds_net.h"

#include "tests/harness/mmds_link.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* --- what goes well --------------------------------------------------------
 */

static void test_a_request_is_answered_and_both_sides_close(void **state)
{
    struct ml_link l;
    struct ml_peer p;

    (void)state;
    ml_init(&l);
    p = ml_dial(&l, 1000);
    assert_true(p.synced);
    ml_say(&p, MP_PSH, "70000\n");
    ml_drain(&p);
    assert_int_equal(p.got, 70000);
    assert_false(p.fin);
    ml_say(&p, MP_PSH, "5\n");
    ml_drain(&p);
    assert_int_equal(p.got, 70005);
    ml_bye(&p);
    assert_int_equal(l.counts.connections_destroyed, 1);
    assert_int_equal(l.counts.rx_count, 2);
    assert_int_equal(mmds_net_deadline(l.net), 0);
    ml_fini(&l);
}

static void test_bytes_of_a_response_are_in_order(void **state)
{
    struct ml_link l;
    struct ml_peer p;
    struct mp_in in;
    size_t at = 0;

    (void)state;
    ml_init(&l);
    p = ml_dial(&l, 1000);
    ml_say(&p, 0, "C20000\n");
    while (at < 20000 && ml_hear(&l, &in)) {
        assert_true(in.len <= 1460);
        for (size_t i = 0; i < in.len; i++)
            assert_int_equal(in.data[i], ml_byte(at + i));
        at += in.len;
        ml_take(&p, &in);
        ml_say(&p, 0, NULL);
    }
    ml_drain(&p);
    assert_int_equal(p.got, 20000);
    assert_true(p.fin); /* it said that it would close */
    ml_bye(&p);
    ml_fini(&l);
}

static void test_a_request_in_pieces_and_two_in_one(void **state)
{
    struct ml_link l;
    struct ml_peer p;

    (void)state;
    ml_init(&l);
    p = ml_dial(&l, 1000);
    ml_say(&p, 0, "1");
    ml_drain(&p);
    ml_say(&p, 0, "0");
    ml_drain(&p);
    ml_say(&p, 0, "\n7\n9\n");
    ml_drain(&p);
    assert_int_equal(p.got, 26);
    assert_int_equal(l.asked, 3);
    /* It closes its half before it has the answer. */
    ml_say(&p, MP_FIN, "100\n");
    ml_drain(&p);
    assert_int_equal(p.got, 126);
    assert_true(p.fin);
    assert_int_equal(l.counts.connections_destroyed, 1);
    ml_fini(&l);
}

static void test_many_connections_one_after_another(void **state)
{
    struct ml_link l;

    (void)state;
    ml_init(&l);
    for (uint16_t i = 0; i < 200; i++) {
        struct ml_peer p = ml_dial(&l, (uint16_t)(1000 + i));

        ml_say(&p, 0, i % 2 ? "C300\n" : "300\n");
        ml_drain(&p);
        assert_int_equal(p.got, 300);
        ml_bye(&p);
    }
    assert_int_equal(l.counts.connections_created, 200);
    assert_int_equal(l.counts.tx_errors, 0);
    ml_fini(&l);
}

static void test_the_mss_is_the_smaller_one(void **state)
{
    static const struct {
        uint16_t said;
        uint16_t told;
    } rows[] = {{0, 536}, {100, 100}, {1, 64}, {65535, 1460}};
    struct ml_link l;
    struct mp_in in;

    (void)state;
    ml_init(&l);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct ml_peer p = {.l = &l, .port = (uint16_t)(i + 1), .seq = 1};
        const struct mp_out syn = {.port = p.port,
                                   .window = 60000,
                                   .flags = MP_SYN,
                                   .mss = rows[i].said};

        p.window = 60000;
        ml_send(&l, &syn);
        assert_true(ml_hear(&l, &in));
        assert_int_equal(in.mss, rows[i].told);
        assert_int_equal(in.flags, MP_SYN | MP_ACK);
        assert_int_equal(in.ack, 1);
        assert_int_equal(in.window, MMDS_REQUEST_MAX);
        ml_take(&p, &in);
        ml_say(&p, 0, "5000\n");
        assert_true(ml_hear(&l, &in));
        assert_int_equal(in.len, rows[i].told);
        mmds_net_reset(l.net);
    }
    ml_fini(&l);
}

/* --- what gets lost ---------------------------------------------------------
 */

static void test_gaps_are_dropped_and_repeats_taken_once(void **state)
{
    struct ml_link l;
    struct ml_peer p;
    struct mp_in in;
    uint32_t seq;

    (void)state;
    ml_init(&l);
    p = ml_dial(&l, 1000);
    seq = p.seq;
    p.seq += 2; /* the second piece comes first */
    ml_say(&p, 0, "0\n");
    assert_true(ml_hear(&l, &in));
    assert_int_equal(in.ack, seq);
    p.seq = seq;
    ml_say(&p, 0, "10");
    ml_say(&p, 0, "0\n");
    p.seq = seq; /* all of it again, and more behind it */
    ml_say(&p, 0, "100\n7\n");
    ml_drain(&p);
    assert_int_equal(p.got, 107);
    p.seq = seq;
    ml_say(&p, 0, "100\n"); /* old news */
    p.seq = seq + 6;
    ml_drain(&p);
    assert_int_equal(p.got, 107);
    assert_int_equal(l.asked, 2);
    ml_fini(&l);
}

static void test_what_is_not_acknowledged_comes_again(void **state)
{
    struct ml_link l;
    struct ml_peer p;
    struct mp_in in;
    int times = 0;

    (void)state;
    ml_init(&l);
    p = ml_dial(&l, 1000);
    ml_say(&p, 0, "C3000\n");
    while (ml_hear(&l, &in)) /* all lost */
        ;
    assert_int_not_equal(mmds_net_deadline(l.net), 0);
    mmds_net_expire(l.net, l.now); /* not yet */
    assert_false(mmds_net_owes(l.net));
    l.now = mmds_net_deadline(l.net);
    mmds_net_expire(l.net, l.now);
    ml_drain(&p);
    assert_int_equal(p.got, 3000);
    assert_true(p.fin);
    /* Its last word is lost for good: it gives up. */
    p = ml_dial(&l, 1001);
    ml_say(&p, 0, "50\n");
    while (!p.rst && times++ < 100) {
        while (ml_hear(&l, &in)) {
            if (in.flags & MP_RST)
                p.rst = true;
        }
        if (!p.rst) {
            assert_int_not_equal(mmds_net_deadline(l.net), 0);
            l.now = mmds_net_deadline(l.net);
            mmds_net_expire(l.net, l.now);
        }
    }
    assert_true(p.rst);
    assert_in_range(times, 5, 20);
    mmds_net_reset(l.net);
    ml_fini(&l);
}

static void test_a_lost_syn_answer_comes_again(void **state)
{
    struct ml_link l;
    struct ml_peer p = {.port = 1000, .seq = 1, .window = 60000};
    const struct mp_out syn = {
        .port = 1000, .window = 60000, .flags = MP_SYN, .mss = 1460};
    struct mp_in in;

    (void)state;
    ml_init(&l);
    p.l = &l;
    ml_send(&l, &syn);
    assert_true(ml_hear(&l, &in));
    ml_send(&l, &syn); /* the guest asks again */
    assert_true(ml_hear(&l, &in));
    assert_int_equal(in.flags, MP_SYN | MP_ACK);
    assert_int_equal(in.seq, ML_ISN);
    l.now = mmds_net_deadline(l.net);
    mmds_net_expire(l.net, l.now); /* or does not */
    assert_true(ml_hear(&l, &in));
    assert_int_equal(in.flags, MP_SYN | MP_ACK);
    ml_take(&p, &in);
    ml_say(&p, 0, "5\n");
    ml_drain(&p);
    assert_int_equal(p.got, 5);
    ml_fini(&l);
}

static void test_a_closed_window_is_probed_and_opens(void **state)
{
    struct ml_link l;
    struct ml_peer p;
    struct mp_in in;

    (void)state;
    ml_init(&l);
    p = ml_dial(&l, 1000);
    p.window = 0;
    ml_say(&p, 0, "3000\n");
    assert_true(ml_hear(&l, &in));
    assert_int_equal(in.len, 0);
    assert_false(ml_hear(&l, &in));
    for (int i = 0; i < 3; i++) {
        assert_int_not_equal(mmds_net_deadline(l.net), 0);
        l.now = mmds_net_deadline(l.net);
        mmds_net_expire(l.net, l.now);
        assert_true(ml_hear(&l, &in));
        assert_int_equal(in.len, 1);
        assert_int_equal(in.seq, p.ack);
        ml_say(&p, 0, NULL); /* not taken */
        assert_false(ml_hear(&l, &in));
    }
    p.window = 100;
    ml_say(&p, 0, NULL);
    assert_true(ml_hear(&l, &in));
    assert_int_equal(in.len, 100);
    assert_int_equal(in.seq, p.ack);
    ml_take(&p, &in);
    p.window = 60000;
    ml_say(&p, 0, NULL);
    ml_drain(&p);
    assert_int_equal(p.got, 3000);
    ml_fini(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_is_answered_and_both_sides_close),
        cmocka_unit_test(test_bytes_of_a_response_are_in_order),
        cmocka_unit_test(test_a_request_in_pieces_and_two_in_one),
        cmocka_unit_test(test_many_connections_one_after_another),
        cmocka_unit_test(test_the_mss_is_the_smaller_one),
        cmocka_unit_test(test_gaps_are_dropped_and_repeats_taken_once),
        cmocka_unit_test(test_what_is_not_acknowledged_comes_again),
        cmocka_unit_test(test_a_lost_syn_answer_comes_again),
        cmocka_unit_test(test_a_closed_window_is_probed_and_opens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
