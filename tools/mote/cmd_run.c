/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/cmd.h"

#include "tools/mote/exec_opts.h"
#include "tools/mote/machine.h"
#include "tools/mote/net_opts.h"
#include "tools/mote/ui.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <stdio.h>
#include <string.h>

#define RUN_MAX_DISKS 26
#define RUN_MAX_CPUS  32
#define RUN_MEM_LO    (32 * MIB)
#define RUN_MEM_HI    (1024 * GIB)
#define RUN_ARGS_CAP  2048 /* of a kernel command line */

struct run_opts {
    uint64_t cpus;
    uint64_t mem_bytes;
    const char *kernel;
    const char *initrd;
    const char *root;
    const char *boot_args;
    const char *name;
    const char *net;
    const char *jail;
    struct opt_list disks;
    bool console;
    bool track_writes;
    struct exec_opts exec;
};

static const struct opt_def run_defs[] = {
    {"cpus", 'c', OPT_NUMBER, offsetof(struct run_opts, cpus), "N",
     "virtual CPUs", "1", 1, RUN_MAX_CPUS},
    {"mem", 'm', OPT_SIZE, offsetof(struct run_opts, mem_bytes), "SIZE",
     "memory of the guest, such as 512M or 2G", "512M", RUN_MEM_LO, RUN_MEM_HI},
    {"kernel", 'k', OPT_TEXT, offsetof(struct run_opts, kernel), "KERNEL",
     "guest kernel: tiny, sandbox or a file", "sandbox", 0, 0},
    {"initrd", 0, OPT_TEXT, offsetof(struct run_opts, initrd), "FILE",
     "initial ramdisk with the agent", "mote's own", 0, 0},
    {"root", 0, OPT_TEXT, offsetof(struct run_opts, root), "FILE[:rw][:cow]",
     "root disk; changes stay in memory unless :rw; cow: made by `mote disk "
     "create`; none = no disk",
     "mote's own", 0, 0},
    {"disk", 'd', OPT_LIST, offsetof(struct run_opts, disks),
     "FILE[:ro][:cow][:direct][:unsafe]",
     "further disk, in order vdb, vdc, ...; may be repeated. cow: made by "
     "`mote disk create`; direct: without the host's page cache; unsafe: never "
     "synced",
     NULL, 0, 0},
    {"net", 0, OPT_TEXT, offsetof(struct run_opts, net), "MODE",
     "network: none, user (passt) or tap=NAME[,ip=A/BITS][,gw=A][,dns=A]",
     "none", 0, 0},
    {"jail", 0, OPT_TEXT, offsetof(struct run_opts, jail), "WHEN",
     "monitor in a jail: auto (where this host allows it), on or off",
     "$MOTE_JAIL, else auto", 0, 0},
    {"boot-args", 0, OPT_TEXT, offsetof(struct run_opts, boot_args), "WORDS",
     "further words for the kernel command line", NULL, 0, 0},
    {"name", 'n', OPT_TEXT, offsetof(struct run_opts, name), "NAME",
     "name for mote exec, ls and stop", NULL, 0, 0},
    {"console", 0, OPT_FLAG, offsetof(struct run_opts, console), NULL,
     "show the guest's console on standard error; slow", NULL, 0, 0},
    {"track-writes", 0, OPT_FLAG, offsetof(struct run_opts, track_writes), NULL,
     "note which memory is written, so that `mote snapshot save --diff` can "
     "leave out the rest",
     NULL, 0, 0},
    EXEC_OPTS_ROWS(offsetof(struct run_opts, exec)),
};

static const struct opt_table run_table = {
    .usage = "run [options] [--] [COMMAND [ARG...]]",
    .summary = "start a microVM, run a command in it, end it",
    .defs = run_defs,
    .count = ARRAY_SIZE(run_defs),
    .notes =
        "Without COMMAND it is /bin/sh, with a terminal if mote has one.\n"
        "The exit code is the command's, 128+N if signal N ended it, 127 if\n"
        "it is not there, 126 if it cannot be executed, 124 after --timeout,\n"
        "125 if mote itself failed, 141 if nobody reads the output.\n"
        "The first Ctrl-C goes to the command, the second ends the machine;\n"
        "in a terminal session Ctrl-] three times ends it.\n",
};

/* What a run is made of, once all of it has been found. */
struct run_plan {
    char kernel[MOTE_PATH_CAP];
    char initrd[MOTE_PATH_CAP];
    char root[MOTE_PATH_CAP];
    char *paths[RUN_MAX_DISKS]; /* copies without the :ro */
    struct mote_disk disks[RUN_MAX_DISKS];
    char boot_args[RUN_ARGS_CAP];
    bool writable; /* some disk is */
    struct net_opts net;
    struct mote_vm_params vm;
};

/* --- from options to a plan
 * ---------------------------------------------------- */

static int run_find_kernel(const struct run_opts *o, struct run_plan *plan,
                           struct mote_err *err)
{
    char file[64];
    const char *flavour = o->kernel ? o->kernel : "sandbox";

    if (strcmp(flavour, "tiny") && strcmp(flavour, "sandbox")) {
        (void)snprintf(plan->kernel, sizeof(plan->kernel), "%s", flavour);
        return 0;
    }
    (void)snprintf(file, sizeof(file), "guest/%s/vmlinux", flavour);
    if (mote_find_file(file, plan->kernel, err) == 0)
        return 0;
    if (!o->kernel &&
        mote_find_file("guest/tiny/vmlinux", plan->kernel, NULL) == 0) {
        if (o->exec.verbose)
            ui_error("kernel sandbox: not built; using tiny");
        return 0;
    }
    return lm_err(err, -ENOENT,
                  "kernel %s: not built; `make run` in mote's source tree "
                  "builds one, or name a file with --kernel",
                  flavour);
}

/* True: `spec`, of which *len counts, ended in `word`, which is cut off. */
static bool run_cut_word(const char *spec, size_t *len, const char *word)
{
    size_t n = strlen(word);

    if (*len <= n || strncmp(spec + *len - n, word, n))
        return false;
    *len -= n;
    return true;
}

/* Cuts the words behind the path, in any order, off a copy of `spec`. */
static int run_disk_spec(const char *spec, struct mote_disk *d, char **out_path)
{
    size_t len = strlen(spec);
    bool more = true;

    while (more) {
        if (run_cut_word(spec, &len, ":ro"))
            d->read_only = true;
        else if (run_cut_word(spec, &len, ":rw"))
            d->read_only = false;
        else if (run_cut_word(spec, &len, ":direct"))
            d->direct = true;
        else if (run_cut_word(spec, &len, ":unsafe"))
            d->unsafe_cache = true;
        else if (run_cut_word(spec, &len, ":cow"))
            d->cow = true;
        else
            more = false;
    }
    *out_path = strndup(spec, len);
    return *out_path ? 0 : -ENOMEM;
}

static int run_add_disk(struct run_plan *plan, const char *spec, bool read_only,
                        struct mote_err *err)
{
    size_t i = plan->vm.disk_count;

    if (i == RUN_MAX_DISKS)
        return lm_err(err, -EINVAL, "disk %s: one too many; use at most %d",
                      spec, RUN_MAX_DISKS);
    plan->disks[i].read_only = read_only;
    if (run_disk_spec(spec, &plan->disks[i], &plan->paths[i]))
        return lm_err_nomem(err);
    plan->disks[i].path = plan->paths[i];
    plan->writable |= !plan->disks[i].read_only;
    plan->vm.disk_count++;
    return 0;
}

static int run_add_disks(const struct run_opts *o, struct run_plan *plan,
                         struct mote_err *err)
{
    bool none = o->root && !strcmp(o->root, "none");
    int rc = 0;

    if (!o->root) {
        rc = mote_find_file("guest/rootfs.img", plan->root, err);
        if (!rc)
            rc = run_add_disk(plan, plan->root, true, err);
    } else if (!none) {
        rc = run_add_disk(plan, o->root, true, err);
    }
    for (size_t i = 0; i < o->disks.count && !rc; i++)
        rc = run_add_disk(plan, o->disks.items[i], false, err);
    plan->vm.disks = plan->disks;
    return rc;
}

static int run_make_args(const struct run_opts *o, struct run_plan *plan,
                         struct mote_err *err)
{
    const char *root = "";
    int n;

    if (!o->root || strcmp(o->root, "none"))
        root = plan->disks[0].read_only ? " root=/dev/vda ro mote.overlay=tmpfs"
                                        : " root=/dev/vda rw";
    /* The serial console costs an exit per character: only on request. */
    n = snprintf(plan->boot_args, sizeof(plan->boot_args),
                 "%s panic=-1 reboot=k mote.exit=0x500%s%s%s%s%s",
                 o->console ? "console=ttyS0" : "console=null quiet", root,
                 o->name ? " mote.hostname=" : "", o->name ? o->name : "",
                 o->boot_args ? " " : "", o->boot_args ? o->boot_args : "");
    if (n < 0 || (size_t)n >= sizeof(plan->boot_args))
        return lm_err(err, -EINVAL,
                      "option --boot-args: the kernel takes at most %d bytes",
                      RUN_ARGS_CAP - 1);
    plan->vm.boot_args = plan->boot_args;
    return 0;
}

static int run_make_plan(const struct run_opts *o, struct run_plan *plan,
                         struct mote_err *err)
{
    int rc = o->name ? mote_name_check(o->name, err) : 0;

    if (!rc)
        rc = run_find_kernel(o, plan, err);
    if (!rc && o->initrd)
        (void)snprintf(plan->initrd, sizeof(plan->initrd), "%s", o->initrd);
    else if (!rc)
        rc = mote_find_file("guest/agent.cpio", plan->initrd, err);
    if (!rc)
        rc = run_add_disks(o, plan, err);
    if (!rc)
        rc = run_make_args(o, plan, err);
    if (!rc)
        rc = net_opts_parse(o->net, &plan->net, &plan->vm.net, err);
    if (!rc)
        rc = machine_jail(o->jail, &plan->vm.jail, err);
    plan->vm.name = o->name;
    plan->vm.kernel = plan->kernel;
    plan->vm.initrd = plan->initrd;
    plan->vm.vcpus = (unsigned)o->cpus;
    plan->vm.mem_bytes = o->mem_bytes;
    plan->vm.track_writes = o->track_writes;
    plan->vm.console_fd = o->console ? STDERR_FILENO : -1;
    plan->vm.log_fd = o->exec.verbose ? STDERR_FILENO : -1;
    return rc;
}

static void run_free_plan(struct run_plan *plan)
{
    for (size_t i = 0; i < plan->vm.disk_count; i++)
        free(plan->paths[i]);
}

/* --- the run
 * --------------------------------------------------------------------- */

static void run_print_times(const struct mote_vm_times *t,
                            const struct session_result *r, uint64_t start_ns)
{
    double total_ms = (double)(util_now_ns() - start_ns) / 1e6;
    double guest_ms = t->kernel_ms + t->agent_ms;

    if (t->kernel_ms < 0 || guest_ms > t->start_to_ready_ms) {
        ui_error("boot %.0f ms, command %.0f ms, total %.0f ms",
                 t->start_to_ready_ms, r->command_ms, total_ms);
        return;
    }
    ui_error("boot %.0f ms (start %.0f, kernel %.0f, agent %.0f), command "
             "%.0f ms, total %.0f ms",
             t->start_to_ready_ms, t->start_to_ready_ms - guest_ms,
             t->kernel_ms, t->agent_ms, r->command_ms, total_ms);
}

/* From a started machine to the end of the command; *out is what came. */
static int run_command(struct mote_vm *vm, const struct run_opts *o,
                       const struct run_plan *plan,
                       const struct mote_exec_params *exec, int signal_fd,
                       struct session_result *out)
{
    struct mote_err err = {0};
    int rc =
        mote_vm_wait_ready(vm, exec_opts_boot_ms(&o->exec), signal_fd, &err);

    if (rc == -ECANCELED)
        return 128 + signals_next(signal_fd);
    if (rc) {
        ui_fail(&err, false);
        return EXIT_MOTE_FAILED;
    }
    return machine_command(vm, exec, plan->writable, signal_fd, out);
}

static int run_machine(const struct run_opts *o, const struct run_plan *plan,
                       const struct mote_exec_params *exec)
{
    CLEANUP_FD int signal_fd = signals_open();
    uint64_t start_ns = util_now_ns();
    struct session_result r = {0};
    struct mote_vm_times times;
    struct mote_err err = {0};
    struct mote_vm *vm = NULL;
    int code;

    if (signal_fd < 0) {
        ui_error("signalfd: %s", err_reason(signal_fd));
        return EXIT_MOTE_FAILED;
    }
    if (mote_vm_start(&plan->vm, &vm, &err)) {
        ui_fail(&err, false);
        return EXIT_MOTE_FAILED;
    }
    machine_tell_jail(vm);
    code = run_command(vm, o, plan, exec, signal_fd, &r);
    mote_vm_times(vm, &times);
    mote_vm_free(vm);
    if (o->exec.verbose && r.end)
        run_print_times(&times, &r, start_ns);
    return code;
}

static int run_planned(const struct cli *cli, struct run_opts *o,
                       struct run_plan *plan, int argc, char **argv, int first)
{
    struct mote_exec_params exec;
    struct mote_err err = {0};
    int rc = exec_opts_make(&o->exec, cli, argc, argv, first, &exec);
    int code = EXIT_MOTE_FAILED;

    if (rc)
        (void)lm_err_nomem(&err);
    else
        rc = run_make_plan(o, plan, &err);
    if (rc)
        ui_fail(&err, false);
    else
        code = run_machine(o, plan, &exec);
    exec_opts_free(&o->exec);
    run_free_plan(plan);
    return code;
}

static int run_main(const struct cli *cli, int argc, char **argv)
{
    struct run_opts o = {
        .cpus = 1, .mem_bytes = 512 * MIB, .exec = EXEC_OPTS_DEFAULT};
    struct run_plan plan = {0};
    int code = EXIT_MOTE_FAILED;
    int first = cmd_parse(&cmd_run, argc, argv, &o, &code);

    if (first < 0)
        return code;
    code = run_planned(cli, &o, &plan, argc, argv, first);
    opts_free(&run_table, &o);
    return code;
}

const struct command cmd_run = {"run", &run_table, run_main};
