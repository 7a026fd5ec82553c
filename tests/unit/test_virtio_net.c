/* SPDX-License-Identifier: Apache-2.0 */
/* Features, configuration, sending, control and life of the network device. */
#include "devices/virtio_net.h"

#include "tests/harness/loop_run.h"
#include "tests/harness/net_guest.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <linux/virtio_ids.h>
#include <stdlib.h>
#include <string.h>

static struct net_guest *make(uint64_t features)
{
    const struct ng_args args = {.features = features};

    return ng_new(&args);
}

static uint16_t config16(struct net_guest *g, uint32_t off)
{
    uint8_t b[2] = {0};

    g->dev->ops->config_read(g->dev, off, b, 2);
    return get_le16(b);
}

/* --- features and configuration ------------------------------------------ */

static void test_offers_what_the_network_can_do(void **state)
{
    const struct ng_args tap = {.mtu = 9000, .pairs = 4};
    const struct ng_args plain = {.plain = true};
    struct net_guest *g = ng_new(&tap);
    const uint64_t always = NG_BIT(MAC) | NG_BIT(STATUS) | NG_BIT(MRG_RXBUF) |
                            NG_BIT(CTRL_VQ) | NG_BIT(GUEST_ANNOUNCE);

    (void)state;
    assert_int_equal(g->dev->device_id, VIRTIO_ID_NET);
    assert_int_equal(g->dev->offered, always | NG_GUEST | NG_HOST |
                                          NG_BIT(MTU) | NG_BIT(MQ) |
                                          NG_BIT(CTRL_GUEST_OFFLOADS));
    assert_int_equal(g->dev->num_queues, 9);
    assert_int_equal(config16(g, 8), 4); /* max_virtqueue_pairs */
    ng_free(g);
    g = ng_new(&plain);
    assert_int_equal(g->dev->offered, always);
    assert_int_equal(g->dev->num_queues, 3);
    ng_free(g);
}

static void test_features_can_be_held_back_with_their_dependents(void **state)
{
    const struct ng_args args = {.vnet.without =
                                     NG_BIT(CSUM) | NG_BIT(GUEST_TSO4)};
    struct net_guest *g = ng_new(&args);

    (void)state;
    assert_int_equal(g->dev->offered & NG_HOST, 0);
    assert_int_equal(g->dev->offered & NG_GUEST,
                     NG_GUEST & ~NG_BIT(GUEST_TSO4));
    ng_free(g);
}

static void test_config_has_mac_status_and_mtu(void **state)
{
    const struct ng_args args = {.mtu = 1400, .vnet.mac = {2, 1, 2, 3, 4, 5}};
    struct net_guest *g = ng_new(&args);
    uint8_t mac[6];

    (void)state;
    g->dev->ops->config_read(g->dev, 0, mac, 6);
    assert_memory_equal(mac, args.vnet.mac, 6);
    assert_int_equal(config16(g, 6), VIRTIO_NET_S_LINK_UP);
    assert_int_equal(config16(g, 10), 1400);
    ng_free(g);
}

static void test_BL_046_configured_mtu_wins_over_the_interface(void **state)
{
    const struct ng_args args = {.mtu = 1500, .vnet.mtu = 9000};
    struct net_guest *g = ng_new(&args);

    (void)state;
    assert_true(g->dev->offered & NG_BIT(MTU));
    assert_int_equal(config16(g, 10), 9000);
    ng_free(g);
}

static void test_features_without_their_requirement_need_a_reset(void **state)
{
    const uint64_t bad[] = {
        NG_BIT(HOST_TSO4),
        NG_BIT(GUEST_TSO6),
        NG_BIT(CSUM) | NG_BIT(HOST_ECN),
        NG_BIT(CTRL_GUEST_OFFLOADS),
    };
    struct net_guest *g = make(0);

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(fdrv_reset(&g->d), 0);
        g->d.next_free = 4096;
        assert_int_equal(fdrv_attach(&g->d, g->dev, 16, bad[i]), -EINVAL);
    }
    ng_free(g);
}

static void test_guest_offloads_follow_what_was_accepted(void **state)
{
    const struct {
        uint64_t features;
        uint32_t offloads;
    } rows[] = {
        {0, 0},
        {NG_BIT(GUEST_CSUM), NET_OFFLOAD_CSUM},
        {NG_BIT(GUEST_CSUM) | NG_BIT(GUEST_TSO4),
         NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4},
        {NG_BIT(GUEST_CSUM) | NG_BIT(GUEST_TSO6),
         NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO6},
        {NG_GUEST, 0xf},
        {NG_HOST, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct net_guest *g = make(rows[i].features);

        assert_int_equal(g->net.offloads, rows[i].offloads);
        g->net.offloads = 0x55;
        assert_int_equal(fdrv_reset(&g->d), 0);
        assert_int_equal(g->net.offloads, 0); /* reset restores */
        ng_attach(g, 16, 0);
        ng_free(g);
    }
}

static void test_a_network_that_cannot_be_set_up_needs_a_reset(void **state)
{
    struct net_guest *g = make(0);

    (void)state;
    assert_int_equal(fdrv_reset(&g->d), 0);
    g->net.set_result = -EINVAL;
    assert_int_equal(fdrv_attach(&g->d, g->dev, 16, NG_GUEST), -EINVAL);
    ng_free(g);
}

/* --- sending ------------------------------------------------------------- */

static void expect_sent(struct net_guest *g, uint32_t i, uint32_t bytes,
                        uint8_t seed)
{
    assert_true(i < g->net.num_out);
    assert_int_equal(g->net.out[i].bytes, bytes);
    for (uint32_t k = 0; k < bytes; k++)
        assert_int_equal(g->net.out[i].data[k], (uint8_t)(seed + k));
}

static void test_tx_frames_leave_in_order(void **state)
{
    struct net_guest *g = make(NG_EVENT);
    uint32_t len[3];

    (void)state;
    ng_add_tx(g, NG_TX, 60, 1);
    ng_add_tx(g, NG_TX, 1514, 2);
    ng_add_tx(g, NG_TX, 14, 3);
    fdrv_kick(&g->d, NG_TX);
    assert_int_equal(g->net.flushes, 1);
    ng_settle(g);
    expect_sent(g, 0, 60, 1);
    expect_sent(g, 1, 1514, 2);
    expect_sent(g, 2, 14, 3);
    ng_take(g, NG_TX, 3, len);
    for (int i = 0; i < 3; i++)
        assert_int_equal(len[i], 0);
    assert_int_equal(g->d.signals[NG_TX], 1);
    assert_int_equal(ng_stats(g).tx_frames, 3);
    assert_int_equal(ng_stats(g).tx_bytes, 60 + 1514 + 14);
    ng_free(g);
}

static void test_tx_frame_in_many_pieces_with_a_split_header(void **state)
{
    struct net_guest *g = make(0);
    struct fdrv_seg segs[120];
    gpa_t base = fdrv_alloc(&g->d, 4096, 64);
    uint8_t *p = fdrv_ptr(&g->d, base, 4096);

    (void)state;
    for (uint32_t i = 0; i < 1000; i++)
        p[NG_HDR + i] = (uint8_t)(9 + i);
    segs[0] = (struct fdrv_seg){base, 5, false};
    for (uint16_t i = 1; i < 120; i++)
        segs[i] = (struct fdrv_seg){base + 5 + (i - 1u) * 8, 8, false};
    fdrv_add(&g->d, NG_TX, segs, 120);
    fdrv_kick(&g->d, NG_TX);
    ng_settle(g);
    expect_sent(g, 0, 5 + 119 * 8 - NG_HDR, 9);
    ng_free(g);
}

static void test_tx_header_is_copied_before_it_is_used(void **state)
{
    struct net_guest *g = make(NG_HOST);
    struct virtio_net_hdr_v1 h = {
        .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
        .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
        .hdr_len = htole16(54),
        .gso_size = htole16(1448),
        .csum_start = htole16(34),
        .csum_offset = htole16(16),
    };
    struct fdrv_seg s = {fdrv_alloc(&g->d, 4096, 64), 3000, false};

    (void)state;
    fdrv_write(&g->d, s.gpa, &h, sizeof(h));
    fdrv_add(&g->d, NG_TX, &s, 1);
    fdrv_kick(&g->d, NG_TX);
    memset(fdrv_ptr(&g->d, s.gpa, NG_HDR), 0xff, NG_HDR); /* too late */
    ng_settle(g);
    assert_int_equal(g->net.num_out, 1);
    assert_memory_equal(&g->net.out[0].hdr, &h, sizeof(h));
    ng_free(g);
}

static void test_tx_bad_frames_complete_and_count_alone(void **state)
{
    struct net_guest *g = make(NG_EVENT);
    struct fdrv_seg runt = {fdrv_alloc(&g->d, 64, 64), 20, false};
    struct fdrv_seg in = {fdrv_alloc(&g->d, 64, 64), 64, true};
    uint32_t len[4];
    uint8_t *tso;

    (void)state;
    fdrv_add(&g->d, NG_TX, &runt, 1);
    fdrv_add(&g->d, NG_TX, &in, 1);
    ng_add_tx(g, NG_TX, 100, 7);
    ng_add_tx(g, NG_TX, 100, 8);
    tso = fdrv_ptr(&g->d, g->d.next_free - 100 - NG_HDR, NG_HDR);
    tso[1] = VIRTIO_NET_HDR_GSO_TCPV4; /* was not accepted */
    fdrv_kick(&g->d, NG_TX);
    ng_settle(g);
    ng_take(g, NG_TX, 4, len);
    assert_int_equal(g->net.num_out, 1);
    expect_sent(g, 0, 100, 7);
    assert_int_equal(ng_stats(g).tx_bad, 3);
    assert_int_equal(g->d.needs_resets, 0);
    ng_free(g);
}

static void test_tx_only_bad_frames_still_end_a_turn(void **state)
{
    struct net_guest *g = make(NG_EVENT);
    struct fdrv_seg runt = {fdrv_alloc(&g->d, 64, 64), 20, false};
    uint32_t len[NG_QSIZE];

    (void)state;
    for (uint32_t i = 0; i < NG_QSIZE; i++)
        fdrv_add(&g->d, NG_TX, &runt, 1);
    fdrv_kick(&g->d, NG_TX);
    ng_settle(g);
    ng_take(g, NG_TX, NG_QSIZE, len);
    /* and then hears of the next one */
    ng_add_tx(g, NG_TX, 60, 1);
    fdrv_kick(&g->d, NG_TX);
    ng_settle(g);
    expect_sent(g, 0, 60, 1);
    ng_free(g);
}

static void test_tx_broken_ring_needs_reset_and_stops_all(void **state)
{
    struct net_guest *g = make(0);

    (void)state;
    ng_add_rx(g, NG_RX, 64, 2048);
    fdrv_set_avail_entry(&g->d, NG_TX, 0, 5000);
    g->d.q[NG_TX].avail_idx = 1;
    fdrv_kick(&g->d, NG_TX);
    assert_int_equal(g->d.needs_resets, 1);
    fnet_feed(&g->net, 0, 100, 1, NULL);
    ng_settle(g);
    fdrv_kick(&g->d, NG_TX);
    fdrv_kick(&g->d, NG_RX);
    ng_settle(g);
    assert_int_equal(g->d.needs_resets, 1); /* once is enough */
    assert_true(ng_none_used(g, NG_RX));
    ng_free(g);
}

static void test_tx_is_bounded_and_takes_up_the_rest(void **state)
{
    struct net_guest *g = make(NG_EVENT);
    uint32_t len[200];

    (void)state;
    for (uint32_t i = 0; i < 200; i++)
        ng_add_tx(g, NG_TX, 60, (uint8_t)i);
    fdrv_kick(&g->d, NG_TX);
    assert_int_equal(g->net.num_tx, 64);
    fdrv_kick(&g->d, NG_TX); /* changes nothing */
    assert_int_equal(g->net.num_tx, 64);
    ng_settle(g);
    ng_take(g, NG_TX, 200, len);
    for (uint32_t i = 0; i < 200; i++)
        expect_sent(g, i, 60, (uint8_t)i);
    ng_free(g);
}

static void test_tx_frames_that_the_network_refuses_are_counted(void **state)
{
    struct net_guest *g = make(NG_EVENT);
    uint32_t len;

    (void)state;
    g->net.tx_result = -EIO;
    ng_add_tx(g, NG_TX, 60, 1);
    fdrv_kick(&g->d, NG_TX);
    ng_settle(g);
    ng_take(g, NG_TX, 1, &len);
    assert_int_equal(ng_stats(g).tx_dropped, 1);
    assert_int_equal(ng_stats(g).tx_frames, 0);
    ng_free(g);
}

static void test_tx_kicks_are_asked_for_only_when_idle(void **state)
{
    struct net_guest *g = make(NG_EVENT);

    (void)state;
    ng_add_tx(g, NG_TX, 60, 1);
    fdrv_kick(&g->d, NG_TX);
    assert_int_equal(fdrv_avail_event(&g->d, NG_TX), 0); /* stale */
    ng_settle(g);
    assert_int_equal(fdrv_avail_event(&g->d, NG_TX), 1);
    ng_free(g);
}

/* --- limits -------------------------------------------------------------- */

static bool sent_two(void *arg)
{
    struct net_guest *g = arg;

    fnet_run(&g->net);
    return g->net.num_out == 2;
}

static void test_tx_limiter_holds_frames_in_the_ring(void **state)
{
    const struct ng_args args = {
        .features = NG_EVENT,
        .vnet.tx.ops = {.size = 1, .refill_ms = 60},
    };
    struct net_guest *g = ng_new(&args);
    uint64_t start = util_now_ns();

    (void)state;
    ng_add_tx(g, NG_TX, 60, 1);
    ng_add_tx(g, NG_TX, 60, 2);
    fdrv_kick(&g->d, NG_TX);
    fnet_run(&g->net);
    assert_int_equal(g->net.num_out, 1);
    fdrv_kick(&g->d, NG_TX); /* a kick does not help */
    fnet_run(&g->net);
    assert_int_equal(g->net.num_out, 1);
    assert_true(loop_run_until(g->loop, sent_two, g));
    assert_true(util_now_ns() - start >= 55000000u);
    ng_free(g);
}

static void test_limits_can_be_changed_while_frames_wait(void **state)
{
    const struct ng_args args = {
        .features = NG_EVENT,
        .vnet.tx.ops = {.size = 1, .refill_ms = 3600000},
        .vnet.rx.ops = {.size = 1, .refill_ms = 3600000},
    };
    const struct rate_limit_config none = {0};
    struct net_guest *g = ng_new(&args);

    (void)state;
    ng_add_rx(g, NG_RX, 64, 2048);
    for (uint8_t i = 0; i < 4; i++) {
        ng_add_tx(g, NG_TX, 60, i);
        fnet_feed(&g->net, 0, 60, i, NULL);
    }
    fdrv_kick(&g->d, NG_TX);
    ng_settle(g);
    assert_int_equal(g->net.num_out, 1);
    vnet_set_rate_limits(g->dev, NULL, NULL);
    ng_settle(g);
    assert_int_equal(g->net.num_out, 1);
    assert_true(ng_stats(g).rx_frames < 4);
    vnet_set_rate_limits(g->dev, &none, NULL);
    ng_settle(g);
    assert_int_equal(ng_stats(g).rx_frames, 4);
    assert_int_equal(g->net.num_out, 1);
    vnet_set_rate_limits(g->dev, NULL, &none);
    ng_settle(g);
    assert_int_equal(g->net.num_out, 4);
    ng_free(g);
}

/* --- control ------------------------------------------------------------- */

static uint8_t set_offloads(struct net_guest *g, uint64_t features)
{
    uint8_t m[10] = {VIRTIO_NET_CTRL_GUEST_OFFLOADS,
                     VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET};

    put_le64(m + 2, features);
    return ng_ctrl(g, 2, m, sizeof(m));
}

static void test_ctrl_changes_guest_offloads(void **state)
{
    struct net_guest *g =
        make(NG_GUEST | NG_BIT(CTRL_VQ) | NG_BIT(CTRL_GUEST_OFFLOADS));

    (void)state;
    assert_int_equal(g->net.offloads, 0xf);
    assert_int_equal(set_offloads(g, NG_BIT(GUEST_CSUM)), VIRTIO_NET_OK);
    assert_int_equal(g->net.offloads, NET_OFFLOAD_CSUM);
    assert_int_equal(set_offloads(g, NG_BIT(GUEST_TSO4)), VIRTIO_NET_ERR);
    assert_int_equal(g->net.offloads, NET_OFFLOAD_CSUM);
    g->net.set_result = -EINVAL;
    assert_int_equal(set_offloads(g, 0), VIRTIO_NET_ERR);
    assert_int_equal(ng_stats(g).ctrl_bad, 2);
    g->net.set_result = 0;
    assert_int_equal(fdrv_reset(&g->d), 0);
    assert_int_equal(g->net.offloads, 0);
    ng_attach(g, 16, NG_GUEST);
    assert_int_equal(g->net.offloads, 0xf);
    ng_free(g);
}

static uint8_t set_pairs(struct net_guest *g, uint16_t n)
{
    const uint8_t m[4] = {VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET,
                          (uint8_t)n, (uint8_t)(n >> 8)};

    return ng_ctrl(g, (uint16_t)(g->dev->num_queues - 1), m, sizeof(m));
}

static void test_ctrl_turns_queue_pairs_on_and_off(void **state)
{
    const struct ng_args args = {
        .pairs = 4, .qsize = 64, .features = NG_BIT(MQ) | NG_BIT(CTRL_VQ)};
    struct net_guest *g = ng_new(&args);
    uint32_t len;

    (void)state;
    assert_int_equal(g->net.active_pairs, 1);
    for (uint16_t p = 0; p < 4; p++) {
        ng_add_rx(g, (uint16_t)(2 * p), 8, 2048);
        ng_add_tx(g, (uint16_t)(2 * p + 1), 60, (uint8_t)p);
        fdrv_kick(&g->d, (uint16_t)(2 * p + 1));
    }
    ng_settle(g);
    assert_int_equal(g->net.num_out, 1); /* the others wait */
    assert_int_equal(set_pairs(g, 5), VIRTIO_NET_ERR);
    assert_int_equal(set_pairs(g, 0), VIRTIO_NET_ERR);
    assert_int_equal(set_pairs(g, 4), VIRTIO_NET_OK);
    assert_int_equal(g->net.active_pairs, 4);
    for (uint16_t p = 0; p < 4; p++)
        fnet_feed(&g->net, p, 100, (uint8_t)p, NULL);
    ng_settle(g);
    assert_int_equal(g->net.num_out, 4);
    for (uint16_t p = 0; p < 4; p++) {
        ng_take(g, (uint16_t)(2 * p), 1, &len);
        assert_int_equal(len, 112);
    }
    assert_int_equal(set_pairs(g, 2), VIRTIO_NET_OK);
    fnet_feed(&g->net, 1, 100, 1, NULL);
    fnet_feed(&g->net, 2, 100, 1, NULL);
    ng_settle(g);
    ng_take(g, 2, 1, &len);
    assert_true(ng_none_used(g, 4));
    ng_free(g);
}

static void test_without_mq_the_control_queue_is_the_third(void **state)
{
    const struct ng_args args = {
        .pairs = 4,
        .qsize = 64,
        .features = NG_BIT(CTRL_VQ) | NG_BIT(CTRL_GUEST_OFFLOADS) | NG_GUEST,
    };
    struct net_guest *g = ng_new(&args);

    (void)state;
    assert_int_equal(set_offloads(g, 0), VIRTIO_NET_OK);
    ng_free(g);
}

static void test_ctrl_without_room_for_an_answer_is_given_back(void **state)
{
    struct net_guest *g = make(NG_BIT(CTRL_VQ));
    struct fdrv_seg s = {fdrv_alloc(&g->d, 8, 8), 4, false};
    uint32_t len;

    (void)state;
    fdrv_add(&g->d, 2, &s, 1);
    fdrv_kick(&g->d, 2);
    ng_take(g, 2, 1, &len);
    assert_int_equal(len, 0);
    assert_int_equal(g->d.needs_resets, 0);
    ng_free(g);
}

static void test_ctrl_broken_ring_needs_reset(void **state)
{
    struct net_guest *g = make(NG_BIT(CTRL_VQ));

    (void)state;
    fdrv_set_avail_idx(&g->d, 2, 999);
    g->dev->ops->queue_kick(g->dev, 2);
    assert_int_equal(g->d.needs_resets, 1);
    ng_free(g);
}

/* --- link ---------------------------------------------------------------- */

static void test_link_down_is_told_once_and_frames_are_dropped(void **state)
{
    struct net_guest *g = make(NG_EVENT | NG_BIT(STATUS));
    uint32_t len;

    (void)state;
    ng_add_rx(g, NG_RX, 64, 2048);
    fnet_link_down(&g->net);
    fnet_link_down(&g->net);
    assert_int_equal(g->d.config_changes, 1);
    assert_int_equal(config16(g, 6), 0);
    ng_add_tx(g, NG_TX, 60, 1);
    fdrv_kick(&g->d, NG_TX);
    fdrv_kick(&g->d, NG_RX);
    ng_settle(g);
    ng_take(g, NG_TX, 1, &len);
    assert_int_equal(g->net.num_tx + g->net.num_rx[0], 0);
    assert_int_equal(ng_stats(g).tx_dropped, 1);
    assert_true(loop_run_is_idle(g->loop));
    ng_free(g);
}

/* --- reset --------------------------------------------------------------- */

static void test_reset_waits_for_frames_that_are_under_way(void **state)
{
    struct net_guest *g = make(NG_EVENT);
    gpa_t mem;
    uint8_t before[64];
    uint8_t after[64];

    (void)state;
    mem = ng_add_rx(g, NG_RX, 128, 2048);
    ng_add_tx(g, NG_TX, 60, 1);
    fdrv_kick(&g->d, NG_TX);
    fdrv_read(&g->d, mem, before, sizeof(before));
    g->net.cancel_keeps = true;
    assert_int_equal(g->net.num_tx, 1);
    assert_int_equal(g->net.num_rx[0], 1);
    assert_int_equal(fdrv_reset(&g->d), -EINPROGRESS);
    assert_int_equal(g->net.cancels, 1);
    fnet_feed(&g->net, 0, 1000, 9, NULL);
    assert_true(fnet_step_tx(&g->net));
    assert_int_equal(g->d.reset_dones, 0);
    assert_true(fnet_step_rx(&g->net, 0));
    assert_int_equal(g->d.reset_dones, 1);
    /* The header, which is ours to write, was not. */
    fdrv_read(&g->d, mem, after, NG_HDR);
    assert_memory_equal(before, after, NG_HDR);
    g->net.cancel_keeps = false;
    g->d.next_free = 4096;
    ng_attach(g, 64, NG_EVENT);
    ng_add_rx(g, NG_RX, 32, 2048);
    fnet_feed(&g->net, 0, 200, 3, NULL);
    ng_settle(g);
    assert_int_equal(fdrv_used_idx(&g->d, NG_RX), 1);
    ng_free(g);
}

static void test_reset_during_a_limit_leaves_no_timer(void **state)
{
    const struct ng_args args = {
        .features = NG_EVENT,
        .vnet.tx.ops = {.size = 1, .refill_ms = 20},
    };
    struct net_guest *g = ng_new(&args);

    (void)state;
    ng_add_tx(g, NG_TX, 60, 1);
    ng_add_tx(g, NG_TX, 60, 1);
    fdrv_kick(&g->d, NG_TX);
    fnet_run(&g->net);
    assert_int_equal(fdrv_reset(&g->d), 0);
    loop_run_for(g->loop, 40);
    assert_int_equal(g->net.num_tx, 0);
    g->d.next_free = 4096;
    ng_attach(g, 16, 0);
    ng_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offers_what_the_network_can_do),
        cmocka_unit_test(test_features_can_be_held_back_with_their_dependents),
        cmocka_unit_test(test_config_has_mac_status_and_mtu),
        cmocka_unit_test(test_BL_046_configured_mtu_wins_over_the_interface),
        cmocka_unit_test(test_features_without_their_requirement_need_a_reset),
        cmocka_unit_test(test_guest_offloads_follow_what_was_accepted),
        cmocka_unit_test(test_a_network_that_cannot_be_set_up_needs_a_reset),
        cmocka_unit_test(test_tx_frames_leave_in_order),
        cmocka_unit_test(test_tx_frame_in_many_pieces_with_a_split_header),
        cmocka_unit_test(test_tx_header_is_copied_before_it_is_used),
        cmocka_unit_test(test_tx_bad_frames_complete_and_count_alone),
        cmocka_unit_test(test_tx_only_bad_frames_still_end_a_turn),
        cmocka_unit_test(test_tx_broken_ring_needs_reset_and_stops_all),
        cmocka_unit_test(test_tx_is_bounded_and_takes_up_the_rest),
        cmocka_unit_test(test_tx_frames_that_the_network_refuses_are_counted),
        cmocka_unit_test(test_tx_kicks_are_asked_for_only_when_idle),
        cmocka_unit_test(test_tx_limiter_holds_frames_in_the_ring),
        cmocka_unit_test(test_limits_can_be_changed_while_frames_wait),
        cmocka_unit_test(test_ctrl_changes_guest_offloads),
        cmocka_unit_test(test_ctrl_turns_queue_pairs_on_and_off),
        cmocka_unit_test(test_without_mq_the_control_queue_is_the_third),
        cmocka_unit_test(test_ctrl_without_room_for_an_answer_is_given_back),
        cmocka_unit_test(test_ctrl_broken_ring_needs_reset),
        cmocka_unit_test(test_link_down_is_told_once_and_frames_are_dropped),
        cmocka_unit_test(test_reset_waits_for_frames_that_are_under_way),
        cmocka_unit_test(test_reset_during_a_limit_leaves_no_timer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
