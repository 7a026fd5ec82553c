/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/frame.h"

#include "vmm/le.h"

#include <stdlib.h>
#include <string.h>

/* One read fills at most this much beyond what a frame still lacks. */
#define LM_READ_CHUNK ((size_t)64 * 1024)
#define LM_HEADER     sizeof(struct mote_frame)

int lm_buf_reserve(struct lm_buf *b, size_t extra)
{
    size_t need;
    size_t cap = b->cap ? b->cap : 256;
    uint8_t *p;

    if (__builtin_add_overflow(b->len, extra, &need))
        return -ENOMEM;
    if (need <= b->cap)
        return 0;
    while (cap < need) {
        if (__builtin_mul_overflow(cap, (size_t)2, &cap))
            return -ENOMEM;
    }
    p = realloc(b->data, cap);
    if (!p)
        return -ENOMEM;
    b->data = p;
    b->cap = cap;
    return 0;
}

/* Room was made by the caller. */
static void lm_buf_put(struct lm_buf *b, const void *data, size_t len)
{
    if (len > 0)
        memcpy(b->data + b->len, data, len);
    b->len += len;
}

int lm_buf_append(struct lm_buf *b, const void *data, size_t len)
{
    int rc = lm_buf_reserve(b, len);

    if (rc)
        return rc;
    lm_buf_put(b, data, len);
    return 0;
}

void lm_buf_consume(struct lm_buf *b, size_t n)
{
    b->len -= n;
    if (b->len > 0 && n > 0)
        memmove(b->data, b->data + n, b->len);
}

void lm_buf_fini(struct lm_buf *b)
{
    free(b->data);
    *b = (struct lm_buf){0};
}

/* --- decoding ------------------------------------------------------------ */

/* Passes over the bytes of the message that was handed out last. */
static void lm_reader_release(struct lm_reader *r)
{
    r->head += r->used;
    r->used = 0;
}

static const uint8_t *lm_reader_at(const struct lm_reader *r)
{
    return r->in.data + r->head;
}

static size_t lm_reader_left(const struct lm_reader *r)
{
    return r->in.len - r->head;
}

/* Bytes that the frame at the head still lacks, as far as can be told. */
static size_t lm_reader_lacks(const struct lm_reader *r)
{
    size_t left = lm_reader_left(r);
    size_t need = LM_HEADER;

    if (r->version != 0 && left >= LM_HEADER)
        need += (size_t)min_u64(get_le32(lm_reader_at(r)), MOTE_FRAME_MAX);
    return need > left ? need - left : 0;
}

uint8_t *lm_reader_room(struct lm_reader *r, size_t *out_room)
{
    size_t lacks;

    lm_reader_release(r);
    lm_buf_consume(&r->in, r->head);
    r->head = 0;
    lacks = lm_reader_lacks(r);
    if (lm_buf_reserve(&r->in, lacks > LM_READ_CHUNK ? lacks : LM_READ_CHUNK))
        return NULL;
    *out_room = r->in.cap - r->in.len;
    return r->in.data + r->in.len;
}

void lm_reader_put(struct lm_reader *r, size_t len)
{
    r->in.len += len;
}

static int lm_reader_hello(struct lm_reader *r)
{
    const uint8_t *p;
    uint16_t lowest;
    uint16_t highest;

    if (lm_reader_left(r) < sizeof(struct mote_hello))
        return 0;
    p = lm_reader_at(r);
    lowest = get_le16(p + offsetof(struct mote_hello, lowest));
    highest = get_le16(p + offsetof(struct mote_hello, highest));
    if (get_le32(p) != MOTE_MAGIC || lowest == 0 || highest < lowest)
        return -EBADMSG;
    if (lowest > MOTE_VERSION_HIGHEST || highest < MOTE_VERSION_LOWEST)
        return -EPROTONOSUPPORT;
    r->version = (uint16_t)min_u64(highest, MOTE_VERSION_HIGHEST);
    r->head += sizeof(struct mote_hello);
    return 1;
}

/* Whether frames of this type carry raw bytes, which are never joined. */
static bool lm_is_data(uint8_t type)
{
    return type == MOTE_T_STDOUT || type == MOTE_T_STDERR;
}

static bool lm_is_known(uint8_t type)
{
    switch (type) {
    case MOTE_T_READY:
    case MOTE_T_STARTED:
    case MOTE_T_STDOUT:
    case MOTE_T_STDERR:
    case MOTE_T_EXIT:
    case MOTE_T_ERROR:
    case MOTE_T_OK:
    case MOTE_T_ITEM:
    case MOTE_T_END:
        return true;
    default:
        return false;
    }
}

/* Adds a frame to the message it belongs to; 1 when the message is whole. */
static int lm_reader_join(struct lm_reader *r, const struct mote_frame *f,
                          const uint8_t *payload, struct lm_msg *out)
{
    bool more = f->flags & MOTE_FRAME_MORE;

    if (r->joining != 0 && r->joining != f->type)
        return -EBADMSG;
    *out = (struct lm_msg){f->type, payload, f->length};
    if (r->joining == 0 && !more)
        return 1; /* in one piece: no copy */
    if (r->joining == 0)
        r->joined.len = 0;
    r->joining = f->type;
    if (r->joined.len + f->length > MOTE_MESSAGE_MAX)
        return -EMSGSIZE;
    if (lm_buf_append(&r->joined, payload, f->length))
        return -ENOMEM;
    if (more)
        return 0;
    r->joining = 0;
    *out = (struct lm_msg){f->type, r->joined.data, r->joined.len};
    return 1;
}

/* One frame: 1 gives a message, 0 needs bytes, 2 was eaten without one. */
static int lm_reader_frame(struct lm_reader *r, struct lm_msg *out)
{
    const uint8_t *p;
    struct mote_frame f;
    int rc;

    if (lm_reader_left(r) < LM_HEADER)
        return 0;
    p = lm_reader_at(r);
    f.length = get_le32(p + offsetof(struct mote_frame, length));
    f.type = p[offsetof(struct mote_frame, type)];
    f.flags = p[offsetof(struct mote_frame, flags)];
    f.zero = get_le16(p + offsetof(struct mote_frame, zero));
    if (f.length > MOTE_FRAME_MAX || f.zero != 0 ||
        f.flags & ~(MOTE_FRAME_MORE | MOTE_FRAME_REQUIRED))
        return -EBADMSG;
    if (!lm_is_known(f.type) && f.flags & MOTE_FRAME_REQUIRED)
        return -EBADMSG;
    if (lm_reader_left(r) - LM_HEADER < f.length)
        return 0;
    r->used = LM_HEADER + f.length;
    if (!lm_is_known(f.type))
        return 2;
    if (lm_is_data(f.type)) {
        *out = (struct lm_msg){f.type, p + LM_HEADER, f.length};
        return 1;
    }
    rc = lm_reader_join(r, &f, p + LM_HEADER, out);
    return rc == 0 ? 2 : rc;
}

int lm_reader_next(struct lm_reader *r, struct lm_msg *out)
{
    int rc;

    lm_reader_release(r);
    if (r->version == 0) {
        rc = lm_reader_hello(r);
        if (rc <= 0)
            return rc;
    }
    while ((rc = lm_reader_frame(r, out)) == 2)
        lm_reader_release(r);
    return rc;
}

void lm_reader_fini(struct lm_reader *r)
{
    lm_buf_fini(&r->in);
    lm_buf_fini(&r->joined);
    *r = (struct lm_reader){0};
}

void lm_attr_begin(struct lm_attr_iter *it, const struct lm_msg *msg)
{
    it->p = msg->data;
    it->left = msg->len;
}

static bool lm_attr_known(uint16_t type)
{
    return (type >= MOTE_ATTR_ARG && type <= MOTE_ATTR_UMASK) ||
           (type >= MOTE_ATTR_PID && type <= MOTE_ATTR_START_NS) ||
           (type >= MOTE_ATTR_ERROR && type <= MOTE_ATTR_ERRNO) ||
           (type >= MOTE_ATTR_AGENT && type <= MOTE_ATTR_TIME_NS);
}

int lm_attr_next(struct lm_attr_iter *it, struct lm_attr *out)
{
    uint16_t flags;
    uint32_t len;

    if (it->left == 0)
        return 0;
    if (it->left < sizeof(struct mote_attr))
        return -EBADMSG;
    out->type = get_le16(it->p + offsetof(struct mote_attr, type));
    flags = get_le16(it->p + offsetof(struct mote_attr, flags));
    len = get_le32(it->p + offsetof(struct mote_attr, length));
    it->p += sizeof(struct mote_attr);
    it->left -= sizeof(struct mote_attr);
    if (len > it->left)
        return -EBADMSG;
    if (flags & MOTE_ATTR_REQUIRED && !lm_attr_known(out->type))
        return -EBADMSG;
    out->data = it->p;
    out->len = len;
    it->p += len;
    it->left -= len;
    return 1;
}

int lm_attr_u32(const struct lm_attr *a, uint32_t *out)
{
    if (a->len != sizeof(uint32_t))
        return -EBADMSG;
    *out = get_le32(a->data);
    return 0;
}

void lm_attr_text(const struct lm_attr *a, char *out, size_t cap)
{
    size_t n = (size_t)min_u64(a->len, cap - 1);

    for (size_t i = 0; i < n; i++) {
        uint8_t c = a->data[i];
        bool c1 = c >= 0x80 && c < 0xa0 && i > 0 && a->data[i - 1] == 0xc2;

        out[i] = c < 0x20 || c == 0x7f || c1 ? '?' : (char)c;
    }
    out[n] = '\0';
}

/* --- building ------------------------------------------------------------ */

int lm_put_hello(struct lm_buf *out)
{
    uint8_t hello[sizeof(struct mote_hello)];

    put_le32(hello, MOTE_MAGIC);
    put_le16(hello + offsetof(struct mote_hello, lowest), MOTE_VERSION_LOWEST);
    put_le16(hello + offsetof(struct mote_hello, highest),
             MOTE_VERSION_HIGHEST);
    return lm_buf_append(out, hello, sizeof(hello));
}

int lm_put_frame(struct lm_buf *out, uint8_t type, uint8_t flags,
                 const void *data, size_t len)
{
    uint8_t head[LM_HEADER] = {0};

    if (len > MOTE_FRAME_MAX)
        return -EMSGSIZE;
    if (lm_buf_reserve(out, sizeof(head) + len))
        return -ENOMEM;
    put_le32(head, (uint32_t)len);
    head[offsetof(struct mote_frame, type)] = type;
    head[offsetof(struct mote_frame, flags)] = flags;
    lm_buf_put(out, head, sizeof(head));
    lm_buf_put(out, data, len);
    return 0;
}

int lm_put_message(struct lm_buf *out, uint8_t type, const struct lm_buf *attrs)
{
    size_t at = 0;

    if (attrs->len > MOTE_MESSAGE_MAX)
        return -EMSGSIZE;
    do {
        size_t n = (size_t)min_u64(attrs->len - at, MOTE_FRAME_MAX);
        bool more = at + n < attrs->len;
        int rc = lm_put_frame(out, type, more ? MOTE_FRAME_MORE : 0,
                              n ? attrs->data + at : NULL, n);

        if (rc)
            return rc;
        at += n;
    } while (at < attrs->len);
    return 0;
}

int lm_put_attr(struct lm_buf *attrs, uint16_t type, uint16_t flags,
                const void *value, size_t len)
{
    uint8_t head[sizeof(struct mote_attr)];

    if (len > MOTE_MESSAGE_MAX)
        return -EMSGSIZE;
    if (lm_buf_reserve(attrs, sizeof(head) + len))
        return -ENOMEM;
    put_le16(head + offsetof(struct mote_attr, type), type);
    put_le16(head + offsetof(struct mote_attr, flags), flags);
    put_le32(head + offsetof(struct mote_attr, length), (uint32_t)len);
    lm_buf_put(attrs, head, sizeof(head));
    lm_buf_put(attrs, value, len);
    return 0;
}

int lm_put_text(struct lm_buf *attrs, uint16_t type, const char *text)
{
    return lm_put_attr(attrs, type, 0, text, strlen(text));
}

int lm_put_u8(struct lm_buf *attrs, uint16_t type, uint8_t v)
{
    return lm_put_attr(attrs, type, 0, &v, sizeof(v));
}

int lm_put_u32(struct lm_buf *attrs, uint16_t type, uint32_t v)
{
    uint8_t le[sizeof(v)];

    put_le32(le, v);
    return lm_put_attr(attrs, type, 0, le, sizeof(le));
}

int lm_put_u64(struct lm_buf *attrs, uint16_t type, uint64_t v)
{
    uint8_t le[sizeof(v)];

    put_le64(le, v);
    return lm_put_attr(attrs, type, 0, le, sizeof(le));
}
