/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_LAUNCH_H
#define TOOLS_LIBMOTE_LAUNCH_H

/*
 * From parameters to a running monitor process: its configuration file (in
 * Firecracker's format), and the process with just the descriptors it needs.
 * Threads: any. Errors: -errno with `err`.
 */

#include "tools/libmote/cgroup.h"
#include "tools/libmote/net.h"
#include "tools/libmote/spawn.h"

/* -EINVAL if the parameters make no machine. */
int lm_params_check(const struct mote_vm_params *p,
                    struct mote_err *err) MUST_CHECK;

/* The configuration as JSON text for free(); NULL when out of memory. */
char *lm_config_text(const struct mote_vm_params *p, const struct lm_net *net,
                     const char *vsock_path);

#define LM_LAUNCH_MAX_WORDS 32

/* A monitor that is to be started; what it does is in its words. */
struct lm_launch {
    const char *program; /* path of mote-vmm */
    const struct lm_slot *slot;
    const char *const *words; /* its arguments after --id, NULL-terminated */
    int console_fd;           /* becomes 1; -1 = /dev/null */
    int log_fd;               /* becomes 2 */
    const int *fds;           /* these become 3 and on; -1 = /dev/null */
    size_t fd_count;
    bool host_net; /* in a jail: stay in the host's network namespace */
    const struct lm_cgroup *cgroup; /* in a jail: to be in this; NULL: none */
};

/* Starts it as it is; see lm_launch_jailed() for the other way. The
 * descriptors stay the caller's. */
int lm_launch(const struct lm_launch *l, pid_t *out_pid,
              struct mote_err *err) MUST_CHECK;

/* The descriptors of such a process. -E2BIG. */
int lm_launch_fds(const struct lm_launch *l, struct lm_spawn *out) MUST_CHECK;

/* Numbers of the descriptors that every machine's monitor has. */
#define LM_LIFELINE_FD 3
#define LM_NET_FD      4

/* Files in a slot; the first three are in the directory that is shared with
 * the monitor, which is the slot itself unless there is a jail. */
#define LM_API_FILE    "api.sock" /* the monitor's control socket */
#define LM_VSOCK_FILE  "vsock.sock"
#define LM_BASE_FILE   "base" /* id of the snapshot that a diff builds on */
#define LM_SAVE_FILE   "save.lock"
#define LM_EXIT_FILE   "exit.json"
#define LM_CONFIG_FILE "config.json"
#define LM_FORK_FILE   "fork.sock" /* where a monitor waits for a machine */
#define LM_LOG_FILE    "log"
#define LM_INFO_FILE   "vm.json"
#define LM_READY_FILE  "ready"
#define LM_PASST_FILE  "passt.log"

#endif
