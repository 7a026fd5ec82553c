/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JAIL_OPTIONS_H
#define JAIL_OPTIONS_H

/*
 * The command line of mote-jail: the flags of Firecracker's jailer, and a few
 * of ours. One table drives parsing and --help. Pure: looks at no file.
 * Ownership: strings point into argv. Errors: -errno with a line.
 */

#include "vmm/errmsg.h"

#include <stdio.h>

#define JAIL_MAX_CGROUPS 32
#define JAIL_MAX_FDS     64
#define JAIL_BASE_DIR    "/srv/jailer"
#define JAIL_ID_MAX      64
#define JAIL_MAX_BINDS   16
#define JAIL_NO_FILE     2048 /* open files, where nothing else is asked for */

/* One --cgroup FILE=VALUE. */
struct jail_cgroup {
    const char *file;
    size_t file_len;
    size_t controller_len; /* bytes of file before its first dot */
    const char *value;
};

/* One --bind SOURCE:TARGET[:rw]. */
struct jail_bind {
    const char *source;
    size_t source_len;
    const char *target; /* begins with / */
    size_t target_len;
    bool writable;
};

struct jail_options {
    const char *id;
    const char *exec_file;
    const char *exec_name; /* last component of exec_file */
    const char *base_dir;
    const char *netns;         /* NULL: stay */
    const char *parent_cgroup; /* NULL: exec_name, if there is any cgroup */
    uint32_t uid;
    uint32_t gid;
    bool uid_given;
    bool gid_given;
    int cgroup_version; /* 0: not said */
    struct jail_cgroup cgroups[JAIL_MAX_CGROUPS];
    size_t cgroup_count;
    bool fsize_given;
    uint64_t fsize_bytes;
    bool no_file_given;
    uint64_t no_file;
    int fds[JAIL_MAX_FDS]; /* handed to the monitor under the same number */
    size_t fd_count;
    const char *in_place; /* directory that is /run then; NULL: a keeper */
    int report_fd;        /* -1: none */
    struct jail_bind binds[JAIL_MAX_BINDS];
    size_t bind_count;
    bool daemonize;
    bool new_pid_ns;
    bool new_net_ns;
    bool purge;
    bool help;
    bool version;
    char *const *rest; /* the monitor's arguments */
    size_t rest_count;
};

/* -EINVAL or -E2BIG, with the flag's name and what would be right. */
int jail_options_parse(int argc, char *const *argv, struct jail_options *out,
                       struct errmsg *err) MUST_CHECK;

/* `NAME.REST=VALUE` of one --cgroup. */
int jail_cgroup_parse(const char *text, struct jail_cgroup *out,
                      struct errmsg *err) MUST_CHECK;

/* `SOURCE:TARGET` or `SOURCE:TARGET:rw` of one --bind. */
int jail_bind_parse(const char *text, struct jail_bind *out,
                    struct errmsg *err) MUST_CHECK;

/* `fsize=BYTES` or `no-file=N`. */
int jail_limit_parse(const char *text, struct jail_options *out,
                     struct errmsg *err) MUST_CHECK;

void jail_options_print_help(FILE *out);

#endif
