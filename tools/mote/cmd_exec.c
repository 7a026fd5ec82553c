/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/cmd.h"

#include "tools/mote/exec_opts.h"
#include "tools/mote/session.h"
#include "tools/mote/ui.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <string.h>
#include <sys/pidfd.h>

static const struct opt_def exec_defs[] = {EXEC_OPTS_ROWS(0)};

static const struct opt_table exec_table = {
    .usage = "exec [options] NAME [--] [COMMAND [ARG...]]",
    .summary = "run a command in a machine that `mote run --name` started",
    .defs = exec_defs,
    .count = ARRAY_SIZE(exec_defs),
    .notes = "NAME is a name or an id of `mote ls`. Without COMMAND it is\n"
             "/bin/sh. Exit codes are those of `mote run`. The first Ctrl-C\n"
             "goes to the command, the second ends it; the machine goes on.\n",
};

/* Waits for a machine that is still booting. 0 or the exit code. */
static int exec_wait(const struct mote_vm_info *info, const struct exec_opts *o,
                     int signal_fd)
{
    struct mote_err err = {0};
    int rc = mote_wait_ready(info, exec_opts_boot_ms(o), signal_fd, &err);

    if (rc == -ECANCELED)
        return 128 + signals_next(signal_fd);
    if (rc)
        ui_fail(&err, false);
    return rc ? EXIT_MOTE_FAILED : 0;
}

static int exec_session(const struct mote_vm_info *info,
                        const struct exec_opts *o,
                        const struct mote_exec_params *exec)
{
    CLEANUP_FD int signal_fd = signals_open();
    /* The connection tells a machine's end too; this is the second witness. */
    CLEANUP_FD int machine_fd = pidfd_open(info->monitor_pid, 0);
    struct session_params sp = {.vsock_path = info->vsock_path,
                                .exec = *exec,
                                .signal_fd = signal_fd,
                                .machine_fd = machine_fd};
    struct session_result r;
    int code;

    if (signal_fd < 0) {
        ui_error("signalfd: %s", err_reason(signal_fd));
        return EXIT_MOTE_FAILED;
    }
    code = exec_wait(info, o, signal_fd);
    if (code)
        return code;
    session_run(&sp, &r);
    code = session_exit_code(&r, exec->argv[0]);
    if (o->verbose)
        ui_error("command %.0f ms", r.command_ms);
    return code;
}

static int exec_main(const struct cli *cli, int argc, char **argv)
{
    struct exec_opts o = EXEC_OPTS_DEFAULT;
    struct mote_exec_params exec;
    struct mote_vm_info info;
    struct mote_err err = {0};
    int code = EXIT_MOTE_FAILED;
    int first = cmd_parse(&cmd_exec, argc, argv, &o, &code);
    int rc;

    if (first < 0)
        return code;
    if (first >= argc) {
        ui_error("exec: NAME is missing; `mote ls` lists the machines");
        opts_free(&exec_table, &o);
        return EXIT_MOTE_FAILED;
    }
    rc = mote_find(argv[first], &info, &err);
    first++;
    if (first < argc && !strcmp(argv[first], "--"))
        first++;
    if (!rc && exec_opts_make(&o, cli, argc, argv, first, &exec))
        rc = lm_err_nomem(&err);
    if (rc)
        ui_fail(&err, false);
    else
        code = exec_session(&info, &o, &exec);
    exec_opts_free(&o);
    opts_free(&exec_table, &o);
    return rc ? EXIT_MOTE_FAILED : code;
}

const struct command cmd_exec = {"exec", &exec_table, exec_main};
