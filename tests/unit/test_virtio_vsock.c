/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock.h"

#include "tests/harness/vsock_guest.h"
#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <linux/virtio_ids.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Opening connections and talking on them, by a guest that keeps the rules. */

#define EVENT_IDX (1ull << VIRTIO_RING_F_EVENT_IDX)

static struct vsg *start(void **state, struct vsg_opts opts)
{
    struct vsg *g = vsg_new(*(enum evloop_backend *)*state, opts);

    if (!g)
        skip(); /* this host forbids io_uring */
    return g;
}

/* A socket of the guest connected to a listener on the host. */
static int connect_out(struct vsg *g, uint32_t gport, uint32_t hport,
                       struct vsg_sock **out_s)
{
    CLEANUP_FD int lfd = vsg_host_listen(g, hport, 5);
    struct vsg_sock *s = vsg_socket(g, gport, hport);
    int fd;

    vsg_connect(g, s);
    for (int i = 0; i < 100 && !s->connected; i++) {
        vsg_turn(g, 1);
        vsg_poll(g);
    }
    assert_true(s->connected);
    fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(fd >= 0);
    *out_s = s;
    return fd;
}

static void test_vsock_offers_what_it_is(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    uint8_t b[16] = {0};

    assert_int_equal(g->dev->device_id, VIRTIO_ID_VSOCK);
    assert_int_equal(g->dev->num_queues, 3);
    assert_int_equal(g->dev->offered, 0); /* no SEQPACKET */
    assert_int_equal(g->dev->config_len, 8);
    g->dev->ops->config_read(g->dev, 0, b, 8);
    assert_int_equal(get_le64(b), VSG_CID);
    memset(b, 0, sizeof(b));
    g->dev->ops->config_read(g->dev, 0, b, 4);
    assert_int_equal(get_le32(b), VSG_CID);
    g->dev->ops->config_read(g->dev, 4, b, 4);
    assert_int_equal(get_le32(b), 0);
    g->dev->ops->config_read(g->dev, 6, b, 8); /* only two bytes are there */
    g->dev->ops->config_read(g->dev, 8, b, 8);
    g->dev->ops->config_read(g->dev, UINT32_MAX, b, 8);
    vsg_free(g);
}

static void test_vsock_host_connects_and_talks(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;
    char buf[64];
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);

    assert_int_equal(send(fd, "hello", 5, MSG_NOSIGNAL), 5);
    vsg_settle(g);
    assert_int_equal(vsg_read(g, s, buf, sizeof(buf)), 5);
    assert_memory_equal(buf, "hello", 5);
    assert_int_equal(vsg_write(g, s, "world!", 6), 6);
    assert_int_equal(vsg_host_read(g, fd, buf, sizeof(buf)), 6);
    assert_memory_equal(buf, "world!", 6);
    assert_int_equal(vsg_stats(g).conns, 1);
    assert_int_equal(vsg_stats(g).begun, 1);
    assert_int_equal(vsg_stats(g).opened, 1);
    assert_int_equal(vsg_stats(g).ended, 0);
    assert_int_equal(vsg_stats(g).to_guest_bytes, 5);
    assert_int_equal(vsg_stats(g).to_host_bytes, 6);
    assert_true(vsg_stats(g).to_guest_packets >= 2); /* REQUEST and RW */
    assert_true(vsg_stats(g).to_host_packets >= 2);  /* RESPONSE and RW */
    vsg_free(g);
}

/* Buffers that were taken from the ring ahead are its driver's again. */
static void test_vsock_stopped_rx_queue_gets_nothing_written(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;
    char buf[64];
    uint8_t mine[VSG_RX_BYTES];
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);

    assert_int_equal(send(fd, "hello", 5, MSG_NOSIGNAL), 5);
    vsg_settle(g);
    assert_int_equal(vsg_read(g, s, buf, sizeof(buf)), 5);
    vq_stop(&g->dev->vq[0]);
    memset(mine, 0x5a, sizeof(mine));
    for (uint32_t i = 0; i < VSG_MAX_RX; i++)
        fdrv_write(&g->d, g->rx_gpa[i], mine, sizeof(mine));
    assert_int_equal(send(fd, "secret", 6, MSG_NOSIGNAL), 6);
    for (int i = 0; i < 10; i++)
        vsg_turn(g, 1);
    for (uint32_t i = 0; i < VSG_MAX_RX; i++)
        assert_memory_equal(fdrv_ptr(&g->d, g->rx_gpa[i], sizeof(mine)), mine,
                            sizeof(mine));
    vsg_free(g);
}

static void test_vsock_event_idx_works(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){.features = EVENT_IDX});
    struct vsg_sock *s;
    char buf[64];
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);

    for (int i = 0; i < 600; i++) { /* more than once around the ring */
        assert_int_equal(send(fd, "ping", 4, MSG_NOSIGNAL), 4);
        for (int k = 0; k < 1000 && vsg_unread(s) < 4; k++) {
            vsg_turn(g, 1);
            vsg_poll(g);
        }
        assert_int_equal(vsg_read(g, s, buf, sizeof(buf)), 4);
        assert_int_equal(vsg_write(g, s, "pong", 4), 4);
        assert_int_equal(vsg_host_read(g, fd, buf, sizeof(buf)), 4);
    }
    vsg_free(g);
}

/* BL-057 */
static void test_vsock_connect_to_nobody_closes_without_ok(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    char line[40];

    for (int i = 0; i < 20; i++) {
        CLEANUP_FD int fd = vsg_host_dial(g, 52);

        assert_true(fd >= 0);
        assert_false(vsg_host_line(g, fd, line, sizeof(line)));
    }
    {
        struct vsg_sock *s;
        CLEANUP_FD int fd = vsg_dial(g, 52, &s); /* it listens now */

        assert_true(fd >= 0);
        assert_int_equal(vsg_stats(g).conns, 1);
    }
    vsg_free(g);
}

/* BL-057 */
static void test_vsock_connect_before_the_driver_closes_without_ok(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){.inactive = true});
    struct vsg_sock *s;

    for (int i = 0; i < 3; i++) {
        CLEANUP_FD int fd = vsg_host_dial(g, 52);
        char byte;

        assert_true(fd >= 0);
        for (int k = 0; k < 5; k++)
            vsg_turn(g, 1);
        assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
    }
    vsg_activate(g);
    {
        CLEANUP_FD int fd = vsg_dial(g, 52, &s);

        assert_true(fd >= 0);
    }
    vsg_free(g);
}

static void test_vsock_bytes_right_behind_connect_arrive(void **state)
{
    static const char text[] = "CONNECT 52\nfirst bytes of the client";
    struct vsg *g = start(state, (struct vsg_opts){0});
    CLEANUP_FD int fd = vsg_host_connect(g);
    char buf[64];
    char line[40];

    g->listen_port = 52;
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    assert_true(vsg_host_line(g, fd, line, sizeof(line)));
    vsg_settle(g);
    assert_int_equal(vsg_read(g, g->socks, buf, sizeof(buf)),
                     strlen(text) - 11);
    assert_memory_equal(buf, text + 11, strlen(text) - 11);
    vsg_free(g);
}

static void test_vsock_client_that_writes_and_leaves_is_heard(void **state)
{
    static const char text[] = "CONNECT 52\nlast words";
    struct vsg *g = start(state, (struct vsg_opts){0});
    int fd = vsg_host_connect(g);
    char buf[64];

    g->listen_port = 52;
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    (void)close(fd);
    vsg_settle(g);
    assert_int_equal(g->accepted, 1);
    assert_int_equal(vsg_read(g, g->socks, buf, sizeof(buf)), 10);
    assert_memory_equal(buf, "last words", 10);
    vsg_settle(g);
    assert_int_equal(g->socks->peer_shut, VSOCK_SHUT_BOTH);
    assert_int_equal(vsg_stats(g).conns, 0);
    vsg_free(g);
}

static void test_vsock_client_that_gives_up_ends_its_request(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsock_pkt req;
    struct vsock_pkt p;
    int fd = vsg_host_dial(g, 52);

    vsg_expect(g, VIRTIO_VSOCK_OP_REQUEST, &req);
    (void)close(fd);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_int_equal(p.src_port, req.src_port);
    assert_int_equal(vsg_stats(g).conns, 0);
    /* A late answer meets nobody. */
    p = vsg_packet(VIRTIO_VSOCK_OP_RESPONSE, 52, req.src_port);
    vsg_send(g, &p, NULL, 0);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    vsg_free(g);
}

static void test_vsock_connect_line_in_pieces(void **state)
{
    static const char text[] = "CONNECT 52\n";
    struct vsg *g = start(state, (struct vsg_opts){0});
    CLEANUP_FD int fd = vsg_host_connect(g);
    char line[40];

    g->listen_port = 52;
    for (size_t i = 0; i < strlen(text); i++) {
        assert_int_equal(send(fd, text + i, 1, MSG_NOSIGNAL), 1);
        vsg_turn(g, 0);
        vsg_turn(g, 0);
    }
    assert_true(vsg_host_line(g, fd, line, sizeof(line)));
    assert_int_equal(vsg_stats(g).waiting, 0);
    vsg_free(g);
}

static void test_vsock_bad_connect_lines_are_closed(void **state)
{
    static const struct {
        const char *text;
        size_t len;
    } bad[] = {
        {"\n", 1},
        {"CONNECT\n", 8},
        {"CONNECT x\n", 10},
        {"CONNECT 5\0\n", 11},
        {"GET / HTTP/1.1\r\n\r\n", 18},
        {"CONNECT 4294967295\n", 19},
        {"CONNECT 00000000000000000000000052\n", 35},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 32}, /* no end in sight */
    };
    struct vsg *g = start(state, (struct vsg_opts){0});
    char line[40];

    g->listen_port = 52;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CLEANUP_FD int fd = vsg_host_connect(g);

        assert_int_equal(send(fd, bad[i].text, bad[i].len, MSG_NOSIGNAL),
                         bad[i].len);
        assert_false(vsg_host_line(g, fd, line, sizeof(line)));
    }
    assert_int_equal(g->accepted, 0);
    assert_int_equal(vsg_stats(g).waiting, 0);
    vsg_free(g);
}

static void test_vsock_guest_connects_and_talks(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;
    char buf[64];
    CLEANUP_FD int fd = connect_out(g, 5000, 77, &s);

    assert_int_equal(vsg_write(g, s, "hello", 5), 5);
    assert_int_equal(vsg_host_read(g, fd, buf, sizeof(buf)), 5);
    assert_int_equal(send(fd, "hi", 2, MSG_NOSIGNAL), 2);
    vsg_settle(g);
    assert_int_equal(vsg_read(g, s, buf, sizeof(buf)), 2);
    vsg_free(g);
}

static void test_vsock_guest_connect_to_nobody_is_reset(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s = vsg_socket(g, 5000, 78);

    vsg_connect(g, s);
    vsg_settle(g);
    assert_true(s->reset);
    assert_int_equal(vsg_stats(g).conns, 0);
    assert_int_equal(vsg_stats(g).refused, 1);
    vsg_free(g);
}

static void test_vsock_reset_closes_all_and_the_listener_stays(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;
    struct vsg_sock *s2;
    char buf[8];
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);
    CLEANUP_FD int fd2 = connect_out(g, 5000, 77, &s2);
    CLEANUP_FD int asked = vsg_host_dial(g, 99);
    CLEANUP_FD int silent = vsg_host_connect(g);

    vsg_turn(g, 1);
    assert_int_equal(fdrv_reset(&g->d), 0);
    assert_int_equal(vsg_stats(g).conns, 0);
    vsg_turn(g, 1);
    assert_int_equal(recv(fd, buf, 8, MSG_DONTWAIT), 0);
    assert_int_equal(recv(fd2, buf, 8, MSG_DONTWAIT), 0);
    assert_int_equal(recv(asked, buf, 8, MSG_DONTWAIT), 0);
    assert_int_equal(recv(silent, buf, 8, MSG_DONTWAIT), -1);
    s->connected = false;
    s2->connected = false;
    vsg_activate(g);
    {
        CLEANUP_FD int again = vsg_dial(g, 52, &s);

        assert_true(again >= 0);
    }
    vsg_free(g);
}

static void test_vsock_tiny_and_scattered_guest_buffers(void **state)
{
    /* 44 bytes of header and one of data: slow, but it must work. */
    struct vsg *g = start(state, (struct vsg_opts){.rx_bytes = 45});
    struct vsg_sock *s;
    char buf[64];
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);
    size_t got = 0;

    assert_int_equal(send(fd, "0123456789", 10, MSG_NOSIGNAL), 10);
    for (int i = 0; i < 100 && got < 10; i++) {
        vsg_turn(g, 1);
        vsg_poll(g);
        got += vsg_read(g, s, buf + got, sizeof(buf) - got);
    }
    assert_int_equal(got, 10);
    assert_memory_equal(buf, "0123456789", 10);
    vsg_free(g);
}

static void test_vsock_header_and_data_over_many_descriptors(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){.no_rx = true});
    struct fdrv_seg segs[60];
    gpa_t at = fdrv_alloc(&g->d, 60, 1);
    struct virtio_vsock_hdr hdr;
    struct vsock_pkt p;
    uint32_t head;
    uint32_t len;
    CLEANUP_FD int fd = vsg_host_dial(g, 52);

    /* Nothing is lost while the guest has no buffers at all. */
    assert_true(vsg_silent(g));
    for (uint16_t i = 0; i < 60; i++)
        segs[i] = (struct fdrv_seg){at + i, 1, true};
    (void)fdrv_add(&g->d, VSG_RX, segs, 60);
    fdrv_kick(&g->d, VSG_RX);
    assert_true(fdrv_used(&g->d, VSG_RX, &head, &len));
    assert_int_equal(len, 44);
    fdrv_read(&g->d, at, &hdr, sizeof(hdr));
    vsock_pkt_decode(&hdr, &p);
    assert_int_equal(p.op, VIRTIO_VSOCK_OP_REQUEST);
    assert_int_equal(p.dst_port, 52);
    p = vsg_packet(VIRTIO_VSOCK_OP_RESPONSE, 52, p.src_port);
    vsg_send(g, &p, NULL, 0);
    assert_int_equal(send(fd, "0123456789", 10, MSG_NOSIGNAL), 10);
    (void)fdrv_add(&g->d, VSG_RX, segs, 60);
    fdrv_kick(&g->d, VSG_RX);
    vsg_turn(g, 5);
    assert_true(fdrv_used(&g->d, VSG_RX, &head, &len));
    assert_int_equal(len, 54);
    assert_memory_equal(fdrv_ptr(&g->d, at + 44, 10), "0123456789", 10);
    vsg_free(g);
}

/* The guest sends its header byte by byte and its data in pieces. */
static void test_vsock_guest_packet_over_many_descriptors(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);
    struct fdrv_seg segs[54];
    struct vsock_pkt p = vsg_packet(VIRTIO_VSOCK_OP_RW, 52, s->peer_port);
    struct virtio_vsock_hdr hdr;
    gpa_t at = fdrv_alloc(&g->d, 54, 1);
    char buf[32];

    p.len = 10;
    vsock_pkt_encode(&p, &hdr);
    fdrv_write(&g->d, at, &hdr, sizeof(hdr));
    fdrv_write(&g->d, at + 44, "0123456789", 10);
    for (uint16_t i = 0; i < 54; i++)
        segs[i] = (struct fdrv_seg){at + i, 1, false};
    (void)fdrv_add(&g->d, VSG_TX, segs, 54);
    g->tx_busy++;
    fdrv_kick(&g->d, VSG_TX);
    assert_int_equal(vsg_host_read(g, fd, buf, sizeof(buf)), 10);
    assert_memory_equal(buf, "0123456789", 10);
    vsg_free(g);
}

static enum evloop_backend uring = EVLOOP_URING;
static enum evloop_backend epoll = EVLOOP_EPOLL;

#define BOTH(f)                                                                \
    {#f " (io_uring)", f, NULL, NULL, &uring},                                 \
    {                                                                          \
#f " (epoll)", f, NULL, NULL, &epoll                                   \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_vsock_offers_what_it_is),
        BOTH(test_vsock_host_connects_and_talks),
        BOTH(test_vsock_stopped_rx_queue_gets_nothing_written),
        BOTH(test_vsock_event_idx_works),
        BOTH(test_vsock_connect_to_nobody_closes_without_ok),
        BOTH(test_vsock_connect_before_the_driver_closes_without_ok),
        BOTH(test_vsock_bytes_right_behind_connect_arrive),
        BOTH(test_vsock_client_that_writes_and_leaves_is_heard),
        BOTH(test_vsock_client_that_gives_up_ends_its_request),
        BOTH(test_vsock_connect_line_in_pieces),
        BOTH(test_vsock_bad_connect_lines_are_closed),
        BOTH(test_vsock_guest_connects_and_talks),
        BOTH(test_vsock_guest_connect_to_nobody_is_reset),
        BOTH(test_vsock_reset_closes_all_and_the_listener_stays),
        BOTH(test_vsock_tiny_and_scattered_guest_buffers),
        BOTH(test_vsock_header_and_data_over_many_descriptors),
        BOTH(test_vsock_guest_packet_over_many_descriptors),
    };

    return cmocka_run_group_tests_name("virtio_vsock", tests, NULL, NULL);
}
