/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a host sends to the agent: HELLO, then frames whose
 * payload is walked as attributes and read as every kind of value, as a START
 * and as a RESTORE. Views must stay inside the input.
 */
#include "guest/agent/codec.h"
#include "guest/agent/restore_parse.h"
#include "guest/agent/start.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_value(const struct codec_attr *a)
{
    struct mote_rlimit rlimit;
    struct mote_pty_size pty;
    struct mote_route route;
    struct mote_ip ip;
    uint8_t u8;
    uint32_t u32;
    uint64_t u64;
    bool yes;

    (void)codec_attr_u8(a, &u8);
    (void)codec_attr_u32(a, &u32);
    (void)codec_attr_u64(a, &u64);
    (void)codec_attr_bool(a, &yes);
    (void)codec_attr_text(a, 255);
    (void)codec_attr_rlimit(a, &rlimit);
    (void)codec_attr_pty(a, &pty);
    if (codec_attr_ip(a, &ip) == 0)
        assert(ip.prefix <= (ip.family == 4 ? 32 : 128));
    (void)codec_attr_route(a, &route);
}

static void fuzz_restore(const uint8_t *data, size_t size)
{
    struct restore_request req;

    if (restore_parse(data, size, &req) < 0)
        return;
    assert(req.hostname.length <= RESTORE_HOSTNAME_MAX);
    assert(req.seed.length <= MOTE_SEED_MAX);
    assert(req.interface_count <= RESTORE_INTERFACES_MAX);
    for (size_t i = 0; i < req.interface_count; i++)
        assert(req.interfaces[i].value >= data &&
               req.interfaces[i].value + req.interfaces[i].length <=
                   data + size);
}

static void fuzz_message(const uint8_t *data, size_t size)
{
    struct codec_iter it;
    struct codec_attr a;
    struct start start;
    struct refusal why;
    size_t seen = 0;
    int got;

    codec_iter_init(&it, data, size);
    while ((got = codec_iter_next(&it, &a)) > 0) {
        assert(a.value >= data && a.value + a.length <= data + size);
        seen += CODEC_HEADER + a.length;
        fuzz_value(&a);
    }
    assert(got < 0 || seen == size);
    fuzz_restore(data, size);
    if (start_parse(data, size, &start, &why) == 0) {
        assert(got == 0 && start.arg_count > 0);
        assert(start.text_bytes <= 2 * size);
        assert(start.group_count <= START_GROUPS_MAX);
        assert(start.limit_count <= START_LIMITS_MAX);
    } else {
        assert(why.text.length == strlen(why.text.line));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mote_frame frame;
    uint16_t version;

    if (size < CODEC_HEADER || codec_hello_agree(data, &version) < 0)
        return 0;
    assert(version == 1);
    for (size_t at = CODEC_HEADER; size - at >= CODEC_HEADER;) {
        uint8_t *payload;

        if (codec_frame_decode(data + at, &frame) < 0)
            return 0;
        assert(frame.length <= MOTE_FRAME_MAX);
        at += CODEC_HEADER;
        if (frame.length > size - at)
            return 0;
        /* A copy of its own, so that one byte too far is noticed. */
        payload = malloc(frame.length + 1u);
        assert(payload);
        memcpy(payload, data + at, frame.length);
        payload = realloc(payload, frame.length ? frame.length : 1u);
        assert(payload);
        fuzz_message(payload, frame.length);
        free(payload);
        at += frame.length;
    }
    return 0;
}
