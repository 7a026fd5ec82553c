/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JAIL_JAIL_H
#define JAIL_JAIL_H

/*
 * What the three processes of a jail share (README.md): the caller's child
 * that waits, the keeper that builds and takes down, the monitor.
 */

#include "tools/jail/cgroup.h"
#include "tools/jail/options.h"
#include "tools/jail/root.h"

/* In memory that both mote-jail processes see: if the keeper is killed, the
 * other one takes the jail down. */
struct jail_shared {
    bool root_made;
    pid_t pid; /* of the monitor; 0: none */
    struct cgroup_plan plan;
};

struct jail {
    struct jail_options o;
    bool user_ns;      /* without root: the monitor is root of nothing */
    bool bind_devices; /* nodes cannot be made here */
    uid_t outer_uid;
    gid_t outer_gid;
    uint64_t start_us; /* CLOCK_MONOTONIC at our start */
    uint64_t start_cpu_us;
    uint64_t parent_cpu_us; /* what the jail's start has cost so far */
    int exec_fd;
    int netns_fd; /* -1: none */
    struct jail_root root;
    struct jail_shared *shared;
};

/* Processor time of this process. */
uint64_t jail_cpu_us(void);

/* Prints one line: `mote-jail: TEXT`. */
void jail_say(const char *fmt, ...) PRINTF_LIKE(1, 2);

#endif
