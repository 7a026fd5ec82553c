/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/mmds_link.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

char ml_byte(size_t i)
{
    return (char)('a' + i % 23);
}

static int32_t respond(void *arg, const char *data, size_t len, bool full,
                       struct mmds_response *out)
{
    struct ml_link *l = arg;
    const char *end = memchr(data, '\n', len);

    assert_true(len > 0 && len <= MMDS_REQUEST_MAX);
    assert_int_equal(full, len == MMDS_REQUEST_MAX);
    if (!end)
        return 0;
    if (data[0] == '!')
        return -EINVAL;
    l->asked++;
    out->close = data[0] == 'C';
    out->len = strtoul(data + out->close, NULL, 10);
    out->data = malloc(out->len);
    assert_non_null(out->data);
    for (size_t i = 0; i < out->len; i++)
        out->data[i] = ml_byte(i);
    return (int32_t)(end - data) + 1;
}

void ml_init(struct ml_link *l)
{
    memset(l, 0, sizeof(*l));
    l->now = 1000 * ML_MS;
    l->service.ip = MP_IP;
    l->service.counts = &l->counts;
    l->service.respond = respond;
    l->service.arg = l;
    assert_int_equal(mmds_net_new(&l->service, ML_ISN, MMDS_MAX_MSS, &l->net),
                     0);
}

void ml_fini(struct ml_link *l)
{
    mmds_net_free(l->net);
    assert_int_equal(l->counts.connections_created,
                     l->counts.connections_destroyed);
}

void ml_send(struct ml_link *l, const struct mp_out *o)
{
    uint8_t f[MP_FRAME];
    size_t len = mp_put(f, o);

    assert_true(mmds_frame_is_ours(
        f, len < MMDS_HEAD_BYTES ? len : MMDS_HEAD_BYTES, MP_IP));
    if (l->send)
        l->send(l->arg, f, len);
    else
        mmds_net_receive(l->net, f, len, false, l->now);
}

void ml_say(struct ml_peer *p, uint8_t flags, const char *text)
{
    const struct mp_out o = {.port = p->port,
                             .seq = p->seq,
                             .ack = p->ack,
                             .window = p->window,
                             .flags = flags | MP_ACK,
                             .data = text,
                             .len = text ? strlen(text) : 0};

    ml_send(p->l, &o);
    p->seq += (uint32_t)o.len + ((flags & MP_FIN) ? 1 : 0);
}

bool ml_hear(struct ml_link *l, struct mp_in *in)
{
    uint8_t f[MMDS_MAX_FRAME];
    bool owed = mmds_net_owes(l->net);
    size_t len =
        l->next ? l->next(l->arg, f) : mmds_net_next(l->net, f, l->now);

    bool segment;

    assert_true(l->next || owed == (len > 0));
    if (len == 0)
        return false;
    l->frames++;
    segment = mp_take(f, len, in);
    assert_true(in->to_guest);
    return segment;
}

void ml_take(struct ml_peer *p, const struct mp_in *in)
{
    assert_int_equal(in->port, p->port);
    assert_int_equal(in->src_port, 80);
    if (in->flags & MP_RST) {
        p->rst = true;
        return;
    }
    if (in->flags & MP_SYN) {
        p->ack = in->seq + 1;
        p->synced = true;
        return;
    }
    assert_int_equal(in->ack, p->seq);
    if (in->seq != p->ack)
        return;
    p->got += in->len;
    p->ack += (uint32_t)in->len;
    if (in->flags & MP_FIN) {
        p->ack++;
        p->fin = true;
    }
}

void ml_drain(struct ml_peer *p)
{
    struct mp_in in;

    while (ml_hear(p->l, &in)) {
        bool more = in.len > 0 || (in.flags & (MP_FIN | MP_SYN));

        ml_take(p, &in);
        if (more && !p->rst)
            ml_say(p, 0, NULL);
    }
}

struct ml_peer ml_dial(struct ml_link *l, uint16_t port)
{
    struct ml_peer p = {
        .l = l, .port = port, .seq = 0xffffff00, .window = 60000};
    const struct mp_out syn = {.port = port,
                               .seq = p.seq - 1,
                               .window = p.window,
                               .flags = MP_SYN,
                               .mss = 1460};

    ml_send(l, &syn);
    ml_drain(&p);
    return p;
}

void ml_bye(struct ml_peer *p)
{
    ml_say(p, MP_FIN, NULL);
    ml_drain(p);
    assert_true(p->fin);
}
