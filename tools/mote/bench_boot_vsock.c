/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent of a booting guest tells by vsock. */
#include "tools/mote/bench_boot_int.h"

#include "vmm/cleanup.h"
#include "vmm/errmsg.h"
#include "vmm/le.h"

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

int boot_listen(struct boot_live *b, struct mote_err *err)
{
    struct sockaddr_un sa;
    char suffix[16];
    int rc;

    (void)snprintf(suffix, sizeof(suffix), "_%u", MOTE_READY_PORT);
    rc = lm_unix_address(&sa, b->vsock, suffix, err);
    if (rc)
        return rc;
    b->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (b->listen_fd < 0 ||
        bind(b->listen_fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
        listen(b->listen_fd, 4) < 0)
        return lm_err(err, neg_errno(), "%s: %s", sa.sun_path,
                      err_reason(neg_errno()));
    return 0;
}

/*
 * The guest's clock at its marks, counted back from when the report came: so
 * much later than the last mark as a report is on its way. Marks that the
 * monitor stamps itself are put over these.
 */
static void boot_on_report(struct boot_live *b, const struct lm_msg *msg)
{
    double at_ms[BOOT_POINTS] = {0};
    struct boot_result *r = b->r;
    struct lm_attr_iter it;
    struct lm_attr a;

    lm_attr_begin(&it, msg);
    while (lm_attr_next(&it, &a) > 0) {
        static const enum boot_point points[] = {[MOTE_MARK_INIT] = BOOT_INIT,
                                                 [MOTE_MARK_ROOT] = BOOT_ROOT,
                                                 [MOTE_MARK_READY] =
                                                     BOOT_READY};
        uint32_t id;

        if (a.type != MOTE_ATTR_BOOT_MARK ||
            a.len < sizeof(struct mote_boot_mark))
            continue;
        id = get_le32(a.data + offsetof(struct mote_boot_mark, id));
        if (id >= MOTE_MARK_INIT && id <= MOTE_MARK_READY)
            at_ms[points[id]] =
                (double)get_le64(a.data + offsetof(struct mote_boot_mark, ns)) /
                1e6;
    }
    r->at_ms[BOOT_READY] = boot_ms(b, util_now_ns());
    if (at_ms[BOOT_INIT] <= 0 || at_ms[BOOT_READY] < at_ms[BOOT_INIT])
        return;
    r->at_ms[BOOT_CLOCK] = r->at_ms[BOOT_READY] - at_ms[BOOT_READY];
    if (r->at_ms[BOOT_CLOCK] < 0) { /* not the clock of a boot */
        r->at_ms[BOOT_CLOCK] = -1;
        return;
    }
    r->at_ms[BOOT_INIT] = r->at_ms[BOOT_CLOCK] + at_ms[BOOT_INIT];
    if (at_ms[BOOT_ROOT] >= at_ms[BOOT_INIT])
        r->at_ms[BOOT_ROOT] = r->at_ms[BOOT_CLOCK] + at_ms[BOOT_ROOT];
}

static int boot_hear(struct boot_live *b, struct lm_chan *c,
                     struct mote_err *err)
{
    struct lm_msg msg;
    int rc = 0;

    while (rc == 0) {
        rc = boot_wait(b, c->fd, lm_chan_events(c), err);
        if (rc)
            return rc;
        rc = lm_chan_next(c, &msg);
    }
    if (rc < 0 || msg.type != MOTE_T_READY)
        return lm_err(err, -EPROTO,
                      "guest: its agent did not get ready; `mote run "
                      "--console` shows why");
    boot_on_report(b, &msg);
    return 0;
}

static int boot_first_output(struct boot_live *b, struct mote_err *err)
{
    const char *const argv[] = {"/bin/echo", "x", NULL};
    const struct mote_exec_params p = {.argv = argv};
    struct mote_exec_event e = {.kind = MOTE_EXEC_STARTED};
    struct mote_exec *x = NULL;
    int rc = mote_exec_start(b->vsock, &p, &x, err);

    while (rc == 0 && e.kind != MOTE_EXEC_EXITED &&
           e.kind != MOTE_EXEC_REFUSED && b->r->at_ms[BOOT_OUTPUT] < 0) {
        rc = mote_exec_next(x, &e, err);
        if (rc > 0 && e.kind == MOTE_EXEC_STDOUT)
            b->r->at_ms[BOOT_OUTPUT] = boot_ms(b, util_now_ns());
        if (rc == 0)
            rc = boot_wait(b, mote_exec_fd(x), mote_exec_events(x), err);
        rc = rc > 0 ? 0 : rc;
    }
    if (rc == 0 && b->r->at_ms[BOOT_OUTPUT] < 0)
        rc = lm_err(err, -EIO, "guest: echo said nothing: %s",
                    e.kind == MOTE_EXEC_REFUSED ? e.text : "it ended");
    mote_exec_free(x);
    return rc;
}

int boot_talk(struct boot_live *b, struct mote_err *err)
{
    struct lm_chan chan = LM_CHAN_CLOSED;
    CLEANUP_FD int fd = -1;
    int rc = boot_wait(b, b->listen_fd, POLLIN, err);

    if (rc)
        return rc;
    fd = accept4(b->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return lm_err(err, neg_errno(), "%s: %s", b->vsock,
                      err_reason(neg_errno()));
    if (lm_chan_adopt(&chan, fd))
        return lm_err_nomem(err);
    (void)take_fd(&fd);
    rc = boot_hear(b, &chan, err);
    lm_chan_close(&chan);
    return rc ? rc : boot_first_output(b, err);
}
