/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock.h"

#include "devices/virtio_vsock_int.h"
#include "tests/harness/vsock_guest.h"
#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* Many connections, coming and going, and time limits. */

#define EVENT_IDX (1ull << VIRTIO_RING_F_EVENT_IDX)

static uint8_t payload[65536];

static struct vsg *start(void **state, struct vsg_opts opts)
{
    struct vsg *g = vsg_new(*(enum evloop_backend *)*state, opts);

    if (!g)
        skip(); /* this host forbids io_uring */
    return g;
}

/* As many fds as this process may have; how many more that are. */
static uint64_t raise_fd_limit(void)
{
    struct rlimit r;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    r.rlim_cur = r.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
    return r.rlim_cur - vsg_count_fds();
}

/* --- BL-054, BL-055: coming and going ------------------------------------ */

static void test_many_thousand_reconnects_from_one_port(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    CLEANUP_FD int lfd = vsg_host_listen(g, 77, 5);
    uint32_t before;

    vsg_settle(g);
    before = vsg_count_fds();
    for (int i = 0; i < 1000; i++) {
        struct vsg_sock *s = vsg_socket(g, 6000, 77);
        int fd;

        vsg_connect(g, s);
        vsg_poll(g);
        assert_true(s->connected);
        fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC);
        assert_true(fd >= 0);
        if (i % 2)
            vsg_drop(g, s); /* the guest closes first */
        (void)close(fd);
        for (int k = 0; i % 2 == 0 && k < 100 && !s->reset; k++) {
            vsg_turn(g, 1);
            vsg_poll(g);
        }
        if (i % 2 == 0) {
            assert_true(s->reset);
            vsg_drop(g, s);
        }
        vsg_poll(g);
    }
    vsg_settle(g);
    assert_int_equal(vsg_stats(g).conns, 0);
    assert_int_equal(vsg_count_fds(), before);
    vsg_free(g);
}

static void test_many_host_vanishes_a_hundred_times(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    static char buf[65536];
    uint32_t before;

    vsg_settle(g);
    before = vsg_count_fds();
    for (int i = 0; i < 100; i++) {
        struct vsg_sock *s;
        int fd = vsg_dial(g, 52, &s);
        size_t got = 0;

        while (got < 300000) {
            vsg_poll(g);
            (void)vsg_write(g, s, payload, sizeof(payload));
            got += (size_t)vsg_host_read(g, fd, buf, sizeof(buf));
        }
        (void)close(fd);
        for (int k = 0; k < 1000 && !s->reset && !s->peer_shut; k++) {
            (void)vsg_write(g, s, payload, sizeof(payload));
            vsg_turn(g, 1);
            vsg_poll(g);
        }
        assert_true(s->reset || (s->peer_shut & VIRTIO_VSOCK_SHUTDOWN_RCV));
        vsg_drop(g, s);
    }
    vsg_settle(g);
    assert_int_equal(vsg_stats(g).conns, 0);
    assert_int_equal(vsg_count_fds(), before);
    vsg_free(g);
}

/* --- BL-058: many connections -------------------------------------------- */

/* Accepts for the guest, by raw packets: its sockets would be large. */
static void accept_raw(struct vsg *g)
{
    struct vsock_pkt p;

    while (vsg_recv(g, &p, NULL, 0)) {
        struct vsock_pkt r =
            vsg_packet(VIRTIO_VSOCK_OP_RESPONSE, p.dst_port, p.src_port);

        if (p.op == VIRTIO_VSOCK_OP_SHUTDOWN)
            r.op = VIRTIO_VSOCK_OP_RST;
        else if (p.op != VIRTIO_VSOCK_OP_REQUEST)
            continue;
        vsg_send(g, &r, NULL, 0);
    }
}

static bool got_ok(int fd)
{
    char b[4];

    return recv(fd, b, 3, MSG_DONTWAIT | MSG_PEEK) == 3 && !memcmp(b, "OK ", 3);
}

static void open_many(struct vsg *g, int *fds, uint32_t want, uint32_t expect)
{
    uint32_t ok = 0;
    char byte;

    for (uint32_t i = 0; i < want; i++) {
        fds[i] = vsg_host_dial(g, 52);
        assert_true(fds[i] >= 0);
        vsg_turn(g, 0);
        accept_raw(g);
    }
    for (int i = 0; i < 20; i++) {
        vsg_turn(g, 0);
        accept_raw(g);
    }
    for (uint32_t i = 0; i < want; i++) {
        ok += got_ok(fds[i]);
        if (!got_ok(fds[i])) /* refused, not left waiting */
            assert_int_equal(recv(fds[i], &byte, 1, MSG_DONTWAIT), 0);
    }
    assert_int_equal(ok, expect);
}

static void close_many(struct vsg *g, int *fds, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        drop_fd(&fds[i]);
    for (int i = 0; i < 2000 && vsg_stats(g).conns > 0; i++) {
        vsg_turn(g, 1);
        accept_raw(g);
    }
    assert_int_equal(vsg_stats(g).conns, 0);
    assert_int_equal(vsg_stats(g).promised_bytes, 0);
}

static void test_many_1500_connections_then_one(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){.features = EVENT_IDX});
    static int fds[1500];
    uint32_t before;

    if (raise_fd_limit() < 3100) {
        vsg_free(g);
        skip(); /* RLIMIT_NOFILE is too low here */
    }
    vsg_settle(g);
    before = vsg_count_fds();
    open_many(g, fds, 1500, 1500);
    assert_true(vsg_stats(g).promised_bytes <=
                VV_PROMISE_BYTES + 1500 * VV_BUF_SMALL_BYTES);
    close_many(g, fds, 1500);
    open_many(g, fds, 1, 1);
    close_many(g, fds, 1);
    vsg_settle(g);
    assert_int_equal(vsg_count_fds(), before);
    vsg_free(g);
}

static void test_many_surplus_is_refused_at_once(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    static int fds[VVSOCK_MAX_CONNS + 100];
    struct vsock_pkt p = vsg_packet(VIRTIO_VSOCK_OP_REQUEST, 1, 77);
    uint32_t before;

    if (raise_fd_limit() < 2 * VVSOCK_MAX_CONNS + 300) {
        vsg_free(g);
        skip(); /* RLIMIT_NOFILE is too low here */
    }
    vsg_settle(g);
    before = vsg_count_fds();
    open_many(g, fds, ARRAY_SIZE(fds), VVSOCK_MAX_CONNS);
    assert_int_equal(vsg_stats(g).conns, VVSOCK_MAX_CONNS);
    vsg_send(g, &p, NULL, 0); /* the guest's own surplus */
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    close_many(g, fds, ARRAY_SIZE(fds));
    open_many(g, fds, 1, 1);
    close_many(g, fds, 1);
    vsg_settle(g);
    assert_int_equal(vsg_count_fds(), before);
    vsg_free(g);
}

/* --- BL-059: a small backlog --------------------------------------------- */

#define CROWD 200u

/* A server that reads 1 KiB of each client, answers 1 KiB and closes. */
static void serve(int lfd, int *fds, size_t *got)
{
    static char kib[1024];

    for (uint32_t i = 0; i < CROWD; i++) {
        ssize_t n;

        if (fds[i] < 0) {
            fds[i] = accept4(lfd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            got[i] = 0;
        }
        if (fds[i] < 0)
            continue;
        n = recv(fds[i], kib, sizeof(kib), MSG_DONTWAIT);
        got[i] += n > 0 ? (size_t)n : 0;
        if (got[i] < sizeof(kib))
            continue;
        assert_int_equal(send(fds[i], kib, sizeof(kib), MSG_NOSIGNAL), 1024);
        drop_fd(&fds[i]);
    }
}

static bool crowd_step(struct vsg *g, struct vsg_sock **s, size_t *sent)
{
    bool all = true;

    for (uint32_t i = 0; i < CROWD; i++) {
        if (s[i]->connected && sent[i] < 1024)
            sent[i] += vsg_write(g, s[i], payload, 1024 - sent[i]);
        /* Whole, or refused. */
        if (vsg_unread(s[i]) < 1024 && !s[i]->reset)
            all = false;
    }
    return all;
}

static void crowd(struct vsg *g, int lfd)
{
    struct vsg_sock *s[CROWD];
    size_t sent[CROWD] = {0};
    size_t got[CROWD] = {0};
    int fds[CROWD];
    uint32_t served = 0;
    uint64_t begin = util_now_ns();

    for (uint32_t i = 0; i < CROWD; i++) {
        fds[i] = -1;
        s[i] = vsg_socket(g, 10000 + i, 77);
        vsg_connect(g, s[i]);
    }
    while (!crowd_step(g, s, sent)) {
        assert_true(util_now_ns() - begin < 5000000000ull);
        vsg_turn(g, 1);
        vsg_poll(g);
        serve(lfd, fds, got);
    }
    for (uint32_t i = 0; i < CROWD; i++) {
        served += vsg_unread(s[i]) == 1024;
        drop_fd(&fds[i]);
        vsg_drop(g, s[i]);
    }
    assert_int_equal(served, CROWD); /* this server keeps up */
    vsg_settle(g);
    assert_int_equal(vsg_stats(g).conns, 0);
}

static void test_many_two_hundred_at_once_with_backlog_five(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    CLEANUP_FD int lfd = vsg_host_listen(g, 77, 5);

    for (int round = 0; round < 5; round++) /* on each back end */
        crowd(g, lfd);
    vsg_free(g);
}

/* The time limit is reached by hand, like those further below. */
static void test_many_server_that_never_accepts_refuses_in_time(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vvsock *vv = container_of(g->dev, struct vvsock, dev);
    CLEANUP_FD int lfd = vsg_host_listen(g, 77, 0);
    struct vsg_sock *s[5];
    struct vv_conn *c;
    uint32_t waiting = 0;
    uint32_t reset = 0;

    assert_true(lfd >= 0);
    for (uint32_t i = 0; i < ARRAY_SIZE(s); i++) {
        s[i] = vsg_socket(g, 10000 + i, 77);
        vsg_connect(g, s[i]);
    }
    for (int i = 0; i < 10; i++)
        vsg_settle(g);
    TAILQ_FOREACH(c, &vv->dialing, dial_link)
    {
        waiting++;
        assert_true(c->dial_until_ns <= util_now_ns() + VV_DIAL_NS);
        c->dial_until_ns = 0;
    }
    assert_int_equal(waiting, 4); /* one fits into a backlog of none */
    for (int i = 0; i < 10; i++)
        vsg_settle(g);
    for (uint32_t i = 0; i < ARRAY_SIZE(s); i++)
        reset += s[i]->reset;
    assert_int_equal(reset, 4);
    assert_int_equal(vsg_stats(g).conns, 1);
    assert_int_equal(vv->dial_timer.heap_index_, 0);
    vsg_free(g);
}

static void test_many_reset_while_connections_wait_for_a_backlog(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    CLEANUP_FD int lfd = vsg_host_listen(g, 77, 0);

    assert_true(lfd >= 0);
    for (uint32_t i = 0; i < 5; i++)
        vsg_connect(g, vsg_socket(g, 10000 + i, 77));
    vsg_settle(g);
    assert_int_equal(vsg_stats(g).conns, 5);
    assert_int_equal(fdrv_reset(&g->d), 0);
    assert_int_equal(vsg_stats(g).conns, 0);
    vsg_turn(g, 5);
    vsg_free(g);
}

/* --- time limits: the timer is fired by hand ----------------------------- */

static void expire(struct vsg *g)
{
    struct vvsock *vv = container_of(g->dev, struct vvsock, dev);
    struct ev_timer *t = &TAILQ_FIRST(&vv->conns)->timer;

    assert_true(t->heap_index_ != 0);
    assert_true(t->deadline_ns <= util_now_ns() + VV_ANSWER_NS);
    evloop_timer_cancel(g->loop, t);
    t->fn(t);
}

static void test_many_guest_that_never_answers_a_request(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    CLEANUP_FD int fd = vsg_host_dial(g, 52);
    struct vsock_pkt p;
    char byte;

    vsg_expect(g, VIRTIO_VSOCK_OP_REQUEST, &p);
    expire(g);
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_int_equal(vsg_stats(g).conns, 0);
    vsg_free(g);
}

static void test_many_request_that_never_left_needs_no_reset(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){.no_rx = true});
    CLEANUP_FD int fd = vsg_host_dial(g, 52);

    assert_true(fd >= 0);
    vsg_turn(g, 1);
    vsg_turn(g, 1);
    expire(g);
    assert_int_equal(vsg_stats(g).conns, 0);
    assert_int_equal(vsg_stats(g).resets_waiting, 0);
    vsg_free(g);
}

static void test_many_guest_that_never_answers_a_shutdown(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    int fd = vsg_host_dial(g, 52);
    struct vsock_pkt p;
    struct vsock_pkt r;
    char line[40];

    vsg_expect(g, VIRTIO_VSOCK_OP_REQUEST, &p);
    r = vsg_packet(VIRTIO_VSOCK_OP_RESPONSE, 52, p.src_port);
    vsg_send(g, &r, NULL, 0);
    assert_true(vsg_host_line(g, fd, line, sizeof(line)));
    (void)close(fd);
    vsg_expect(g, VIRTIO_VSOCK_OP_SHUTDOWN, &p);
    while (p.flags != VSOCK_SHUT_BOTH)
        vsg_expect(g, VIRTIO_VSOCK_OP_SHUTDOWN, &p);
    assert_int_equal(vsg_stats(g).conns, 1);
    expire(g);
    vsg_expect(g, VIRTIO_VSOCK_OP_RST, &p);
    assert_int_equal(vsg_stats(g).conns, 0);
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
        BOTH(test_many_thousand_reconnects_from_one_port),
        BOTH(test_many_host_vanishes_a_hundred_times),
        BOTH(test_many_1500_connections_then_one),
        BOTH(test_many_surplus_is_refused_at_once),
        BOTH(test_many_two_hundred_at_once_with_backlog_five),
        BOTH(test_many_server_that_never_accepts_refuses_in_time),
        BOTH(test_many_reset_while_connections_wait_for_a_backlog),
        BOTH(test_many_guest_that_never_answers_a_request),
        BOTH(test_many_request_that_never_left_needs_no_reset),
        BOTH(test_many_guest_that_never_answers_a_shutdown),
    };

    return cmocka_run_group_tests_name("virtio_vsock_many", tests, NULL, NULL);
}
