/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_ENDINGS_H
#define VMM_ENDINGS_H

/*
 * The reasons to end a VM that come from outside: SIGTERM, SIGINT and SIGHUP,
 * and the lifeline, a pipe whose writer is the process that started us.
 *
 * Ownership: owns its signalfd; the lifeline fd is closed by endings_fini().
 * Threads: made and freed on the main thread, called back on the loop's.
 */

#include "vmm/errmsg.h"
#include "vmm/evloop.h"
#include "vmm/stop.h"

struct endings {
    struct evloop *loop;
    struct stop_hook stop;
    int signal_fd;
    int lifeline_fd;
    struct ev_fd signal_watch;
    struct ev_fd lifeline_watch;
};

/* Blocks the signals; call it before any thread is made. 0 or -errno. */
int endings_block_signals(void) MUST_CHECK;
/* `lifeline_fd` may be -1. */
int endings_init(struct endings *e, struct evloop *loop, struct stop_hook stop,
                 int lifeline_fd, struct errmsg *err) MUST_CHECK;
void endings_fini(struct endings *e);

#endif
