/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_EXEC_OPTS_H
#define TOOLS_MOTE_EXEC_OPTS_H

/* The options that `run` and `exec` share: how the command is run. */

#include "tools/libmote/opts.h"
#include "tools/mote/cmd.h"

struct exec_opts {
    struct opt_list env; /* NAME=VALUE or NAME */
    const char *workdir;
    const char *user;
    uint64_t timeout_ms;
    uint64_t boot_timeout_ms;
    bool tty;
    bool verbose;
    /* Not from the command line: */
    char **env_made; /* NULL-terminated; each string is ours */
};

#define EXEC_OPTS_DEFAULT                                                      \
    {                                                                          \
        .boot_timeout_ms = 120000                                              \
    }

/* The rows of an option table; `at` is the offset of a struct exec_opts. */
#define EXEC_OPTS_ROWS(at)                                                     \
    {"env",                                                                    \
     'e',                                                                      \
     OPT_LIST,                                                                 \
     (at) + offsetof(struct exec_opts, env),                                   \
     "NAME[=VALUE]",                                                           \
     "environment variable; NAME alone takes mote's own value",                \
     NULL,                                                                     \
     0,                                                                        \
     0},                                                                       \
        {"workdir", 'w',                                                       \
         OPT_TEXT,  (at) + offsetof(struct exec_opts, workdir),                \
         "DIR",     "working directory in the guest",                          \
         "/",       0,                                                         \
         0},                                                                   \
        {"user",                                                               \
         'u',                                                                  \
         OPT_TEXT,                                                             \
         (at) + offsetof(struct exec_opts, user),                              \
         "USER[:GROUP]",                                                       \
         "names or numbers from the guest",                                    \
         "root",                                                               \
         0,                                                                    \
         0},                                                                   \
        {"timeout",                                                            \
         0,                                                                    \
         OPT_DURATION,                                                         \
         (at) + offsetof(struct exec_opts, timeout_ms),                        \
         "TIME",                                                               \
         "end the command and its children after TIME",                        \
         "none",                                                               \
         0,                                                                    \
         0},                                                                   \
        {"tty",    't',                                                        \
         OPT_FLAG, (at) + offsetof(struct exec_opts, tty),                     \
         NULL,     "give the command a terminal",                              \
         NULL,     0,                                                          \
         0},                                                                   \
        {"boot-timeout",                                                       \
         0,                                                                    \
         OPT_DURATION,                                                         \
         (at) + offsetof(struct exec_opts, boot_timeout_ms),                   \
         "TIME",                                                               \
         "give up if the guest is not ready by then; 0 waits",                 \
         "2m",                                                                 \
         0,                                                                    \
         0},                                                                   \
    {                                                                          \
        "verbose", 'v', OPT_FLAG, (at) + offsetof(struct exec_opts, verbose),  \
            NULL, "tell timings and show the monitor's log", NULL, 0, 0        \
    }

/*
 * Makes the parameters of a command from options and operands (`words` may be
 * empty: then it is /bin/sh, with a terminal if we have one). Values given
 * with --env are wiped from `argv`, where every user of the host sees them.
 * What *out points to lives until exec_opts_free(). 0 or -ENOMEM.
 */
int exec_opts_make(struct exec_opts *o, const struct cli *cli, int argc,
                   char **argv, int first, struct mote_exec_params *out);
void exec_opts_free(struct exec_opts *o);

/* The time limit of a boot for mote_vm_wait_ready(). */
int exec_opts_boot_ms(const struct exec_opts *o);

#endif
