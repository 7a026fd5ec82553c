/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of the agent protocol (guest/abi.h) to and from C values.
 *
 * Pure: no memory of its own, no system call, no libc beyond memcpy. Every
 * decoder takes bytes from outside and believes none of them; views point
 * into the caller's bytes and live as long as those. Functions that can fail
 * give 0 (or what they say) or a negative errno:
 *   -EPROTO          malformed
 *   -EMSGSIZE        longer than the protocol allows
 *   -EPROTONOSUPPORT no version in common
 */
#ifndef GUEST_AGENT_CODEC_H
#define GUEST_AGENT_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/abi.h"

#define CODEC_HEADER 8u /* bytes of a HELLO, a frame or an attribute header */

/* One attribute, not yet interpreted. */
struct codec_attr {
    uint16_t type;
    bool required;
    uint32_t length;
    const uint8_t *value; /* borrowed from the message */
};

/* Where a walk over the attributes of a message stands. */
struct codec_iter {
    const uint8_t *at;
    size_t left;
};

/* Builds attributes in the caller's memory; `overflow` sticks. */
struct codec_writer {
    uint8_t *data;
    size_t length, capacity;
    bool overflow;
};

uint16_t codec_get16(const uint8_t *from);
uint32_t codec_get32(const uint8_t *from);
uint64_t codec_get64(const uint8_t *from);
void codec_put16(uint8_t *to, uint16_t value);
void codec_put32(uint8_t *to, uint32_t value);
void codec_put64(uint8_t *to, uint64_t value);

void codec_hello_encode(uint8_t out[CODEC_HEADER]);
/* Decodes the peer's HELLO and finds the version both speak. -EPROTO: not our
 * magic, or an empty range. -EPROTONOSUPPORT: no version in common. */
int codec_hello_agree(const uint8_t in[CODEC_HEADER], uint16_t *out_version);

void codec_frame_encode(uint8_t out[CODEC_HEADER], uint8_t type, uint8_t flags,
                        uint32_t length);
/* -EMSGSIZE: longer than MOTE_FRAME_MAX. -EPROTO: unknown flag, zero not 0. */
int codec_frame_decode(const uint8_t in[CODEC_HEADER],
                       struct mote_frame *out_frame);

void codec_iter_init(struct codec_iter *it, const uint8_t *data, size_t length);
/* 1: *out is the next attribute; 0: the end; -EPROTO: cut off or bad flags. */
int codec_iter_next(struct codec_iter *it, struct codec_attr *out);

/* Values of a fixed form: -EPROTO when the length is another. */
int codec_attr_u8(const struct codec_attr *a, uint8_t *out);
int codec_attr_u32(const struct codec_attr *a, uint32_t *out);
int codec_attr_u64(const struct codec_attr *a, uint64_t *out);
/* u8 that is 0 or 1. */
int codec_attr_bool(const struct codec_attr *a, bool *out);
/* Only checks: no NUL inside, at most `max` bytes. */
int codec_attr_text(const struct codec_attr *a, size_t max);
int codec_attr_rlimit(const struct codec_attr *a, struct mote_rlimit *out);
int codec_attr_pty(const struct codec_attr *a, struct mote_pty_size *out);
int codec_attr_ip(const struct codec_attr *a, struct mote_ip *out);
int codec_attr_route(const struct codec_attr *a, struct mote_route *out);

void codec_writer_init(struct codec_writer *w, void *data, size_t capacity);
void codec_put_bytes(struct codec_writer *w, uint16_t type, const void *value,
                     size_t length);
void codec_put_text(struct codec_writer *w, uint16_t type, const char *text);
void codec_put_u8(struct codec_writer *w, uint16_t type, uint8_t value);
void codec_put_u32(struct codec_writer *w, uint16_t type, uint32_t value);
void codec_put_u64(struct codec_writer *w, uint16_t type, uint64_t value);
void codec_put_exit(struct codec_writer *w, const struct mote_exit *value);
void codec_put_usage(struct codec_writer *w, const struct mote_usage *value);
void codec_put_mark(struct codec_writer *w, uint32_t id, uint64_t ns);

#endif
