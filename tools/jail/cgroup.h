/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JAIL_CGROUP_H
#define JAIL_CGROUP_H

/*
 * The VM's cgroups: where they go (pure), made, joined, removed.
 * Ownership: plain data; may lie in shared memory. Errors: -errno with a line.
 */

#include "tools/jail/options.h"

#include <sys/types.h>

#define CGROUP_MAX_PLACES 16
#define CGROUP_PATH_MAX   512
#define CGROUP_NAME_MAX   1400 /* PARENT/ID, or NAME/ID */

/* One hierarchy in which the VM has a place. */
struct cgroup_place {
    char mount[CGROUP_PATH_MAX];
    bool v2;
    bool cpuset; /* v1: a new group has no CPU until it is given some */
    bool tried;  /* directories may exist */
};

struct cgroup_plan {
    char name[CGROUP_NAME_MAX]; /* below each mount; empty: none */
    bool own_group;             /* its last component is the VM's alone */
    struct cgroup_place places[CGROUP_MAX_PLACES];
    size_t count;
    size_t place_of[JAIL_MAX_CGROUPS]; /* of each --cgroup */
};

/*
 * Finds the hierarchies that the options need in the text of
 * /proc/self/mountinfo. -ENOENT: one is not mounted.
 */
int cgroup_plan(const struct jail_options *o, const char *mountinfo,
                struct cgroup_plan *out, struct errmsg *err) MUST_CHECK;

/* Makes the groups and writes the values. Half done on failure. */
int cgroup_make(const struct jail_options *o, struct cgroup_plan *p,
                struct errmsg *err) MUST_CHECK;

/* Moves process `pid` into all of them. */
int cgroup_join(const struct cgroup_plan *p, pid_t pid,
                struct errmsg *err) MUST_CHECK;

/*
 * Removes the VM's groups, and parents that are ours and empty. Waits up to
 * two seconds for processes that are on their way out. Returns how many stay.
 */
unsigned cgroup_remove(struct cgroup_plan *p);

#endif
