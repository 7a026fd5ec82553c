/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peer of a stream network: any bytes, in any pieces, while frames are
 * received, sent and cancelled. Every frame comes back once, none with more
 * bytes than its room.
 */
#include "devices/net_stream.h"

#include "tests/fuzz/inline_loop.h"
#include "tests/harness/fuzz_input.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#define NUM       8u
#define ROOM      512u
#define MAX_STEPS 200u

struct slot {
    struct net_frame f;
    struct iovec iov[4];
    uint8_t data[ROOM];
    bool out; /* handed over */
};

struct target {
    struct evloop *loop;
    struct net_back *back;
    int peer;
    bool down;
    struct slot rx[NUM];
    struct slot tx[NUM];
};

static void on_readable(void *arg, uint16_t pair)
{
    (void)arg;
    fuzz_must(pair == 0);
}

static void on_down(void *arg, const char *why)
{
    struct target *t = arg;

    fuzz_must(!t->down && why);
    t->down = true;
}

static const struct net_events events = {on_readable, on_down};

static void on_done(struct net_frame *f, int32_t result)
{
    struct slot *s = f->arg;

    fuzz_must(s->out && result <= (int32_t)f->bytes);
    s->out = false;
}

static struct slot *prepare(struct slot *all, uint32_t bytes)
{
    for (uint32_t i = 0; i < NUM; i++) {
        struct slot *s = &all[i];

        if (s->out)
            continue;
        s->out = true;
        s->f = (struct net_frame){.iov = s->iov,
                                  .iovcnt = 2,
                                  .bytes = bytes,
                                  .done = on_done,
                                  .arg = s};
        s->iov[1] = (struct iovec){s->data, 5};
        s->iov[2] = (struct iovec){s->data + 5, bytes - 5};
        return s;
    }
    return NULL;
}

static void peer_writes(struct target *t, struct fuzz_in *in)
{
    uint8_t buf[600] = {0};
    size_t n = 4;

    if (fuzz_below(in, 4)) { /* a frame, whole or cut off */
        uint32_t len = 14 + fuzz_below(in, 560);

        buf[2] = (uint8_t)(len >> 8);
        buf[3] = (uint8_t)len;
        n = fuzz_below(in, 2) ? len + 4 : 1 + fuzz_below(in, len + 4);
    } else {
        for (size_t i = 0; i < n; i++)
            buf[i] = fuzz_rarely(in, 4) ? fuzz_u8(in) : 0;
    }
    (void)!write(t->peer, buf, n);
}

static void step(struct target *t, struct fuzz_in *in)
{
    const struct net_back_ops *ops = t->back->ops;
    uint8_t sink[4096];
    struct slot *s;

    switch (fuzz_below(in, 8)) {
    case 0:
    case 1:
        peer_writes(t, in);
        break;
    case 2:
        s = t->down ? NULL : prepare(t->rx, 6 + fuzz_below(in, ROOM - 5));
        if (s)
            ops->rx(t->back, 0, &s->f);
        break;
    case 3:
        s = t->down ? NULL : prepare(t->tx, 14 + fuzz_below(in, ROOM - 13));
        if (s)
            ops->tx(t->back, 0, &s->f);
        if (!t->down)
            ops->tx_flush(t->back, 0);
        break;
    case 4:
        (void)!read(t->peer, sink, 1 + fuzz_below(in, sizeof(sink)));
        break;
    case 5:
        ops->rx_wait(t->back, 0);
        break;
    case 6:
        if (fuzz_rarely(in, 4))
            ops->cancel(t->back);
        else if (fuzz_rarely(in, 4))
            ops->rest(t->back);
        if (fuzz_rarely(in, 64))
            (void)shutdown(t->peer, SHUT_RDWR);
        break;
    default:
        inline_loop_turn(t->loop);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target *t = calloc(1, sizeof(*t));
    int small = 2048;
    struct errmsg err;
    int ends[2];

    (void)signal(SIGPIPE, SIG_IGN);
    fuzz_must(t && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    fuzz_must(evloop_new(EVLOOP_AUTO, &t->loop) == 0);
    fuzz_must(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    /* So that writes are cut off inside frames. */
    (void)setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    fuzz_must(net_stream_adopt(ends[0], &t->back, &err) == 0);
    fuzz_must(t->back->ops->start(t->back, t->loop, &events, t) == 0);
    t->peer = ends[1];
    for (uint32_t i = 0; i < MAX_STEPS && in.left > 0; i++)
        step(t, &in);
    t->back->ops->cancel(t->back);
    inline_loop_turn(t->loop);
    for (uint32_t i = 0; i < NUM; i++)
        fuzz_must(!t->rx[i].out && !t->tx[i].out);
    t->back->ops->free(t->back);
    (void)close(t->peer);
    evloop_free(t->loop);
    free(t);
    return 0;
}
