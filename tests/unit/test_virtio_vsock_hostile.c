/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock.h"

#include "tests/harness/vsock_guest.h"
#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/*
 * What the device does to a guest that breaks the rules: the packet or the
 * connection fails, alone. One back end: nothing here depends on it.
 */

static struct vsg *start(struct vsg_opts opts)
{
    struct vsg *g = vsg_new(EVLOOP_EPOLL, opts);

    assert_non_null(g);
    return g;
}

/* An open connection from guest port 52, raw; returns the host's fd. */
static int open_raw(struct vsg *g, uint32_t *out_port)
{
    int fd = vsg_host_dial(g, 52);
    struct vsock_pkt p;
    char line[40];

    vsg_expect(g, VIRTIO_VSOCK_OP_REQUEST, &p);
    *out_port = p.src_port;
    p = vsg_packet(VIRTIO_VSOCK_OP_RESPONSE, 52, *out_port);
    vsg_send(g, &p, NULL, 0);
    assert_true(vsg_host_line(g, fd, line, sizeof(line)));
    return fd;
}

/* Sends a packet as it is, whatever its `len` claims. */
static void send_as_is(struct vsg *g, const struct vsock_pkt *p, uint32_t len)
{
    static uint8_t zeros[65000];

    vsg_send(g, p, zeros, len);
}

/* `p` must end the open connection it belongs to: RST and EOF. */
static void expect_fatal(void (*change)(struct vsock_pkt *p), uint16_t op,
                         uint32_t len)
{
    struct vsg *g = start((struct vsg_opts){0});
    uint32_t port = 0;
    CLEANUP_FD int fd = open_raw(g, &port);
    struct vsock_pkt p = vsg_packet(op, 52, port);
    char byte;

    p.len = len;
    if (change)
        change(&p);
    send_as_is(g, &p, len);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_int_equal(p.src_port, port);
    assert_int_equal(p.dst_port, 52);
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
    assert_int_equal(vsg_stats(g).conns, 0);
    assert_int_equal(vsg_stats(g).bad_packets, 1);
    assert_int_equal(g->d.needs_resets, 0);
    assert_true(vsg_silent(g));
    vsg_free(g);
}

static void longer_than_chain(struct vsock_pkt *p)
{
    p->len += 1;
}

static void longest(struct vsock_pkt *p)
{
    p->len = UINT32_MAX;
}

static void freed_too_much(struct vsock_pkt *p)
{
    p->fwd_cnt = 1;
}

static void test_hostile_bad_operations_end_the_connection(void **state)
{
    (void)state;
    expect_fatal(NULL, VIRTIO_VSOCK_OP_INVALID, 0);
    expect_fatal(NULL, VIRTIO_VSOCK_OP_CREDIT_REQUEST + 1, 0);
    expect_fatal(NULL, 0xffff, 0);
    expect_fatal(NULL, VIRTIO_VSOCK_OP_RESPONSE, 0);
}

static void test_hostile_bad_lengths_end_the_connection(void **state)
{
    (void)state;
    expect_fatal(longer_than_chain, VIRTIO_VSOCK_OP_RW, 100);
    expect_fatal(longer_than_chain, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
    expect_fatal(longest, VIRTIO_VSOCK_OP_RW, 100);
}

static void test_hostile_impossible_credit_ends_the_connection(void **state)
{
    (void)state;
    expect_fatal(freed_too_much, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
}

static void test_hostile_data_after_shutdown_ends_the_connection(void **state)
{
    struct vsg *g = start((struct vsg_opts){0});
    uint32_t port = 0;
    CLEANUP_FD int fd = open_raw(g, &port);
    struct vsock_pkt p = vsg_packet(VIRTIO_VSOCK_OP_SHUTDOWN, 52, port);

    (void)state;
    assert_true(fd >= 0);
    p.flags = VIRTIO_VSOCK_SHUTDOWN_SEND;
    vsg_send(g, &p, NULL, 0);
    p = vsg_packet(VIRTIO_VSOCK_OP_RW, 52, port);
    p.len = 1;
    vsg_send(g, &p, "x", 1);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_int_equal(vsg_stats(g).conns, 0);
    vsg_free(g);
}

/* The host reads nothing; the guest sends on without credit. */
static void test_hostile_credit_overrun_ends_the_connection(void **state)
{
    struct vsg *g = start((struct vsg_opts){0});
    uint32_t port = 0;
    CLEANUP_FD int fd = open_raw(g, &port);
    struct vsock_pkt p = vsg_packet(VIRTIO_VSOCK_OP_RW, 52, port);
    uint64_t sent = 0;

    (void)state;
    assert_true(fd >= 0);
    p.len = 60000;
    while (vsg_stats(g).conns == 1 && sent < 64 * MIB) {
        send_as_is(g, &p, p.len);
        sent += p.len;
    }
    assert_int_equal(vsg_stats(g).conns, 0);
    assert_true(sent < 2 * MIB); /* what the socket holds, and our buffer */
    assert_int_equal(vsg_stats(g).promised_bytes, 0);
    while (vsg_recv(g, &p, NULL, 0) && p.op != VIRTIO_VSOCK_OP_RST)
        continue;
    assert_int_equal(p.op, VIRTIO_VSOCK_OP_RST);
    vsg_free(g);
}

static void test_hostile_unknown_connection_is_reset(void **state)
{
    static const uint16_t ops[] = {
        VIRTIO_VSOCK_OP_RESPONSE, VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_OP_RW,
        VIRTIO_VSOCK_OP_CREDIT_UPDATE, VIRTIO_VSOCK_OP_CREDIT_REQUEST};
    struct vsg *g = start((struct vsg_opts){0});
    struct vsock_pkt p;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
        p = vsg_packet(ops[i], 1000, 2000);
        vsg_send(g, &p, NULL, 0);
        vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
        assert_int_equal(p.src_port, 2000);
        assert_int_equal(p.dst_port, 1000);
    }
    p = vsg_packet(VIRTIO_VSOCK_OP_RST, 1000, 2000);
    vsg_send(g, &p, NULL, 0); /* a reset is never answered */
    p = vsg_packet(0x777, 1000, 2000);
    vsg_send(g, &p, NULL, 0);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_true(vsg_silent(g));
    vsg_free(g);
}

static void test_hostile_foreign_source_is_dropped(void **state)
{
    struct vsg *g = start((struct vsg_opts){0});
    uint32_t port = 0;
    CLEANUP_FD int fd = open_raw(g, &port);
    struct vsock_pkt p = vsg_packet(VIRTIO_VSOCK_OP_RST, 52, port);

    (void)state;
    assert_true(fd >= 0);
    p.src_cid = 4;
    vsg_send(g, &p, NULL, 0);
    p.src_cid = 2;
    vsg_send(g, &p, NULL, 0);
    p.src_cid = (1ull << 32) | VSG_CID; /* only the low half is right */
    vsg_send(g, &p, NULL, 0);
    assert_true(vsg_silent(g));
    assert_int_equal(vsg_stats(g).conns, 1);
    assert_int_equal(vsg_stats(g).bad_packets, 3);
    vsg_free(g);
}

static void test_hostile_other_destination_or_type_is_reset(void **state)
{
    struct vsg *g = start((struct vsg_opts){0});
    uint32_t port = 0;
    CLEANUP_FD int fd = open_raw(g, &port);
    struct vsock_pkt p = vsg_packet(VIRTIO_VSOCK_OP_REQUEST, 52, port);

    (void)state;
    assert_true(fd >= 0);
    p.dst_cid = 99;
    vsg_send(g, &p, NULL, 0);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_int_equal(p.src_cid, 99);
    p = vsg_packet(VIRTIO_VSOCK_OP_REQUEST, 52, port);
    p.type = VIRTIO_VSOCK_TYPE_SEQPACKET;
    vsg_send(g, &p, NULL, 0);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_int_equal(p.type, VIRTIO_VSOCK_TYPE_SEQPACKET);
    p = vsg_packet(VIRTIO_VSOCK_OP_RST, 52, port);
    p.type = 0x4444;
    vsg_send(g, &p, NULL, 0);
    assert_true(vsg_silent(g));
    assert_int_equal(vsg_stats(g).conns, 1); /* the stream is not concerned */
    vsg_free(g);
}

static void test_hostile_short_tx_chains_are_completed(void **state)
{
    struct vsg *g = start((struct vsg_opts){0});
    gpa_t at = fdrv_alloc(&g->d, 64, 1);
    struct fdrv_seg segs[2] = {{at, 43, false}, {at + 43, 1, true}};
    uint32_t head;
    uint32_t len;

    (void)state;
    (void)fdrv_add(&g->d, VSG_TX, segs, 2);     /* 43 readable, one writable */
    (void)fdrv_add(&g->d, VSG_TX, segs + 1, 1); /* nothing readable */
    fdrv_kick(&g->d, VSG_TX);
    for (int i = 0; i < 2; i++) {
        assert_true(fdrv_used(&g->d, VSG_TX, &head, &len));
        assert_int_equal(len, 0);
    }
    assert_int_equal(vsg_stats(g).bad_packets, 2);
    assert_int_equal(g->d.needs_resets, 0);
    vsg_free(g);
}

static void test_hostile_rx_buffers_too_small_are_handed_back(void **state)
{
    struct vsg *g = start((struct vsg_opts){.no_rx = true});
    gpa_t at = fdrv_alloc(&g->d, 4096, 1);
    struct fdrv_seg tiny = {at, 43, true};
    struct fdrv_seg readable = {at, 100, false};
    struct fdrv_seg good = {at, 44, true};
    struct vsock_pkt p = vsg_packet(VIRTIO_VSOCK_OP_RW, 1, 2);
    uint32_t head;
    uint32_t len;

    (void)state;
    for (int i = 0; i < 50; i++)
        (void)fdrv_add(&g->d, VSG_RX, &tiny, 1);
    (void)fdrv_add(&g->d, VSG_RX, &readable, 1);
    (void)fdrv_add(&g->d, VSG_RX, &good, 1);
    vsg_send(g, &p, NULL, 0);
    fdrv_kick(&g->d, VSG_RX);
    for (int i = 0; i < 51; i++) {
        assert_true(fdrv_used(&g->d, VSG_RX, &head, &len));
        assert_int_equal(len, 0);
    }
    assert_true(fdrv_used(&g->d, VSG_RX, &head, &len));
    assert_int_equal(len, 44);
    vsg_free(g);
}

/* Room for headers only: control packets go, data never can; no spinning. */
static void test_hostile_rx_buffers_without_room_for_data(void **state)
{
    struct vsg *g = start((struct vsg_opts){.rx_bytes = 44});
    uint32_t port = 0;
    CLEANUP_FD int fd = open_raw(g, &port);
    uint32_t head;
    uint32_t len;

    (void)state;
    assert_int_equal(send(fd, "data", 4, MSG_NOSIGNAL), 4);
    for (int i = 0; i < 10; i++)
        vsg_turn(g, 1);
    for (int i = 0; i < 100; i++) {
        assert_true(fdrv_used(&g->d, VSG_RX, &head, &len));
        assert_int_equal(len, 0);
    }
    assert_int_equal(vsg_stats(g).conns, 1);
    vsg_free(g);
}

/* The guest provokes answers and offers no buffers for them. */
static void test_hostile_answers_without_buffers_hold_the_tx_queue(void **state)
{
    struct vsg *g = start((struct vsg_opts){.no_rx = true});
    gpa_t at = fdrv_alloc(&g->d, 64 * 100, 64);
    struct virtio_vsock_hdr hdr;
    struct vsock_pkt p = vsg_packet(VIRTIO_VSOCK_OP_RW, 1, 2);
    struct fdrv_seg out = {fdrv_alloc(&g->d, 64, 1), 44, false};
    uint32_t head;
    uint32_t len;
    uint32_t sent = 0;
    uint32_t resets = 0;

    (void)state;
    vsock_pkt_encode(&p, &hdr);
    fdrv_write(&g->d, out.gpa, &hdr, sizeof(hdr));
    for (int round = 0; round < 20; round++) {
        while (g->d.q[VSG_TX].num_free > 0) {
            (void)fdrv_add(&g->d, VSG_TX, &out, 1);
            sent++;
        }
        fdrv_kick(&g->d, VSG_TX);
        vsg_turn(g, 0);
        while (fdrv_used(&g->d, VSG_TX, &head, &len))
            continue;
    }
    assert_int_equal(vsg_stats(g).resets_waiting, 256);
    assert_int_equal(g->d.q[VSG_TX].num_free, 0); /* and it is held */
    assert_int_equal(sent, 256 + VSG_MAX_RX);
    /* Buffers come: all is answered, and the queue goes on by itself. */
    for (int round = 0; round < 50 && resets < sent; round++) {
        for (int i = 0; i < 100; i++) {
            struct fdrv_seg in = {at + 64u * (unsigned)i, 44, true};

            (void)fdrv_add(&g->d, VSG_RX, &in, 1);
        }
        fdrv_kick(&g->d, VSG_RX);
        vsg_turn(g, 0);
        vsg_turn(g, 0);
        while (fdrv_used(&g->d, VSG_RX, &head, &len))
            resets += len == 44;
        while (fdrv_used(&g->d, VSG_TX, &head, &len))
            continue;
    }
    assert_int_equal(resets, sent);
    assert_int_equal(vsg_stats(g).resets_waiting, 0);
    assert_int_equal(g->d.q[VSG_TX].num_free, VSG_MAX_RX);
    vsg_free(g);
}

static void test_hostile_broken_queues_stop_the_device(void **state)
{
    static const uint16_t queues[] = {VSG_RX, VSG_TX};
    char byte;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(queues); i++) {
        struct vsg *g = start((struct vsg_opts){0});
        uint32_t port = 0;
        CLEANUP_FD int fd = open_raw(g, &port);
        uint16_t idx = g->d.q[queues[i]].avail_idx;

        fdrv_set_avail_idx(&g->d, queues[i], (uint16_t)(idx + 1000));
        /* The buffers that it took before are good ones. */
        for (int k = 0; k < 20 && g->d.needs_resets == 0; k++) {
            assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
            vsg_turn(g, 1);
        }
        vsg_turn(g, 1);
        assert_int_equal(g->d.needs_resets, 1);
        errno = 0; /* closed, by a reset where bytes were left unread */
        assert_true(recv(fd, &byte, 1, MSG_DONTWAIT) == 0 ||
                    errno == ECONNRESET);
        assert_int_equal(vsg_stats(g).conns, 0);
        {
            CLEANUP_FD int late = vsg_host_dial(g, 52);

            vsg_turn(g, 1);
            vsg_turn(g, 1);
            assert_int_equal(recv(late, &byte, 1, MSG_DONTWAIT), 0);
        }
        assert_int_equal(fdrv_reset(&g->d), 0);
        vsg_activate(g);
        {
            CLEANUP_FD int again = open_raw(g, &port);

            assert_true(again >= 0);
        }
        vsg_free(g);
    }
}

static void test_hostile_response_nobody_asked_for(void **state)
{
    struct vsg *g = start((struct vsg_opts){.no_rx = true});
    CLEANUP_FD int fd = vsg_host_dial(g, 52);
    struct vsock_pkt p;
    char byte;

    (void)state;
    vsg_turn(g, 1);
    assert_int_equal(vsg_stats(g).conns, 1);
    /* The REQUEST has not been sent; a guest cannot know the port, but try. */
    for (uint32_t i = 0; i < 50; i++) {
        p = vsg_packet(VIRTIO_VSOCK_OP_RESPONSE, 52, (1u << 30) + i);
        vsg_send(g, &p, NULL, 0);
    }
    vsg_turn(g, 1);
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
    vsg_free(g);
}

/* A second REQUEST on the same ports: the guest's socket is a new one. */
static void test_hostile_request_on_live_ports_replaces_it(void **state)
{
    struct vsg *g = start((struct vsg_opts){0});
    CLEANUP_FD int lfd = vsg_host_listen(g, 77, 5);
    struct vsock_pkt p = vsg_packet(VIRTIO_VSOCK_OP_REQUEST, 6000, 77);
    char byte;

    (void)state;
    for (int i = 0; i < 3; i++) {
        vsg_send(g, &p, NULL, 0);
        vsg_expect(g, VIRTIO_VSOCK_OP_RESPONSE, &p);
        p = vsg_packet(VIRTIO_VSOCK_OP_REQUEST, 6000, 77);
    }
    assert_int_equal(vsg_stats(g).conns, 1);
    for (int i = 0; i < 3; i++) {
        CLEANUP_FD int fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), i < 2 ? 0 : -1);
    }
    vsg_free(g);
}

/* A reset that has not been sent yet belongs to the last user of the ports. */
static void test_hostile_old_reset_does_not_hit_a_new_connection(void **state)
{
    struct vsg *g = start((struct vsg_opts){.no_rx = true});
    CLEANUP_FD int lfd = vsg_host_listen(g, 77, 5);
    struct vsock_pkt data = vsg_packet(VIRTIO_VSOCK_OP_RW, 6000, 77);
    struct vsock_pkt req = vsg_packet(VIRTIO_VSOCK_OP_REQUEST, 6000, 77);
    struct fdrv_seg in = {fdrv_alloc(&g->d, 64, 64), 44, true};
    struct virtio_vsock_hdr hdr;
    struct vsock_pkt p;
    uint32_t head;
    uint32_t len;

    (void)state;
    assert_true(lfd >= 0);
    vsg_send(g, &data, NULL, 0); /* unknown: a reset waits */
    assert_int_equal(vsg_stats(g).resets_waiting, 1);
    vsg_send(g, &req, NULL, 0);
    (void)fdrv_add(&g->d, VSG_RX, &in, 1);
    fdrv_kick(&g->d, VSG_RX);
    assert_true(fdrv_used(&g->d, VSG_RX, &head, &len));
    fdrv_read(&g->d, in.gpa, &hdr, sizeof(hdr));
    vsock_pkt_decode(&hdr, &p);
    assert_int_equal(p.op, VIRTIO_VSOCK_OP_RESPONSE);
    assert_int_equal(vsg_stats(g).resets_waiting, 0);
    vsg_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_bad_operations_end_the_connection),
        cmocka_unit_test(test_hostile_bad_lengths_end_the_connection),
        cmocka_unit_test(test_hostile_impossible_credit_ends_the_connection),
        cmocka_unit_test(test_hostile_data_after_shutdown_ends_the_connection),
        cmocka_unit_test(test_hostile_credit_overrun_ends_the_connection),
        cmocka_unit_test(test_hostile_unknown_connection_is_reset),
        cmocka_unit_test(test_hostile_foreign_source_is_dropped),
        cmocka_unit_test(test_hostile_other_destination_or_type_is_reset),
        cmocka_unit_test(test_hostile_short_tx_chains_are_completed),
        cmocka_unit_test(test_hostile_rx_buffers_too_small_are_handed_back),
        cmocka_unit_test(test_hostile_rx_buffers_without_room_for_data),
        cmocka_unit_test(
            test_hostile_answers_without_buffers_hold_the_tx_queue),
        cmocka_unit_test(test_hostile_broken_queues_stop_the_device),
        cmocka_unit_test(test_hostile_response_nobody_asked_for),
        cmocka_unit_test(test_hostile_request_on_live_ports_replaces_it),
        cmocka_unit_test(test_hostile_old_reset_does_not_hit_a_new_connection),
    };

    return cmocka_run_group_tests_name("virtio_vsock_hostile", tests, NULL,
                                       NULL);
}
