/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_BENCH_H
#define TOOLS_MOTE_BENCH_H

/* The benches of `mote bench`; a new one is a file and a line in cmd_bench.c.
 */

#include "tools/mote/cmd.h"

extern const struct command cmd_bench_start;
extern const struct command cmd_bench_restore;
extern const struct command cmd_bench_fork;
extern const struct command cmd_bench_boot;
extern const struct command cmd_bench_exits;
extern const struct command cmd_bench_profile;
extern const struct command cmd_bench_density;

#endif
