/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_RESTORE_H
#define TOOLS_LIBMOTE_RESTORE_H

/*
 * The last step of a machine that did not boot: out of a snapshot's files, or
 * a fork. It has its slot and a monitor, which is about to run it; what is
 * left is to reach its agent and to have it become one of its own (RESTORE),
 * before anybody else can.
 *
 * Threads: any. Errors: -errno with `err`.
 */

#include "tools/libmote/vm_int.h"

struct lm_restore {
    const char *hostname; /* or NULL: as it was */
    /* What the guest is to be told of vm->net: NULL or kind none: nothing. */
    const struct mote_net_params *net;
    const uint8_t *old_mac; /* of its interface; NULL: the first it has */
    void (*note)(void *arg, const char *line); /* or NULL */
    void *note_arg;
};

/*
 * Waits for the monitor and the agent, sends RESTORE, waits until it is done.
 * The machine is ready then, and its name leads others to it. An agent that is
 * older than RESTORE gets the time alone, and a note is made of that.
 * -ECHILD: the monitor ended; -ETIMEDOUT, -ECANCELED as in mote.h.
 */
int lm_restore(struct mote_vm *vm, const struct lm_restore *r, int timeout_ms,
               int cancel_fd, struct mote_err *err) MUST_CHECK;

/* The attributes of a RESTORE; the time is now. 0 or -errno. */
int lm_restore_message(const struct lm_restore *r, const struct lm_net *net,
                       bool by_mac, struct lm_buf *out) MUST_CHECK;

#endif
