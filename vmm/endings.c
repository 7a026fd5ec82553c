/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/endings.h"

#include "vmm/cleanup.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>

static void endings_signals(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGHUP);
}

int endings_block_signals(void)
{
    sigset_t set;

    endings_signals(&set);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return neg_errno();
    /* Writers to sockets and pipes get EPIPE instead, and those that reach
     * RLIMIT_FSIZE, in a disk or the log of the console, EFBIG. */
    if (signal(SIGPIPE, SIG_IGN) == SIG_ERR ||
        signal(SIGXFSZ, SIG_IGN) == SIG_ERR)
        return neg_errno();
    return 0;
}

static void endings_on_signal(struct ev_fd *w, uint32_t revents)
{
    struct endings *e = w->arg;
    struct signalfd_siginfo si;

    (void)revents;
    if (read(w->fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
        e->stop.request_stop(e->stop.arg, STOP_REQUEST, si.ssi_signo);
}

static void endings_on_lifeline(struct ev_fd *w, uint32_t revents)
{
    struct endings *e = w->arg;
    char sink[64];

    /* Bytes mean nothing; the end of file is the message. */
    if ((revents & POLLIN) && read(w->fd, sink, sizeof(sink)) > 0)
        return;
    evloop_fd_del(e->loop, w);
    e->stop.request_stop(e->stop.arg, STOP_REQUEST, 0);
}

int endings_init(struct endings *e, struct evloop *loop, struct stop_hook stop,
                 int lifeline_fd, struct errmsg *err)
{
    sigset_t set;
    int rc = 0;

    memset(e, 0, sizeof(*e));
    e->loop = loop;
    e->stop = stop;
    e->lifeline_fd = lifeline_fd;
    endings_signals(&set);
    e->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (e->signal_fd < 0)
        rc = neg_errno();
    if (rc == 0)
        rc = evloop_fd_add(loop, &e->signal_watch, e->signal_fd, POLLIN,
                           endings_on_signal, e);
    if (rc == 0 && lifeline_fd >= 0)
        rc = evloop_fd_add(loop, &e->lifeline_watch, lifeline_fd, POLLIN,
                           endings_on_lifeline, e);
    if (rc)
        return err_set(err, rc, "signals: %s", err_reason(rc));
    return 0;
}

void endings_fini(struct endings *e)
{
    if (!e->loop)
        return;
    evloop_fd_del(e->loop, &e->signal_watch);
    evloop_fd_del(e->loop, &e->lifeline_watch);
    drop_fd(&e->signal_fd);
    drop_fd(&e->lifeline_fd);
}
