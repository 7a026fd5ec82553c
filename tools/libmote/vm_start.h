/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_VM_START_H
#define TOOLS_LIBMOTE_VM_START_H

/*
 * The monitor of a machine, with or without a jail. In a jail the monitor sees
 * the slot's shared directory as /run and its files as descriptors; without
 * one, the paths as they are.
 * Threads: one. Errors: -errno with `err`.
 */

#include "tools/libmote/files.h"
#include "tools/libmote/jail.h"

struct lm_vm_start {
    const struct mote_vm_params *params;
    struct lm_slot *slot;
    const struct lm_net *net;
    int log_fd;
    int lifeline_fd; /* the monitor's end */
    struct lm_jail jail;
    /*
     * NULL, or what gives the text of another configuration than a boot's, for
     * free(). `run` is the shared directory as the monitor sees it,
     * files are opened into `f` unless that is NULL. -errno with `err`.
     */
    int (*config)(void *arg, const char *run, struct lm_files *f,
                  char **out_text, struct mote_err *err);
    void *config_arg;
    bool waits; /* for a machine that is forked into it; then without a jail */
    struct lm_cgroup *cgroup; /* gets what lm_cgroup_remove() is to take away */
    bool jail_chosen;         /* by lm_vm_prepare() */
    /* why there is no jail, where one would have been liked; "" if there is */
    char note[400];
};

/*
 * Before anything is in the slot's shared directory: makes it a directory of
 * its own and decides who the monitor will be, unless there is to be no jail.
 */
int lm_vm_prepare(struct lm_vm_start *s, struct mote_err *err) MUST_CHECK;

/* Hands a socket file in the shared directory over to the monitor. */
int lm_vm_give(const struct lm_vm_start *s, const char *file,
               struct mote_err *err) MUST_CHECK;

/* Starts it; the descriptors stay the caller's. */
int lm_vm_launch(struct lm_vm_start *s, pid_t *out_pid,
                 struct mote_err *err) MUST_CHECK;

#endif
