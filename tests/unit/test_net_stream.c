/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/net_stream.h"

#include "tests/harness/loop_run.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NUM     8u
#define ROOM    2000u
#define PENDING 12345

struct slot {
    struct net_frame f;
    struct iovec iov[6];
    uint8_t data[NET_MAX_FRAME];
    int32_t result;
};

struct fixture {
    struct evloop *loop;
    struct net_back *back;
    int peer;
    struct slot rx[NUM];
    struct slot tx[NUM];
    unsigned readable;
    unsigned downs;
    char why[100];
    unsigned want; /* for conditions */
};

static void on_readable(void *arg, uint16_t pair)
{
    struct fixture *x = arg;

    assert_int_equal(pair, 0);
    x->readable++;
}

static void on_down(void *arg, const char *why)
{
    struct fixture *x = arg;

    x->downs++;
    (void)snprintf(x->why, sizeof(x->why), "%s", why);
}

static const struct net_events events = {on_readable, on_down};

static void on_done(struct net_frame *f, int32_t result)
{
    struct slot *s = f->arg;

    assert_int_equal(s->result, PENDING);
    s->result = result;
}

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));
    struct errmsg err;
    int ends[2];

    assert_non_null(x);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(evloop_new(EVLOOP_AUTO, &x->loop), 0);
    assert_int_equal(net_stream_adopt(ends[0], &x->back, &err), 0);
    assert_int_equal(x->back->ops->start(x->back, x->loop, &events, x), 0);
    assert_int_equal(x->back->max_pairs, 1);
    assert_false(x->back->vnet_hdr);
    x->peer = ends[1];
    assert_int_equal(fcntl(x->peer, F_SETFL, O_NONBLOCK), 0);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;

    x->back->ops->cancel(x->back);
    loop_run_for(x->loop, 2);
    for (unsigned i = 0; i < NUM; i++) {
        assert_int_not_equal(x->rx[i].result, PENDING);
        assert_int_not_equal(x->tx[i].result, PENDING);
    }
    x->back->ops->free(x->back);
    evloop_free(x->loop);
    if (x->peer >= 0)
        (void)close(x->peer);
    free(x);
    return 0;
}

/* Room in pieces of odd sizes, `bytes` in all. */
static void frame_init(struct slot *s, uint32_t bytes)
{
    uint32_t a = bytes / 3;
    uint32_t b = bytes > 100 ? 7 : 1;

    s->result = PENDING;
    s->f = (struct net_frame){
        .iov = s->iov, .iovcnt = 3, .bytes = bytes, .done = on_done, .arg = s};
    s->iov[1] = (struct iovec){s->data, a};
    s->iov[2] = (struct iovec){s->data + a, b};
    s->iov[3] = (struct iovec){s->data + a + b, bytes - a - b};
}

static void rx(struct fixture *x, unsigned i, uint32_t room)
{
    frame_init(&x->rx[i], room);
    memset(x->rx[i].data, 0xee, room);
    x->back->ops->rx(x->back, 0, &x->rx[i].f);
    assert_int_equal(x->rx[i].result, PENDING); /* never from inside */
}

static void tx(struct fixture *x, unsigned i, uint32_t bytes, uint8_t seed)
{
    frame_init(&x->tx[i], bytes);
    for (uint32_t k = 0; k < bytes; k++)
        x->tx[i].data[k] = (uint8_t)(seed + k);
    x->back->ops->tx(x->back, 0, &x->tx[i].f);
}

static void flush(struct fixture *x)
{
    x->back->ops->tx_flush(x->back, 0);
}

static void peer_send(struct fixture *x, const void *p, size_t n)
{
    assert_int_equal(write(x->peer, p, n), (ssize_t)n);
}

static void peer_frame(struct fixture *x, uint32_t bytes, uint8_t seed)
{
    uint8_t *p = malloc(bytes + 4);
    uint32_t len = htonl(bytes);

    assert_non_null(p);
    memcpy(p, &len, 4);
    for (uint32_t i = 0; i < bytes; i++)
        p[4 + i] = (uint8_t)(seed + i);
    peer_send(x, p, bytes + 4);
    free(p);
}

static bool rx_is_done(void *arg)
{
    struct fixture *x = arg;

    return x->rx[x->want].result != PENDING;
}

static void wait_rx(struct fixture *x, unsigned i, int32_t result)
{
    x->want = i;
    assert_true(loop_run_until(x->loop, rx_is_done, x));
    assert_int_equal(x->rx[i].result, result);
}

static void expect(const struct slot *s, uint32_t bytes, uint8_t seed)
{
    for (uint32_t i = 0; i < bytes; i++)
        assert_int_equal(s->data[i], (uint8_t)(seed + i));
}

static bool was_readable(void *arg)
{
    return ((struct fixture *)arg)->readable > 0;
}

static bool is_down(void *arg)
{
    return ((struct fixture *)arg)->downs > 0;
}

/* --- receiving ----------------------------------------------------------- */

static void test_rx_takes_frames_from_the_stream(void **state)
{
    struct fixture *x = *state;

    peer_frame(x, 60, 1);
    peer_frame(x, 1514, 2);
    peer_frame(x, 14, 3);
    for (unsigned i = 0; i < 4; i++)
        rx(x, i, ROOM);
    wait_rx(x, 3, -EAGAIN);
    assert_int_equal(x->rx[0].result, 60);
    assert_int_equal(x->rx[1].result, 1514);
    assert_int_equal(x->rx[2].result, 14);
    expect(&x->rx[0], 60, 1);
    expect(&x->rx[1], 1514, 2);
    expect(&x->rx[2], 14, 3);
    assert_int_equal(x->rx[0].data[60], 0xee); /* not a byte more */
}

static void test_rx_byte_by_byte(void **state)
{
    struct fixture *x = *state;
    uint8_t msg[4 + 20] = {0, 0, 0, 20};

    for (uint8_t i = 0; i < 20; i++)
        msg[4 + i] = (uint8_t)(40 + i);
    for (size_t i = 0; i < sizeof(msg); i++) {
        peer_send(x, msg + i, 1);
        if (x->rx[0].result != PENDING && i + 1 < sizeof(msg))
            rx(x, 0, ROOM);
        loop_run_for(x->loop, 1);
    }
    wait_rx(x, 0, 20);
    expect(&x->rx[0], 20, 40);
}

static void test_rx_part_of_a_frame_is_kept_and_others_go_back(void **state)
{
    struct fixture *x = *state;
    const uint8_t head[10] = {0, 0, 0, 30, 1, 2, 3, 4, 5, 6};
    uint8_t rest[24];

    for (uint8_t i = 0; i < 24; i++)
        rest[i] = (uint8_t)(7 + i);
    rx(x, 0, ROOM);
    rx(x, 1, ROOM);
    loop_run_for(x->loop, 5);
    rx(x, 0, ROOM);
    rx(x, 1, ROOM);
    peer_send(x, head, sizeof(head));
    wait_rx(x, 1, -EAGAIN);
    assert_int_equal(x->rx[0].result, PENDING);
    assert_true(loop_run_is_idle(x->loop));
    peer_send(x, rest, sizeof(rest));
    wait_rx(x, 0, 30);
    expect(&x->rx[0], 30, 1);
}

static void test_rx_wait_tells_once(void **state)
{
    struct fixture *x = *state;

    x->back->ops->rx_wait(x->back, 0);
    loop_run_for(x->loop, 5);
    assert_int_equal(x->readable, 0);
    peer_frame(x, 60, 1);
    assert_true(loop_run_until(x->loop, was_readable, x));
    assert_true(loop_run_is_idle(x->loop));
    assert_int_equal(x->readable, 1);
    rx(x, 0, ROOM);
    wait_rx(x, 0, 60);
}

static void test_rx_frame_that_does_not_fit_is_skipped_whole(void **state)
{
    struct fixture *x = *state;

    peer_frame(x, 20000, 1);
    peer_frame(x, 100, 2);
    rx(x, 0, 50);
    rx(x, 1, 100);
    wait_rx(x, 1, 100);
    assert_int_equal(x->rx[0].result, -EMSGSIZE);
    expect(&x->rx[1], 100, 2);
    assert_int_equal(x->rx[0].data[0], 0xee);
}

static void test_rx_largest_frame(void **state)
{
    struct fixture *x = *state;

    peer_frame(x, NET_MAX_FRAME, 9);
    rx(x, 0, NET_MAX_FRAME);
    wait_rx(x, 0, (int32_t)NET_MAX_FRAME);
    expect(&x->rx[0], NET_MAX_FRAME, 9);
}

static void refuses_length(struct fixture *x, uint32_t len)
{
    uint32_t be = htonl(len);

    rx(x, 0, ROOM);
    rx(x, 1, ROOM);
    peer_send(x, &be, 4);
    wait_rx(x, 1, -ENETDOWN);
    assert_int_equal(x->rx[0].result, -ENETDOWN);
    assert_int_equal(x->downs, 1);
    assert_non_null(strstr(x->why, "length"));
}

static void test_rx_length_zero_is_a_broken_peer(void **state)
{
    refuses_length(*state, 0);
}

static void test_rx_length_of_a_runt_is_a_broken_peer(void **state)
{
    refuses_length(*state, NET_MIN_FRAME - 1);
}

static void test_rx_length_above_the_limit_is_a_broken_peer(void **state)
{
    refuses_length(*state, NET_MAX_FRAME + 1);
}

static void
test_rx_length_in_the_wrong_byte_order_is_a_broken_peer(void **state)
{
    refuses_length(*state, 60u << 24);
}

static void test_rx_peer_that_closes_is_a_link_down(void **state)
{
    struct fixture *x = *state;

    rx(x, 0, ROOM);
    peer_frame(x, 60, 1);
    (void)close(x->peer);
    x->peer = -1;
    wait_rx(x, 0, 60); /* what was sent before still arrives */
    rx(x, 1, ROOM);
    wait_rx(x, 1, -ENETDOWN);
    assert_int_equal(x->downs, 1);
    assert_true(loop_run_is_idle(x->loop));
}

static void test_rx_peer_that_closes_inside_a_frame(void **state)
{
    struct fixture *x = *state;
    const uint8_t head[10] = {0, 0, 0, 30, 1, 2, 3, 4, 5, 6};

    rx(x, 0, ROOM);
    peer_send(x, head, sizeof(head));
    (void)close(x->peer);
    x->peer = -1;
    wait_rx(x, 0, -ENETDOWN);
}

static void test_rx_wait_learns_of_a_peer_that_is_gone(void **state)
{
    struct fixture *x = *state;

    x->back->ops->rx_wait(x->back, 0);
    (void)close(x->peer);
    x->peer = -1;
    assert_true(loop_run_until(x->loop, was_readable, x));
    rx(x, 0, ROOM);
    assert_true(loop_run_until(x->loop, is_down, x));
}

/* --- sending ------------------------------------------------------------- */

static size_t drain(struct fixture *x, uint8_t *out, size_t max)
{
    size_t got = 0;

    for (int guard = 0; guard < 1000 && got < max; guard++) {
        ssize_t n = read(x->peer, out + got, max - got);

        if (n > 0)
            got += (size_t)n;
        else
            loop_run_for(x->loop, 1);
    }
    return got;
}

static void expect_frame(const uint8_t *p, uint32_t bytes, uint8_t seed)
{
    uint32_t be = htonl(bytes);

    assert_memory_equal(p, &be, 4);
    for (uint32_t i = 0; i < bytes; i++)
        assert_int_equal(p[4 + i], (uint8_t)(seed + i));
}

static void test_tx_puts_each_frame_behind_its_length(void **state)
{
    struct fixture *x = *state;
    uint8_t got[2000];

    tx(x, 0, 60, 1);
    tx(x, 1, 1514, 2);
    tx(x, 2, 14, 3);
    flush(x);
    assert_int_equal(drain(x, got, 60 + 1514 + 14 + 12), 60 + 1514 + 14 + 12);
    expect_frame(got, 60, 1);
    expect_frame(got + 64, 1514, 2);
    expect_frame(got + 64 + 1518, 14, 3);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(x->tx[i].result, 0);
}

static void small_buffer(struct fixture *x)
{
    int bytes = 4096;

    /* Our own send buffer: the back end's end of the pair. */
    assert_int_equal(
        setsockopt(x->peer, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
}

static void test_tx_goes_on_where_a_full_socket_stopped_it(void **state)
{
    struct fixture *x = *state;
    size_t total = NUM * (60000 + 4);
    uint8_t *got = malloc(total);

    assert_non_null(got);
    small_buffer(x);
    for (unsigned i = 0; i < NUM; i++)
        tx(x, i, 60000, (uint8_t)i);
    flush(x);
    loop_run_for(x->loop, 5);
    assert_int_equal(x->tx[NUM - 1].result, PENDING);
    assert_true(loop_run_is_idle(x->loop));
    assert_int_equal(drain(x, got, total), total);
    for (unsigned i = 0; i < NUM; i++) {
        expect_frame(got + i * 60004u, 60000, (uint8_t)i);
        assert_int_equal(x->tx[i].result, 0);
    }
    free(got);
}

static void test_tx_to_a_peer_that_is_gone(void **state)
{
    struct fixture *x = *state;

    (void)close(x->peer);
    x->peer = -1;
    tx(x, 0, 60, 1);
    flush(x);
    assert_true(loop_run_until(x->loop, is_down, x));
    loop_run_for(x->loop, 2);
    assert_int_equal(x->tx[0].result, -ENETDOWN);
    assert_int_equal(x->downs, 1);
}

static void test_tx_peer_that_goes_while_the_socket_is_full(void **state)
{
    struct fixture *x = *state;

    for (unsigned i = 0; i < NUM; i++)
        tx(x, i, 65000, (uint8_t)i);
    flush(x);
    loop_run_for(x->loop, 5);
    (void)close(x->peer);
    x->peer = -1;
    assert_true(loop_run_until(x->loop, is_down, x));
    loop_run_for(x->loop, 2);
    assert_int_equal(x->tx[NUM - 1].result, -ENETDOWN);
}

/* --- a device that is reset ---------------------------------------------- */

static void test_cancel_keeps_the_framing_of_a_frame_half_sent(void **state)
{
    struct fixture *x = *state;
    size_t total = NUM * (60000 + 4);
    uint8_t *got = malloc(total);
    size_t n;
    size_t pos = 0;

    assert_non_null(got);
    for (unsigned i = 0; i < NUM; i++)
        tx(x, i, 60000, (uint8_t)i);
    flush(x);
    loop_run_for(x->loop, 5);
    x->back->ops->cancel(x->back);
    for (unsigned i = 0; i < NUM; i++) {
        assert_int_not_equal(x->tx[i].result, PENDING);
        memset(x->tx[i].data, 0xff, 60000); /* not ours any more */
    }
    tx(x, 7, 100, 77);
    flush(x);
    n = drain(x, got, total);
    /* Whole frames, the last of them the one after the reset. */
    while (pos + 4 + 60000 < n) {
        expect_frame(got + pos, 60000, (uint8_t)(pos / 60004));
        pos += 60004;
    }
    assert_int_equal(n - pos, 104);
    expect_frame(got + pos, 100, 77);
    free(got);
}

static void test_cancel_while_a_write_is_under_way(void **state)
{
    struct fixture *x = *state;
    uint8_t got[200];

    tx(x, 0, 60, 1);
    flush(x);
    x->back->ops->cancel(x->back);
    assert_int_equal(x->tx[0].result, PENDING); /* the kernel has it */
    loop_run_for(x->loop, 2);
    assert_int_equal(x->tx[0].result, 0);
    assert_int_equal(drain(x, got, 64), 64);
    expect_frame(got, 60, 1);
}

static void test_cancel_skips_the_rest_of_a_frame_half_received(void **state)
{
    struct fixture *x = *state;
    const uint8_t head[10] = {0, 0, 0, 30, 1, 2, 3, 4, 5, 6};
    const uint8_t rest[24] = {0};

    rx(x, 0, ROOM);
    peer_send(x, head, sizeof(head));
    loop_run_for(x->loop, 5);
    x->back->ops->cancel(x->back);
    assert_int_equal(x->rx[0].result, -ECANCELED);
    peer_send(x, rest, sizeof(rest));
    peer_frame(x, 60, 5);
    rx(x, 1, ROOM);
    wait_rx(x, 1, 60);
    expect(&x->rx[1], 60, 5);
}

static void test_cancel_while_a_read_is_under_way(void **state)
{
    struct fixture *x = *state;

    peer_frame(x, 60, 5);
    rx(x, 0, ROOM);
    rx(x, 1, ROOM);
    x->back->ops->cancel(x->back);
    loop_run_for(x->loop, 5);
    assert_int_equal(x->rx[1].result, -ECANCELED);
    assert_int_equal(x->rx[0].result, -ECANCELED);
    rx(x, 2, ROOM);
    wait_rx(x, 2, 60); /* of which only the length had come */
}

/* The device may be freed as soon as all frames are back. */
static void test_cancel_leaves_no_write_behind(void **state)
{
    struct fixture *x = *state;

    for (unsigned i = 0; i < NUM; i++)
        tx(x, i, 60000, (uint8_t)i);
    flush(x);
    x->back->ops->cancel(x->back);
    loop_run_for(x->loop, 1);
    for (unsigned i = 0; i < NUM; i++)
        assert_int_not_equal(x->tx[i].result, PENDING);
    /* teardown frees it, which asserts that nothing is under way */
}

/* --- a device that rests -------------------------------------------------- */

static void rest(struct fixture *x)
{
    x->back->ops->rest(x->back);
    loop_run_for(x->loop, 5);
    for (unsigned i = 0; i < NUM; i++) {
        assert_int_not_equal(x->rx[i].result, PENDING);
        assert_int_not_equal(x->tx[i].result, PENDING);
    }
}

static void test_rest_keeps_a_frame_half_received(void **state)
{
    struct fixture *x = *state;
    const uint8_t head[10] = {0, 0, 0, 30, 1, 2, 3, 4, 5, 6};
    uint8_t tail[24];

    for (uint8_t i = 0; i < 24; i++)
        tail[i] = (uint8_t)(7 + i);
    rx(x, 0, ROOM);
    rx(x, 1, ROOM);
    peer_send(x, head, sizeof(head));
    loop_run_for(x->loop, 5);
    for (int again = 0; again < 2; again++) { /* also twice */
        rest(x);
        assert_int_equal(x->rx[0].result, -ECANCELED);
    }
    memset(x->rx[0].data, 0xff, ROOM); /* not ours any more */
    peer_send(x, tail, sizeof(tail));
    peer_frame(x, 60, 5);
    assert_true(loop_run_is_idle(x->loop)); /* nothing is read */
    rx(x, 2, 30);                           /* other room, just enough */
    rx(x, 3, ROOM);
    wait_rx(x, 3, 60);
    assert_int_equal(x->rx[2].result, 30);
    expect(&x->rx[2], 30, 1);
    expect(&x->rx[3], 60, 5);
}

static void test_rest_then_room_too_small_for_the_frame(void **state)
{
    struct fixture *x = *state;
    const uint8_t head[10] = {0, 0, 0, 30, 1, 2, 3, 4, 5, 6};
    const uint8_t tail[24] = {0};

    rx(x, 0, ROOM);
    peer_send(x, head, sizeof(head));
    loop_run_for(x->loop, 5);
    rest(x);
    peer_send(x, tail, sizeof(tail));
    peer_frame(x, 20, 5);
    rx(x, 1, 29);
    rx(x, 2, 29);
    wait_rx(x, 2, 20);
    assert_int_equal(x->rx[1].result, -EMSGSIZE);
    assert_int_equal(x->rx[1].data[0], 0xee);
    expect(&x->rx[2], 20, 5);
}

static void test_cancel_after_a_rest_skips_the_rest_of_the_frame(void **state)
{
    struct fixture *x = *state;
    const uint8_t head[10] = {0, 0, 0, 30, 1, 2, 3, 4, 5, 6};
    const uint8_t tail[24] = {0};

    rx(x, 0, ROOM);
    peer_send(x, head, sizeof(head));
    loop_run_for(x->loop, 5);
    rest(x);
    x->back->ops->cancel(x->back);
    peer_send(x, tail, sizeof(tail));
    peer_frame(x, 60, 5);
    rx(x, 1, ROOM);
    wait_rx(x, 1, 60);
    expect(&x->rx[1], 60, 5);
}

/* Reads under way bring what they bring; no frame is lost, byte by byte. */
static void test_rest_at_each_byte_loses_nothing(void **state)
{
    struct fixture *x = *state;
    uint8_t msg[2 * (4 + 20)] = {0, 0, 0, 20};
    unsigned frames = 0;

    for (uint8_t i = 0; i < 20; i++)
        msg[4 + i] = (uint8_t)(40 + i);
    memcpy(msg + 24, msg, 24);
    for (size_t i = 0; i < sizeof(msg); i++) {
        rx(x, 0, ROOM);
        peer_send(x, msg + i, 1);
        if (i % 3)
            loop_run_for(x->loop, 1);
        if (x->rx[0].result == PENDING)
            rest(x);
        if (x->rx[0].result == 20) {
            expect(&x->rx[0], 20, 40);
            frames++;
        }
    }
    assert_true(frames >= 1);
    if (frames == 1) { /* the last byte was not read */
        rx(x, 1, ROOM);
        wait_rx(x, 1, 20);
    }
}

static void test_rest_ends_a_frame_half_sent_afterwards(void **state)
{
    struct fixture *x = *state;
    size_t total = NUM * (60000 + 4);
    uint8_t *got = malloc(total);
    unsigned sent = 0;
    size_t n;

    assert_non_null(got);
    for (unsigned i = 0; i < NUM; i++)
        tx(x, i, 60000, (uint8_t)i);
    flush(x);
    loop_run_for(x->loop, 5);
    rest(x);
    for (unsigned i = 0; i < NUM; i++) {
        /* sent ones, then those that are to be sent again */
        assert_int_equal(x->tx[i].result,
                         sent == i && x->tx[i].result == 0 ? 0 : -ECANCELED);
        sent += x->tx[i].result == 0;
        memset(x->tx[i].data, 0xff, 60000);
    }
    assert_true(sent > 0 && sent < NUM);
    assert_true(loop_run_is_idle(x->loop));
    flush(x); /* as at a wake */
    n = drain(x, got, total);
    assert_int_equal(n, sent * 60004u);
    for (unsigned i = 0; i < sent; i++)
        expect_frame(got + i * 60004u, 60000, (uint8_t)i);
    tx(x, 7, 100, 77);
    flush(x);
    assert_int_equal(drain(x, got, 104), 104);
    expect_frame(got, 100, 77);
    free(got);
}

static void test_rest_that_ends_before_its_write_does(void **state)
{
    struct fixture *x = *state;
    uint8_t got[200];

    tx(x, 0, 60, 1);
    flush(x);
    x->back->ops->rest(x->back);
    assert_int_equal(x->tx[0].result, PENDING); /* the kernel has it */
    flush(x);
    assert_int_equal(drain(x, got, 64), 64);
    loop_run_for(x->loop, 2);
    assert_int_equal(x->tx[0].result, 0);
    expect_frame(got, 60, 1);
}

static void test_rest_of_a_frame_not_begun_gives_it_back(void **state)
{
    struct fixture *x = *state;

    tx(x, 0, 60, 1);
    tx(x, 1, 60, 2);
    rest(x);
    assert_int_equal(x->tx[0].result, -ECANCELED);
    assert_int_equal(x->tx[1].result, -ECANCELED);
}

/* --- opening ------------------------------------------------------------- */

static void test_adopt_refuses_what_is_no_stream(void **state)
{
    struct net_back *back = NULL;
    struct errmsg err;
    int ends[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    assert_int_equal(net_stream_adopt(ends[0], &back, &err), -ENOTSOCK);
    (void)close(ends[0]);
    (void)close(ends[1]);
    assert_int_equal(net_stream_adopt(9999, &back, &err), -ENOTSOCK);
    assert_non_null(strstr(err.text, "9999"));
}

static void test_connect_names_the_path_and_the_remedy(void **state)
{
    struct net_back *back = NULL;
    struct errmsg err;
    char path[200];

    (void)state;
    assert_int_equal(net_stream_connect("/nonexistent/s", &back, &err),
                     -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/s"));
    assert_non_null(strstr(err.text, "passt"));
    memset(path, 'a', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(net_stream_connect(path, &back, &err), -ENAMETOOLONG);
}

#define LINE(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LINE(test_rx_takes_frames_from_the_stream),
        LINE(test_rx_byte_by_byte),
        LINE(test_rx_part_of_a_frame_is_kept_and_others_go_back),
        LINE(test_rx_wait_tells_once),
        LINE(test_rx_frame_that_does_not_fit_is_skipped_whole),
        LINE(test_rx_largest_frame),
        LINE(test_rx_length_zero_is_a_broken_peer),
        LINE(test_rx_length_of_a_runt_is_a_broken_peer),
        LINE(test_rx_length_above_the_limit_is_a_broken_peer),
        LINE(test_rx_length_in_the_wrong_byte_order_is_a_broken_peer),
        LINE(test_rx_peer_that_closes_is_a_link_down),
        LINE(test_rx_peer_that_closes_inside_a_frame),
        LINE(test_rx_wait_learns_of_a_peer_that_is_gone),
        LINE(test_tx_puts_each_frame_behind_its_length),
        LINE(test_tx_goes_on_where_a_full_socket_stopped_it),
        LINE(test_tx_to_a_peer_that_is_gone),
        LINE(test_tx_peer_that_goes_while_the_socket_is_full),
        LINE(test_cancel_keeps_the_framing_of_a_frame_half_sent),
        LINE(test_cancel_while_a_write_is_under_way),
        LINE(test_cancel_skips_the_rest_of_a_frame_half_received),
        LINE(test_cancel_while_a_read_is_under_way),
        LINE(test_cancel_leaves_no_write_behind),
        LINE(test_rest_keeps_a_frame_half_received),
        LINE(test_rest_then_room_too_small_for_the_frame),
        LINE(test_cancel_after_a_rest_skips_the_rest_of_the_frame),
        LINE(test_rest_at_each_byte_loses_nothing),
        LINE(test_rest_ends_a_frame_half_sent_afterwards),
        LINE(test_rest_that_ends_before_its_write_does),
        LINE(test_rest_of_a_frame_not_begun_gives_it_back),
        cmocka_unit_test(test_adopt_refuses_what_is_no_stream),
        cmocka_unit_test(test_connect_names_the_path_and_the_remedy),
    };

    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
