/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock.h"

#include "tests/harness/vsock_guest.h"
#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* How connections end, half or whole, from either side. */

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

/* BL-053 */
static void test_vsock_guest_half_close_reaches_host(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    static char big[1 << 20];
    struct vsg_sock *s;
    char buf[64];
    CLEANUP_FD int fd = connect_out(g, 5000, 77, &s);
    size_t got = 0;

    assert_int_equal(vsg_write(g, s, "0123456789", 10), 10);
    vsg_shutdown(g, s, VIRTIO_VSOCK_SHUTDOWN_SEND);
    assert_int_equal(vsg_host_read(g, fd, buf, sizeof(buf)), 10);
    assert_int_equal(vsg_host_read(g, fd, buf, sizeof(buf)), 0); /* EOF */
    for (size_t sent = 0; sent < sizeof(big) || got < sizeof(big);) {
        ssize_t n = sent < sizeof(big)
                        ? send(fd, big + sent, sizeof(big) - sent,
                               MSG_NOSIGNAL | MSG_DONTWAIT)
                        : 0;

        sent += n > 0 ? (size_t)n : 0;
        vsg_turn(g, 1);
        vsg_poll(g);
        while (vsg_unread(s) > 0)
            got += vsg_read(g, s, buf, sizeof(buf));
    }
    assert_int_equal(got, sizeof(big));
    assert_int_equal(s->peer_shut, 0);
    (void)close(take_fd(&fd));
    vsg_settle(g);
    assert_int_equal(s->peer_shut, VSOCK_SHUT_BOTH);
    assert_int_equal(vsg_stats(g).conns, 0);
    vsg_free(g);
}

/* BL-053, the other way round */
static void test_vsock_host_half_close_reaches_guest(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    static char big[1 << 20];
    struct vsg_sock *s;
    char buf[4096];
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);
    size_t sent = 0;
    size_t got = 0;

    assert_int_equal(send(fd, "0123456789", 10, MSG_NOSIGNAL), 10);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    vsg_settle(g);
    assert_int_equal(vsg_read(g, s, buf, sizeof(buf)), 10);
    assert_int_equal(s->peer_shut, VIRTIO_VSOCK_SHUTDOWN_SEND);
    while (got < sizeof(big)) {
        sent += vsg_write(g, s, big + sent, sizeof(big) - sent);
        got += (size_t)vsg_host_read(g, fd, buf, sizeof(buf));
        vsg_poll(g);
    }
    vsg_drop(g, s);
    assert_int_equal(vsg_host_read(g, fd, buf, sizeof(buf)), 0);
    vsg_settle(g);
    assert_int_equal(vsg_stats(g).conns, 0);
    vsg_free(g);
}

static void test_vsock_guest_close_still_delivers(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    static char big[256 * 1024];
    static char buf[65536];
    struct vsg_sock *s;
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);
    size_t want = vsg_write(g, s, big, sizeof(big));
    size_t got = 0;
    ssize_t n;

    /* Nobody reads: the socket is full, the rest is in the device. */
    for (size_t more = 1; more > 0; want += more) {
        vsg_poll(g);
        more = vsg_write(g, s, big, sizeof(big));
    }
    vsg_drop(g, s);
    vsg_settle(g);
    assert_int_equal(g->strays, 1); /* answered by a reset at once */
    assert_int_equal(vsg_stats(g).draining, 1);
    /* Not even a reset of the device takes them away. */
    assert_int_equal(fdrv_reset(&g->d), 0);
    assert_int_equal(vsg_stats(g).draining, 1);
    while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) != 0) {
        if (n > 0)
            got += (size_t)n;
        else
            vsg_turn(g, 1);
    }
    assert_int_equal(got, want);
    assert_int_equal(vsg_stats(g).conns, 0);
    vsg_free(g);
}

static void test_vsock_guest_that_stops_receiving_stops_the_host(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;
    char buf[8];
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);

    vsg_shutdown(g, s, VIRTIO_VSOCK_SHUTDOWN_RCV);
    vsg_settle(g);
    assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(vsg_write(g, s, "abc", 3), 3); /* the other way works */
    assert_int_equal(vsg_host_read(g, fd, buf, sizeof(buf)), 3);
    vsg_free(g);
}

static void test_vsock_host_that_stops_receiving_stops_the_guest(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);
    char buf[8];

    assert_int_equal(shutdown(fd, SHUT_RD), 0);
    assert_int_equal(vsg_write(g, s, "abc", 3), 3);
    vsg_settle(g);
    assert_int_equal(s->peer_shut, VIRTIO_VSOCK_SHUTDOWN_RCV);
    assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
    vsg_settle(g);
    assert_int_equal(vsg_read(g, s, buf, sizeof(buf)), 1);
    vsg_free(g);
}

static void test_vsock_both_half_closes_end_the_connection(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);
    char buf[8];

    vsg_shutdown(g, s, VIRTIO_VSOCK_SHUTDOWN_SEND);
    assert_int_equal(vsg_host_read(g, fd, buf, sizeof(buf)), 0);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    vsg_settle(g);
    assert_int_equal(s->peer_shut, VSOCK_SHUT_BOTH);
    assert_int_equal(vsg_stats(g).conns, 0); /* and the guest's reset came */
    vsg_free(g);
}

static void
test_vsock_idle_half_closed_peer_that_leaves_is_noticed(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *s;
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);

    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    vsg_settle(g);
    assert_int_equal(s->peer_shut, VIRTIO_VSOCK_SHUTDOWN_SEND);
    (void)close(take_fd(&fd)); /* the guest has nothing to write meanwhile */
    vsg_settle(g);
    assert_int_equal(s->peer_shut, VSOCK_SHUT_BOTH);
    assert_int_equal(vsg_stats(g).conns, 0);
    vsg_free(g);
}

/* Data of a client that has gone waits for the guest's buffers and credit. */
static void test_vsock_bytes_of_a_gone_client_are_not_lost(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){.rx_buffers = 4});
    static char big[100000];
    char buf[1000];
    struct vsg_sock *s;
    size_t got = 0;
    int fd;

    g->listen_alloc = 4096; /* the guest's own buffer is small as well */
    fd = vsg_dial(g, 52, &s);
    assert_int_equal(send(fd, big, sizeof(big), MSG_NOSIGNAL), sizeof(big));
    (void)close(fd);
    assert_int_equal(vsg_write(g, s, "into the void", 13), 13);
    for (int i = 0; i < 5000 && !s->reset; i++) {
        vsg_turn(g, 0);
        vsg_poll(g);
        got += vsg_read(g, s, buf, sizeof(buf));
    }
    assert_int_equal(got, sizeof(big));
    assert_true(s->reset); /* its own answer to both shutdowns */
    vsg_settle(g);
    assert_int_equal(s->overruns, 0);
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
        BOTH(test_vsock_guest_half_close_reaches_host),
        BOTH(test_vsock_host_half_close_reaches_guest),
        BOTH(test_vsock_guest_close_still_delivers),
        BOTH(test_vsock_guest_that_stops_receiving_stops_the_host),
        BOTH(test_vsock_host_that_stops_receiving_stops_the_guest),
        BOTH(test_vsock_both_half_closes_end_the_connection),
        BOTH(test_vsock_idle_half_closed_peer_that_leaves_is_noticed),
        BOTH(test_vsock_bytes_of_a_gone_client_are_not_lost),
    };

    return cmocka_run_group_tests_name("virtio_vsock_close", tests, NULL, NULL);
}
