/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/state.h"

#include "vmm/le.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define STATE_MAGIC_BYTES 8u
#define STATE_HEAD_BYTES  48u
#define STATE_SECT_BYTES  16u
#define STATE_ALIGN       8u

/* Offsets in the header and in the head of a section. */
enum { HEAD_VERSION = 8, HEAD_NUM = 12, HEAD_LEN = 16, HEAD_ID = 24 };
enum { HEAD_ZERO = 40, HEAD_CRC = 44 };
enum { SECT_CRC = 0, SECT_VERSION = 4, SECT_NAME = 6, SECT_LEN = 8 };

static const char state_magic[STATE_MAGIC_BYTES] = "MOTESNAP";

static uint32_t state_crc(const uint8_t *p, size_t len)
{
    return (uint32_t)crc32_z(0, p, len);
}

/* --- writing --------------------------------------------------------------
 */

/* Room for `len` more bytes, or NULL. */
static uint8_t *state_grow(struct state_out *o, size_t len)
{
    size_t room = o->room_bytes;
    uint8_t *data;

    while (!o->failed && room - o->len_bytes < len)
        room *= 2;
    if (!o->failed && room != o->room_bytes) {
        data = realloc(o->data, room);
        if (data) {
            o->data = data;
            o->room_bytes = room;
        }
        o->failed = !data;
    }
    if (o->failed)
        return NULL;
    o->len_bytes += len;
    return o->data + o->len_bytes - len;
}

void state_out_init(struct state_out *o)
{
    uint8_t *head;

    memset(o, 0, sizeof(*o));
    o->room_bytes = 16 * KIB;
    o->data = malloc(o->room_bytes);
    o->failed = !o->data;
    head = state_grow(o, STATE_HEAD_BYTES);
    if (head)
        memset(head, 0, STATE_HEAD_BYTES);
}

void state_out_fini(struct state_out *o)
{
    free(o->data);
    memset(o, 0, sizeof(*o));
    o->failed = true;
}

void state_begin(struct state_out *o, const char *name, uint16_t version)
{
    uint8_t head[STATE_SECT_BYTES] = {0};
    size_t name_len = strlen(name);

    assert(o->section == 0 && name_len > 0 && name_len <= STATE_NAME_MAX);
    o->section = o->len_bytes;
    put_le16(head + SECT_VERSION, version);
    put_le16(head + SECT_NAME, (uint16_t)name_len);
    state_put_bytes(o, head, sizeof(head));
    state_put_bytes(o, name, name_len);
}

void state_end(struct state_out *o)
{
    static const uint8_t zeroes[STATE_ALIGN];
    size_t pad = (STATE_ALIGN - o->len_bytes % STATE_ALIGN) % STATE_ALIGN;
    uint8_t *head = o->data + o->section;
    size_t len;

    if (o->failed)
        return;
    assert(o->section != 0);
    len = o->len_bytes - o->section - STATE_SECT_BYTES -
          get_le16(head + SECT_NAME);
    put_le64(head + SECT_LEN, len);
    put_le32(head + SECT_CRC,
             state_crc(head + SECT_VERSION,
                       o->len_bytes - o->section - SECT_VERSION));
    o->section = 0;
    o->num++;
    state_put_bytes(o, zeroes, pad);
}

void state_put_bytes(struct state_out *o, const void *p, size_t len)
{
    uint8_t *at = state_grow(o, len);

    if (at && len > 0)
        memcpy(at, p, len);
}

void state_put_u8(struct state_out *o, uint8_t v)
{
    state_put_bytes(o, &v, sizeof(v));
}

void state_put_u16(struct state_out *o, uint16_t v)
{
    uint8_t b[sizeof(v)];

    put_le16(b, v);
    state_put_bytes(o, b, sizeof(b));
}

void state_put_u32(struct state_out *o, uint32_t v)
{
    uint8_t b[sizeof(v)];

    put_le32(b, v);
    state_put_bytes(o, b, sizeof(b));
}

void state_put_u64(struct state_out *o, uint64_t v)
{
    uint8_t b[sizeof(v)];

    put_le64(b, v);
    state_put_bytes(o, b, sizeof(b));
}

void state_put_str(struct state_out *o, const char *s)
{
    size_t len = s ? strlen(s) : 0;

    state_put_u32(o, (uint32_t)len);
    state_put_bytes(o, s, len);
}

int state_finish(struct state_out *o, const uint8_t id[STATE_ID_BYTES])
{
    uint8_t *head = o->data;

    if (o->failed)
        return -ENOMEM;
    assert(o->section == 0);
    memcpy(head, state_magic, sizeof(state_magic));
    put_le16(head + HEAD_VERSION, STATE_VERSION);
    put_le32(head + HEAD_NUM, o->num);
    put_le64(head + HEAD_LEN, o->len_bytes);
    memcpy(head + HEAD_ID, id, STATE_ID_BYTES);
    put_le32(head + HEAD_CRC, state_crc(head, HEAD_CRC));
    return 0;
}

/* --- reading --------------------------------------------------------------
 */

/* A section in place. */
struct state_sect {
    const uint8_t *name;
    const uint8_t *payload;
    uint64_t len;
    uint64_t total; /* with head, name and padding */
    uint16_t name_len;
    uint16_t version;
    uint32_t crc;
};

/* The head at `at`, if all of the section lies inside. */
static bool state_parse(const struct state_file *f, uint64_t at,
                        struct state_sect *out)
{
    uint64_t room = f->len_bytes - at;
    const uint8_t *p = f->data + at;

    if (room < STATE_SECT_BYTES)
        return false;
    out->crc = get_le32(p + SECT_CRC);
    out->version = get_le16(p + SECT_VERSION);
    out->name_len = get_le16(p + SECT_NAME);
    out->len = get_le64(p + SECT_LEN);
    room -= STATE_SECT_BYTES;
    if (out->name_len == 0 || out->name_len > STATE_NAME_MAX ||
        out->name_len > room || out->len > room - out->name_len)
        return false;
    out->name = p + STATE_SECT_BYTES;
    out->payload = out->name + out->name_len;
    out->total =
        align_up(STATE_SECT_BYTES + out->name_len + out->len, STATE_ALIGN);
    return out->total <= f->len_bytes - at;
}

static int state_check_sections(const struct state_file *f, struct errmsg *err)
{
    uint64_t at = STATE_HEAD_BYTES;
    struct state_sect s;

    for (uint32_t i = 0; i < f->num; i++) {
        const uint8_t *rest = f->data + at + SECT_VERSION;

        if (!state_parse(f, at, &s))
            return err_set(err, -EBADMSG,
                           "section %u of the saved state runs past its end",
                           i + 1);
        if (state_crc(rest, STATE_SECT_BYTES - SECT_VERSION + s.name_len +
                                s.len) != s.crc)
            return err_set(err, -EBADMSG,
                           "section %u of the saved state is damaged: its "
                           "checksum is wrong",
                           i + 1);
        for (const uint8_t *p = s.payload + s.len; p < f->data + at + s.total;
             p++) {
            if (*p != 0)
                return err_set(err, -EBADMSG,
                               "section %u of the saved state is damaged: its "
                               "padding is not empty",
                               i + 1);
        }
        at += s.total;
    }
    if (at != f->len_bytes)
        return err_set(err, -EBADMSG,
                       "%llu bytes follow the last section of the saved state",
                       (unsigned long long)(f->len_bytes - at));
    return 0;
}

int state_open(struct state_file *f, const void *data, size_t len_bytes,
               struct errmsg *err)
{
    const uint8_t *head = data;

    memset(f, 0, sizeof(*f));
    if (len_bytes < STATE_HEAD_BYTES ||
        memcmp(head, state_magic, sizeof(state_magic)) != 0)
        return err_set(err, -EBADMSG, "this is no saved state of mote");
    if (get_le16(head + HEAD_VERSION) != STATE_VERSION)
        return err_set(err, -ENOTSUP,
                       "the saved state has version %u, this mote reads %u; "
                       "use the mote that wrote it",
                       get_le16(head + HEAD_VERSION), STATE_VERSION);
    if (state_crc(head, HEAD_CRC) != get_le32(head + HEAD_CRC))
        return err_set(err, -EBADMSG,
                       "the saved state is damaged: the checksum of its "
                       "header is wrong");
    if (get_le64(head + HEAD_LEN) != len_bytes)
        return err_set(err, -EBADMSG,
                       "the saved state has %llu bytes where its header says "
                       "%llu: it was cut, or something was added",
                       (unsigned long long)len_bytes,
                       (unsigned long long)get_le64(head + HEAD_LEN));
    f->data = data;
    f->len_bytes = len_bytes;
    f->num = get_le32(head + HEAD_NUM);
    memcpy(f->id, head + HEAD_ID, STATE_ID_BYTES);
    return state_check_sections(f, err);
}

/* Section `i` of an opened file, or with i = f->num the one called `name`. */
static bool state_find(const struct state_file *f, uint32_t i, const char *name,
                       struct state_sect *out)
{
    uint64_t at = STATE_HEAD_BYTES;

    for (uint32_t k = 0; k < f->num && state_parse(f, at, out); k++) {
        if (k == i || (name && out->name_len == strlen(name) &&
                       memcmp(out->name, name, out->name_len) == 0))
            return true;
        at += out->total;
    }
    return false;
}

int state_section(const struct state_file *f, const char *name,
                  uint16_t max_version, struct state_in *out,
                  struct errmsg *err)
{
    struct state_sect s;

    memset(out, 0, sizeof(*out));
    if (!state_find(f, f->num, name, &s))
        return err_set(err, -ENOENT, "the saved state has no section %s", name);
    if (s.version == 0 || s.version > max_version)
        return err_set(err, -ENOTSUP,
                       "section %s of the saved state has version %u, this "
                       "mote reads %u at most; use the mote that wrote it",
                       name, s.version, max_version);
    out->at = s.payload;
    out->end = s.payload + s.len;
    out->version = s.version;
    return 0;
}

bool state_list(const struct state_file *f, uint32_t i, char *out_name,
                uint16_t *out_version, uint64_t *out_len)
{
    struct state_sect s;

    if (i >= f->num || !state_find(f, i, NULL, &s))
        return false;
    memcpy(out_name, s.name, s.name_len);
    out_name[s.name_len] = '\0';
    *out_version = s.version;
    *out_len = s.len;
    return true;
}

const void *state_get_ref(struct state_in *in, size_t len)
{
    const uint8_t *p = in->at;

    if (in->bad || (size_t)(in->end - in->at) < len) {
        in->bad = true;
        return NULL;
    }
    in->at += len;
    return p;
}

void state_get_bytes(struct state_in *in, void *dst, size_t len)
{
    const void *p = state_get_ref(in, len);

    if (len == 0)
        return;
    if (p)
        memcpy(dst, p, len);
    else
        memset(dst, 0, len);
}

uint8_t state_get_u8(struct state_in *in)
{
    uint8_t v;

    state_get_bytes(in, &v, sizeof(v));
    return v;
}

bool state_get_bool(struct state_in *in)
{
    uint8_t v = state_get_u8(in);

    if (v > 1)
        in->bad = true;
    return v == 1;
}

uint16_t state_get_u16(struct state_in *in)
{
    uint8_t b[sizeof(uint16_t)];

    state_get_bytes(in, b, sizeof(b));
    return get_le16(b);
}

uint32_t state_get_u32(struct state_in *in)
{
    uint8_t b[sizeof(uint32_t)];

    state_get_bytes(in, b, sizeof(b));
    return get_le32(b);
}

uint64_t state_get_u64(struct state_in *in)
{
    uint8_t b[sizeof(uint64_t)];

    state_get_bytes(in, b, sizeof(b));
    return get_le64(b);
}

void state_get_str(struct state_in *in, char *dst, size_t size)
{
    uint32_t len = state_get_u32(in);
    const char *p;

    dst[0] = '\0';
    if (len >= size) {
        in->bad = true;
        return;
    }
    p = state_get_ref(in, len);
    if (!p || memchr(p, '\0', len)) {
        in->bad = true;
        return;
    }
    memcpy(dst, p, len);
    dst[len] = '\0';
}

int state_done(const struct state_in *in)
{
    return in->bad || in->at != in->end ? -EBADMSG : 0;
}
