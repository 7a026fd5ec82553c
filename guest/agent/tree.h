/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All processes that a command started.
 *
 * With cgroup v2 each command has a cgroup, from which nothing escapes by
 * itself. Without, the tree is found in /proc: everything in the command's
 * session, and all descendants of those. What left the session and lost its
 * parent (a daemon) escapes then.
 */
#ifndef GUEST_AGENT_TREE_H
#define GUEST_AGENT_TREE_H

#include <stdbool.h>
#include <sys/types.h>

#include "guest/agent/agent.h"

#define TREE_CGROUPS "/sys/fs/cgroup/mote"

struct tree {
    pid_t pid;     /* the command's process, leader of its session */
    bool reaped;   /* it is gone: its number may be somebody else's */
    int cgroup_fd; /* or -1 */
    uint32_t cgroup_number;
};

/* Makes the directory for the commands' cgroups, TREE_CGROUPS in a guest;
 * agent->cgroup_fd is -1 where there are none. */
void tree_init(struct agent *agent, const char *path);

/* A new cgroup if there are any; pid is filled by the caller. */
void tree_new(struct agent *agent, struct tree *tree);

/* Signals all of it; with SIGKILL, until nothing is left that could fork. */
void tree_signal(struct tree *tree, int signo);

/* Removes the cgroup, or notes it for tree_sweep. */
void tree_release(struct agent *agent, struct tree *tree);

/* Removes cgroups that have become empty. Called after reaping. */
void tree_sweep(struct agent *agent);

#endif
