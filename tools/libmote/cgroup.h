/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_CGROUP_H
#define TOOLS_LIBMOTE_CGROUP_H

/*
 * A control group for each machine of root: mote/ID in the unified hierarchy,
 * or in those of memory and pids where they are of version 1. It bounds what a
 * monitor that was taken over can use up. As far as the host has it: a host
 * without is no error (`mote doctor` says what there is).
 * Threads: any. Ownership: plain data.
 */

#include "tools/libmote/err.h"

#define LM_CGROUP_MAX  2
#define LM_CGROUP_PATH 160

struct lm_cgroup {
    char dirs[LM_CGROUP_MAX][LM_CGROUP_PATH];
    size_t count; /* 0: none */
};

/* A group for machine `id`: its memory and some for the monitor and the page
 * cache, as many tasks as vCPUs and some for the kernel's workers. */
void lm_cgroup_make(const char *id, uint64_t mem_bytes, unsigned vcpus,
                    struct lm_cgroup *out);

/* Moves process `pid` into it. */
int lm_cgroup_add(const struct lm_cgroup *g, pid_t pid) MUST_CHECK;

/* Once it is empty; waits a moment for the kernel to see that. Idempotent. */
void lm_cgroup_remove(struct lm_cgroup *g);

/* Removes the group of a machine whose owner is gone. */
void lm_cgroup_sweep(const char *id);

#endif
