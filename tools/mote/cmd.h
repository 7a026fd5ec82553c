/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_CMD_H
#define TOOLS_MOTE_CMD_H

/*
 * The commands of `mote`. Each is one file cmd_NAME.c with its option table;
 * main.c lists them. A new command is a file and a line there.
 */

#include "tools/libmote/opts.h"
#include "tools/mote/term.h"

struct cli {
    enum input_kind input; /* what standard input is */
};

struct command {
    const char *name;
    const struct opt_table *table;
    /* argv[0] is the command's name. Returns the exit code of the process. */
    int (*run)(const struct cli *cli, int argc, char **argv);
};

extern const struct command cmd_run;
extern const struct command cmd_exec;
extern const struct command cmd_ls;
extern const struct command cmd_stop;
extern const struct command cmd_disk;
extern const struct command cmd_snapshot;
extern const struct command cmd_fork;
extern const struct command cmd_doctor;
extern const struct command cmd_bench;
extern const struct command cmd_version;
extern const struct command cmd_help;

/* All commands, in the order of the help; NULL-terminated. */
extern const struct command *const cmd_all[];

/*
 * Parses the options of `c` into `dst` and returns the index of the first
 * operand. -1: help or a usage error was printed, and *code, which goes in
 * as the exit code of a usage error, is the exit code.
 */
int cmd_parse(const struct command *c, int argc, char *const *argv, void *dst,
              int *code);

#endif
