/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_FRAME_H
#define TOOLS_LIBMOTE_FRAME_H

/*
 * The host's end of the agent protocol as bytes (guest/abi.h): a decoder for
 * what a hostile guest sends, and builders for what we send. No fd, no clock,
 * no thread; fuzzed by tests/fuzz/fuzz_libmote_frames.c.
 *
 * Ownership: structs are the caller's. A message points into its reader and
 * is valid until the next call on that reader.
 * Errors: -EBADMSG for bytes that break the protocol (the connection is of no
 * use any more), -EPROTONOSUPPORT when no version is common, -EMSGSIZE for a
 * message above MOTE_MESSAGE_MAX, -ENOMEM.
 */

#include "guest/abi.h"
#include "vmm/util.h"

/* A growing array of bytes; zeroed is empty. */
struct lm_buf {
    uint8_t *data;
    size_t len;
    size_t cap;
};

/* Makes room for `extra` bytes after `len`. 0 or -ENOMEM. */
int lm_buf_reserve(struct lm_buf *b, size_t extra) MUST_CHECK;
int lm_buf_append(struct lm_buf *b, const void *data, size_t len) MUST_CHECK;
void lm_buf_consume(struct lm_buf *b, size_t n); /* drops the first n bytes */
void lm_buf_fini(struct lm_buf *b);

/* --- decoding ------------------------------------------------------------ */

struct lm_msg {
    uint8_t type; /* enum mote_frame_type */
    const uint8_t *data;
    size_t len;
};

/*
 * Takes bytes as they come and gives back whole messages: data frames one by
 * one, attribute messages joined. Holds at most one frame and one message.
 */
struct lm_reader {
    struct lm_buf in;     /* bytes as they came */
    size_t head;          /* where in `in` the undecoded ones begin */
    struct lm_buf joined; /* payload of the frames of a split message */
    size_t used;          /* bytes that the last message occupied */
    uint16_t version;     /* spoken; 0 until the peer's HELLO is read */
    uint8_t joining;      /* type of the message being joined, 0 if none */
};

/*
 * Where to put the next bytes: *out_room bytes at the returned address, never
 * 0. Then lm_reader_put() says how many came. NULL when out of memory.
 */
uint8_t *lm_reader_room(struct lm_reader *r, size_t *out_room) MUST_CHECK;
void lm_reader_put(struct lm_reader *r, size_t len);

/*
 * The next message: 1 and *out filled, 0 if more bytes are needed, or an
 * error. Frames of an unknown type are skipped unless they are marked as
 * required (-EBADMSG).
 */
int lm_reader_next(struct lm_reader *r, struct lm_msg *out) MUST_CHECK;
void lm_reader_fini(struct lm_reader *r);

struct lm_attr {
    uint16_t type; /* enum mote_attr_type */
    const uint8_t *data;
    size_t len;
};

/* Walks the attributes of a message. */
struct lm_attr_iter {
    const uint8_t *p;
    size_t left;
};

void lm_attr_begin(struct lm_attr_iter *it, const struct lm_msg *msg);
/*
 * 1 and *out filled, 0 at the end, -EBADMSG for a cut or unknown required
 * attribute.
 */
int lm_attr_next(struct lm_attr_iter *it, struct lm_attr *out) MUST_CHECK;

/* 0, or -EBADMSG if the value has not exactly the size of its type. */
int lm_attr_u32(const struct lm_attr *a, uint32_t *out) MUST_CHECK;

/*
 * Copies text for people: cut to `cap` - 1 bytes, and every control character
 * replaced, so that a guest cannot steer the user's terminal.
 */
void lm_attr_text(const struct lm_attr *a, char *out, size_t cap);

/* --- building ------------------------------------------------------------ */

/* HELLO with the versions that this library speaks. */
int lm_put_hello(struct lm_buf *out) MUST_CHECK;

/* One frame; `len` <= MOTE_FRAME_MAX. */
int lm_put_frame(struct lm_buf *out, uint8_t type, uint8_t flags,
                 const void *data, size_t len) MUST_CHECK;

/*
 * A message of attributes, split over as many frames as it needs. -EMSGSIZE
 * and nothing written if it is longer than MOTE_MESSAGE_MAX.
 */
int lm_put_message(struct lm_buf *out, uint8_t type,
                   const struct lm_buf *attrs) MUST_CHECK;

/* Appends one attribute to a message that is being built. */
int lm_put_attr(struct lm_buf *attrs, uint16_t type, uint16_t flags,
                const void *value, size_t len) MUST_CHECK;
int lm_put_text(struct lm_buf *attrs, uint16_t type,
                const char *text) MUST_CHECK;
int lm_put_u8(struct lm_buf *attrs, uint16_t type, uint8_t v) MUST_CHECK;
int lm_put_u32(struct lm_buf *attrs, uint16_t type, uint32_t v) MUST_CHECK;
int lm_put_u64(struct lm_buf *attrs, uint16_t type, uint64_t v) MUST_CHECK;

#endif
