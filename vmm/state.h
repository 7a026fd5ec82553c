/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_STATE_H
#define VMM_STATE_H

/*
 * The bytes of a saved machine: named sections of little-endian fields, each
 * with a version and a checksum, behind a header that says how long all of it
 * is. Whoever has state writes its section and reads it again; this file knows
 * nothing of what is in them.
 *
 *   header   "MOTESNAP", le16 version, le16 0, le32 number of sections,
 *            le64 length of all, 16 bytes id of the snapshot, le32 0,
 *            le32 crc of the 44 bytes before
 *   section  le32 crc of the rest, le16 version, le16 length of the name,
 *            le64 length of the payload, name, payload, zeroes to 8 bytes
 *
 * A reader is hostile to its input: a field that is not there reads as 0 and
 * makes state_done() fail, so that a loader checks once, at the end.
 *
 * Ownership: a writer owns its bytes, a reader borrows them. Threads: any, one
 * at a time. Errors: as said; a writer remembers a lack of memory.
 */

#include "vmm/errmsg.h"
#include "vmm/util.h"

#define STATE_VERSION  1u
#define STATE_ID_BYTES 16u
#define STATE_NAME_MAX 79u

/* --- writing -------------------------------------------------------------- */

struct state_out {
    uint8_t *data;
    size_t len_bytes;
    size_t room_bytes;
    size_t section; /* offset of the open one; 0: none is */
    uint32_t num;
    bool failed; /* out of memory: nothing is added any more */
};

void state_out_init(struct state_out *o);
void state_out_fini(struct state_out *o); /* idempotent */

/* A section, up to state_end(). `version` is of its content, from 1. */
void state_begin(struct state_out *o, const char *name, uint16_t version);
void state_end(struct state_out *o);

void state_put_u8(struct state_out *o, uint8_t v);
void state_put_u16(struct state_out *o, uint16_t v);
void state_put_u32(struct state_out *o, uint32_t v);
void state_put_u64(struct state_out *o, uint64_t v);
void state_put_bytes(struct state_out *o, const void *p, size_t len);
/* Length and bytes; NULL is written as the empty string. */
void state_put_str(struct state_out *o, const char *s);

/* After the last section: o->data[0, o->len_bytes) is the whole. 0 or -ENOMEM.
 */
int state_finish(struct state_out *o,
                 const uint8_t id[STATE_ID_BYTES]) MUST_CHECK;

/* --- reading -------------------------------------------------------------- */

struct state_file {
    const uint8_t *data;
    size_t len_bytes;
    uint32_t num;
    uint8_t id[STATE_ID_BYTES];
};

struct state_in {
    const uint8_t *at;
    const uint8_t *end;
    uint16_t version;
    bool bad; /* a field was not there */
};

/*
 * Checks header, lengths and every checksum. `data` is borrowed until the last
 * use of the file. -EBADMSG or -ENOTSUP with the reason in `err`.
 */
int state_open(struct state_file *f, const void *data, size_t len_bytes,
               struct errmsg *err) MUST_CHECK;

/*
 * The section `name` of a version up to `max_version`. -ENOENT: there is none;
 * -ENOTSUP: it is newer; each with a line.
 */
int state_section(const struct state_file *f, const char *name,
                  uint16_t max_version, struct state_in *out,
                  struct errmsg *err) MUST_CHECK;
/* Name, version and payload length of section `i`, in order of writing; false
 * past the last. `out_name` has room for STATE_NAME_MAX + 1. */
bool state_list(const struct state_file *f, uint32_t i, char *out_name,
                uint16_t *out_version, uint64_t *out_len);

uint8_t state_get_u8(struct state_in *in);
bool state_get_bool(struct state_in *in); /* a byte that is neither is bad */
uint16_t state_get_u16(struct state_in *in);
uint32_t state_get_u32(struct state_in *in);
uint64_t state_get_u64(struct state_in *in);
/* Fills `dst`, with zeroes where the bytes are not there. */
void state_get_bytes(struct state_in *in, void *dst, size_t len);
/* The bytes in place, or NULL. */
const void *state_get_ref(struct state_in *in, size_t len);
/* A string of less than `size` bytes, without NUL inside. */
void state_get_str(struct state_in *in, char *dst, size_t size);

/* 0 if every field was there and nothing is left, else -EBADMSG. */
int state_done(const struct state_in *in) MUST_CHECK;

#endif
