/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_OPTIONS_H
#define VMM_OPTIONS_H

/*
 * The command line of mote-vmm. One table drives parsing and --help.
 * Ownership: strings point into argv. Errors: -EINVAL with a line.
 */

#include "vmm/errmsg.h"
#include "vmm/log.h"

#include <stdio.h>

/* The release whose control API and command line are spoken. */
#define OPTIONS_FIRECRACKER "1.17.0"

struct vmm_options {
    const char *config_file;
    const char *api_sock; /* NULL: no control socket */
    const char *metrics_path;
    const char *exit_file;
    const char *log_path;
    const char *fork_from; /* socket to wait at; NULL: no */
    const char *id;
    const char *module; /* NULL: log lines of all source files */
    bool show_level;
    bool show_origin;
    enum log_level level;
    bool level_given;
    int lifeline_fd;   /* -1: none */
    uint64_t start_us; /* CLOCK_MONOTONIC at exec; 0: not given */
    /* CPU time that this process had at its exec, and that its starters
     * spent. */
    uint64_t start_cpu_us;
    uint64_t parent_cpu_us;
    uint64_t max_body; /* bytes of a request's body */
    uint64_t ring0_ns; /* where ring0_given: it need not be measured */
    bool ring0_given;
    uint64_t mmds_limit;  /* bytes of the guest's metadata; 0: max_body */
    const char *metadata; /* a file; NULL: none */
    bool no_api;
    bool no_seccomp;
    bool as_firecracker; /* that is the name we were started under */
    bool boot_timer;
    bool check;
    bool probe;
    bool test_exit;
    bool count_exits;
    uint64_t profile_hz; /* samples of vCPU 0 in a second; 0: none */
    bool help;
    bool version;
    bool snapshot_version;
    const char *describe; /* a state file; NULL: none */
};

int options_parse(int argc, char **argv, struct vmm_options *out,
                  struct errmsg *err) MUST_CHECK;
void options_print_help(FILE *out);

#endif
