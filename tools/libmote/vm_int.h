/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_VM_INT_H
#define TOOLS_LIBMOTE_VM_INT_H

/*
 * What a machine is to the library's own files: vm.c boots one, vm_load.c
 * loads one, restore.c makes a loaded one its own.
 */

#include "tools/libmote/chan.h"
#include "tools/libmote/launch.h"
#include "tools/libmote/snapdir.h"
#include "tools/libmote/vm_start.h"

#include <signal.h>
#include <sys/un.h>

struct mote_vm {
    struct lm_rundir rundir;
    struct lm_slot slot;
    struct sockaddr_un vsock;
    pid_t pid; /* of the monitor; 0 = none started */
    int pidfd;
    int lifeline_fd; /* held open; never written */
    int log_fd;      /* ours, or -1 if the caller has the log */
    int listen_fd;   /* where the agent reports */
    char *jail_note; /* or NULL */
    struct lm_cgroup cgroup;
    struct lm_net net;
    struct mote_net_params net_params; /* its strings are in net_text */
    char *net_text[3];
    struct lm_chan report;
    bool ready;
    bool shared_owner; /* the process has others, which it keeps */
    bool reaped;
    siginfo_t status; /* once reaped */
    uint64_t start_ns;
    uint64_t answered_ns; /* its agent's first word after lm_restore() began */
    struct mote_vm_times times;
    /* Copies of disks without a name: they go with us, however we end. */
    int disk_fds[SNAPDIR_MAX_DISKS];
    size_t disk_fd_count;
};

/* With a slot, a name (or NULL), and nothing else; mote_vm_free() is due. */
int lm_vm_new(const char *name, struct mote_vm **out,
              struct mote_err *err) MUST_CHECK;
/* Everything up to the monitor's process; of `s` params and config are given.
 * vm->vsock is where its agent is found. */
int lm_vm_start(struct mote_vm *vm, struct lm_vm_start *s,
                struct mote_err *err) MUST_CHECK;
/* The monitor's end, which came too early, in words; -ECHILD. */
int lm_vm_ended_early(struct mote_vm *vm, struct mote_err *err);

#endif
