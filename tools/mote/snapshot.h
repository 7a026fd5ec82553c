/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_SNAPSHOT_H
#define TOOLS_MOTE_SNAPSHOT_H

/* The commands below `mote snapshot`; cmd_snapshot.c lists them. */

#include "tools/mote/cmd.h"

extern const struct command cmd_snapshot_save;
extern const struct command cmd_snapshot_load;
extern const struct command cmd_snapshot_info;
extern const struct command cmd_snapshot_merge;
extern const struct command cmd_snapshot_verify;

/* What a command takes beside its options. */
struct snapshot_words {
    const char *at[3];
    int count;
    bool rest; /* further words may follow */
    int first; /* the index of those */
};

/*
 * Parses options and operands in any order, up to "--". False as cmd_parse()
 * has -1: *code, which goes in as that of a usage error, is the exit code.
 */
bool snapshot_parse(const struct command *c, int argc, char **argv, void *dst,
                    struct snapshot_words *w, int *code);

#endif
