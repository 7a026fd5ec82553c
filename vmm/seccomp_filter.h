/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_SECCOMP_FILTER_H
#define VMM_SECCOMP_FILTER_H

/*
 * What a monitor that a guest has taken over could still ask of the kernel: the
 * system calls of seccomp_rules.h and no others. Each thread installs the
 * filter of its role before the guest runs.
 *
 * A call that is not allowed ends the process with SECCOMP_EXIT_CODE, after one
 * log line that names thread and call.
 */

#include "vmm/util.h"

#define SECCOMP_EXIT_CODE 148

enum seccomp_role {
    SECCOMP_LOOP,
    SECCOMP_LOOP_API, /* the loop, with a control socket */
    SECCOMP_VCPU,
};

/*
 * Once per process, before any filter: where the line goes (the descriptor
 * stays the caller's and open), and the signal handler that writes it. Also
 * gives up for good whatever an exec could bring (no_new_privs).
 */
int seccomp_prepare(int log_fd) MUST_CHECK;

/* Where a violation leaves a line of metrics with seccomp.num_faults = 1; -1,
 * as at first: nowhere. Before any filter; stays the caller's and open. */
void seccomp_tell_metrics(int fd);

/*
 * For the calling thread, for ever. `label` names it in the log line; borrowed,
 * lives as long as the thread. -errno where the host's kernel has no filters.
 */
int seccomp_install(enum seccomp_role role, const char *label) MUST_CHECK;

#endif
