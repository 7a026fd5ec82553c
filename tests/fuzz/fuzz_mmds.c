/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of a hostile guest to the metadata service, from their bytes to the
 * document: segments that open, carry requests, lie, come twice or not at all,
 * and bytes that were flipped. Whatever comes, frames for the guest are whole
 * and right, what is held stays within its bounds, and a rest comes in the end.
 */
#include "devices/mmds_net.h"

#include "tests/harness/fuzz_input.h"
#include "tests/harness/mmds_peer.h"
#include "vmm/mmds.h"

#include <string.h>

#define MAX_STEPS 200u
#define NUM_PORTS 40u
#define MS        UINT64_C(1000000)

#define PUT_TOKEN                                                              \
    "PUT /latest/api/token HTTP/1.1\r\nX-metadata-token-ttl-seconds: "         \
    "60\r\n\r\n"

struct target {
    struct mmds *m;
    struct mmds_net *net;
    uint64_t now;
    struct { /* what the guest knows of its connections */
        uint32_t seq;
        uint32_t ack;
    } ports[NUM_PORTS];
};

static const char *const texts[] = {
    "GET / HTTP/1.1\r\n\r\n",
    "GET /a/b HTTP/1.0\r\nAccept: application/json\r\n\r\n",
    PUT_TOKEN,
    "X-metadata-token: ",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n",
    "Content-Length: 10\r\n\r\n",
    "GET /list/0//~1~0 HTTP/1.1\r\n",
    "\r\n",
};

static void set_up(struct target *t, struct fuzz_in *in)
{
    json_t *doc = json_pack("{s:{s:s, s:i}, s:[s, s], s:s}", "a", "b", "text",
                            "n", 5, "list", "x", "y", "~/", "odd");
    char *big = malloc(40001);

    fuzz_must(doc && big);
    memset(t, 0, sizeof(*t));
    memset(big, 'z', 40000);
    big[40000] = '\0';
    fuzz_must(json_object_set_new(doc, "big", json_string(big)) == 0);
    free(big);
    t->m = mmds_new(51200);
    fuzz_must(t->m && mmds_store_put(&t->m->store, doc) == 0);
    json_decref(doc);
    t->m->service.ip = MP_IP;
    t->m->v2 = fuzz_u8(in) & 1;
    t->m->imds_compat = fuzz_u8(in) & 1;
    t->now = MS;
    fuzz_must(
        mmds_net_new(&t->m->service, fuzz_u32(in), fuzz_u16(in), &t->net) == 0);
}

/* One frame for the guest, which may believe it. */
static bool take_one(struct target *t, bool believe)
{
    uint8_t f[MMDS_MAX_FRAME];
    size_t len = mmds_net_next(t->net, f, t->now);
    struct mp_in in;

    if (len == 0 || !mp_take(f, len, &in))
        return len > 0;
    if (believe && in.port < NUM_PORTS && !(in.flags & MP_RST))
        t->ports[in.port].ack =
            in.seq + (uint32_t)in.len + ((in.flags & (MP_SYN | MP_FIN)) != 0);
    return true;
}

static void give(struct target *t, struct fuzz_in *in, uint8_t *f, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1); /* so that a read past it is seen */

    fuzz_must(copy != NULL);
    memcpy(copy, f, len);
    if (mmds_frame_is_ours(copy, len < MMDS_HEAD_BYTES ? len : MMDS_HEAD_BYTES,
                           MP_IP))
        mmds_net_receive(t->net, copy, len, fuzz_rarely(in, 4), t->now);
    free(copy);
}

static void send_segment(struct target *t, struct fuzz_in *in)
{
    static const uint8_t flags[] = {MP_SYN, MP_ACK, MP_ACK | MP_FIN,
                                    MP_RST, MP_ACK, MP_ACK};
    uint16_t port = (uint16_t)fuzz_below(in, NUM_PORTS);
    uint8_t f[MP_FRAME];
    struct mp_out o = {.port = port, .window = 8000};
    size_t len;

    o.flags = flags[fuzz_below(in, ARRAY_SIZE(flags))];
    o.seq = t->ports[port].seq;
    o.ack = t->ports[port].ack;
    if (o.flags & MP_ACK && fuzz_u8(in) & 1) {
        o.data = texts[fuzz_below(in, ARRAY_SIZE(texts))];
        o.len = strlen(o.data);
    }
    if (o.flags == MP_SYN)
        o.mss = fuzz_u16(in);
    if (fuzz_rarely(in, 8))
        o.window = fuzz_u16(in);
    if (fuzz_rarely(in, 8))
        o.seq += (uint32_t)fuzz_edge(in, MMDS_REQUEST_MAX);
    else
        t->ports[port].seq +=
            (uint32_t)o.len + ((o.flags & (MP_SYN | MP_FIN)) != 0);
    if (fuzz_rarely(in, 8))
        o.ack += (uint32_t)fuzz_edge(in, 1000);
    len = mp_put(f, &o);
    if (fuzz_rarely(in, 8))
        f[fuzz_below(in, (uint32_t)len)] ^= fuzz_u8(in);
    if (fuzz_rarely(in, 16))
        len = fuzz_below(in, (uint32_t)len);
    give(t, in, f, len);
}

/* Bytes of the input behind a good start. */
static void send_bytes(struct target *t, struct fuzz_in *in)
{
    uint8_t f[MP_FRAME];
    const struct mp_out o = {.port = 1, .flags = MP_SYN, .mss = 1460};
    size_t keep = fuzz_below(in, 60);
    size_t more = fuzz_u8(in);

    (void)mp_put(f, &o);
    for (size_t i = 0; i < more; i++)
        f[keep + i] = fuzz_u8(in);
    give(t, in, f, keep + more);
}

static void step(struct target *t, struct fuzz_in *in)
{
    uint8_t f[MP_FRAME];

    switch (fuzz_below(in, 8)) {
    case 0:
        t->now += fuzz_u16(in) * MS;
        mmds_net_expire(t->net, t->now);
        break;
    case 1:
        send_bytes(t, in);
        break;
    case 2:
        give(t, in, f, mp_put_arp(f, MP_IP));
        break;
    case 3:
        (void)take_one(t, fuzz_u8(in) & 1);
        break;
    default:
        send_segment(t, in);
        break;
    }
}

/* A guest that has gone: all is given up in bounded time and words. */
static void let_end(struct target *t)
{
    uint32_t frames = 0;

    for (int i = 0; i < 2000; i++) {
        while (take_one(t, false))
            fuzz_must(++frames < 100000);
        if (mmds_net_deadline(t->net) == 0)
            break;
        t->now = mmds_net_deadline(t->net);
        mmds_net_expire(t->net, t->now);
    }
    fuzz_must(mmds_net_deadline(t->net) == 0 && !mmds_net_owes(t->net));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target t;

    set_up(&t, &in);
    for (uint32_t i = 0; i < MAX_STEPS && in.left > 0; i++) {
        step(&t, &in);
        fuzz_must(t.m->counts.net.connections_created -
                      t.m->counts.net.connections_destroyed <=
                  MMDS_MAX_CONNS);
    }
    let_end(&t);
    mmds_net_free(t.net);
    fuzz_must(t.m->counts.net.connections_created ==
              t.m->counts.net.connections_destroyed);
    mmds_free(t.m);
    return 0;
}
