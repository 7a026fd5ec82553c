/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_LAUNCH_H
#define TOOLS_LIBMOTE_LAUNCH_H

/*
 * From parameters to a running monitor process: its configuration file (in
 * Firecracker's format), and the process with just the descriptors it needs.
 * Threads: any. Errors: -errno with `err`.
 */

#include "tools/libmote/net.h"

/* -EINVAL if the parameters make no machine. */
int lm_params_check(const struct mote_vm_params *p,
                    struct mote_err *err) MUST_CHECK;

/* The configuration as JSON text for free(); NULL when out of memory. */
char *lm_config_text(const struct mote_vm_params *p, const struct lm_net *net,
                     const char *vsock_path);

struct lm_launch {
    const char *program; /* path of mote-vmm */
    const struct lm_slot *slot;
    int console_fd;        /* becomes 1; -1 = /dev/null */
    int log_fd;            /* becomes 2 */
    int lifeline_fd;       /* becomes 3; its end of file ends the monitor */
    int net_fd;            /* becomes 4; -1 = none */
    const char *log_level; /* or NULL */
};

/*
 * Starts the monitor in a session of its own, with default signals and a
 * small environment: what the guest may one day reach holds no secret of the
 * caller's environment. The descriptors stay the caller's.
 */
int lm_launch(const struct lm_launch *l, pid_t *out_pid,
              struct mote_err *err) MUST_CHECK;

/*
 * A copy of a NULL-terminated list of words that posix_spawn() takes, in one
 * block for free(); NULL when out of memory.
 */
char **lm_words_copy(const char *const *words);

/* Files in a slot. */
#define LM_API_FILE    "api.sock" /* the monitor's control socket */
#define LM_CONFIG_FILE "config.json"
#define LM_EXIT_FILE   "exit.json"
#define LM_LOG_FILE    "log"
#define LM_INFO_FILE   "vm.json"
#define LM_READY_FILE  "ready"
#define LM_PASST_FILE  "passt.log"
#define LM_VSOCK_FILE  "vsock.sock"

#endif
