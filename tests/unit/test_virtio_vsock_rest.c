/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock.h"

#include "tests/harness/loop_run.h"
#include "tests/harness/state_box.h"
#include "tests/harness/vsock_guest.h"
#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A machine that pauses and goes on: nothing of its connections is lost. */

static struct vsg *start(void **state, struct vsg_opts opts)
{
    struct vsg *g = vsg_new(*(enum evloop_backend *)*state, opts);

    if (!g)
        skip(); /* this host forbids io_uring */
    return g;
}

static size_t host_to_guest(struct vsg *g, struct vsg_sock *s, char *buf,
                            size_t size)
{
    for (int i = 0; i < 1000 && vsg_unread(s) == 0; i++) {
        vsg_turn(g, 1);
        vsg_poll(g);
    }
    return vsg_read(g, s, buf, size);
}

/* A connection that is kept and used again, 50 times over. */
static void
test_BL_066_vsock_kept_connection_works_after_each_pause(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;
    CLEANUP_FD int fd = vsg_dial(g, 80, &s);
    char buf[64];

    for (int i = 0; i < 50; i++) {
        assert_int_equal(send(fd, "question", 8, MSG_NOSIGNAL), 8);
        if (i % 2)
            vsg_turn(g, 1);
        sbox_rest(&g->d);
        vsg_turn(g, 1);
        fdrv_wake(&g->d);
        assert_int_equal(host_to_guest(g, s, buf, sizeof(buf)), 8);
        assert_memory_equal(buf, "question", 8);
        assert_int_equal(vsg_write(g, s, "answer", 6), 6);
        assert_int_equal(vsg_host_read(g, fd, buf, sizeof(buf)), 6);
        assert_memory_equal(buf, "answer", 6);
    }
    assert_int_equal(vsg_stats(g).conns, 1);
    assert_int_equal(vsg_stats(g).resets_sent, 0);
    vsg_free(g);
}

/* A stream through many pauses arrives whole and in order, both ways. */
static void test_BL_091_vsock_stream_goes_on_through_pauses(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    static uint8_t big[1 << 20];
    static uint8_t up[1 << 20];
    static uint8_t down[1 << 20];
    size_t sent[2] = {0, 0};
    size_t got[2] = {0, 0};
    struct vsg_sock *s;
    CLEANUP_FD int fd = vsg_dial(g, 80, &s);

    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = (uint8_t)(i * 7 + (i >> 9));
    for (int i = 0; i < 20000 && (got[0] < sizeof(big) || got[1] < sizeof(big));
         i++) {
        ssize_t n = send(fd, big + sent[0], sizeof(big) - sent[0],
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        sent[0] += n > 0 ? (size_t)n : 0;
        sent[1] += vsg_write(g, s, big + sent[1],
                             min_u64(30000, sizeof(big) - sent[1]));
        if (i % 3 == 0) {
            sbox_rest(&g->d);
            vsg_turn(g, 0);
            vsg_poll(g);
            fdrv_wake(&g->d);
        }
        vsg_turn(g, 0);
        vsg_poll(g);
        got[0] += vsg_read(g, s, down + got[0], sizeof(big) - got[0]);
        n = recv(fd, up + got[1], sizeof(big) - got[1], MSG_DONTWAIT);
        got[1] += n > 0 ? (size_t)n : 0;
    }
    assert_int_equal(got[0], sizeof(big));
    assert_int_equal(got[1], sizeof(big));
    assert_memory_equal(down, big, sizeof(big));
    assert_memory_equal(up, big, sizeof(big));
    assert_int_equal(s->overruns, 0);
    assert_int_equal(g->d.needs_resets, 0);
    vsg_free(g);
}

static void test_vsock_rest_reads_nothing_of_the_host(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;
    CLEANUP_FD int fd = vsg_dial(g, 80, &s);
    char buf[8];

    sbox_rest(&g->d);
    assert_int_equal(send(fd, "bytes", 5, MSG_NOSIGNAL), 5);
    assert_true(loop_run_is_idle(g->loop));
    vsg_poll(g);
    assert_int_equal(vsg_unread(s), 0);
    fdrv_wake(&g->d);
    assert_int_equal(host_to_guest(g, s, buf, sizeof(buf)), 5);
    vsg_free(g);
}

/* In the backlog, and with a line half said. */
static void test_vsock_rest_lets_clients_wait(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    char line[40];
    CLEANUP_FD int half = vsg_host_connect(g);
    CLEANUP_FD int fd = -1;

    g->listen_port = 80;
    assert_int_equal(send(half, "CONN", 4, MSG_NOSIGNAL), 4);
    vsg_settle(g);
    assert_int_equal(vsg_stats(g).waiting, 1);
    sbox_rest(&g->d);
    fd = vsg_host_dial(g, 80);
    assert_true(fd >= 0);
    assert_int_equal(send(half, "ECT 80\n", 7, MSG_NOSIGNAL), 7);
    assert_true(loop_run_is_idle(g->loop));
    assert_int_equal(vsg_stats(g).conns, 0);
    assert_int_equal(vsg_stats(g).waiting, 1);
    fdrv_wake(&g->d);
    assert_true(vsg_host_line(g, fd, line, sizeof(line)));
    assert_true(vsg_host_line(g, half, line, sizeof(line)));
    assert_int_equal(g->accepted, 2);
    vsg_free(g);
}

/* What the guest sent before the pause is not held back by it. */
static void test_vsock_rest_still_delivers_to_the_host(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    static char big[256 * 1024];
    static char buf[65536];
    struct vsg_sock *s;
    CLEANUP_FD int fd = vsg_dial(g, 80, &s);
    size_t want = vsg_write(g, s, big, sizeof(big));
    size_t got = 0;

    assert_int_equal(want, sizeof(big));
    vsg_shutdown(g, s, VIRTIO_VSOCK_SHUTDOWN_SEND);
    sbox_rest(&g->d);
    assert_true(loop_run_is_idle(g->loop)); /* the socket is full */
    for (ssize_t n = 1; n > 0; got += (size_t)n) {
        n = vsg_host_read(g, fd, buf, sizeof(buf));
        assert_true(n >= 0); /* its end comes as well */
    }
    assert_int_equal(got, want);
    assert_true(loop_run_is_idle(g->loop));
    fdrv_wake(&g->d);
    assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(host_to_guest(g, s, buf, sizeof(buf)), 1);
    vsg_free(g);
}

static void test_vsock_peer_that_leaves_at_rest_is_noticed_later(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    static char big[256 * 1024];
    struct vsg_sock *idle;
    struct vsg_sock *busy;
    CLEANUP_FD int fd_idle = vsg_dial(g, 80, &idle);
    CLEANUP_FD int fd_busy = vsg_dial(g, 80, &busy);
    char buf[8];

    assert_int_equal(vsg_write(g, busy, big, sizeof(big)), sizeof(big));
    sbox_rest(&g->d);
    assert_int_equal(send(fd_idle, "last", 4, MSG_NOSIGNAL), 4);
    drop_fd(&fd_idle);
    drop_fd(&fd_busy);
    assert_true(loop_run_is_idle(g->loop)); /* a hang-up does not spin */
    vsg_poll(g);
    assert_int_equal(busy->peer_shut, 0);
    fdrv_wake(&g->d);
    assert_int_equal(host_to_guest(g, idle, buf, sizeof(buf)), 4);
    vsg_settle(g);
    assert_int_equal(idle->peer_shut, VSOCK_SHUT_BOTH);
    assert_int_not_equal(busy->peer_shut, 0);
    vsg_free(g);
}

/* Requests of the guest that wait for a full listener. */
static void test_vsock_rest_keeps_who_waits_for_a_listener(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    CLEANUP_FD int lfd = vsg_host_listen(g, 77, 0);
    struct vsg_sock *s[3];
    int fd;

    for (uint32_t i = 0; i < 3; i++) {
        s[i] = vsg_socket(g, 5000 + i, 77);
        vsg_connect(g, s[i]);
    }
    vsg_settle(g);
    assert_true(s[0]->connected);
    assert_false(s[2]->connected);
    sbox_rest(&g->d);
    fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(loop_run_is_idle(g->loop));
    vsg_poll(g);
    assert_false(s[2]->connected);
    fdrv_wake(&g->d);
    for (int i = 0; i < 200 && !s[2]->connected; i++) {
        int more;

        vsg_turn(g, 5);
        vsg_poll(g);
        more = accept4(lfd, NULL, NULL, SOCK_CLOEXEC);
        if (more >= 0)
            (void)close(more);
    }
    assert_true(s[2]->connected);
    (void)close(fd);
    vsg_free(g);
}

/* Buffers taken ahead go back in the order of their ring, whatever lies
 * between them. */
static void test_vsock_rest_puts_guest_buffers_back(void **state)
{
    struct vsg_opts opts = {.rx_buffers = 8};
    struct vsg *g = start(state, opts);
    struct fdrv_seg tiny = {g->tx_gpa, 10, true};
    struct vsg_sock *s;
    CLEANUP_FD int fd = vsg_dial(g, 80, &s);
    char buf[16];
    uint32_t head;

    for (int i = 0; i < 3; i++) {
        head = fdrv_add(&g->d, VSG_RX, &tiny, 1);
        g->rx_of_head[head] = 0;
        vsg_post_rx(g, 7);
    }
    fdrv_kick(&g->d, VSG_RX);
    assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
    vsg_turn(g, 1); /* takes more than it needs */
    assert_true(g->dev->vq[VSG_RX].next_avail != g->dev->vq[VSG_RX].next_used);
    sbox_rest(&g->d); /* checks that all are back */
    fdrv_wake(&g->d);
    assert_int_equal(host_to_guest(g, s, buf, sizeof(buf)), 1);
    assert_int_equal(g->d.needs_resets, 0);
    vsg_free(g);
}

static void test_vsock_reset_ends_the_rest(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;
    CLEANUP_FD int fd = vsg_dial(g, 80, &s);
    CLEANUP_FD int again = -1;
    char buf[8];

    sbox_rest(&g->d);
    g->dev->resting = false;
    assert_int_equal(fdrv_reset(&g->d), 0);
    assert_int_equal(vsg_host_read(g, fd, buf, 1), 0);
    vsg_activate(g);
    again = vsg_dial(g, 80, &s);
    assert_true(again >= 0);
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
        BOTH(test_BL_066_vsock_kept_connection_works_after_each_pause),
        BOTH(test_BL_091_vsock_stream_goes_on_through_pauses),
        BOTH(test_vsock_rest_reads_nothing_of_the_host),
        BOTH(test_vsock_rest_lets_clients_wait),
        BOTH(test_vsock_rest_still_delivers_to_the_host),
        BOTH(test_vsock_peer_that_leaves_at_rest_is_noticed_later),
        BOTH(test_vsock_rest_keeps_who_waits_for_a_listener),
        BOTH(test_vsock_rest_puts_guest_buffers_back),
        BOTH(test_vsock_reset_ends_the_rest),
    };

    return cmocka_run_group_tests_name("virtio_vsock_rest", tests, NULL, NULL);
}
