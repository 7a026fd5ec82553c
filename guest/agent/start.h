/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A START message, read and checked. Pure: views into the message only.
 */
#ifndef GUEST_AGENT_START_H
#define GUEST_AGENT_START_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/agent/codec.h"
#include "guest/agent/text.h"

#define START_GROUPS_MAX 64u
#define START_LIMITS_MAX 32u

struct start {
    const uint8_t *data; /* the message: repeated attributes are walked again */
    size_t length;
    size_t arg_count, env_count;
    size_t text_bytes; /* of all ARG and ENV, and a NUL for each */
    /* value is NULL where the attribute is absent */
    struct codec_attr program, cwd, user, tag;
    bool env_bare, want_stdin, want_pty, detached, has_umask;
    uint32_t umask, grace_ms;
    uint64_t time_limit_ms;
    struct mote_pty_size pty;
    size_t group_count, limit_count;
    uint32_t groups[START_GROUPS_MAX];
    struct mote_rlimit limits[START_LIMITS_MAX];
};

/* 0, or -1 with the reason in *r. *out borrows from data. */
int start_parse(const uint8_t *data, size_t length, struct start *out,
                struct refusal *r);

#endif
