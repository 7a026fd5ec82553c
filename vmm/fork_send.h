/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_FORK_SEND_H
#define VMM_FORK_SEND_H

/*
 * One child of a fork, seen from the source: connects to its waiting monitor,
 * hands over state and memory, takes the answer.
 *
 * Ownership: embedded, not moved between start and done; the descriptors are
 * borrowed. Threads: io. Errors: `done` gets 0 or -errno with a line in `err`.
 */

#include "vmm/errmsg.h"
#include "vmm/evloop.h"
#include "vmm/fork_wire.h"

struct fork_send;
typedef void (*fork_send_fn)(struct fork_send *s, int rc);

struct fork_send {
    struct evloop *loop;
    const char *path; /* borrowed, of its socket */
    char *text;       /* JSON; owned from start on */
    int state_fd;
    int mem_fd;
    fork_send_fn done; /* once, never from inside of start */
    void *arg;
    struct errmsg err;
    /* private */
    int sock;
    struct ev_fd watch;
    struct ev_timer timer;
    size_t sent;
    size_t got;
    char answer[FORK_ANSWER_BYTES + sizeof(((struct errmsg *)0)->text)];
};

void fork_send_start(struct fork_send *s);
void fork_send_fini(struct fork_send *s); /* idempotent; also under way */

#endif
