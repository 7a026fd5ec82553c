/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/machine.h"

#include "tools/libmote/err.h"
#include "tools/mote/ui.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MACHINE_POWEROFF_MS 15000
#define MACHINE_END_WAIT_MS                                                    \
    2000 /* from a lost connection to the dead monitor */

int machine_jail(const char *option, enum mote_jail *out, struct mote_err *err)
{
    static const char *const words[] = {[MOTE_JAIL_AUTO] = "auto",
                                        [MOTE_JAIL_ON] = "on",
                                        [MOTE_JAIL_OFF] = "off"};
    const char *set = getenv("MOTE_JAIL");
    const char *when = option ? option : set && *set ? set : "auto";

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (!strcmp(when, words[i])) {
            *out = (enum mote_jail)i;
            return 0;
        }
    }
    return lm_err(err, -EINVAL, "%s: '%s' is unknown; use auto, on or off",
                  option ? "option --jail" : "MOTE_JAIL", when);
}

void machine_tell_jail(const struct mote_vm *vm)
{
    if (mote_vm_jail_note(vm))
        ui_error("the monitor runs without a jail: %s; `mote doctor` says "
                 "more, --jail=off is silent",
                 mote_vm_jail_note(vm));
}

/*
 * A machine whose disks can be written is asked to write them back; any
 * other may lose its power at once, which is faster.
 */
static void machine_end(struct mote_vm *vm, bool writable, enum session_end end,
                        int signal_fd)
{
    struct mote_err err = {0};

    if (!writable || end == SESSION_LOST || end == SESSION_LATE)
        return;
    if (mote_vm_poweroff(vm, MACHINE_POWEROFF_MS, signal_fd, &err))
        ui_error("%s; what it had not flushed to its disks is lost", err.text);
}

/* The connection broke: the reason is the machine's, if it has ended. */
static int machine_lost(struct mote_vm *vm, const struct session_result *r,
                        const char *program)
{
    struct mote_vm_end end;
    int wait_ms = r->err.rc == -EPROTO ? 0 : MACHINE_END_WAIT_MS;

    /* A guest that talks nonsense is not one whose machine is ending. */
    if (mote_vm_wait_end(vm, wait_ms, &end))
        return session_exit_code(r, program);
    if (end.by_guest)
        ui_error("%s before the command ended; its console (--console) may "
                 "show why",
                 end.text);
    else
        ui_error("%s", end.text);
    return EXIT_MOTE_FAILED;
}

int machine_command(struct mote_vm *vm, const struct mote_exec_params *exec,
                    bool writable, int signal_fd, struct session_result *out)
{
    const struct session_params sp = {.vsock_path = mote_vm_vsock_path(vm),
                                      .exec = *exec,
                                      .signal_fd = signal_fd,
                                      .machine_fd = mote_vm_pidfd(vm)};

    session_run(&sp, out);
    machine_end(vm, writable, out->end, signal_fd);
    if (out->end == SESSION_LOST)
        return machine_lost(vm, out, exec->argv[0]);
    return session_exit_code(out, exec->argv[0]);
}

int machine_stay(struct mote_vm *vm, bool writable, int signal_fd)
{
    struct pollfd p[] = {{.fd = signal_fd, .events = POLLIN},
                         {.fd = mote_vm_pidfd(vm), .events = POLLIN}};
    struct mote_vm_end end;
    int signo = 0;

    while (signo == 0 && !p[1].revents) {
        if (poll(p, ARRAY_SIZE(p), -1) > 0 && p[0].revents)
            signo = signals_next(signal_fd);
    }
    if (signo) {
        machine_end(vm, writable, SESSION_SIGNALLED, signal_fd);
        return 128 + signo;
    }
    if (mote_vm_wait_end(vm, MACHINE_END_WAIT_MS, &end) == 0 &&
        end.exit_code == 0)
        return 0;
    ui_error("%s", end.text);
    return EXIT_MOTE_FAILED;
}

void machine_raise_nofile(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur == r.rlim_max)
        return;
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r); /* fewer machines, no failure */
}
