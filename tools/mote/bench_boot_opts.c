/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/bench_boot_opts.h"

#include "tools/mote/cmd.h"
#include "tools/mote/ui.h"
#include "vmm/errmsg.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

int boot_opts_guest(const struct boot_opts *o, struct boot_guest *g,
                    struct mote_err *err)
{
    int rc = boot_guest_find(g, o->kernel, o->initrd, err);

    g->mem_bytes = o->mem_bytes;
    g->cpus = (unsigned)o->cpus;
    g->timeout_ms = (int)o->timeout_ms;
    g->extra = NULL;
    g->signal_fd = -1;
    if (rc)
        return rc;
    g->signal_fd = signals_open();
    return g->signal_fd < 0 ? lm_err(err, g->signal_fd, "signalfd: %s",
                                     err_reason(g->signal_fd))
                            : 0;
}

int boot_mote_once(const struct boot_guest *g, struct boot_result *out,
                   struct mote_err *err)
{
    struct boot_monitor m = {.kind = BOOT_MOTE, .name = "mote"};
    int rc = mote_find_file("mote-vmm", m.program, err);

    out->report = NULL;
    return rc ? rc : boot_once(&m, g, out, err);
}

bool bench_parse(const struct command *c, int argc, char **argv, void *dst,
                 int *code)
{
    int first;

    *code = EXIT_USAGE;
    first = cmd_parse(c, argc, argv, dst, code);
    if (first < 0)
        return false;
    if (first < argc)
        ui_error("%s: takes no operand, such as %s", c->name, argv[first]);
    return first >= argc;
}

int bench_failed(const struct mote_err *err, bool json)
{
    bench_progress_end();
    ui_fail(err, json);
    return err->rc == -ECANCELED ? 128 + SIGINT : 1;
}

void bench_progress(const char *fmt, ...)
{
    va_list ap;

    if (!term_is_tty(STDERR_FILENO))
        return;
    va_start(ap, fmt);
    (void)fputs("\r\033[K", stderr);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fflush(stderr);
}

void bench_progress_end(void)
{
    bench_progress("%s", "");
}
