/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/mote.h"

#include "tools/libmote/chan.h"
#include "vmm/errmsg.h"
#include "vmm/le.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mote_exec {
    struct lm_chan chan;
    bool over;      /* the last event was given out */
    bool input_end; /* end of file was queued */
};

/* The parts of START that are lists of strings. */
static int exec_put_list(struct lm_buf *b, uint16_t type,
                         const char *const *list)
{
    int rc = 0;

    for (; list && *list && !rc; list++)
        rc = lm_put_text(b, type, *list);
    return rc;
}

static int exec_put_size(struct lm_buf *b, struct mote_tty_size size)
{
    uint8_t v[sizeof(struct mote_pty_size)] = {0};

    put_le16(v + offsetof(struct mote_pty_size, rows), size.rows);
    put_le16(v + offsetof(struct mote_pty_size, columns), size.columns);
    return lm_put_attr(b, MOTE_ATTR_PTY, 0, v, sizeof(v));
}

static int exec_put_start(struct lm_buf *b, const struct mote_exec_params *p)
{
    int rc = exec_put_list(b, MOTE_ATTR_ARG, p->argv);

    if (!rc)
        rc = exec_put_list(b, MOTE_ATTR_ENV, p->env);
    if (!rc && p->workdir)
        rc = lm_put_text(b, MOTE_ATTR_CWD, p->workdir);
    if (!rc && p->user)
        rc = lm_put_text(b, MOTE_ATTR_USER, p->user);
    if (!rc && p->stdin_open)
        rc = lm_put_u8(b, MOTE_ATTR_STDIN, 1);
    if (!rc && p->tty)
        rc = exec_put_size(b, p->size);
    if (!rc && p->time_limit_ms)
        rc = lm_put_u64(b, MOTE_ATTR_TIME_LIMIT_MS, p->time_limit_ms);
    if (!rc && p->grace_ms)
        rc = lm_put_u32(b, MOTE_ATTR_GRACE_MS, p->grace_ms);
    return rc;
}

static int exec_queue_start(struct mote_exec *x,
                            const struct mote_exec_params *p,
                            struct mote_err *err)
{
    struct lm_buf attrs = {0};
    int rc = exec_put_start(&attrs, p);

    if (!rc)
        rc = lm_put_message(&x->chan.out, MOTE_T_START, &attrs);
    lm_buf_fini(&attrs);
    if (rc == -EMSGSIZE)
        return lm_err(err, -E2BIG,
                      "arguments and environment: longer than %u MiB; pass "
                      "large data on standard input",
                      MOTE_MESSAGE_MAX >> 20);
    return rc ? lm_err_nomem(err) : 0;
}

int mote_exec_start(const char *vsock_path,
                    const struct mote_exec_params *params,
                    struct mote_exec **out, struct mote_err *err)
{
    struct mote_exec *x = calloc(1, sizeof(*x));
    int rc;

    if (!x)
        return lm_err_nomem(err);
    x->chan = LM_CHAN_CLOSED;
    x->input_end = !params->stdin_open;
    rc = lm_chan_connect(&x->chan, vsock_path, MOTE_AGENT_PORT, err);
    if (!rc)
        rc = exec_queue_start(x, params, err);
    if (rc) {
        mote_exec_free(x);
        return rc;
    }
    *out = x;
    return 0;
}

int mote_exec_fd(const struct mote_exec *x)
{
    return x->chan.fd;
}

short mote_exec_events(const struct mote_exec *x)
{
    return lm_chan_events(&x->chan);
}

size_t mote_exec_backlog(const struct mote_exec *x)
{
    return lm_chan_backlog(&x->chan);
}

void mote_exec_free(struct mote_exec *x)
{
    if (!x)
        return;
    lm_chan_close(&x->chan);
    free(x);
}

/* --- events --------------------------------------------------------------- */

static int exec_on_exit_attr(const struct lm_attr *a,
                             struct mote_exec_event *out)
{
    uint8_t kind;
    uint8_t flags;
    uint32_t value;

    if (a->len < sizeof(struct mote_exit))
        return -EBADMSG;
    kind = a->data[offsetof(struct mote_exit, kind)];
    flags = a->data[offsetof(struct mote_exit, flags)];
    value = get_le32(a->data + offsetof(struct mote_exit, value));
    if (kind == MOTE_EXIT_CODE && value <= 255)
        out->exit_code = (int)value;
    else if (kind == MOTE_EXIT_SIGNAL && value >= 1 && value <= 127)
        out->signal = (int)value;
    else
        return -EBADMSG;
    out->timed_out = flags & MOTE_EXIT_TIMED_OUT;
    return 0;
}

static int exec_on_attr(const struct lm_attr *a, struct mote_exec_event *out)
{
    switch (a->type) {
    case MOTE_ATTR_PID:
        return lm_attr_u32(a, &out->pid);
    case MOTE_ATTR_EXIT:
        return exec_on_exit_attr(a, out);
    case MOTE_ATTR_USAGE:
        if (a->len < sizeof(struct mote_usage))
            return -EBADMSG;
        out->wall_us = get_le64(a->data + offsetof(struct mote_usage, wall_us));
        return 0;
    case MOTE_ATTR_ERROR:
        return lm_attr_u32(a, &out->error);
    case MOTE_ATTR_TEXT:
        lm_attr_text(a, out->text, sizeof(out->text));
        return 0;
    default:
        return 0;
    }
}

static int exec_kind_of(uint8_t type)
{
    switch (type) {
    case MOTE_T_STARTED:
        return MOTE_EXEC_STARTED;
    case MOTE_T_STDOUT:
        return MOTE_EXEC_STDOUT;
    case MOTE_T_STDERR:
        return MOTE_EXEC_STDERR;
    case MOTE_T_EXIT:
        return MOTE_EXEC_EXITED;
    case MOTE_T_ERROR:
        return MOTE_EXEC_REFUSED;
    default:
        return 0; /* nothing that belongs to a command */
    }
}

/* 1 and *out filled, or -EBADMSG. */
static int exec_event(struct mote_exec *x, const struct lm_msg *msg,
                      struct mote_exec_event *out)
{
    int kind = exec_kind_of(msg->type);
    struct lm_attr_iter it;
    struct lm_attr a;
    int rc;

    *out = (struct mote_exec_event){.exit_code = -1};
    if (kind == 0)
        return -EBADMSG;
    out->kind = (enum mote_exec_kind)kind;
    if (kind == MOTE_EXEC_STDOUT || kind == MOTE_EXEC_STDERR) {
        out->data = msg->data;
        out->len = msg->len;
        return 1;
    }
    lm_attr_begin(&it, msg);
    while ((rc = lm_attr_next(&it, &a)) > 0) {
        rc = exec_on_attr(&a, out);
        if (rc)
            return rc;
    }
    if (rc)
        return rc;
    if (kind == MOTE_EXEC_EXITED && out->exit_code < 0 && out->signal == 0)
        return -EBADMSG;
    x->over = kind == MOTE_EXEC_EXITED || kind == MOTE_EXEC_REFUSED;
    return 1;
}

static int exec_failed(int rc, struct mote_err *err)
{
    if (rc == -ENOMEM)
        return lm_err_nomem(err);
    if (rc == -EPROTONOSUPPORT)
        return lm_err(err, -EPROTO,
                      "guest agent: speaks another protocol version; use the "
                      "guest/agent.cpio that was built with this mote");
    if (rc == -EBADMSG || rc == -EMSGSIZE)
        return lm_err(err, -EPROTO,
                      "guest agent: broke the agent protocol; start the "
                      "machine anew, what runs in it cannot be trusted");
    if (rc == -ECONNREFUSED)
        return lm_err(err, rc,
                      "guest agent: does not listen; the machine may be "
                      "starting or ending");
    return lm_err(err, -ECONNRESET,
                  "guest agent: connection lost before the command ended");
}

int mote_exec_next(struct mote_exec *x, struct mote_exec_event *out,
                   struct mote_err *err)
{
    struct lm_msg msg;
    int rc;

    if (x->over)
        return 0;
    rc = lm_chan_next(&x->chan, &msg);
    if (rc > 0)
        rc = exec_event(x, &msg, out);
    return rc < 0 ? exec_failed(rc, err) : rc;
}

int mote_exec_send(struct mote_exec *x, struct mote_err *err)
{
    int rc = lm_chan_send(&x->chan);

    return rc ? exec_failed(rc, err) : 0;
}

/* --- to the command --------------------------------------------------------
 */

int mote_exec_write(struct mote_exec *x, const void *data, size_t len)
{
    const uint8_t *p = data;

    if (x->input_end)
        return -EPIPE;
    if (len == 0) {
        x->input_end = true;
        return lm_put_frame(&x->chan.out, MOTE_T_STDIN_EOF, 0, NULL, 0);
    }
    while (len > 0) {
        size_t n = (size_t)min_u64(len, MOTE_FRAME_MAX);
        int rc = lm_put_frame(&x->chan.out, MOTE_T_STDIN, 0, p, n);

        if (rc)
            return rc;
        p += n;
        len -= n;
    }
    return 0;
}

int mote_exec_resize(struct mote_exec *x, struct mote_tty_size size)
{
    struct lm_buf attrs = {0};
    int rc = exec_put_size(&attrs, size);

    if (!rc)
        rc = lm_put_message(&x->chan.out, MOTE_T_RESIZE, &attrs);
    lm_buf_fini(&attrs);
    return rc;
}
