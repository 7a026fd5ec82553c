/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/cmd.h"

#include "tools/mote/ui.h"

#include <limits.h>

struct stop_opts {
    uint64_t timeout_ms;
    bool force;
    bool json;
};

static const struct opt_def stop_defs[] = {
    {"timeout", 't', OPT_DURATION, offsetof(struct stop_opts, timeout_ms),
     "TIME", "kill what has not ended by itself by then", "20s", 0, 0},
    {"force", 'f', OPT_FLAG, offsetof(struct stop_opts, force), NULL,
     "kill at once; what disks had not yet stored is lost", NULL, 0, 0},
    {"json", 0, OPT_FLAG, offsetof(struct stop_opts, json), NULL,
     "tell errors as JSON", NULL, 0, 0},
};

static const struct opt_table stop_table = {
    .usage = "stop [options] NAME...",
    .summary = "end running machines",
    .defs = stop_defs,
    .count = ARRAY_SIZE(stop_defs),
    .notes = "NAME is a name or an id of `mote ls`. A machine with writable\n"
             "disks is asked to write them back first.\n",
};

static int stop_one(const char *name, const struct stop_opts *o)
{
    uint64_t ms = o->force ? 0 : min_u64(o->timeout_ms, INT_MAX);
    struct mote_vm_info info;
    struct mote_err err = {0};
    int rc = mote_find(name, &info, &err);

    if (!rc)
        rc = mote_stop(&info, (int)ms, &err);
    if (rc == -ESRCH)
        rc = 0; /* it ended by itself meanwhile: that is what was asked for */
    if (rc)
        ui_fail(&err, o->json);
    return rc ? 1 : 0;
}

static int stop_main(const struct cli *cli, int argc, char **argv)
{
    struct stop_opts o = {.timeout_ms = 20000};
    int code = EXIT_USAGE;
    int first = cmd_parse(&cmd_stop, argc, argv, &o, &code);

    (void)cli;
    if (first < 0)
        return code;
    if (first >= argc) {
        ui_error("stop: NAME is missing; `mote ls` lists the machines");
        return EXIT_USAGE;
    }
    code = 0;
    for (int i = first; i < argc; i++)
        code |= stop_one(argv[i], &o);
    return code;
}

const struct command cmd_stop = {"stop", &stop_table, stop_main};
