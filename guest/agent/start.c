/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/start.h"

#include <errno.h>
#include <string.h>

/* Kernel's own limits end below: 128 KiB a string (MAX_ARG_STRLEN). */
#define START_TEXT_MAX (128u << 10)
#define START_PATH_MAX 4095u

/* These may come more than once. */
static bool start_repeats(uint16_t type)
{
    return type == MOTE_ATTR_ARG || type == MOTE_ATTR_ENV ||
           type == MOTE_ATTR_GROUP || type == MOTE_ATTR_RLIMIT;
}

static int start_view(const struct codec_attr *a, size_t max,
                      struct codec_attr *out)
{
    int err = codec_attr_text(a, max);

    if (err == 0 && a->length == 0)
        err = -EPROTO;
    if (err == 0)
        *out = *a;
    return err;
}

static int start_string(struct start *s, const struct codec_attr *a,
                        size_t *count)
{
    int err = codec_attr_text(a, START_TEXT_MAX);

    if (err < 0)
        return err;
    *count += 1;
    s->text_bytes += a->length + 1u;
    return 0;
}

static int start_env(struct start *s, const struct codec_attr *a)
{
    const uint8_t *equals = memchr(a->value, '=', a->length);

    if (!equals || equals == a->value)
        return -EINVAL;
    return start_string(s, a, &s->env_count);
}

static int start_group(struct start *s, const struct codec_attr *a)
{
    if (s->group_count == START_GROUPS_MAX)
        return -EMSGSIZE;
    return codec_attr_u32(a, &s->groups[s->group_count++]);
}

static int start_limit(struct start *s, const struct codec_attr *a)
{
    if (s->limit_count == START_LIMITS_MAX)
        return -EMSGSIZE;
    return codec_attr_rlimit(a, &s->limits[s->limit_count++]);
}

/* One attribute; -ENOENT: not known. */
static int start_attr(struct start *s, const struct codec_attr *a)
{
    switch (a->type) {
    case MOTE_ATTR_ARG:
        return start_string(s, a, &s->arg_count);
    case MOTE_ATTR_ENV:
        return start_env(s, a);
    case MOTE_ATTR_PROGRAM:
        return start_view(a, START_PATH_MAX, &s->program);
    case MOTE_ATTR_ENV_BARE:
        return codec_attr_bool(a, &s->env_bare);
    case MOTE_ATTR_CWD:
        return start_view(a, START_PATH_MAX, &s->cwd);
    case MOTE_ATTR_USER:
        return start_view(a, 255, &s->user);
    case MOTE_ATTR_GROUP:
        return start_group(s, a);
    case MOTE_ATTR_RLIMIT:
        return start_limit(s, a);
    case MOTE_ATTR_STDIN:
        return codec_attr_bool(a, &s->want_stdin);
    case MOTE_ATTR_PTY:
        s->want_pty = true;
        return codec_attr_pty(a, &s->pty);
    case MOTE_ATTR_TAG:
        return start_view(a, MOTE_TAG_MAX, &s->tag);
    case MOTE_ATTR_TIME_LIMIT_MS:
        return codec_attr_u64(a, &s->time_limit_ms);
    case MOTE_ATTR_GRACE_MS:
        return codec_attr_u32(a, &s->grace_ms);
    case MOTE_ATTR_DETACHED:
        return codec_attr_bool(a, &s->detached);
    case MOTE_ATTR_UMASK:
        s->has_umask = true;
        return codec_attr_u32(a, &s->umask);
    default:
        return -ENOENT;
    }
}

static int start_refuse_attr(struct refusal *r, uint16_t type, int err)
{
    uint32_t error = MOTE_ERR_PROTOCOL;
    const char *why = "malformed value";

    if (err == -EMSGSIZE) {
        error = MOTE_ERR_BAD_REQUEST;
        why = "too long, or too many";
    } else if (err == -EINVAL) {
        error = MOTE_ERR_BAD_REQUEST;
        why = "an environment entry is NAME=value";
    } else if (err == -EEXIST) {
        error = MOTE_ERR_BAD_REQUEST;
        why = "may be given once only";
    } else if (err == -ENOENT) {
        error = MOTE_ERR_UNSUPPORTED;
        why = "unknown here and marked as required";
    }
    (void)refuse(r, error, 0, "START: attribute ", NULL, NULL);
    text_add_number(&r->text, type);
    text_add(&r->text, ": ");
    text_add(&r->text, why);
    return -1;
}

/* What no single attribute can tell. */
static int start_check(const struct start *s, struct refusal *r)
{
    if (s->arg_count == 0)
        return refuse(r, MOTE_ERR_BAD_REQUEST, 0,
                      "START: no argument; the first is the program", NULL,
                      NULL);
    if (s->cwd.value && s->cwd.value[0] != '/')
        return refuse(r, MOTE_ERR_BAD_REQUEST, 0,
                      "START: the working directory is not an absolute path",
                      NULL, NULL);
    if (s->umask > 0777)
        return refuse(r, MOTE_ERR_BAD_REQUEST, 0, "START: umask above 0777",
                      NULL, NULL);
    return 0;
}

int start_parse(const uint8_t *data, size_t length, struct start *out,
                struct refusal *r)
{
    struct codec_iter it;
    struct codec_attr a;
    uint32_t seen = 0;
    int got;

    memset(out, 0, sizeof(*out));
    out->data = data;
    out->length = length;
    codec_iter_init(&it, data, length);
    while ((got = codec_iter_next(&it, &a)) > 0) {
        int err = 0;

        if (a.type < 32 && !start_repeats(a.type)) {
            if (seen & 1u << a.type)
                err = -EEXIST;
            seen |= 1u << a.type;
        }
        if (err == 0)
            err = start_attr(out, &a);
        if (err == -ENOENT && !a.required)
            err = 0;
        if (err < 0)
            return start_refuse_attr(r, a.type, err);
    }
    if (got < 0)
        return refuse(r, MOTE_ERR_PROTOCOL, 0, "START: attribute is cut off",
                      NULL, NULL);
    return start_check(out, r);
}
