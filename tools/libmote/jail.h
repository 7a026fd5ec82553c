/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_JAIL_H
#define TOOLS_LIBMOTE_JAIL_H

/*
 * Starts a monitor by `mote-jail --in-place`: in a root of memory with
 * nothing but devices, the program and the slot's shared directory as /run.
 * Where the caller is root the monitor gets a user of its own, else it is the
 * caller in a user namespace.
 *
 * Whatever keeps a host from it is an error here; what to make of that is the
 * caller's business. Threads: any. Errors: -errno with `err`.
 */

#include "tools/libmote/launch.h"

struct lm_jail {
    uint32_t uid; /* of the monitor; 0: the caller's, in a user namespace */
    uint32_t gid;
};

/*
 * Whom the monitor is to be: for root a user that nobody else is, or the one
 * whom TAP `tap` (NULL: none) belongs to. -EPERM: that is root.
 */
int lm_jail_choose(const char *tap, struct lm_jail *out,
                   struct mote_err *err) MUST_CHECK;

/* Gives `path` below dir_fd to the monitor. */
int lm_jail_give(const struct lm_jail *j, int dir_fd, const char *path,
                 struct mote_err *err) MUST_CHECK;

/*
 * As lm_launch(); returns once the monitor's program runs, or with the reason
 * why it does not. Costs a few milliseconds.
 */
int lm_launch_jailed(const struct lm_launch *l, const struct lm_jail *j,
                     pid_t *out_pid, struct mote_err *err) MUST_CHECK;

/*
 * Time of an instruction of a guest's kernel in nanoseconds, as the monitor
 * `program` has found out: a jail has no place to keep that. -ENODATA.
 */
int lm_jail_ring0(const char *program, unsigned *out_ns) MUST_CHECK;

#endif
