/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/vsock_conn.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define BUF 65536u

static struct vsock_pkt packet(uint16_t op)
{
    return (struct vsock_pkt){.op = op, .buf_alloc = BUF};
}

static uint32_t feed(struct vsc *s, uint16_t op)
{
    struct vsock_pkt p = packet(op);

    return vsc_on_packet(s, &p);
}

static uint32_t feed_data(struct vsc *s, uint32_t len)
{
    struct vsock_pkt p = packet(VIRTIO_VSOCK_OP_RW);

    p.len = len;
    p.fwd_cnt = s->peer_fwd_cnt;
    return vsc_on_packet(s, &p);
}

static uint32_t feed_credit(struct vsc *s, uint32_t alloc, uint32_t fwd)
{
    struct vsock_pkt p = packet(VIRTIO_VSOCK_OP_CREDIT_UPDATE);

    p.buf_alloc = alloc;
    p.fwd_cnt = fwd;
    return vsc_on_packet(s, &p);
}

static uint32_t feed_shutdown(struct vsc *s, uint32_t flags)
{
    struct vsock_pkt p = packet(VIRTIO_VSOCK_OP_SHUTDOWN);

    p.flags = flags;
    return vsc_on_packet(s, &p);
}

static void expect_next(struct vsc *s, uint16_t op, struct vsock_pkt *p)
{
    memset(p, 0, sizeof(*p));
    assert_true(vsc_next_packet(s, p));
    assert_int_equal(p->op, op);
    assert_int_equal(p->buf_alloc, s->buf_alloc);
    assert_int_equal(p->fwd_cnt, s->fwd_cnt);
}

static void expect_none(struct vsc *s)
{
    struct vsock_pkt p;

    assert_false(vsc_next_packet(s, &p));
}

/* One that the guest opened, with nothing to send. */
static struct vsc open_conn(void)
{
    struct vsock_pkt p = packet(VIRTIO_VSOCK_OP_REQUEST);
    struct vsc s;

    vsc_init_guest(&s, &p, BUF);
    vsc_host_connected(&s);
    expect_next(&s, VIRTIO_VSOCK_OP_RESPONSE, &p);
    expect_none(&s);
    return s;
}

static void test_conn_host_opens(void **state)
{
    struct vsock_pkt p;
    struct vsc s;

    (void)state;
    vsc_init_host(&s, BUF);
    assert_int_equal(vsc_credit(&s), 0);
    expect_next(&s, VIRTIO_VSOCK_OP_REQUEST, &p);
    assert_int_equal(feed(&s, VIRTIO_VSOCK_OP_RESPONSE),
                     VSC_EV_OPENED | VSC_EV_CREDIT);
    assert_int_equal(s.state, VSC_OPEN);
    assert_int_equal(vsc_credit(&s), BUF);
    expect_none(&s);
}

static void test_conn_response_before_request_is_bad(void **state)
{
    struct vsc s;

    (void)state;
    vsc_init_host(&s, BUF);
    assert_int_equal(feed(&s, VIRTIO_VSOCK_OP_RESPONSE), VSC_EV_BAD);
}

static void test_conn_early_packets_are_bad(void **state)
{
    static const uint16_t ops[] = {VIRTIO_VSOCK_OP_RW, VIRTIO_VSOCK_OP_SHUTDOWN,
                                   VIRTIO_VSOCK_OP_REQUEST};
    struct vsock_pkt p = packet(VIRTIO_VSOCK_OP_REQUEST);
    struct vsc s;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
        vsc_init_host(&s, BUF);
        expect_next(&s, VIRTIO_VSOCK_OP_REQUEST, &p);
        assert_int_equal(feed(&s, ops[i]), VSC_EV_BAD);
        vsc_init_guest(&s, &p, BUF);
        assert_int_equal(feed(&s, ops[i]), VSC_EV_BAD);
    }
    vsc_init_guest(&s, &p, BUF);
    assert_int_equal(feed(&s, VIRTIO_VSOCK_OP_RESPONSE), VSC_EV_BAD);
    vsc_init_guest(&s, &p, BUF);
    assert_int_equal(feed(&s, VIRTIO_VSOCK_OP_CREDIT_UPDATE) & VSC_EV_BAD, 0);
    assert_int_equal(feed(&s, VIRTIO_VSOCK_OP_RST), VSC_EV_RESET);
}

static void test_conn_second_response_is_bad(void **state)
{
    struct vsc s = open_conn();

    (void)state;
    assert_int_equal(feed(&s, VIRTIO_VSOCK_OP_RESPONSE), VSC_EV_BAD);
}

static void test_conn_reset_wins_in_any_state(void **state)
{
    struct vsc s = open_conn();
    struct vsock_pkt p = packet(VIRTIO_VSOCK_OP_RST);

    (void)state;
    p.fwd_cnt = 12345; /* nonsense, but it does not matter any more */
    assert_int_equal(vsc_on_packet(&s, &p), VSC_EV_RESET);
}

/* --- credit -------------------------------------------------------------- */

static void test_conn_guest_may_fill_the_buffer_but_not_more(void **state)
{
    struct vsc s = open_conn();

    (void)state;
    assert_int_equal(feed_data(&s, BUF), VSC_EV_DATA);
    assert_int_equal(feed_data(&s, 1), VSC_EV_BAD);
    s = open_conn();
    assert_int_equal(feed_data(&s, BUF + 1), VSC_EV_BAD);
    s = open_conn();
    assert_int_equal(feed_data(&s, UINT32_MAX), VSC_EV_BAD);
    s = open_conn();
    assert_int_equal(feed_data(&s, 0), 0);
}

static void test_conn_forwarded_bytes_are_told_by_quarters(void **state)
{
    struct vsc s = open_conn();
    struct vsock_pkt p;

    (void)state;
    assert_int_equal(feed_data(&s, BUF), VSC_EV_DATA);
    vsc_forwarded(&s, BUF / 4 - 1);
    expect_none(&s);
    vsc_forwarded(&s, 1);
    expect_next(&s, VIRTIO_VSOCK_OP_CREDIT_UPDATE, &p);
    assert_int_equal(p.fwd_cnt, BUF / 4);
    expect_none(&s);
    vsc_forwarded(&s, 10);
    expect_none(&s);
    vsc_drained(&s); /* the last bytes have gone: no need to wait for more */
    expect_next(&s, VIRTIO_VSOCK_OP_CREDIT_UPDATE, &p);
    vsc_drained(&s);
    expect_none(&s);
}

static void test_conn_any_packet_tells_credit(void **state)
{
    struct vsc s = open_conn();
    struct vsock_pkt p;

    (void)state;
    assert_int_equal(feed_data(&s, BUF), VSC_EV_DATA);
    vsc_forwarded(&s, BUF);
    vsc_data_packet(&s, 10, &p);
    assert_int_equal(p.op, VIRTIO_VSOCK_OP_RW);
    assert_int_equal(p.len, 10);
    assert_int_equal(p.fwd_cnt, BUF);
    expect_none(&s); /* so no update of its own */
}

static void test_conn_credit_request_is_answered(void **state)
{
    struct vsc s = open_conn();
    struct vsock_pkt p;

    (void)state;
    assert_int_equal(feed(&s, VIRTIO_VSOCK_OP_CREDIT_REQUEST), 0);
    assert_int_equal(feed(&s, VIRTIO_VSOCK_OP_CREDIT_REQUEST), 0);
    expect_next(&s, VIRTIO_VSOCK_OP_CREDIT_UPDATE, &p);
    expect_none(&s); /* many requests, one answer: bounded */
}

static void test_conn_our_credit_runs_out_and_comes_back(void **state)
{
    struct vsc s = open_conn();
    struct vsock_pkt p;

    (void)state;
    vsc_data_packet(&s, BUF, &p);
    assert_int_equal(vsc_credit(&s), 0);
    vsc_ask_credit(&s);
    vsc_ask_credit(&s);
    expect_next(&s, VIRTIO_VSOCK_OP_CREDIT_REQUEST, &p);
    expect_none(&s);
    vsc_ask_credit(&s); /* not again before some came */
    expect_none(&s);
    assert_int_equal(feed_credit(&s, BUF, 0), 0);
    vsc_ask_credit(&s);
    expect_none(&s);
    assert_int_equal(feed_credit(&s, BUF, 100), VSC_EV_CREDIT);
    assert_int_equal(vsc_credit(&s), 100);
    assert_int_equal(feed_credit(&s, BUF, 200), 0); /* it never was zero */
    vsc_data_packet(&s, 200, &p);
    vsc_ask_credit(&s);
    expect_next(&s, VIRTIO_VSOCK_OP_CREDIT_REQUEST, &p);
}

static void test_conn_guest_that_freed_more_than_it_got_is_bad(void **state)
{
    struct vsc s = open_conn();
    struct vsock_pkt p;

    (void)state;
    assert_int_equal(feed_credit(&s, BUF, 1), VSC_EV_BAD);
    s = open_conn();
    vsc_data_packet(&s, 100, &p);
    assert_int_equal(feed_credit(&s, BUF, 101), VSC_EV_BAD);
    s = open_conn();
    vsc_data_packet(&s, 100, &p);
    assert_int_equal(feed_credit(&s, BUF, 100), 0);
}

static void test_conn_late_credit_does_not_take_credit_back(void **state)
{
    struct vsc s = open_conn();
    struct vsock_pkt p;

    (void)state;
    vsc_data_packet(&s, 1000, &p);
    assert_int_equal(feed_credit(&s, BUF, 900), 0);
    assert_int_equal(feed_credit(&s, BUF, 300), 0); /* overtaken */
    assert_int_equal(vsc_credit(&s), BUF - 100);
}

static void test_conn_guest_may_shrink_its_buffer(void **state)
{
    struct vsc s = open_conn();
    struct vsock_pkt p;

    (void)state;
    vsc_data_packet(&s, 1000, &p);
    assert_int_equal(feed_credit(&s, 500, 0), 0);
    assert_int_equal(vsc_credit(&s), 0);
    assert_int_equal(feed_credit(&s, 500, 600), VSC_EV_CREDIT);
    assert_int_equal(vsc_credit(&s), 100);
    assert_int_equal(feed_credit(&s, UINT32_MAX, 600), 0);
    assert_int_equal(vsc_credit(&s), (1u << 30) - 400);
}

/* Far over 4 GiB each way in odd steps: the counters wrap several times. */
static void test_conn_counters_wrap_without_stall(void **state)
{
    struct vsc s = open_conn();
    struct vsock_pkt p;
    uint64_t sent = 0;
    uint32_t fwd = 0;

    (void)state;
    while (sent < (uint64_t)9 << 30) {
        uint32_t n = vsc_credit(&s);

        assert_true(n > 0);
        vsc_data_packet(&s, n, &p);
        assert_int_equal(feed_data(&s, BUF - 7), VSC_EV_DATA);
        vsc_forwarded(&s, BUF - 7);
        fwd += n;
        assert_int_equal(feed_credit(&s, BUF, fwd - 1),
                         n > 1 ? VSC_EV_CREDIT : 0);
        assert_int_equal(feed_credit(&s, BUF, fwd), n > 1 ? 0 : VSC_EV_CREDIT);
        sent += n;
        while (vsc_next_packet(&s, &p))
            continue;
    }
}

/* --- shutdown ------------------------------------------------------------ */

static void test_conn_guest_half_closes(void **state)
{
    struct vsc s = open_conn();

    (void)state;
    assert_int_equal(feed_shutdown(&s, VIRTIO_VSOCK_SHUTDOWN_SEND),
                     VSC_EV_STOP_WRITE);
    assert_int_equal(feed_shutdown(&s, VIRTIO_VSOCK_SHUTDOWN_SEND), 0);
    assert_int_equal(feed_shutdown(&s, 0), 0);
    assert_int_equal(feed_shutdown(&s, 0xfffffffc), 0);
    assert_int_equal(feed_data(&s, 1), VSC_EV_BAD); /* it said it would not */
    s = open_conn();
    assert_int_equal(feed_shutdown(&s, VIRTIO_VSOCK_SHUTDOWN_RCV),
                     VSC_EV_STOP_READ);
    assert_int_equal(feed_data(&s, 1), VSC_EV_DATA);
    assert_int_equal(feed_shutdown(&s, VIRTIO_VSOCK_SHUTDOWN_SEND),
                     VSC_EV_CLOSED);
}

static void test_conn_guest_closes_both_at_once(void **state)
{
    struct vsc s = open_conn();

    (void)state;
    assert_int_equal(feed_shutdown(&s, VSOCK_SHUT_BOTH), VSC_EV_CLOSED);
}

static void test_conn_host_shutdown_is_told_once_and_adds_up(void **state)
{
    struct vsc s = open_conn();
    struct vsock_pkt p;

    (void)state;
    vsc_host_sent_all(&s);
    vsc_host_sent_all(&s);
    expect_next(&s, VIRTIO_VSOCK_OP_SHUTDOWN, &p);
    assert_int_equal(p.flags, VIRTIO_VSOCK_SHUTDOWN_SEND);
    vsc_host_sent_all(&s);
    expect_none(&s);
    vsc_host_receives_no_more(&s);
    expect_next(&s, VIRTIO_VSOCK_OP_SHUTDOWN, &p);
    assert_int_equal(p.flags, VSOCK_SHUT_BOTH);
    expect_none(&s);
}

static void test_conn_response_goes_before_shutdown(void **state)
{
    struct vsock_pkt p = packet(VIRTIO_VSOCK_OP_REQUEST);
    struct vsc s;

    (void)state;
    vsc_init_guest(&s, &p, BUF);
    vsc_host_connected(&s);
    vsc_host_sent_all(&s);
    expect_next(&s, VIRTIO_VSOCK_OP_RESPONSE, &p);
    expect_next(&s, VIRTIO_VSOCK_OP_SHUTDOWN, &p);
    expect_none(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conn_host_opens),
        cmocka_unit_test(test_conn_response_before_request_is_bad),
        cmocka_unit_test(test_conn_early_packets_are_bad),
        cmocka_unit_test(test_conn_second_response_is_bad),
        cmocka_unit_test(test_conn_reset_wins_in_any_state),
        cmocka_unit_test(test_conn_guest_may_fill_the_buffer_but_not_more),
        cmocka_unit_test(test_conn_forwarded_bytes_are_told_by_quarters),
        cmocka_unit_test(test_conn_any_packet_tells_credit),
        cmocka_unit_test(test_conn_credit_request_is_answered),
        cmocka_unit_test(test_conn_our_credit_runs_out_and_comes_back),
        cmocka_unit_test(test_conn_guest_that_freed_more_than_it_got_is_bad),
        cmocka_unit_test(test_conn_late_credit_does_not_take_credit_back),
        cmocka_unit_test(test_conn_guest_may_shrink_its_buffer),
        cmocka_unit_test(test_conn_counters_wrap_without_stall),
        cmocka_unit_test(test_conn_guest_half_closes),
        cmocka_unit_test(test_conn_guest_closes_both_at_once),
        cmocka_unit_test(test_conn_host_shutdown_is_told_once_and_adds_up),
        cmocka_unit_test(test_conn_response_goes_before_shutdown),
    };

    return cmocka_run_group_tests_name("vsock_conn", tests, NULL, NULL);
}
