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

/* Much data, and peers that do not do their part. */

#define BULK      (64 * MIB)
#define PATTERN   65521u /* a prime: no block size lines up with it */
#define EVENT_IDX (1ull << VIRTIO_RING_F_EVENT_IDX)

static uint8_t pattern[2 * PATTERN];

static void fill_pattern(void)
{
    uint32_t x = 2463534242u;

    for (uint32_t i = 0; i < PATTERN; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        pattern[i] = (uint8_t)x;
        pattern[PATTERN + i] = (uint8_t)x;
    }
}

static struct vsg *start(void **state, struct vsg_opts opts)
{
    struct vsg *g = vsg_new(*(enum evloop_backend *)*state, opts);

    if (!g)
        skip(); /* this host forbids io_uring */
    return g;
}

/* --- BL-052: bulk data --------------------------------------------------- */

/* One direction: `sent` and `got` bytes of the endless pattern. */
struct flow {
    uint64_t sent;
    uint64_t got;
    uint64_t total;
};

static void check(struct flow *f, const uint8_t *data, size_t n)
{
    while (n > 0) {
        size_t part = n < PATTERN ? n : PATTERN;

        assert_memory_equal(data, pattern + f->got % PATTERN, part);
        f->got += part;
        data += part;
        n -= part;
    }
}

static size_t chunk(const struct flow *f)
{
    return min_u64(f->total - f->sent, PATTERN);
}

static void guest_to_host(struct vsg *g, struct vsg_sock *s, int fd,
                          struct flow *f, bool slow)
{
    static uint8_t buf[256 * 1024];
    ssize_t n;

    f->sent += vsg_write(g, s, pattern + f->sent % PATTERN, chunk(f));
    n = recv(fd, buf, slow ? 4096 : sizeof(buf), MSG_DONTWAIT);
    if (n > 0)
        check(f, buf, (size_t)n);
}

static void host_to_guest(struct vsg *g, struct vsg_sock *s, int fd,
                          struct flow *f, bool slow)
{
    static uint8_t buf[256 * 1024];
    ssize_t n;

    n = send(fd, pattern + f->sent % PATTERN, chunk(f),
             MSG_DONTWAIT | MSG_NOSIGNAL);
    f->sent += n > 0 ? (uint64_t)n : 0;
    check(f, buf, vsg_read(g, s, buf, slow ? 4096 : sizeof(buf)));
}

/* `slow`: for the first turns the reader takes 4 KiB a turn. */
static void bulk(struct vsg *g, uint64_t to_host, uint64_t to_guest)
{
    struct flow out = {.total = to_host};
    struct flow in = {.total = to_guest};
    struct vsg_sock *s;
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);
    uint64_t seen = 0;
    uint64_t seen_at = util_now_ns();

    for (uint32_t i = 0; out.got < to_host || in.got < to_guest; i++) {
        guest_to_host(g, s, fd, &out, i < 300);
        host_to_guest(g, s, fd, &in, i < 300);
        vsg_turn(g, 0);
        vsg_poll(g);
        if (out.got + in.got > seen) {
            seen = out.got + in.got;
            seen_at = util_now_ns();
        }
        assert_true(util_now_ns() - seen_at < 10000000000ull); /* stalled */
    }
    assert_int_equal(s->overruns, 0);
    assert_false(s->reset);
    assert_int_equal(vsg_stats(g).bad_packets, 0);
}

static void test_load_guest_to_host_arrives_whole(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){.features = EVENT_IDX});

    bulk(g, BULK, 0);
    vsg_free(g);
}

static void test_load_host_to_guest_arrives_whole(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){.features = EVENT_IDX});

    bulk(g, 0, BULK);
    vsg_free(g);
}

static void test_load_both_ways_at_once_arrive_whole(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});

    bulk(g, BULK, BULK);
    vsg_free(g);
}

static void test_load_few_odd_buffers_and_a_small_window(void **state)
{
    struct vsg *g =
        start(state, (struct vsg_opts){.rx_bytes = 1001, .rx_buffers = 3});

    g->listen_alloc = 5000;
    bulk(g, 4 * MIB, 2 * MIB);
    vsg_free(g);
}

/* --- peers that are stuck ------------------------------------------------ */

static void echo(struct vsg *g, struct vsg_sock *s, int fd)
{
    char buf[16];

    assert_int_equal(send(fd, "ping", 4, MSG_NOSIGNAL), 4);
    for (int k = 0; k < 1000 && vsg_unread(s) < 4; k++) {
        vsg_turn(g, 1);
        vsg_poll(g);
    }
    assert_int_equal(vsg_read(g, s, buf, sizeof(buf)), 4);
    assert_int_equal(vsg_write(g, s, "pong", 4), 4);
    assert_int_equal(vsg_host_read(g, fd, buf, sizeof(buf)), 4);
}

static void test_load_stuck_host_peers_stop_nobody(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *stuck[8];
    struct vsg_sock *s;
    int fds[8];
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);

    for (uint32_t i = 0; i < 8; i++) {
        fds[i] = vsg_dial(g, 52, &stuck[i]); /* never read from */
        for (size_t n = 1; n > 0;) {
            n = vsg_write(g, stuck[i], pattern, PATTERN);
            vsg_poll(g);
        }
    }
    for (int i = 0; i < 50; i++)
        echo(g, s, fd);
    for (uint32_t i = 0; i < 8; i++) {
        assert_false(stuck[i]->reset);
        drop_fd(&fds[i]);
    }
    vsg_free(g);
}

static void test_load_guest_sockets_never_read_stop_nobody(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){0});
    struct vsg_sock *stuck[8];
    struct vsg_sock *s;
    int fds[8];
    CLEANUP_FD int fd = vsg_dial(g, 52, &s);

    for (uint32_t i = 0; i < 8; i++) {
        fds[i] = vsg_dial(g, 52, &stuck[i]);
        for (int k = 0; k < 30; k++) {
            (void)send(fds[i], pattern, PATTERN, MSG_NOSIGNAL | MSG_DONTWAIT);
            vsg_turn(g, 0);
            vsg_poll(g);
        }
        assert_int_equal(vsg_unread(stuck[i]), VSG_SOCK_BUF);
    }
    for (int i = 0; i < 50; i++)
        echo(g, s, fd);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(stuck[i]->overruns, 0);
        drop_fd(&fds[i]);
    }
    vsg_free(g);
}

/* Four busy senders and few guest buffers: all get their share. */
static void test_load_busy_senders_share_the_guest_buffers(void **state)
{
    struct vsg *g = start(state, (struct vsg_opts){.rx_buffers = 8});
    static char buf[65536];
    struct vsg_sock *s[4];
    uint64_t got[4] = {0};
    int fds[4];

    for (uint32_t i = 0; i < 4; i++)
        fds[i] = vsg_dial(g, 52, &s[i]);
    for (int turn = 0; turn < 600; turn++) {
        for (uint32_t i = 0; i < 4; i++) {
            (void)send(fds[i], pattern, PATTERN, MSG_NOSIGNAL | MSG_DONTWAIT);
            got[i] += vsg_read(g, s[i], buf, sizeof(buf));
        }
        vsg_turn(g, 0);
        vsg_poll(g);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(got[i] > MIB / 2);
        assert_true(got[i] * 2 > got[0] && got[0] * 2 > got[i]);
        drop_fd(&fds[i]);
    }
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
        BOTH(test_load_guest_to_host_arrives_whole),
        BOTH(test_load_host_to_guest_arrives_whole),
        BOTH(test_load_both_ways_at_once_arrive_whole),
        BOTH(test_load_few_odd_buffers_and_a_small_window),
        BOTH(test_load_stuck_host_peers_stop_nobody),
        BOTH(test_load_guest_sockets_never_read_stop_nobody),
        BOTH(test_load_busy_senders_share_the_guest_buffers),
    };

    fill_pattern();
    return cmocka_run_group_tests_name("virtio_vsock_load", tests, NULL, NULL);
}
