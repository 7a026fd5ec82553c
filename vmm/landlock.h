/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_LANDLOCK_H
#define VMM_LANDLOCK_H

/*
 * Which files a monitor that a guest has taken over could still get at, where
 * the host's kernel has Landlock: the second wall behind the filter of system
 * calls. What is open already stays open. Connecting to a Unix socket by its
 * path is not among the things that Landlock knows.
 *
 * LANDLOCK_CLOSED, without a control socket: nothing can be opened, made or
 * run; the only thing left is to remove files in the directories of sockets
 * that are ours.
 * LANDLOCK_API, with one: its client names files while the guest runs (disks,
 * snapshots), so files can be opened, made and removed, apart from what is
 * below a /proc and a /sys: /proc/self/mem would be a way around "no memory
 * that becomes code". Nothing can be run, and nothing but files made. What
 * comes into being directly in / later is not covered: there is a rule for
 * each of the entries that are there now (in a jail without /proc: for / ).
 *
 * Processes of the host that are not restricted alike cannot be traced, nor
 * their memory be read by /proc, in either case (kernel: ptrace hooks).
 * Errors: -errno. Threads: any; a rule set belongs to one at a time.
 */

#include "vmm/util.h"

enum landlock_role {
    LANDLOCK_CLOSED,
    LANDLOCK_API,
};

/*
 * A rule set as a descriptor. -ENOSYS or -EOPNOTSUPP: this kernel has no
 * Landlock, or it is switched off.
 */
int landlock_new(enum landlock_role role, int *out_fd) MUST_CHECK;

/* Files in the directory of this socket may be removed. */
int landlock_allow_socket(int fd, const char *path) MUST_CHECK;

/*
 * Puts the calling thread, and those that it starts later, under the rules
 * for ever. Needs no_new_privs. `fd` stays the caller's.
 */
int landlock_enforce(int fd) MUST_CHECK;

/* What of a role's rules a kernel of that ABI version (1 and on) knows, as
 * bits LANDLOCK_ACCESS_FS_*. Pure. */
uint64_t landlock_handled_files(enum landlock_role role, int abi);

#endif
