/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock.h"

#include "devices/virtio_vsock_int.h"
#include "tests/harness/loop_run.h"
#include "tests/harness/state_box.h"
#include "tests/harness/vsock_guest.h"
#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/*
 * A copy of a machine: none of its connections lives, its guest is told so, and
 * new ones come about at once without dying of that news.
 */

#define EVENTS 8u /* buffers, as Linux offers */

static struct vsg *start(void **state, struct vsg_opts opts)
{
    struct vsg *g = vsg_new(*(enum evloop_backend *)*state, opts);

    if (!g)
        skip(); /* this host forbids io_uring */
    return g;
}

static void offer_event(struct vsg *g, uint32_t len)
{
    struct fdrv_seg seg = {fdrv_alloc(&g->d, 64, 8), len, true};

    (void)fdrv_add(&g->d, VSG_EVENT, &seg, 1);
    fdrv_kick(&g->d, VSG_EVENT);
}

static void offer_events(struct vsg *g)
{
    for (uint32_t i = 0; i < EVENTS; i++)
        offer_event(g, 4);
}

/* As Linux does: what is connected ends, then the buffer goes back. False: no
 * event has come. */
static bool handle_event(struct vsg *g)
{
    struct vring_desc desc;
    uint32_t head;
    uint32_t len;
    uint8_t id[4];

    if (!fdrv_used(&g->d, VSG_EVENT, &head, &len))
        return false;
    assert_int_equal(len, 4);
    fdrv_get_desc(&g->d, VSG_EVENT, (uint16_t)head, &desc);
    fdrv_read(&g->d, desc.addr, id, sizeof(id));
    assert_int_equal(get_le32(id), VIRTIO_VSOCK_EVENT_TRANSPORT_RESET);
    for (struct vsg_sock *s = g->socks; s; s = s->next) {
        s->reset |= s->connected;
        s->connected = false;
    }
    offer_event(g, 4);
    return true;
}

static struct virtio_dev *new_device(struct vsg *g, const char *name)
{
    const struct vdev_env env = {g->d.mem, g->loop, &g->log};
    struct virtio_dev *dev = NULL;
    struct errmsg err = {""};

    (void)snprintf(g->path, sizeof(g->path), "%.60s/%s", g->dir, name);
    assert_int_equal(vvsock_new(&env, VSG_CID, g->path, &dev, &err), 0);
    return dev;
}

/* The guest goes on in another process; the first one is gone. */
static void move(struct vsg *g, const char *name)
{
    struct virtio_dev *old = g->dev;

    sbox_rest(&g->d);
    g->dev = new_device(g, name);
    assert_int_equal(fdrv_move(&g->d, g->dev), 0);
    old->ops->free(old);
}

static bool sock_is_reset(const struct vsg_sock *s)
{
    return s->reset;
}

/* Within a second at most; no event is handled. */
static bool ends(struct vsg *g, const struct vsg_sock *s)
{
    for (int i = 0; i < 1000 && !sock_is_reset(s); i++) {
        vsg_turn(g, 1);
        vsg_poll(g);
    }
    return sock_is_reset(s);
}

/* A read that was blocked in the guest ends, with and without events. */
static void test_BL_061_vsock_blocked_read_ends(void **state)
{
    for (int events = 0; events < 2; events++) {
        struct vsg *g = start(state, (struct vsg_opts){0});
        struct vsg_sock *s;
        CLEANUP_FD int fd = vsg_dial(g, 80, &s);
        char c;

        if (events)
            offer_events(g);
        move(g, "copy.sock");
        assert_false(sock_is_reset(s)); /* nothing moves while it rests */
        assert_int_equal(vsg_host_read(g, fd, &c, 1), 0);
        assert_int_equal(fdrv_used_idx(&g->d, VSG_EVENT), 0);
        fdrv_wake(&g->d);
        assert_int_equal(fdrv_used_idx(&g->d, VSG_EVENT), events);
        if (events)
            assert_true(handle_event(g));
        else
            assert_true(ends(g, s));
        assert_true(sock_is_reset(s));
        vsg_settle(g);
        assert_int_equal(vsg_stats(g).conns, 0);
        vsg_free(g);
    }
}

static void sort_out(struct vsg *g)
{
    vsg_turn(g, 1);
    vsg_poll(g);
    (void)handle_event(g);
}

/* 50 open when saved, 50 new ones at once behind it: all are answered. */
static void test_BL_063_vsock_new_connections_at_once(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s = NULL;
    uint32_t last;
    int old[50];
    int fds[50];
    char line[40];

    offer_events(g);
    for (int i = 0; i < 50; i++)
        old[i] = vsg_dial(g, 80, &s);
    last = s->peer_port;
    move(g, "copy.sock");
    for (int i = 0; i < 50; i++)
        fds[i] = vsg_host_dial(g, 80);
    fdrv_wake(&g->d);
    for (int i = 0; i < 20; i++)
        sort_out(g);
    for (int i = 0; i < 50; i++) {
        unsigned port = 0;

        assert_true(fds[i] >= 0);
        assert_true(vsg_host_line(g, fds[i], line, sizeof(line)));
        assert_int_equal(sscanf(line, "OK %u\n", &port), 1);
        assert_int_equal(port, last + 1 + (unsigned)i); /* goes on counting */
        s = vsg_find(g, 80, port);
        assert_non_null(s);
        assert_true(s->connected);
        assert_int_equal(vsg_write(g, s, line, 5), 5);
        assert_int_equal(vsg_host_read(g, fds[i], line, sizeof(line)), 5);
    }
    assert_int_equal(g->accepted, 100);
    assert_int_equal(vsg_stats(g).conns, 50);
    for (int i = 0; i < 50; i++) {
        (void)close(old[i]);
        (void)close(fds[i]);
    }
    vsg_free(g);
}

/* Nothing of a copy leads to where its source was. */
static void test_BL_065_vsock_copy_lives_without_its_source(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    CLEANUP_FD int old_lfd = vsg_host_listen(g, 77, 5);
    CLEANUP_FD int lfd = -1;
    CLEANUP_FD int fd = -1;
    struct vsg_sock *s = vsg_socket(g, 5000, 77);
    char old_path[108];
    struct state_box box;

    (void)snprintf(old_path, sizeof(old_path), "%.99s_77", g->path);
    offer_events(g);
    move(g, "copy.sock");
    drop_fd(&old_lfd);
    assert_int_equal(unlink(old_path), 0);
    lfd = vsg_host_listen(g, 77, 5);
    fdrv_wake(&g->d);
    vsg_connect(g, s);
    for (int i = 0; i < 5; i++)
        sort_out(g);
    assert_true(s->connected);
    fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    sbox_rest(&g->d);
    sbox_save(&g->d, &box);
    move(g, "third.sock");
    assert_null(memmem(box.bytes, box.len, g->dir, strlen(g->dir)));
    fdrv_wake(&g->d);
    assert_true(handle_event(g));
    assert_true(vsg_dial(g, 80, &s) >= 0);
    sbox_free(&box);
    vsg_free(g);
}

/* --- the gate ------------------------------------------------------------ */

static bool client_waits(struct vsg *g, int fd)
{
    char c;

    for (int i = 0; i < 20; i++) {
        vsg_turn(g, 1);
        vsg_poll(g);
    }
    return recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

static void test_vsock_nobody_is_let_in_before_the_event(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    CLEANUP_FD int lfd = -1;
    CLEANUP_FD int fd = -1;
    struct vsg_sock *s = vsg_socket(g, 5000, 77);
    char line[40];

    offer_events(g);
    move(g, "copy.sock");
    g->listen_port = 80;
    lfd = vsg_host_listen(g, 77, 5);
    fdrv_wake(&g->d);
    fd = vsg_host_dial(g, 80);
    vsg_connect(g, s);
    assert_true(client_waits(g, fd));
    assert_int_equal(vsg_stats(g).conns, 0);
    assert_false(s->connected); /* the guest's own waits as well */
    assert_true(loop_run_is_idle(g->loop));
    assert_true(handle_event(g));
    assert_true(vsg_host_line(g, fd, line, sizeof(line)));
    vsg_settle(g);
    assert_true(s->connected);
    assert_false(handle_event(g)); /* it is told once */
    vsg_free(g);
}

static void test_vsock_pause_does_not_open_the_gate(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    CLEANUP_FD int fd = -1;
    char line[40];

    offer_events(g);
    move(g, "copy.sock");
    g->listen_port = 80;
    fdrv_wake(&g->d);
    fd = vsg_host_dial(g, 80);
    sbox_rest(&g->d);
    fdrv_wake(&g->d);
    assert_true(client_waits(g, fd));
    sbox_rest(&g->d);
    assert_true(handle_event(g)); /* just as it pauses */
    assert_true(client_waits(g, fd));
    fdrv_wake(&g->d);
    assert_true(vsg_host_line(g, fd, line, sizeof(line)));
    assert_false(handle_event(g));
    vsg_free(g);
}

/* The first copy's event is not seen to yet: the second's comes behind it. */
static void test_vsock_copy_of_a_copy_waits_for_both_events(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    CLEANUP_FD int fd = -1;
    char line[40];

    offer_events(g);
    move(g, "copy.sock");
    fdrv_wake(&g->d);
    move(g, "third.sock");
    g->listen_port = 80;
    fdrv_wake(&g->d);
    fd = vsg_host_dial(g, 80);
    assert_true(handle_event(g));
    assert_true(client_waits(g, fd));
    assert_true(handle_event(g));
    assert_true(vsg_host_line(g, fd, line, sizeof(line)));
    vsg_free(g);
}

/* Five generations, each saved in the middle of an exec. */
static void test_BL_067_vsock_copies_of_copies(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    char name[16];
    char line[40];

    offer_events(g);
    for (int i = 0; i < 5; i++) {
        struct vsg_sock *s;
        CLEANUP_FD int fd = vsg_dial(g, 80, &s);

        sbox_rest(&g->d); /* a snapshot of a machine that goes on */
        fdrv_wake(&g->d);
        assert_int_equal(vsg_write(g, s, "out", 3), 3);
        assert_int_equal(vsg_host_read(g, fd, line, sizeof(line)), 3);
        (void)snprintf(name, sizeof(name), "copy%d", i);
        move(g, name);
        fdrv_wake(&g->d);
        assert_true(handle_event(g));
        assert_true(sock_is_reset(s));
        vsg_settle(g);
    }
    vsg_free(g);
}

static void test_vsock_guest_without_events_is_not_gated(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;

    move(g, "copy.sock");
    fdrv_wake(&g->d);
    (void)close(vsg_dial(g, 80, &s));
    offer_events(g); /* too late for that */
    vsg_settle(g);
    assert_int_equal(fdrv_used_idx(&g->d, VSG_EVENT), 0);
    vsg_free(g);
}

/* Its own loss, but not for ever; a pause takes nothing of the time. */
static void
test_vsock_driver_that_ignores_the_event_is_not_waited_for(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    CLEANUP_FD int fd = -1;
    char line[40];

    offer_events(g);
    move(g, "copy.sock");
    g->listen_port = 80;
    assert_int_equal(vv_of(g->dev)->gate_left_ns, VV_GATE_NS);
    vv_of(g->dev)->gate_left_ns = 1000000000; /* for the test's sake */
    fdrv_wake(&g->d);
    fd = vsg_host_dial(g, 80);
    assert_true(client_waits(g, fd));
    sbox_rest(&g->d);
    loop_run_for(g->loop, 1200);
    fdrv_wake(&g->d);
    assert_true(client_waits(g, fd));
    assert_true(vsg_host_line(g, fd, line, sizeof(line)));
    vsg_free(g);
}

static void test_vsock_small_event_buffers_go_back_empty(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    uint32_t head;
    uint32_t len;
    CLEANUP_FD int fd = -1;

    offer_event(g, 3);
    move(g, "copy.sock");
    fdrv_wake(&g->d);
    assert_true(fdrv_used(&g->d, VSG_EVENT, &head, &len));
    assert_int_equal(len, 0);
    fd = vsg_host_dial(g, 80);
    assert_true(client_waits(g, fd)); /* it does know of events */
    offer_event(g, 3);
    offer_event(g, 4);
    assert_true(fdrv_used(&g->d, VSG_EVENT, &head, &len));
    assert_int_equal(len, 0);
    assert_true(handle_event(g));
    g->listen_port = 80;
    assert_false(client_waits(g, fd));
    vsg_free(g);
}

static void test_vsock_broken_event_queue_needs_reset(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});

    offer_events(g);
    fdrv_set_avail_entry(&g->d, VSG_EVENT, 0, 0xffff);
    move(g, "copy.sock");
    fdrv_wake(&g->d);
    assert_int_equal(g->d.needs_resets, 1);
    vsg_settle(g);
    vsg_free(g);
}

static void test_vsock_reset_opens_the_gate(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;

    offer_events(g);
    move(g, "copy.sock");
    fdrv_wake(&g->d);
    assert_int_equal(fdrv_reset(&g->d), 0);
    vsg_activate(g);
    offer_events(g);
    (void)close(vsg_dial(g, 80, &s));
    assert_int_equal(fdrv_used_idx(&g->d, VSG_EVENT), 0);
    vsg_free(g);
}

/* --- what was under way -------------------------------------------------- */

static void test_vsock_resets_that_waited_are_sent(void **state)
{
    struct vsg_opts opts = {.no_rx = true, .rx_buffers = 4};
    struct vsg *g = start(state, opts);
    struct vsock_pkt p = vsg_packet(VIRTIO_VSOCK_OP_RW, 5000, 6000);
    struct vsock_pkt far = vsg_packet(VIRTIO_VSOCK_OP_REQUEST, 5001, 6001);

    far.dst_cid = 99;
    vsg_send(g, &p, NULL, 0);
    vsg_send(g, &far, NULL, 0);
    assert_int_equal(vsg_stats(g).resets_waiting, 2);
    move(g, "copy.sock");
    fdrv_wake(&g->d);
    assert_int_equal(vsg_stats(g).resets_waiting, 2);
    for (uint16_t i = 0; i < 4; i++)
        vsg_post_rx(g, i);
    fdrv_kick(&g->d, VSG_RX);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_int_equal(p.src_port, 6000);
    assert_int_equal(p.src_cid, 2);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_int_equal(p.src_port, 6001);
    assert_int_equal(p.src_cid, 99);
    assert_true(vsg_silent(g));
    vsg_free(g);
}

/* Packets that lay in the ring for connections that are no more. */
static void test_vsock_unknown_packets_are_answered_by_resets(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsock_pkt p = vsg_packet(VIRTIO_VSOCK_OP_RW, 5000, 6000);
    struct vsock_pkt rst = vsg_packet(VIRTIO_VSOCK_OP_RST, 5001, 6001);

    sbox_rest(&g->d);
    vsg_send(g, &p, "late", 4);
    vsg_send(g, &rst, NULL, 0);
    assert_true(vsg_silent(g));
    move(g, "copy.sock");
    fdrv_wake(&g->d);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_int_equal(p.dst_port, 5000);
    assert_true(vsg_silent(g));
    vsg_free(g);
}

/* A connection that was just asked for, on either side. */
static void test_vsock_connections_not_yet_open_are_reset(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    int lfd = vsg_host_listen(g, 77, 0);
    struct vsock_pkt p = vsg_packet(VIRTIO_VSOCK_OP_REQUEST, 5000, 77);
    struct vsock_pkt q = vsg_packet(VIRTIO_VSOCK_OP_REQUEST, 5001, 77);
    CLEANUP_FD int fd = -1;
    uint32_t host_port;

    vsg_send(g, &p, NULL, 0);
    vsg_expect(g, VIRTIO_VSOCK_OP_RESPONSE, &p);
    vsg_send(g, &q, NULL, 0); /* the backlog is full: it waits */
    fd = vsg_host_dial(g, 80);
    vsg_expect(g, VIRTIO_VSOCK_OP_REQUEST, &p);
    host_port = p.src_port;
    move(g, "copy.sock");
    fdrv_wake(&g->d);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_int_equal(p.dst_port, 5000);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_int_equal(p.dst_port, 5001);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_int_equal(p.dst_port, 80);
    assert_int_equal(p.src_port, host_port);
    assert_true(vsg_silent(g));
    (void)close(lfd);
    vsg_free(g);
}

/* --- refusals ------------------------------------------------------------ */

enum { AT_CID = 0, AT_PORT = 8, AT_WAITS = 12, AT_NUM = 15 };

static void test_vsock_load_refuses_impossible_values(void **state)
{
    static const struct {
        size_t at;
        uint32_t value;
    } bad[] = {{AT_CID, 2},         {AT_CID, 0xffffffff}, {AT_CID + 4, 1},
               {AT_PORT, 1u << 30}, {AT_WAITS, 2},        {AT_NUM, 0},
               {AT_NUM, 2},         {AT_NUM, 4609},       {AT_NUM, 0xffffffff}};
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct virtio_dev *old = g->dev;
    struct vsg_sock *s;
    CLEANUP_FD int fd = vsg_dial(g, 80, &s);
    struct state_box box;

    sbox_rest(&g->d);
    sbox_save(&g->d, &box);
    for (size_t i = 0; i < ARRAY_SIZE(bad) + box.len; i++) {
        struct state_in in = sbox_in(&box);
        uint8_t keep[4];

        g->dev = new_device(g, "copy.sock");
        if (i < ARRAY_SIZE(bad)) {
            memcpy(keep, box.bytes + bad[i].at, 4);
            put_le32(box.bytes + bad[i].at, bad[i].value);
        } else {
            in = sbox_in_part(&box, i - ARRAY_SIZE(bad));
        }
        assert_int_equal(sbox_load_in(&g->d, g->dev, &in), -EBADMSG);
        assert_int_equal(vsg_stats(g).resets_waiting, 0);
        if (i < ARRAY_SIZE(bad))
            memcpy(box.bytes + bad[i].at, keep, 4);
        g->dev->ops->free(g->dev);
        g->d.dev = old;
    }
    g->dev = old;
    fdrv_wake(&g->d); /* the source goes on */
    assert_int_equal(vsg_write(g, s, "still", 5), 5);
    assert_int_equal(vsg_host_read(g, fd, &(char[8]){0}, 8), 5);
    sbox_free(&box);
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
        BOTH(test_BL_061_vsock_blocked_read_ends),
        BOTH(test_BL_063_vsock_new_connections_at_once),
        BOTH(test_BL_065_vsock_copy_lives_without_its_source),
        BOTH(test_BL_067_vsock_copies_of_copies),
        BOTH(test_vsock_nobody_is_let_in_before_the_event),
        BOTH(test_vsock_pause_does_not_open_the_gate),
        BOTH(test_vsock_copy_of_a_copy_waits_for_both_events),
        BOTH(test_vsock_guest_without_events_is_not_gated),
        BOTH(test_vsock_driver_that_ignores_the_event_is_not_waited_for),
        BOTH(test_vsock_small_event_buffers_go_back_empty),
        BOTH(test_vsock_broken_event_queue_needs_reset),
        BOTH(test_vsock_reset_opens_the_gate),
        BOTH(test_vsock_resets_that_waited_are_sent),
        BOTH(test_vsock_unknown_packets_are_answered_by_resets),
        BOTH(test_vsock_connections_not_yet_open_are_reset),
        BOTH(test_vsock_load_refuses_impossible_values),
    };

    return cmocka_run_group_tests_name("virtio_vsock_state", tests, NULL, NULL);
}
