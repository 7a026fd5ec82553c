/* SPDX-License-Identifier: Apache-2.0 */
/* `mote bench`: the list of its benches. */
#include "tools/mote/bench.h"

#include "tools/mote/ui.h"

#include <string.h>

static const struct opt_table bench_table = {
    .usage = "bench NAME [options]",
    .summary = "measure this installation",
    .notes = "start    exec of a monitor to its first answer; no guest runs\n"
             "restore  a snapshot to guest code, user space, first command\n"
             "fork     copies of a running machine: stop, readiness, memory\n"
             "boot     boots by phases, beside other monitors\n"
             "exits    what a booting guest leaves KVM for\n"
             "profile  where a booting kernel spends its time\n"
             "density  what many idle machines cost\n"
             "`mote bench NAME --help` lists the options of each. The figures\n"
             "judge nothing; where there is a bar it is printed beside them.\n",
};

static const struct command *const bench_all[] = {
    &cmd_bench_start, &cmd_bench_restore, &cmd_bench_fork,    &cmd_bench_boot,
    &cmd_bench_exits, &cmd_bench_profile, &cmd_bench_density, NULL};

static int bench_main(const struct cli *cli, int argc, char **argv)
{
    int code = EXIT_USAGE;
    int first;

    for (size_t i = 0; argc > 1 && bench_all[i]; i++) {
        if (!strcmp(argv[1], bench_all[i]->name + strlen("bench ")))
            return bench_all[i]->run(cli, argc - 1, argv + 1);
    }
    first = cmd_parse(&cmd_bench, argc, argv, NULL, &code);
    if (first < 0)
        return code;
    ui_error("bench%s%s: one of: start, restore, fork, boot, exits, profile, "
             "density; `mote "
             "bench --help` explains them",
             first < argc ? " " : "", first < argc ? argv[first] : "");
    return EXIT_USAGE;
}

const struct command cmd_bench = {"bench", &bench_table, bench_main};
