/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_VM_END_H
#define TOOLS_LIBMOTE_VM_END_H

/*
 * Why a monitor ended, in words: from its exit status, its exit file and the
 * last line of its log. No state; errors are told as "unknown".
 */

#include "tools/libmote/rundir.h"

#include <signal.h>

/*
 * `status` is that of waitid(). `log_fd` is the log of the slot, -1 if the
 * user has seen the log already.
 */
void lm_end_describe(const struct lm_slot *slot, const siginfo_t *status,
                     int log_fd, struct mote_vm_end *out);

/* "; what to do about it" for an end before the guest was ready, or "". */
const char *lm_end_hint(const struct mote_vm_end *end, bool log_was_shown);

/*
 * The last line of a log, without time stamp, level and program name; "" if
 * there is none. Control characters are replaced.
 */
void lm_last_log_line(int log_fd, char *out, size_t cap);

#endif
