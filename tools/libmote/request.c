/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/mote.h"

#include "tools/libmote/chan.h"
#include "tools/libmote/request.h"
#include "vmm/errmsg.h"

#include <stdlib.h>

/* A request whose whole answer is OK or ERROR. */
struct mote_request {
    struct lm_chan chan;
    bool done;
};

int lm_request_start(const char *vsock_path, uint8_t type, struct lm_buf *attrs,
                     struct mote_request **out, struct mote_err *err)
{
    struct mote_request *r = calloc(1, sizeof(*r));
    int rc;

    if (!r) {
        lm_buf_fini(attrs);
        return lm_err_nomem(err);
    }
    r->chan = LM_CHAN_CLOSED;
    rc = lm_chan_connect(&r->chan, vsock_path, MOTE_AGENT_PORT, err);
    if (!rc && lm_put_message(&r->chan.out, type, attrs))
        rc = lm_err_nomem(err);
    lm_buf_fini(attrs);
    if (rc) {
        mote_request_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

int mote_request_kill(const char *vsock_path, uint32_t pid, int signo,
                      enum mote_whom whom, struct mote_request **out,
                      struct mote_err *err)
{
    struct lm_buf attrs = {0};

    if (lm_put_u32(&attrs, MOTE_ATTR_PID, pid) ||
        lm_put_u32(&attrs, MOTE_ATTR_SIGNAL, (uint32_t)signo) ||
        lm_put_u8(&attrs, MOTE_ATTR_SCOPE, (uint8_t)whom)) {
        lm_buf_fini(&attrs);
        return lm_err_nomem(err);
    }
    return lm_request_start(vsock_path, MOTE_T_KILL, &attrs, out, err);
}

int mote_request_poweroff(const char *vsock_path, struct mote_request **out,
                          struct mote_err *err)
{
    struct lm_buf attrs = {0};

    if (lm_put_u8(&attrs, MOTE_ATTR_POWER, MOTE_STOP_POWEROFF))
        return lm_err_nomem(err);
    return lm_request_start(vsock_path, MOTE_T_POWER, &attrs, out, err);
}

int mote_request_fd(const struct mote_request *r)
{
    return r->chan.fd;
}

short mote_request_events(const struct mote_request *r)
{
    return lm_chan_events(&r->chan);
}

/* What the guest's ERROR says. */
static int request_refused(const struct lm_msg *msg, struct mote_err *err)
{
    struct lm_attr_iter it;
    struct lm_attr a;
    char text[256] = "no reason given";

    lm_attr_begin(&it, msg);
    while (lm_attr_next(&it, &a) > 0) {
        if (a.type == MOTE_ATTR_TEXT)
            lm_attr_text(&a, text, sizeof(text));
    }
    return lm_err(err, -EREMOTEIO, "guest agent: %s", text);
}

int mote_request_step(struct mote_request *r, struct mote_err *err)
{
    struct lm_msg msg;
    int rc;

    if (r->done)
        return 1;
    rc = lm_chan_next(&r->chan, &msg);
    if (rc == 0)
        return 0;
    if (rc < 0)
        return lm_err(err, rc, "guest agent: %s", err_reason(rc));
    if (msg.type == MOTE_T_ERROR)
        return request_refused(&msg, err);
    if (msg.type != MOTE_T_OK)
        return lm_err(err, -EPROTO,
                      "guest agent: answered with something else");
    r->done = true;
    return 1;
}

int mote_request_wait(struct mote_request *r, int timeout_ms, int cancel_fd,
                      struct mote_err *err)
{
    uint64_t deadline_ns = lm_deadline(timeout_ms);

    for (;;) {
        int rc = mote_request_step(r, err);

        if (rc != 0)
            return rc > 0 ? 0 : rc;
        rc = lm_wait_fd(r->chan.fd, lm_chan_events(&r->chan), deadline_ns,
                        cancel_fd);
        if (rc)
            return lm_err(err, rc, "guest agent: %s", err_reason(rc));
    }
}

void mote_request_free(struct mote_request *r)
{
    if (!r)
        return;
    lm_chan_close(&r->chan);
    free(r);
}
