/* SPDX-License-Identifier: Apache-2.0 */
/* `mote snapshot load`: as `mote run`, but for where the machine comes from. */
#include "tools/mote/snapshot.h"

#include "tools/mote/exec_opts.h"
#include "tools/mote/machine.h"
#include "tools/mote/net_opts.h"
#include "tools/mote/ui.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <stdio.h>
#include <string.h>

#define LOAD_MAX_DISKS 64

struct load_opts {
    const char *name;
    const char *net;
    struct opt_list disks;
    bool track_writes;
    bool verify;
    bool ignore_cpu;
    const char *jail;
    bool console;
    struct exec_opts exec;
};

static const struct opt_def load_defs[] = {
    {"name", 'n', OPT_TEXT, offsetof(struct load_opts, name), "NAME",
     "name for `mote exec` and others; also the guest's host name", "none", 0,
     0},
    {"net", 0, OPT_TEXT, offsetof(struct load_opts, net), "MODE",
     "another network: user (passt) or tap=NAME[,ip=A/BITS][,gw=A][,dns=A]",
     "as saved", 0, 0},
    {"disk", 'd', OPT_LIST, offsetof(struct load_opts, disks), "ID=FILE",
     "FILE in the place of drive ID, changed in place if that can be written; "
     "may be repeated",
     "as saved", 0, 0},
    {"track-writes", 0, OPT_FLAG, offsetof(struct load_opts, track_writes),
     NULL,
     "note which memory is written, so that `mote snapshot save --diff` can "
     "leave out the rest",
     NULL, 0, 0},
    {"verify", 0, OPT_FLAG, offsetof(struct load_opts, verify), NULL,
     "read all of the memory against its checksums first", NULL, 0, 0},
    {"ignore-cpu", 0, OPT_FLAG, offsetof(struct load_opts, ignore_cpu), NULL,
     "load also where this host's CPU lacks features that the guest knows",
     NULL, 0, 0},
    {"jail", 0, OPT_TEXT, offsetof(struct load_opts, jail), "WHEN",
     "monitor in a jail: auto (where this host allows it), on or off", "auto",
     0, 0},
    {"console", 0, OPT_FLAG, offsetof(struct load_opts, console), NULL,
     "show the guest's console on standard error", NULL, 0, 0},
    EXEC_OPTS_ROWS(offsetof(struct load_opts, exec)),
};

static const struct opt_table load_table = {
    .usage = "snapshot load [options] DIR [-- COMMAND [ARG...]]",
    .summary = "start a machine out of a snapshot",
    .defs = load_defs,
    .count = ARRAY_SIZE(load_defs),
    .notes =
        "With COMMAND it ends with that, and the exit code is as of `mote\n"
        "run`. Without, its name or id is printed when it is ready, and it\n"
        "stays until `mote stop` or a signal ends it.\n"
        "The guest gets this host's time, random state, boot id and addresses\n"
        "of its own, and runs the programs of its /etc/mote/restore.d before\n"
        "anything else. Disks that it can write are copies that go with it.\n",
};

static void load_note(void *arg, const char *line)
{
    (void)arg;
    ui_error("%s", line);
}

/* "vdb=FILE"; the words stay in argv, cut. */
static int load_disks(const struct load_opts *o, char *const *copies,
                      struct mote_load_disk *out, struct mote_err *err)
{
    for (size_t i = 0; i < o->disks.count; i++) {
        char *eq = copies[i] ? strchr(copies[i], '=') : NULL;

        if (!copies[i])
            return lm_err_nomem(err);
        if (!eq || eq == copies[i] || !eq[1])
            return lm_err(err, -EINVAL,
                          "option --disk %s: is not ID=FILE, such as "
                          "vdb=data.img",
                          copies[i]);
        *eq = '\0';
        out[i].id = copies[i];
        out[i].path = eq + 1;
    }
    return 0;
}

struct load_plan {
    char *copies[LOAD_MAX_DISKS];
    struct mote_load_disk disks[LOAD_MAX_DISKS];
    struct net_opts net_text;
    struct mote_net_params net;
    struct mote_load_params params;
};

static int load_make_plan(const struct load_opts *o, const char *dir,
                          struct load_plan *p, struct mote_err *err)
{
    int rc = o->name ? mote_name_check(o->name, err) : 0;

    if (rc == 0 && o->disks.count > LOAD_MAX_DISKS)
        rc = lm_err(err, -EINVAL, "option --disk: at most %d times",
                    LOAD_MAX_DISKS);
    for (size_t i = 0; rc == 0 && i < o->disks.count; i++)
        p->copies[i] = strdup(o->disks.items[i]);
    if (rc == 0)
        rc = load_disks(o, p->copies, p->disks, err);
    if (rc == 0 && o->net)
        rc = net_opts_parse(o->net, &p->net_text, &p->net, err);
    p->params = (struct mote_load_params){
        .dir = dir,
        .name = o->name,
        .net = o->net ? &p->net : NULL,
        .disks = p->disks,
        .disk_count = o->disks.count,
        .track_writes = o->track_writes,
        .verify = o->verify,
        .ignore_cpu = o->ignore_cpu,
        .console_fd = o->console ? STDERR_FILENO : -1,
        .log_fd = o->exec.verbose ? STDERR_FILENO : -1,
        .note = load_note,
    };
    return rc ? rc : machine_jail(o->jail, &p->params.jail, err);
}

/* From a machine that is ready to the exit code. */
static int load_use(struct mote_vm *vm, struct load_opts *o,
                    const struct mote_exec_params *exec, int signal_fd)
{
    bool writable = o->disks.count > 0; /* the others are thrown away */
    struct session_result r = {0};
    struct mote_vm_times t;
    int code;

    machine_tell_jail(vm);
    if (!exec) {
        (void)printf("%s\n", o->name ? o->name : mote_vm_id(vm));
        return ui_finish(0) ? EXIT_MOTE_FAILED
                            : machine_stay(vm, writable, signal_fd);
    }
    code = machine_command(vm, exec, writable, signal_fd, &r);
    mote_vm_times(vm, &t);
    if (o->exec.verbose && r.end)
        ui_error("load %.1f ms, command %.0f ms", t.start_to_ready_ms,
                 r.command_ms);
    return code;
}

static int load_run(struct load_opts *o, const char *dir,
                    const struct mote_exec_params *exec)
{
    CLEANUP_FD int signal_fd = signals_open();
    struct load_plan plan = {0};
    struct mote_err err = {0};
    struct mote_vm *vm = NULL;
    int code = EXIT_MOTE_FAILED;
    int rc = load_make_plan(o, dir, &plan, &err);

    if (rc == 0)
        rc = mote_vm_load(&plan.params, exec_opts_boot_ms(&o->exec), signal_fd,
                          &vm, &err);
    if (rc == -ECANCELED)
        code = 128 + signals_next(signal_fd);
    else if (rc)
        ui_fail(&err, false);
    else
        code = load_use(vm, o, exec, signal_fd);
    mote_vm_free(vm);
    for (size_t i = 0; i < ARRAY_SIZE(plan.copies); i++)
        free(plan.copies[i]);
    return code;
}

static int load_main(const struct cli *cli, int argc, char **argv)
{
    struct load_opts o = {.exec = EXEC_OPTS_DEFAULT};
    struct mote_exec_params exec;
    struct mote_err err = {0};
    struct snapshot_words w = {.count = 1, .rest = true};
    int code = EXIT_MOTE_FAILED;

    if (!snapshot_parse(&cmd_snapshot_load, argc, argv, &o, &w, &code))
        return code;
    if (exec_opts_make(&o.exec, cli, argc, argv, w.first, &exec)) {
        (void)lm_err_nomem(&err);
        ui_fail(&err, false);
    } else {
        code = load_run(&o, w.at[0], w.first < argc ? &exec : NULL);
    }
    exec_opts_free(&o.exec);
    opts_free(&load_table, &o);
    return code;
}

const struct command cmd_snapshot_load = {"snapshot load", &load_table,
                                          load_main};
