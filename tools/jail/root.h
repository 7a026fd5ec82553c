/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JAIL_ROOT_H
#define JAIL_ROOT_H

/*
 * The jail's directory BASE/NAME/ID/root: made, filled, and taken away again.
 * A lock on BASE/NAME/ID keeps two jails of one id apart.
 * Ownership: the struct owns its descriptors. Errors: -errno with a line.
 */

#include "tools/jail/options.h"
#include "tools/jail/path.h"

#include <sys/types.h>

struct jail_root {
    int base_fd; /* BASE */
    int exec_fd; /* BASE/NAME */
    int id_fd;   /* BASE/NAME/ID; holds the lock */
    int fd;      /* BASE/NAME/ID/root */
    bool made;   /* root did not exist before */
    char path[PATH_OF_ALL];
    struct stat st;
};

#define JAIL_ROOT_NONE                                                         \
    {                                                                          \
        .base_fd = -1, .exec_fd = -1, .id_fd = -1, .fd = -1                    \
    }

/*
 * Opens or makes the directories and takes the lock. *out_made is set as soon
 * as `root` is new. -EBUSY: a jail of this id is in use. Half-built on
 * failure: jail_root_clean() and jail_root_close() take it.
 */
int jail_root_open(struct jail_root *r, const struct jail_options *o,
                   bool *out_made, struct errmsg *err) MUST_CHECK;

/*
 * Puts in what the monitor needs: the program as a copy of `exec_fd`, dev, run.
 * `chown`: it all belongs to the monitor's user, and is so for us to give.
 */
int jail_root_fill(struct jail_root *r, const struct jail_options *o,
                   int exec_fd, bool chown, struct errmsg *err) MUST_CHECK;

/* Writes NAME.pid. */
int jail_root_write_pid(const struct jail_root *r, const struct jail_options *o,
                        pid_t pid, struct errmsg *err) MUST_CHECK;

/*
 * Takes away what the jail left (README.md says what stays) and the empty
 * directories. The jail's processes are gone. Returns how many things could
 * not be removed or hold data that is kept.
 */
unsigned jail_root_clean(struct jail_root *r, const struct jail_options *o);

/* Idempotent. */
void jail_root_close(struct jail_root *r);

#endif
