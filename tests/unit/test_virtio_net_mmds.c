/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata service behind a network device: what goes where. */
#include "devices/virtio_net.h"

#include "tests/harness/loop_run.h"
#include "tests/harness/mmds_link.h"
#include "tests/harness/net_guest.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

#define MRG NG_BIT(MRG_RXBUF)

/* A guest with its service; receive buffers of `size` bytes in a row. */
struct rig {
    struct ml_link l;
    struct net_guest *g;
    gpa_t pool;
    uint32_t size;
    uint32_t given; /* buffers, in the order of the ring */
    uint16_t txq;   /* that the guest sends on */
    uint32_t tx_done;
    uint32_t heads[NG_QSIZE]; /* the buffer that a head stands for */
};

static void rig_give(struct rig *r, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, r->given++) {
        struct fdrv_seg s = {r->pool + (uint64_t)r->given * r->size, r->size,
                             true};

        r->heads[fdrv_add(&r->g->d, NG_RX, &s, 1)] = r->given;
    }
    fdrv_kick(&r->g->d, NG_RX);
}

static void rig_send(void *arg, const uint8_t *frame, size_t len)
{
    struct rig *r = arg;
    struct fdrv *d = &r->g->d;
    struct fdrv_seg s[2] = {{fdrv_alloc(d, NG_HDR, 8), NG_HDR, false},
                            {fdrv_put(d, frame, len, 8), (uint32_t)len, false}};
    uint32_t used;

    fdrv_add(d, r->txq, s, 2);
    fdrv_kick(d, r->txq);
    ng_settle(r->g);
    ng_take(r->g, r->txq, 1, &used);
    r->tx_done++;
}

/* A frame that came, out of as many buffers as it takes. */
static size_t rig_next(void *arg, uint8_t *out)
{
    struct rig *r = arg;
    uint16_t left = 1;
    size_t len = 0;
    uint32_t head;
    uint32_t n;

    ng_settle(r->g);
    for (bool first = true; left > 0; left--, first = false) {
        const uint8_t *p;

        if (!fdrv_used(&r->g->d, NG_RX, &head, &n)) {
            assert_true(first);
            return 0;
        }
        p = fdrv_ptr(&r->g->d, r->pool + (uint64_t)r->heads[head] * r->size, n);
        if (first) {
            static const uint8_t zero[10];

            assert_memory_equal(p, zero, sizeof(zero));
            left = (uint16_t)(p[10] | p[11] << 8);
            assert_in_range(left, 1, 100);
            p += NG_HDR;
            n -= NG_HDR;
        }
        assert_true(len + n <= MMDS_MAX_FRAME);
        memcpy(out + len, p, n);
        len += n;
    }
    return len;
}

static void rig_init(struct rig *r, uint64_t features, uint32_t size,
                     bool service)
{
    struct ng_args args = {.features = features};

    memset(r, 0, sizeof(*r));
    ml_init(&r->l);
    r->l.send = rig_send;
    r->l.next = rig_next;
    r->l.arg = r;
    if (service)
        args.vnet.mmds = &r->l.service;
    r->g = ng_new(&args);
    r->size = size;
    r->txq = NG_TX;
    r->pool = fdrv_alloc(&r->g->d, (uint64_t)size * 250, 64);
}

static void rig_fini(struct rig *r)
{
    ng_free(r->g);
    ml_fini(&r->l);
}

static void exchange(struct rig *r, uint16_t port)
{
    struct ml_peer p = ml_dial(&r->l, port);

    assert_true(p.synced);
    ml_say(&p, 0, "C4000\n");
    ml_drain(&p);
    assert_int_equal(p.got, 4000);
    ml_bye(&p);
}

static void test_a_guest_reads_and_the_network_sees_nothing(void **state)
{
    static const struct {
        uint64_t features;
        uint32_t size;
        uint32_t buffers;
    } rows[] = {
        {MRG, 2048, 200}, {MRG, 200, 240},   {0, 2048, 200},
        {0, 8000, 200},   {MRG, 70000, 100}, {MRG | NG_EVENT, 2048, 200},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct rig r;

        rig_init(&r, rows[i].features, rows[i].size, true);
        rig_give(&r, rows[i].buffers);
        exchange(&r, 1000);
        assert_int_equal(r.g->net.num_out, 0);
        assert_int_equal(ng_stats(r.g).tx_frames, 0);
        assert_int_equal(ng_stats(r.g).tx_bad, 0);
        rig_fini(&r);
    }
}

static void test_arp_is_answered(void **state)
{
    uint8_t f[MP_FRAME];
    struct rig r;
    struct mp_in in;

    (void)state;
    rig_init(&r, MRG, 2048, true);
    rig_give(&r, 10);
    rig_send(&r, f, mp_put_arp(f, MP_IP));
    assert_false(ml_hear(&r.l, &in));
    assert_int_equal(r.l.frames, 1);
    rig_send(&r, f, mp_put_arp(f, MP_IP + 1));
    assert_false(ml_hear(&r.l, &in));
    assert_int_equal(r.l.frames, 1);
    assert_int_equal(r.g->net.num_out, 1);
    rig_fini(&r);
}

static void test_without_a_service_the_address_is_like_any_other(void **state)
{
    uint8_t f[MP_FRAME];
    const struct mp_out syn = {.port = 1, .flags = MP_SYN};
    struct rig r;
    struct mp_in in;

    (void)state;
    rig_init(&r, MRG, 2048, false);
    rig_give(&r, 10);
    rig_send(&r, f, mp_put(f, &syn));
    rig_send(&r, f, mp_put_arp(f, MP_IP));
    assert_false(ml_hear(&r.l, &in));
    assert_int_equal(r.l.frames, 0);
    assert_int_equal(r.g->net.num_out, 2);
    rig_fini(&r);
}

static void test_other_frames_leave_as_they_were_looked_at(void **state)
{
    static const uint32_t sizes[] = {14, 40, 63, 64, 65, 200, 1514, 9000};
    struct rig r;

    (void)state;
    rig_init(&r, MRG, 2048, true);
    for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        const struct fnet_frame *out = &r.g->net.out[i];
        uint32_t n;

        ng_add_tx(r.g, NG_TX, sizes[i], 3);
        fdrv_kick(&r.g->d, NG_TX);
        ng_settle(r.g);
        ng_take(r.g, NG_TX, 1, &n);
        assert_int_equal(r.g->net.num_out, i + 1);
        assert_int_equal(out->bytes, sizes[i]);
        for (uint32_t b = 0; b < sizes[i]; b++)
            assert_int_equal(out->data[b], (uint8_t)(3 + b));
    }
    rig_fini(&r);
}

/* Another vCPU writes the address into a frame that was found to be fine. */
static void test_a_frame_that_changes_later_does_not_leak(void **state)
{
    uint8_t f[MP_FRAME];
    const struct mp_out syn = {.port = 1, .flags = MP_SYN, .dst = MP_IP + 1};
    struct rig r;
    size_t len = mp_put(f, &syn);
    struct fdrv_seg s[2];
    const uint8_t *sent;
    uint32_t used;

    (void)state;
    rig_init(&r, MRG, 2048, true);
    s[0] = (struct fdrv_seg){fdrv_alloc(&r.g->d, NG_HDR, 8), NG_HDR, false};
    s[1] =
        (struct fdrv_seg){fdrv_put(&r.g->d, f, len, 8), (uint32_t)len, false};
    fdrv_add(&r.g->d, NG_TX, s, 2);
    fdrv_kick(&r.g->d, NG_TX);
    assert_int_equal(r.g->net.num_tx, 1);
    memset(fdrv_ptr(&r.g->d, s[1].gpa, len), 0xa9, len);
    ng_settle(r.g);
    sent = r.g->net.out[0].data;
    assert_memory_equal(sent, f, len < MMDS_HEAD_BYTES ? len : MMDS_HEAD_BYTES);
    ng_take(r.g, NG_TX, 1, &used);
    rig_fini(&r);
}

static void test_answers_wait_for_buffers(void **state)
{
    struct rig r;
    struct ml_peer p;
    struct mp_in in;

    (void)state;
    rig_init(&r, MRG, 2048, true);
    p = ml_dial(&r.l, 1000);
    assert_false(p.synced); /* it has given no buffer */
    rig_give(&r, 1);
    ml_drain(&p);
    assert_true(p.synced);
    ml_say(&p, 0, "4000\n");
    for (uint32_t i = 0; i < 10 && p.got < 4000; i++) {
        assert_false(ml_hear(&r.l, &in));
        rig_give(&r, 1);
        assert_true(ml_hear(&r.l, &in));
        ml_take(&p, &in);
        ml_say(&p, 0, NULL);
    }
    assert_int_equal(p.got, 4000);
    rig_fini(&r);
}

static void test_buffers_too_short_for_an_answer(void **state)
{
    struct rig r;
    struct ml_peer p;

    (void)state;
    rig_init(&r, 0, 80, true); /* a SYN's answer fits, a response does not */
    rig_give(&r, 100);
    p = ml_dial(&r.l, 1000);
    assert_true(p.synced);
    ml_say(&p, 0, "4000\n");
    ml_drain(&p);
    assert_int_equal(p.got, 0);
    loop_run_for(r.g->loop, 30); /* and does not go round for it */
    rig_fini(&r);
}

static void test_network_and_service_share_the_ring(void **state)
{
    struct rig r;
    struct ml_peer p;
    uint8_t f[MMDS_MAX_FRAME];
    uint32_t got = 0;

    (void)state;
    rig_init(&r, MRG, 2048, true);
    rig_give(&r, 100);
    p = ml_dial(&r.l, 1000);
    for (uint8_t i = 0; i < 20; i++)
        fnet_feed(&r.g->net, 0, 1000, i, NULL);
    ng_settle(r.g);
    ml_say(&p, 0, "C4000\n");
    while (rig_next(&r, f) == 1000)
        assert_int_equal(f[0], got++);
    assert_int_equal(got, 20);
    assert_int_equal(ng_stats(r.g).rx_frames, 20);
    rig_fini(&r);
}

static void test_a_reset_of_the_device_ends_connections(void **state)
{
    struct rig r;
    struct ml_peer p;

    (void)state;
    rig_init(&r, MRG, 2048, true);
    rig_give(&r, 50);
    p = ml_dial(&r.l, 1000);
    ml_say(&p, 0, "40000\n");
    assert_int_equal(fdrv_reset(&r.g->d), 0);
    assert_int_equal(r.l.counts.connections_destroyed, 1);
    ng_attach(r.g, 0, MRG);
    rig_give(&r, 50);
    ml_say(&p, 0, "5\n");
    ml_drain(&p);
    assert_true(p.rst);
    exchange(&r, 1001);
    rig_fini(&r);
}

static void test_a_limited_network_does_not_limit_the_service(void **state)
{
    struct ng_args args = {.features = MRG};
    struct rig r;

    (void)state;
    rig_init(&r, MRG, 2048, true);
    ng_free(r.g);
    args.vnet.mmds = &r.l.service;
    args.vnet.tx.ops = (struct bucket_config){1, 0, 3600000};
    args.vnet.rx.ops = (struct bucket_config){1, 0, 3600000};
    r.g = ng_new(&args);
    r.pool = fdrv_alloc(&r.g->d, (uint64_t)2048 * 250, 64);
    rig_give(&r, 50);
    exchange(&r, 1000);
    rig_fini(&r);
}

static void test_any_queue_pair_asks_and_the_first_is_answered(void **state)
{
    static const uint8_t two[] = {VIRTIO_NET_CTRL_MQ,
                                  VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, 2, 0};
    struct ng_args args = {.pairs = 2,
                           .features = MRG | NG_BIT(CTRL_VQ) | NG_BIT(MQ)};
    struct rig r;

    (void)state;
    rig_init(&r, MRG, 2048, true);
    ng_free(r.g);
    args.vnet.mmds = &r.l.service;
    r.g = ng_new(&args);
    r.pool = fdrv_alloc(&r.g->d, (uint64_t)2048 * 250, 64);
    rig_give(&r, 50);
    assert_int_equal(ng_ctrl(r.g, 4, two, sizeof(two)), VIRTIO_NET_OK);
    exchange(&r, 1000);
    r.txq = 3;
    exchange(&r, 1001);
    assert_int_equal(r.g->net.num_out, 0);
    rig_fini(&r);
}

static void test_at_rest_nothing_is_put_into_the_ring(void **state)
{
    struct rig r;
    struct ml_peer p;
    struct mp_in in;

    (void)state;
    rig_init(&r, MRG, 2048, true);
    rig_give(&r, 50);
    p = ml_dial(&r.l, 1000);
    ml_say(&p, 0, "500\n");
    while (ml_hear(&r.l, &in)) /* and is lost */
        ;
    assert_int_equal(fdrv_rest(&r.g->d), 0);
    loop_run_for(r.g->loop, 700); /* longer than the service's patience */
    assert_false(ml_hear(&r.l, &in));
    fdrv_wake(&r.g->d);
    ml_drain(&p);
    assert_int_equal(p.got, 500);
    rig_fini(&r);
}

static void test_a_frame_beyond_the_window_is_dropped(void **state)
{
    static uint8_t text[20000];
    uint8_t f[MP_FRAME];
    struct mp_out o = {.port = 1, .flags = MP_ACK, .data = text, .len = 8700};
    struct rig r;
    struct mp_in in;

    (void)state;
    rig_init(&r, MRG, 2048, true);
    rig_give(&r, 50);
    rig_send(&r, f, mp_put(f, &o));
    assert_int_equal(r.l.counts.rx_accepted_err, 1);
    assert_false(ml_hear(&r.l, &in));
    assert_int_equal(r.g->net.num_out, 0);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_guest_reads_and_the_network_sees_nothing),
        cmocka_unit_test(test_arp_is_answered),
        cmocka_unit_test(test_without_a_service_the_address_is_like_any_other),
        cmocka_unit_test(test_other_frames_leave_as_they_were_looked_at),
        cmocka_unit_test(test_a_frame_that_changes_later_does_not_leak),
        cmocka_unit_test(test_answers_wait_for_buffers),
        cmocka_unit_test(test_buffers_too_short_for_an_answer),
        cmocka_unit_test(test_network_and_service_share_the_ring),
        cmocka_unit_test(test_a_reset_of_the_device_ends_connections),
        cmocka_unit_test(test_a_limited_network_does_not_limit_the_service),
        cmocka_unit_test(test_any_queue_pair_asks_and_the_first_is_answered),
        cmocka_unit_test(test_at_rest_nothing_is_put_into_the_ring),
        cmocka_unit_test(test_a_frame_beyond_the_window_is_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
