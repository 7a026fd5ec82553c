/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/restore.h"

#include "tools/libmote/request.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <time.h>

#define RESTORE_SEED_BYTES 32
/* A socket that is there and not yet listened on will be within this. */
#define RESTORE_AGAIN_MS 2
#define RESTORE_TRIES    5
/* From a cut connection to the end of a monitor that is ending. */
#define RESTORE_END_MS  300
#define RESTORE_LATE_NS 100000000u

/* --- the message ------------------------------------------------------------
 */

static uint64_t restore_wall_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail on Linux */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int restore_put_time(struct lm_buf *out)
{
    return lm_put_u64(out, MOTE_ATTR_TIME_NS, restore_wall_ns());
}

int lm_restore_message(const struct lm_restore *r, const struct lm_net *net,
                       bool by_mac, struct lm_buf *out)
{
    uint8_t seed[RESTORE_SEED_BYTES];
    int rc = 0;

    if (getrandom(seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
        return -EIO;
    if (r->hostname)
        rc = lm_put_attr(out, MOTE_ATTR_HOSTNAME, MOTE_ATTR_REQUIRED,
                         r->hostname, strlen(r->hostname));
    if (rc == 0)
        rc = lm_put_attr(out, MOTE_ATTR_SEED, 0, seed, sizeof(seed));
    explicit_bzero(seed, sizeof(seed));
    if (rc == 0 && r->net)
        rc = lm_net_put_interface(out, r->net, net, by_mac ? r->old_mac : NULL);
    return rc ? rc : restore_put_time(out);
}

/* --- the connection ---------------------------------------------------------
 */

struct restore_wait {
    struct mote_vm *vm;
    uint64_t deadline_ns;
    int cancel_fd;
    int watch_fd; /* tells of new files in the slot */
};

/*
 * Until `fd` has `events`, the monitor has ended, or `limit_ns` has passed
 * (which is 0 then). -ETIMEDOUT is of the deadline.
 */
static int restore_poll(struct restore_wait *w, int fd, short events,
                        uint64_t limit_ns, struct mote_err *err)
{
    struct pollfd p[] = {{.fd = fd, .events = events},
                         {.fd = w->vm->pidfd, .events = POLLIN},
                         {.fd = w->cancel_fd, .events = POLLIN}};
    int n = poll(p, ARRAY_SIZE(p),
                 lm_poll_timeout(min_u64(limit_ns, w->deadline_ns)));

    if (n < 0 && errno != EINTR)
        return lm_err(err, neg_errno(), "poll: %s", err_reason(neg_errno()));
    if (n > 0 && p[2].revents)
        return lm_err(err, -ECANCELED, "guest: the wait was cancelled");
    if (n > 0 && p[1].revents && !p[0].revents)
        return lm_vm_ended_early(w->vm, err);
    if (n == 0 && util_now_ns() >= w->deadline_ns)
        return lm_err(err, -ETIMEDOUT,
                      "guest: its agent does not answer; look at its console, "
                      "or allow it more time");
    return 0;
}

/* The monitor makes the socket some time after it was started. */
static int restore_connect(struct restore_wait *w, struct lm_chan *c,
                           struct mote_err *err)
{
    char events[4096];

    for (;;) {
        uint64_t limit_ns = UINT64_MAX;
        int rc =
            lm_chan_connect(c, w->vm->vsock.sun_path, MOTE_AGENT_PORT, err);

        if (rc != -ENOENT && rc != -ECONNREFUSED)
            return rc;
        if (rc == -ECONNREFUSED)
            limit_ns = lm_deadline(RESTORE_AGAIN_MS);
        rc = restore_poll(w, w->watch_fd, POLLIN, limit_ns, err);
        if (rc)
            return rc;
        while (read(w->watch_fd, events, sizeof(events)) > 0)
            ;
    }
}

/* The connection ended: by the guest, or because the monitor did. */
static int restore_cut(struct restore_wait *w, int rc, struct mote_err *err)
{
    if (lm_wait_fd(w->vm->pidfd, POLLIN, lm_deadline(RESTORE_END_MS), -1) == 0)
        return lm_vm_ended_early(w->vm, err);
    return lm_err(err, rc, "guest agent: %s",
                  rc == -ECONNREFUSED ? "does not listen" : err_reason(rc));
}

/* Sends one request and waits for its answer, OK or ERROR. */
static int restore_ask(struct restore_wait *w, struct lm_chan *c, uint8_t type,
                       struct lm_buf *attrs, struct lm_msg *out,
                       struct mote_err *err)
{
    if (lm_put_message(&c->out, type, attrs))
        return lm_err_nomem(err);
    for (;;) {
        int rc = lm_chan_next(c, out);

        if (w->vm->answered_ns == 0 && c->in.version != 0)
            w->vm->answered_ns = util_now_ns(); /* its HELLO is there */
        if (rc > 0 && (out->type == MOTE_T_OK || out->type == MOTE_T_ERROR))
            return 0;
        if (rc > 0)
            return lm_err(err, -EPROTO,
                          "guest agent: answered with something else");
        if (rc < 0)
            return restore_cut(w, rc, err);
        rc = restore_poll(w, c->fd, lm_chan_events(c), UINT64_MAX, err);
        if (rc)
            return rc;
    }
}

/* --- the answer -------------------------------------------------------------
 */

static void restore_note(const struct lm_restore *r, const char *line)
{
    if (r->note)
        r->note(r->note_arg, line);
}

static void restore_notes(const struct lm_restore *r, const struct lm_msg *msg)
{
    struct lm_attr_iter it;
    struct lm_attr a;
    char line[512];

    lm_attr_begin(&it, msg);
    while (lm_attr_next(&it, &a) > 0) {
        if (a.type != MOTE_ATTR_NOTE)
            continue;
        (void)snprintf(line, sizeof(line), "guest: ");
        lm_attr_text(&a, line + strlen(line), sizeof(line) - strlen(line));
        restore_note(r, line);
    }
}

/* The number of an ERROR, and its text in `err`. */
static uint32_t restore_error(const struct lm_msg *msg, struct mote_err *err)
{
    char text[256] = "no reason given";
    struct lm_attr_iter it;
    struct lm_attr a;
    uint32_t number = 0;

    lm_attr_begin(&it, msg);
    while (lm_attr_next(&it, &a) > 0) {
        if (a.type == MOTE_ATTR_TEXT)
            lm_attr_text(&a, text, sizeof(text));
        if (a.type == MOTE_ATTR_ERROR && lm_attr_u32(&a, &number))
            number = 0;
    }
    (void)lm_err(err, -EREMOTEIO,
                 "guest agent: %s; the copy was not made one of its own", text);
    return number;
}

/* --- the whole --------------------------------------------------------------
 */

/* What every agent knows: the time. */
static int restore_old_agent(struct restore_wait *w, const struct lm_restore *r,
                             struct mote_err *err)
{
    struct lm_chan c = LM_CHAN_CLOSED;
    struct lm_buf attrs = {0};
    struct lm_msg msg = {0};
    int rc = restore_connect(w, &c, err);

    if (rc == 0 && restore_put_time(&attrs))
        rc = lm_err_nomem(err);
    if (rc == 0)
        rc = restore_ask(w, &c, MOTE_T_CLOCK_SET, &attrs, &msg, err);
    if (rc == 0)
        restore_note(r, "guest: its agent is older than this mote and only set "
                        "its clock; addresses, host name and boot id are those "
                        "of the snapshot");
    lm_buf_fini(&attrs);
    lm_chan_close(&c);
    return rc;
}

/*
 * How late the time came is not known, but it was less than it took until the
 * answer, programs and a host that is busy included: again, until that is
 * short.
 */
static int restore_set_clock(struct restore_wait *w, struct lm_chan *c,
                             uint64_t took_ns, struct mote_err *err)
{
    int rc = 0;

    for (int i = 0; took_ns > RESTORE_LATE_NS && i < RESTORE_TRIES && rc == 0;
         i++) {
        uint64_t from_ns = util_now_ns();
        struct lm_buf attrs = {0};
        struct lm_msg msg = {0};

        if (restore_put_time(&attrs))
            return lm_err_nomem(err);
        rc = restore_ask(w, c, MOTE_T_CLOCK_SET, &attrs, &msg, err);
        lm_buf_fini(&attrs);
        if (rc == 0 && msg.type == MOTE_T_ERROR)
            return 0; /* a test's agent, which has no clock to set */
        took_ns = util_now_ns() - from_ns;
    }
    return rc;
}

/* 0, -errno, or 1 with the number of the agent's error. */
static int restore_once(struct restore_wait *w, const struct lm_restore *r,
                        bool by_mac, uint32_t *out_error, struct mote_err *err)
{
    struct lm_chan c = LM_CHAN_CLOSED;
    struct lm_buf attrs = {0};
    struct lm_msg msg = {0};
    int rc = restore_connect(w, &c, err);
    uint64_t from_ns = util_now_ns();

    if (rc == 0 && lm_restore_message(r, &w->vm->net, by_mac, &attrs))
        rc = lm_err_nomem(err);
    if (rc == 0)
        rc = restore_ask(w, &c, MOTE_T_RESTORE, &attrs, &msg, err);
    lm_buf_fini(&attrs);
    if (rc == 0 && msg.type == MOTE_T_OK)
        restore_notes(r, &msg);
    if (rc == 0 && msg.type == MOTE_T_OK)
        rc = restore_set_clock(w, &c, util_now_ns() - from_ns, err);
    else if (rc == 0) {
        *out_error = restore_error(&msg, err);
        rc = 1;
    }
    lm_chan_close(&c);
    return rc;
}

static int restore_run(struct restore_wait *w, const struct lm_restore *r,
                       struct mote_err *err)
{
    uint32_t error = 0;
    int tries = 0;
    int rc;

    /* A connection that was made before the guest took note of its reset is
     * reset with the old ones. */
    do {
        rc = restore_once(w, r, true, &error, err);
    } while (rc == -ECONNRESET && ++tries < RESTORE_TRIES);
    /* Somebody gave the interface another address since. */
    if (rc > 0 && error == MOTE_ERR_NOT_FOUND && r->old_mac)
        rc = restore_once(w, r, false, &error, err);
    if (rc > 0 && error == MOTE_ERR_UNSUPPORTED)
        return restore_old_agent(w, r, err);
    return rc > 0 ? -EREMOTEIO : rc;
}

int lm_restore(struct mote_vm *vm, const struct lm_restore *r, int timeout_ms,
               int cancel_fd, struct mote_err *err)
{
    CLEANUP_FD int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    struct restore_wait w = {.vm = vm,
                             .deadline_ns = lm_deadline(timeout_ms),
                             .cancel_fd = cancel_fd,
                             .watch_fd = watch};
    int rc;

    if (watch < 0 || inotify_add_watch(watch, vm->slot.run_path,
                                       IN_CREATE | IN_MOVED_TO) < 0) {
        rc = neg_errno();
        return lm_err(err, rc, "%s: cannot be watched: %s", vm->slot.run_path,
                      err_reason(rc));
    }
    rc = restore_run(&w, r, err);
    if (rc)
        return rc;
    vm->times.start_to_ready_ms = (double)(util_now_ns() - vm->start_ns) / 1e6;
    vm->ready = true;
    return lm_slot_write(&vm->slot, LM_READY_FILE, "", err);
}
