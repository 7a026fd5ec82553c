/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JAIL_ENTER_MOUNTS_H
#define JAIL_ENTER_MOUNTS_H

/*
 * The mounts of the jail: its directory becomes "/", the host's tree is gone,
 * /dev holds the few devices. In a fresh mount namespace, with CAP_SYS_ADMIN
 * over it. Errors: -errno with a line; the process is then of no use.
 */

#include "tools/jail/jail.h"

int enter_mounts(const struct jail *j, struct errmsg *err) MUST_CHECK;

/* The same with a root in memory that nobody can write to: the program, the
 * devices, /run, and what --bind asks for. It is gone with the process. */
int enter_mounts_in_memory(const struct jail *j, struct errmsg *err) MUST_CHECK;

#endif
