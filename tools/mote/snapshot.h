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

/*
 * Parses options and operands in any order, up to "--". Exactly `count`
 * operands go to `out`; what follows them begins at the index returned, and is
 * an error unless `rest`. -1 as in cmd_parse().
 */
int snapshot_parse(const struct command *c, int argc, char **argv, void *dst,
                   const char **out, int count, bool rest, int *code);

#endif
