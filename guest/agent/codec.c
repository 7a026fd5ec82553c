/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/codec.h"

#include <errno.h>
#include <string.h>

uint16_t codec_get16(const uint8_t *from)
{
    return (uint16_t)(from[0] | from[1] << 8);
}

uint32_t codec_get32(const uint8_t *from)
{
    return codec_get16(from) | (uint32_t)codec_get16(from + 2) << 16;
}

uint64_t codec_get64(const uint8_t *from)
{
    return codec_get32(from) | (uint64_t)codec_get32(from + 4) << 32;
}

void codec_put16(uint8_t *to, uint16_t value)
{
    to[0] = (uint8_t)value;
    to[1] = (uint8_t)(value >> 8);
}

void codec_put32(uint8_t *to, uint32_t value)
{
    codec_put16(to, (uint16_t)value);
    codec_put16(to + 2, (uint16_t)(value >> 16));
}

void codec_put64(uint8_t *to, uint64_t value)
{
    codec_put32(to, (uint32_t)value);
    codec_put32(to + 4, (uint32_t)(value >> 32));
}

/* ---- HELLO and frames --------------------------------------------------- */

void codec_hello_encode(uint8_t out[CODEC_HEADER])
{
    codec_put32(out, MOTE_MAGIC);
    codec_put16(out + 4, MOTE_VERSION_LOWEST);
    codec_put16(out + 6, MOTE_VERSION_HIGHEST);
}

int codec_hello_agree(const uint8_t in[CODEC_HEADER], uint16_t *out_version)
{
    uint16_t lowest = codec_get16(in + 4);
    uint16_t highest = codec_get16(in + 6);
    uint16_t version = MOTE_VERSION_HIGHEST;

    if (codec_get32(in) != MOTE_MAGIC || lowest == 0 || lowest > highest)
        return -EPROTO;
    if (version > highest)
        version = highest;
    if (version < lowest || version < MOTE_VERSION_LOWEST)
        return -EPROTONOSUPPORT;
    *out_version = version;
    return 0;
}

void codec_frame_encode(uint8_t out[CODEC_HEADER], uint8_t type, uint8_t flags,
                        uint32_t length)
{
    codec_put32(out, length);
    out[4] = type;
    out[5] = flags;
    codec_put16(out + 6, 0);
}

int codec_frame_decode(const uint8_t in[CODEC_HEADER],
                       struct mote_frame *out_frame)
{
    struct mote_frame frame = {
        .length = codec_get32(in),
        .type = in[4],
        .flags = in[5],
        .zero = codec_get16(in + 6),
    };

    if (frame.length > MOTE_FRAME_MAX)
        return -EMSGSIZE;
    if (frame.zero != 0 ||
        (frame.flags & ~(MOTE_FRAME_MORE | MOTE_FRAME_REQUIRED)) != 0)
        return -EPROTO;
    *out_frame = frame;
    return 0;
}

/* ---- reading attributes ------------------------------------------------- */

void codec_iter_init(struct codec_iter *it, const uint8_t *data, size_t length)
{
    it->at = data;
    it->left = length;
}

int codec_iter_next(struct codec_iter *it, struct codec_attr *out)
{
    uint16_t flags;
    uint32_t length;

    if (it->left == 0)
        return 0;
    if (it->left < CODEC_HEADER)
        return -EPROTO;
    flags = codec_get16(it->at + 2);
    length = codec_get32(it->at + 4);
    if ((flags & ~MOTE_ATTR_REQUIRED) != 0 || length > it->left - CODEC_HEADER)
        return -EPROTO;
    out->type = codec_get16(it->at);
    out->required = flags & MOTE_ATTR_REQUIRED;
    out->length = length;
    out->value = it->at + CODEC_HEADER;
    it->at += CODEC_HEADER + length;
    it->left -= CODEC_HEADER + length;
    return 1;
}

int codec_attr_u8(const struct codec_attr *a, uint8_t *out)
{
    if (a->length != 1)
        return -EPROTO;
    *out = a->value[0];
    return 0;
}

int codec_attr_u32(const struct codec_attr *a, uint32_t *out)
{
    if (a->length != 4)
        return -EPROTO;
    *out = codec_get32(a->value);
    return 0;
}

int codec_attr_u64(const struct codec_attr *a, uint64_t *out)
{
    if (a->length != 8)
        return -EPROTO;
    *out = codec_get64(a->value);
    return 0;
}

int codec_attr_bool(const struct codec_attr *a, bool *out)
{
    if (a->length != 1 || a->value[0] > 1)
        return -EPROTO;
    *out = a->value[0];
    return 0;
}

int codec_attr_text(const struct codec_attr *a, size_t max)
{
    if (a->length > max)
        return -EMSGSIZE;
    return memchr(a->value, 0, a->length) ? -EPROTO : 0;
}

int codec_attr_rlimit(const struct codec_attr *a, struct mote_rlimit *out)
{
    if (a->length != sizeof(*out) || codec_get32(a->value + 4) != 0)
        return -EPROTO;
    out->resource = codec_get32(a->value);
    out->zero = 0;
    out->soft = codec_get64(a->value + 8);
    out->hard = codec_get64(a->value + 16);
    return 0;
}

int codec_attr_pty(const struct codec_attr *a, struct mote_pty_size *out)
{
    if (a->length != sizeof(*out))
        return -EPROTO;
    out->rows = codec_get16(a->value);
    out->columns = codec_get16(a->value + 2);
    out->width = codec_get16(a->value + 4);
    out->height = codec_get16(a->value + 6);
    return 0;
}

/* Is this an address family of ours, with a prefix that it can have? */
static bool codec_ip_ok(uint8_t family, uint8_t prefix, uint16_t zero)
{
    if (zero != 0)
        return false;
    return (family == 4 && prefix <= 32) || (family == 6 && prefix <= 128);
}

int codec_attr_ip(const struct codec_attr *a, struct mote_ip *out)
{
    if (a->length != sizeof(*out) ||
        !codec_ip_ok(a->value[0], a->value[1], codec_get16(a->value + 2)))
        return -EPROTO;
    memcpy(out, a->value, sizeof(*out)); /* only bytes, but for the zero */
    return 0;
}

int codec_attr_route(const struct codec_attr *a, struct mote_route *out)
{
    if (a->length != sizeof(*out) ||
        !codec_ip_ok(a->value[0], a->value[1], codec_get16(a->value + 2)))
        return -EPROTO;
    memcpy(out, a->value, sizeof(*out));
    out->metric = codec_get32(a->value + 4);
    return 0;
}

/* ---- writing attributes ------------------------------------------------- */

void codec_writer_init(struct codec_writer *w, void *data, size_t capacity)
{
    w->data = data;
    w->length = 0;
    w->capacity = capacity;
    w->overflow = false;
}

void codec_put_bytes(struct codec_writer *w, uint16_t type, const void *value,
                     size_t length)
{
    uint8_t *to = w->data + w->length;

    if (w->overflow || w->capacity - w->length < CODEC_HEADER ||
        length > w->capacity - w->length - CODEC_HEADER) {
        w->overflow = true;
        return;
    }
    codec_put16(to, type);
    codec_put16(to + 2, 0);
    codec_put32(to + 4, (uint32_t)length);
    if (length > 0)
        memcpy(to + CODEC_HEADER, value, length);
    w->length += CODEC_HEADER + length;
}

void codec_put_text(struct codec_writer *w, uint16_t type, const char *text)
{
    codec_put_bytes(w, type, text, strlen(text));
}

void codec_put_u8(struct codec_writer *w, uint16_t type, uint8_t value)
{
    codec_put_bytes(w, type, &value, sizeof(value));
}

void codec_put_u32(struct codec_writer *w, uint16_t type, uint32_t value)
{
    uint8_t bytes[4];

    codec_put32(bytes, value);
    codec_put_bytes(w, type, bytes, sizeof(bytes));
}

void codec_put_u64(struct codec_writer *w, uint16_t type, uint64_t value)
{
    uint8_t bytes[8];

    codec_put64(bytes, value);
    codec_put_bytes(w, type, bytes, sizeof(bytes));
}

void codec_put_exit(struct codec_writer *w, const struct mote_exit *value)
{
    uint8_t bytes[sizeof(*value)] = {value->kind, value->flags};

    codec_put32(bytes + 4, value->value);
    codec_put_bytes(w, MOTE_ATTR_EXIT, bytes, sizeof(bytes));
}

void codec_put_usage(struct codec_writer *w, const struct mote_usage *value)
{
    uint8_t bytes[sizeof(*value)];

    codec_put64(bytes, value->user_us);
    codec_put64(bytes + 8, value->system_us);
    codec_put64(bytes + 16, value->max_rss_bytes);
    codec_put64(bytes + 24, value->wall_us);
    codec_put_bytes(w, MOTE_ATTR_USAGE, bytes, sizeof(bytes));
}

void codec_put_mark(struct codec_writer *w, uint32_t id, uint64_t ns)
{
    uint8_t bytes[sizeof(struct mote_boot_mark)] = {0};

    codec_put32(bytes, id);
    codec_put64(bytes + 8, ns);
    codec_put_bytes(w, MOTE_ATTR_BOOT_MARK, bytes, sizeof(bytes));
}
