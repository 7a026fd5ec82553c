/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving: room, mergeable buffers, limits, what a guest must not get. */
#include "devices/virtio_net.h"

#include "tests/harness/loop_run.h"
#include "tests/harness/net_guest.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define MRG NG_BIT(MRG_RXBUF)

static struct net_guest *make(uint64_t features)
{
    const struct ng_args args = {.features = features};

    return ng_new(&args);
}

static uint16_t num_buffers(struct net_guest *g, gpa_t hdr)
{
    uint8_t b[2];

    fdrv_read(&g->d, hdr + 10, b, 2);
    return get_le16(b);
}

/* The frame's bytes from `from` on lie at gpa. */
static void expect_bytes(struct net_guest *g, gpa_t gpa, uint32_t n,
                         uint32_t from, uint8_t seed)
{
    const uint8_t *p = fdrv_ptr(&g->d, gpa, n);

    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(p[i], (uint8_t)(seed + from + i));
}

static void test_rx_small_frames_take_a_buffer_each_in_order(void **state)
{
    struct net_guest *g = make(MRG | NG_EVENT);
    gpa_t mem = ng_add_rx(g, NG_RX, 64, 2048);
    uint32_t len[40];

    (void)state;
    for (uint8_t i = 0; i < 40; i++)
        fnet_feed(&g->net, 0, 100u + i, i, NULL);
    ng_settle(g);
    ng_take(g, NG_RX, 40, len);
    for (uint8_t i = 0; i < 40; i++) {
        assert_int_equal(len[i], NG_HDR + 100 + i);
        assert_int_equal(num_buffers(g, mem + i * 2048u), 1);
        expect_bytes(g, mem + i * 2048u + NG_HDR, 100u + i, 0, i);
    }
    assert_int_equal(ng_stats(g).rx_frames, 40);
    assert_int_equal(g->d.signals[NG_TX], 0);
    assert_true(g->d.signals[NG_RX] >= 1);
    ng_free(g);
}

static void test_rx_large_frame_spreads_over_merged_buffers(void **state)
{
    struct net_guest *g = make(MRG | NG_GUEST | NG_EVENT);
    gpa_t mem = ng_add_rx(g, NG_RX, 200, 1536);
    struct virtio_net_hdr_v1 h = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                  .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
                                  .gso_size = htole16(1448)};
    uint32_t len[44];
    uint32_t left = 65000 + NG_HDR;

    (void)state;
    fnet_feed(&g->net, 0, 65000, 5, &h);
    fnet_feed(&g->net, 0, 60, 6, NULL);
    ng_settle(g);
    ng_take(g, NG_RX, 44, len);
    assert_int_equal(num_buffers(g, mem), 43);
    h.num_buffers = htole16(43);
    assert_memory_equal(fdrv_ptr(&g->d, mem, NG_HDR), &h, NG_HDR);
    for (uint32_t i = 0; i < 43; i++) {
        assert_int_equal(len[i], left < 1536 ? left : 1536);
        left -= len[i];
    }
    expect_bytes(g, mem + NG_HDR, 1524, 0, 5);
    expect_bytes(g, mem + 1536, 1536, 1524, 5);
    expect_bytes(g, mem + 42 * 1536u, len[42], 1524 + 41 * 1536u, 5);
    assert_int_equal(len[43], NG_HDR + 60);
    expect_bytes(g, mem + 43 * 1536u + NG_HDR, 60, 0, 6);
    ng_free(g);
}

static void test_rx_merged_buffers_show_with_one_index_store(void **state)
{
    struct net_guest *g = make(MRG | NG_GUEST | NG_EVENT);

    (void)state;
    /* A driver that polls must never see the first without the others. */
    ng_add_rx(g, NG_RX, 200, 1536);
    fnet_feed(&g->net, 0, 4000, 1, NULL);
    assert_int_equal(fdrv_used_idx(&g->d, NG_RX), 0);
    fnet_step_rx(&g->net, 0);
    assert_int_equal(fdrv_used_idx(&g->d, NG_RX), 3);
    ng_free(g);
}

static void test_rx_unused_buffers_stay_for_the_next_frames(void **state)
{
    struct net_guest *g = make(MRG | NG_GUEST | NG_EVENT);
    uint32_t len[4];

    (void)state;
    /* Room for one largest frame: each read takes all, and gives it back. */
    ng_add_rx(g, NG_RX, 44, 1536);
    for (uint8_t i = 0; i < 4; i++) {
        fnet_feed(&g->net, 0, 64, i, NULL);
        fnet_run(&g->net);
        if (i == 0)
            ng_add_rx(g, NG_RX, 8, 1536);
    }
    ng_settle(g);
    ng_take(g, NG_RX, 4, len);
    ng_free(g);
}

static void test_rx_without_mergeable_one_chain_is_one_frame(void **state)
{
    struct net_guest *g = make(NG_EVENT);
    struct fdrv_seg segs[2];
    uint32_t len;

    (void)state;
    segs[0] = (struct fdrv_seg){fdrv_alloc(&g->d, 12, 16), 12, true};
    segs[1] = (struct fdrv_seg){fdrv_alloc(&g->d, 1518, 16), 1518, true};
    fdrv_add(&g->d, NG_RX, segs, 2);
    fdrv_kick(&g->d, NG_RX);
    fnet_feed(&g->net, 0, 1514, 3, NULL);
    ng_settle(g);
    ng_take(g, NG_RX, 1, &len);
    assert_int_equal(len, 1526);
    assert_int_equal(num_buffers(g, segs[0].gpa), 1);
    expect_bytes(g, segs[1].gpa, 1514, 0, 3);
    ng_free(g);
}

static void
test_rx_big_chain_without_mergeable_takes_a_large_frame(void **state)
{
    struct net_guest *g = make(NG_GUEST | NG_EVENT);
    struct fdrv_seg segs[48];
    uint32_t len;

    (void)state;
    segs[0] = (struct fdrv_seg){fdrv_alloc(&g->d, 12, 16), 12, true};
    for (int i = 1; i < 48; i++)
        segs[i] = (struct fdrv_seg){fdrv_alloc(&g->d, 4096, 4096), 4096, true};
    fdrv_add(&g->d, NG_RX, segs, 48); /* only its front is needed */
    fdrv_kick(&g->d, NG_RX);
    fnet_feed(&g->net, 0, 65550, 3, NULL);
    ng_settle(g);
    ng_take(g, NG_RX, 1, &len);
    assert_int_equal(len, 65562);
    expect_bytes(g, segs[17].gpa, 10, 16 * 4096u, 3);
    ng_free(g);
}

static void test_rx_header_split_over_pieces(void **state)
{
    struct net_guest *g = make(MRG | NG_EVENT);
    gpa_t mem = fdrv_alloc(&g->d, 4096, 64);
    struct fdrv_seg segs[4] = {{mem, 1, true},
                               {mem + 1, 4, true},
                               {mem + 5, 10, true},
                               {mem + 15, 2000, true}};
    uint32_t len;

    (void)state;
    fdrv_add(&g->d, NG_RX, segs, 4);
    fdrv_kick(&g->d, NG_RX);
    fnet_feed(&g->net, 0, 500, 8, NULL);
    ng_settle(g);
    ng_take(g, NG_RX, 1, &len);
    assert_int_equal(len, 512);
    assert_int_equal(num_buffers(g, mem), 1);
    expect_bytes(g, mem + NG_HDR, 500, 0, 8);
    ng_free(g);
}

/* --- what a guest does not get ------------------------------------------- */

static void test_rx_guest_that_declines_never_gets_a_large_frame(void **state)
{
    const uint64_t declines[] = {0, NG_BIT(GUEST_CSUM),
                                 NG_BIT(GUEST_CSUM) | NG_BIT(GUEST_TSO6)};
    struct virtio_net_hdr_v1 h = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                  .gso_type = VIRTIO_NET_HDR_GSO_TCPV4};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(declines); i++) {
        struct net_guest *g = make(MRG | NG_EVENT | declines[i]);
        uint32_t len;

        ng_add_rx(g, NG_RX, 200, 1536);
        /* One that was in the interface's queue from before. */
        fnet_feed(&g->net, 0, 1000, 1, &h);
        fnet_feed(&g->net, 0, 100, 2, NULL);
        ng_settle(g);
        ng_take(g, NG_RX, 1, &len);
        assert_int_equal(len, 112);
        assert_true(ng_none_used(g, NG_RX));
        assert_int_equal(ng_stats(g).rx_dropped, 1);
        ng_free(g);
    }
}

static void test_rx_offloads_turned_off_at_run_time_hold_at_once(void **state)
{
    struct net_guest *g = make(MRG | NG_EVENT | NG_GUEST | NG_BIT(CTRL_VQ) |
                               NG_BIT(CTRL_GUEST_OFFLOADS));
    struct virtio_net_hdr_v1 h = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM};
    const uint8_t off[10] = {VIRTIO_NET_CTRL_GUEST_OFFLOADS,
                             VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET};

    (void)state;
    ng_add_rx(g, NG_RX, 200, 1536);
    fnet_feed(&g->net, 0, 100, 1, &h);
    assert_int_equal(ng_ctrl(g, 2, off, sizeof(off)), VIRTIO_NET_OK);
    ng_settle(g);
    assert_true(ng_none_used(g, NG_RX));
    assert_int_equal(ng_stats(g).rx_dropped, 1);
    ng_free(g);
}

static void test_rx_frame_larger_than_the_room_is_dropped_alone(void **state)
{
    struct net_guest *g = make(NG_EVENT);
    uint32_t len;

    (void)state;
    ng_add_rx(g, NG_RX, 4, 512);
    fnet_feed(&g->net, 0, 501, 1, NULL);
    fnet_feed(&g->net, 0, 500, 2, NULL);
    ng_settle(g);
    ng_take(g, NG_RX, 1, &len);
    assert_int_equal(len, 512);
    assert_int_equal(ng_stats(g).rx_dropped, 1);
    ng_free(g);
}

static void test_rx_runt_frame_is_dropped(void **state)
{
    struct net_guest *g = make(NG_EVENT);

    (void)state;
    ng_add_rx(g, NG_RX, 4, 2048);
    fnet_feed(&g->net, 0, 13, 1, NULL);
    ng_settle(g);
    assert_true(ng_none_used(g, NG_RX));
    assert_int_equal(ng_stats(g).rx_dropped, 1);
    ng_free(g);
}

/* --- buffers that are no use --------------------------------------------- */

static void test_rx_buffers_without_room_go_back_and_count(void **state)
{
    struct net_guest *g = make(MRG | NG_EVENT);
    gpa_t mem = fdrv_alloc(&g->d, 8192, 64);
    struct fdrv_seg readable = {mem, 2048, false};
    struct fdrv_seg small = {mem, 11, true};
    struct fdrv_seg mixed[2] = {{mem, 64, false}, {mem + 64, 2048, true}};
    struct fdrv_seg crumbs[40];
    uint32_t len[4];

    (void)state;
    for (uint32_t i = 0; i < 40; i++) /* 12 bytes come too late */
        crumbs[i] = (struct fdrv_seg){mem + i, i < 39 ? 0 : 1, true};
    for (uint32_t i = 0; i < 39; i++)
        crumbs[i].len = i < 11 ? 1 : 0;
    fdrv_add(&g->d, NG_RX, &readable, 1);
    fdrv_add(&g->d, NG_RX, &small, 1);
    fdrv_add(&g->d, NG_RX, mixed, 2);
    fdrv_add(&g->d, NG_RX, crumbs, 39); /* 11 bytes */
    fdrv_kick(&g->d, NG_RX);
    ng_settle(g);
    ng_take(g, NG_RX, 4, len);
    for (int i = 0; i < 4; i++)
        assert_int_equal(len[i], 0);
    assert_int_equal(ng_stats(g).rx_bad_buffers, 4);
    assert_int_equal(g->d.needs_resets, 0);
    ng_add_rx(g, NG_RX, 4, 2048);
    fnet_feed(&g->net, 0, 100, 1, NULL);
    ng_settle(g);
    ng_take(g, NG_RX, 1, len);
    assert_int_equal(len[0], 112);
    ng_free(g);
}

static void test_rx_header_in_more_pieces_than_are_taken_goes_back(void **state)
{
    struct net_guest *g = make(MRG | NG_EVENT);
    gpa_t mem = fdrv_alloc(&g->d, 8192, 64);
    struct fdrv_seg s = {mem, 12, true};
    uint32_t len;

    (void)state;
    /* 12 bytes are the least that is a buffer: it holds no frame. */
    fdrv_add(&g->d, NG_RX, &s, 1);
    fdrv_kick(&g->d, NG_RX);
    loop_run_for(g->loop, 40); /* less than a frame: it is given time */
    fnet_feed(&g->net, 0, 100, 1, NULL);
    ng_settle(g);
    assert_int_equal(ng_stats(g).rx_dropped, 1);
    assert_false(fdrv_used(&g->d, NG_RX, &len, &len));
    ng_free(g);
}

static void test_rx_tiny_buffers_are_used_up_to_the_limit(void **state)
{
    struct net_guest *g = make(MRG | NG_GUEST | NG_EVENT);
    uint32_t len[128];
    gpa_t mem;

    (void)state;
    mem = ng_add_rx(g, NG_RX, 256, 20); /* 128 of them hold 2548 bytes */
    fnet_feed(&g->net, 0, 3000, 1, NULL);
    fnet_feed(&g->net, 0, 2548, 2, NULL);
    ng_settle(g);
    assert_int_equal(ng_stats(g).rx_dropped, 1);
    ng_take(g, NG_RX, 128, len);
    assert_int_equal(num_buffers(g, mem), 128);
    expect_bytes(g, mem + NG_HDR, 2548, 0, 2);
    ng_free(g);
}

static void test_rx_broken_ring_needs_reset(void **state)
{
    struct net_guest *g = make(MRG);

    (void)state;
    fdrv_set_avail_idx(&g->d, NG_RX, 999);
    g->dev->ops->queue_kick(g->dev, NG_RX);
    assert_int_equal(g->d.needs_resets, 1);
    assert_int_equal(g->net.num_rx[0], 0);
    ng_free(g);
}

/* Buffers that were taken from the ring for later frames are its driver's. */
static void test_rx_stopped_queue_gets_nothing_written(void **state)
{
    struct net_guest *g = make(MRG | NG_EVENT);
    gpa_t bufs = ng_add_rx(g, NG_RX, 8, 2048);
    static const uint8_t clean[8 * 2048];

    (void)state;
    ng_settle(g); /* buffers are in stock, and it waits for a frame */
    assert_true(g->net.wait[0]);
    vq_stop(&g->dev->vq[NG_RX]);
    fnet_feed(&g->net, 0, 100, 1, NULL);
    ng_settle(g);
    assert_int_equal(g->net.num_in[0], 1);
    assert_memory_equal(fdrv_ptr(&g->d, bufs, sizeof(clean)), clean,
                        sizeof(clean));
    ng_free(g);
}

/* --- no buffers ---------------------------------------------------------- */

static void test_rx_without_buffers_nothing_is_read_or_watched(void **state)
{
    struct net_guest *g = make(MRG | NG_EVENT);
    uint32_t len;

    (void)state;
    fnet_feed(&g->net, 0, 100, 1, NULL);
    ng_settle(g);
    assert_int_equal(g->net.num_in[0], 1);
    assert_false(g->net.wait[0]);
    assert_true(loop_run_is_idle(g->loop));
    assert_int_equal(fdrv_avail_event(&g->d, NG_RX), 0); /* a kick, please */
    ng_add_rx(g, NG_RX, 8, 2048);
    ng_settle(g);
    ng_take(g, NG_RX, 1, &len);
    assert_true(g->net.wait[0]);
    ng_free(g);
}

static bool frame_arrived(void *arg)
{
    struct net_guest *g = arg;

    fnet_run(&g->net);
    return !ng_none_used(g, NG_RX);
}

static void
test_rx_ring_too_small_for_the_largest_frame_still_runs(void **state)
{
    const struct ng_args args = {.qsize = 4,
                                 .features = MRG | NG_GUEST | NG_EVENT};
    struct net_guest *g = ng_new(&args);
    uint32_t len;

    (void)state;
    ng_add_rx(g, NG_RX, 4, 1536);
    fnet_feed(&g->net, 0, 100, 1, NULL);
    fnet_run(&g->net);
    assert_true(ng_none_used(g, NG_RX)); /* there may be more to come */
    assert_true(loop_run_until(g->loop, frame_arrived, g));
    ng_take(g, NG_RX, 1, &len);
    assert_true(loop_run_is_idle(g->loop));
    ng_free(g);
}

/* It waits for more buffers once, not before each frame. */
static void
test_rx_ring_too_small_for_the_largest_frame_is_not_slow(void **state)
{
    const struct ng_args args = {.qsize = 32,
                                 .features = MRG | NG_GUEST | NG_EVENT};
    struct net_guest *g = ng_new(&args);
    struct virtio_net_hdr_v1 h = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                  .gso_type = VIRTIO_NET_HDR_GSO_TCPV6};
    uint32_t len[32];

    (void)state;
    ng_add_rx(g, NG_RX, 32, 1536);
    fnet_feed(&g->net, 0, 100, 1, NULL);
    assert_true(loop_run_until(g->loop, frame_arrived, g));
    ng_take(g, NG_RX, 1, len);
    for (uint8_t i = 0; i < 20; i++) {
        ng_add_rx(g, NG_RX, 1, 1536);
        fnet_feed(&g->net, 0, 100, i, NULL);
        fnet_run(&g->net); /* no time passes */
        ng_take(g, NG_RX, 1, len);
    }
    /* The ring is that size and this frame is larger: only it is lost. */
    fnet_feed(&g->net, 0, 65000, 1, &h);
    fnet_feed(&g->net, 0, 100, 1, NULL);
    fnet_run(&g->net);
    ng_take(g, NG_RX, 1, len);
    assert_int_equal(ng_stats(g).rx_dropped, 1);
    ng_free(g);
}

static void test_rx_waits_for_room_instead_of_losing_large_frames(void **state)
{
    struct net_guest *g = make(MRG | NG_GUEST | NG_EVENT);
    struct virtio_net_hdr_v1 h = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                  .gso_type = VIRTIO_NET_HDR_GSO_TCPV6};
    uint32_t len[43];

    (void)state;
    ng_add_rx(g, NG_RX, 20, 1536);
    fnet_feed(&g->net, 0, 65000, 1, &h);
    fnet_run(&g->net);
    ng_add_rx(g, NG_RX, 24, 1536);
    ng_settle(g);
    ng_take(g, NG_RX, 43, len);
    assert_int_equal(ng_stats(g).rx_dropped, 0);
    ng_free(g);
}

static void test_rx_batches_grow_with_the_traffic(void **state)
{
    struct net_guest *g = make(MRG | NG_EVENT);

    (void)state;
    ng_add_rx(g, NG_RX, 200, 2048);
    assert_int_equal(g->net.num_rx[0], 1);
    for (uint32_t i = 0; i < 1 + 2 + 4 + 8; i++) {
        fnet_feed(&g->net, 0, 60, 1, NULL);
        assert_true(fnet_step_rx(&g->net, 0));
    }
    assert_int_equal(g->net.num_rx[0], 16);
    for (uint32_t i = 0; i < 16; i++) {
        fnet_feed(&g->net, 0, 60, 1, NULL);
        fnet_step_rx(&g->net, 0);
    }
    assert_int_equal(g->net.num_rx[0], 16);
    ng_settle(g);
    fnet_feed(&g->net, 0, 60, 1, NULL);
    g->net.events->readable(g->net.arg, 0);
    assert_int_equal(g->net.num_rx[0], 1);
    ng_free(g);
}

/* --- limits -------------------------------------------------------------- */

static bool eight_arrived(void *arg)
{
    struct net_guest *g = arg;

    fnet_run(&g->net);
    return ng_stats(g).rx_frames == 8;
}

static void test_rx_limiter_holds_frames_in_the_network(void **state)
{
    const struct ng_args args = {
        .features = MRG | NG_EVENT,
        .vnet.rx.bandwidth = {.size = 1000, .refill_ms = 40},
    };
    struct net_guest *g = ng_new(&args);
    uint64_t start = util_now_ns();

    (void)state;
    ng_add_rx(g, NG_RX, 64, 2048);
    for (uint8_t i = 0; i < 8; i++)
        fnet_feed(&g->net, 0, 1000, i, NULL);
    fnet_run(&g->net);
    /* The bucket, and what was under way when it ran dry. */
    assert_true(ng_stats(g).rx_frames >= 1 && ng_stats(g).rx_frames <= 3);
    fdrv_kick(&g->d, NG_RX);
    assert_true(loop_run_until(g->loop, eight_arrived, g));
    assert_true(util_now_ns() - start >= 200000000u);
    ng_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rx_small_frames_take_a_buffer_each_in_order),
        cmocka_unit_test(test_rx_large_frame_spreads_over_merged_buffers),
        cmocka_unit_test(test_rx_merged_buffers_show_with_one_index_store),
        cmocka_unit_test(test_rx_unused_buffers_stay_for_the_next_frames),
        cmocka_unit_test(test_rx_without_mergeable_one_chain_is_one_frame),
        cmocka_unit_test(
            test_rx_big_chain_without_mergeable_takes_a_large_frame),
        cmocka_unit_test(test_rx_header_split_over_pieces),
        cmocka_unit_test(test_rx_guest_that_declines_never_gets_a_large_frame),
        cmocka_unit_test(test_rx_offloads_turned_off_at_run_time_hold_at_once),
        cmocka_unit_test(test_rx_frame_larger_than_the_room_is_dropped_alone),
        cmocka_unit_test(test_rx_runt_frame_is_dropped),
        cmocka_unit_test(test_rx_buffers_without_room_go_back_and_count),
        cmocka_unit_test(
            test_rx_header_in_more_pieces_than_are_taken_goes_back),
        cmocka_unit_test(test_rx_tiny_buffers_are_used_up_to_the_limit),
        cmocka_unit_test(test_rx_broken_ring_needs_reset),
        cmocka_unit_test(test_rx_stopped_queue_gets_nothing_written),
        cmocka_unit_test(test_rx_without_buffers_nothing_is_read_or_watched),
        cmocka_unit_test(
            test_rx_ring_too_small_for_the_largest_frame_still_runs),
        cmocka_unit_test(
            test_rx_ring_too_small_for_the_largest_frame_is_not_slow),
        cmocka_unit_test(test_rx_waits_for_room_instead_of_losing_large_frames),
        cmocka_unit_test(test_rx_batches_grow_with_the_traffic),
        cmocka_unit_test(test_rx_limiter_holds_frames_in_the_network),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
