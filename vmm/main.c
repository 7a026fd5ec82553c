/* SPDX-License-Identifier: Apache-2.0 */
/* mote-vmm: one process is one virtual machine. */
#include "boot/boot_x86.h"
#include "vmm/cleanup.h"
#include "vmm/config.h"
#include "vmm/endings.h"
#include "vmm/exit_report.h"
#include "vmm/host_report.h"
#include "vmm/machine.h"
#include "vmm/options.h"
#include "vmm/probe_x86.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static int main_fail(struct log *log, const struct errmsg *err, int code)
{
    log_msg(log, LOG_ERROR, "%s", err->text);
    return code;
}

static int main_open_log(struct log *log, const struct vmm_options *o,
                         struct errmsg *err)
{
    int fd;

    log->level = o->level;
    if (o->id)
        log->prefix = o->id;
    if (!o->log_path)
        return 0;
    /* A FIFO that nobody reads must not block the start. */
    fd = open(o->log_path,
              O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0) {
        int rc = neg_errno();

        return err_set(err, rc, "--log-path %s: %s", o->log_path,
                       err_reason(rc));
    }
    log->fd = fd;
    log->stamps = true;
    return 0;
}

static int main_probe(struct log *log, bool *out_emulated, struct errmsg *err)
{
    struct ring0_probe p = {0};
    char dir[256];
    int rc = probe_ring0_cached(probe_cache_dir(dir, sizeof(dir)) ? dir : NULL,
                                &p, err);

    if (rc)
        return rc;
    *out_emulated = p.emulated;
    if (p.emulated)
        log_msg(log, LOG_INFO,
                "this KVM emulates the guest's kernel code (%.0f ns an "
                "instruction): adding the words and work-arounds for that",
                p.ns_per_instruction);
    return 0;
}

static void main_describe(const struct machine_result *r, char *out,
                          size_t size)
{
    switch (r->reason) {
    case STOP_REQUEST:
        (void)snprintf(out, size, "%s",
                       r->detail ? strsignal((int)r->detail)
                                 : "the process that started it has ended");
        break;
    case STOP_KVM_ERROR:
    case STOP_TEST:
        (void)snprintf(out, size, "code %u", r->detail);
        break;
    default:
        (void)snprintf(out, size, "%s", stop_reason_name(r->reason));
        break;
    }
}

static int main_run_machine(struct machine *m, const struct vmm_options *o,
                            struct log *log, int exit_fd)
{
    struct errmsg err = {""};
    struct machine_result r;
    struct endings e;
    char detail[128];
    int rc;
    int code;

    memset(&r, 0, sizeof(r));
    rc = endings_init(&e, machine_loop(m), machine_stop_hook(m), o->lifeline_fd,
                      &err);
    if (rc == 0)
        rc = machine_run(m, &r, &err);
    endings_fini(&e);
    if (rc)
        (void)main_fail(log, &err, 0);
    code = rc ? EXIT_CODE_OTHER : exit_code_of(&r);
    main_describe(&r, detail, sizeof(detail));
    log_msg(log, LOG_INFO, "the VM ended: %s (%s); first KVM_RUN after %.1f ms",
            stop_reason_name(r.reason), detail, (double)r.first_run_ns / 1e6);
    if (exit_fd >= 0 && exit_report_write(exit_fd, &r, detail, code) != 0) {
        log_msg(log, LOG_ERROR, "--exit-file %s: writing failed", o->exit_file);
        if (code == 0)
            code = EXIT_CODE_OTHER;
    }
    return code;
}

static int main_start(const struct vm_config *c, const struct vmm_options *o,
                      struct log *log, uint64_t start_ns)
{
    CLEANUP_FD int exit_fd = -1;
    struct errmsg err = {""};
    struct machine_options mo = {
        .log = log,
        .console_in_fd = STDIN_FILENO,
        .console_out_fd = STDOUT_FILENO,
        .start_ns = o->start_us ? o->start_us * 1000 : start_ns,
        .test_exit = o->test_exit,
    };
    struct machine *m = NULL;
    int code;
    int rc;

    if (o->exit_file) {
        rc = exit_report_open(o->exit_file, &exit_fd, &err);
        if (rc)
            return main_fail(log, &err, EXIT_CODE_ARGUMENTS);
    }
    rc = endings_block_signals();
    if (rc)
        err_set(&err, rc, "signals: %s", err_reason(rc));
    if (rc == 0)
        rc = main_probe(log, &mo.emulated_ring0, &err);
    if (rc == 0)
        rc = machine_new(c, &mo, &m, &err);
    if (rc) {
        if (o->exit_file)
            (void)unlink(o->exit_file); /* we made it, it tells nothing */
        return main_fail(log, &err,
                         rc == -EINVAL || rc == -E2BIG ? EXIT_CODE_CONFIG
                                                       : EXIT_CODE_OTHER);
    }
    code = main_run_machine(m, o, log, exit_fd);
    machine_free(m);
    return code;
}

/* What can be known of a machine without making it. */
static int main_check(const struct vm_config *c, struct log *log)
{
    struct errmsg err = {""};
    int rc = c->boot_args ? boot_check_cmdline(c->boot_args, &err) : 0;

    if (rc == 0)
        rc = boot_check_kernel(c->kernel_path, &err);
    return rc ? main_fail(log, &err, EXIT_CODE_CONFIG) : 0;
}

/*
 * Whoever starts us with a closed standard descriptor must not find guest
 * output in a file that got its number.
 */
static void main_fill_std_fds(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        (void)close(fd);
}

/* Each vsock connection is a descriptor; the hard limit is the user's word. */
static void main_raise_nofile(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur == r.rlim_max)
        return;
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r); /* fewer connections, no failure */
}

int main(int argc, char **argv)
{
    uint64_t start_ns = util_now_ns();
    struct vmm_options o;
    struct vm_config config;
    struct errmsg err = {""};
    struct log log;
    int code;

    main_fill_std_fds();
    main_raise_nofile();
    log_init(&log, STDERR_FILENO, LOG_WARN, "mote-vmm");
    if (options_parse(argc, argv, &o, &err))
        return main_fail(&log, &err, EXIT_CODE_ARGUMENTS);
    if (o.help) {
        options_print_help(stdout);
        return 0;
    }
    if (o.version) {
        printf("mote-vmm %s\n", MOTE_VERSION);
        return 0;
    }
    if (o.probe)
        return host_report_print(stdout) ? EXIT_CODE_OTHER : 0;
    if (main_open_log(&log, &o, &err))
        return main_fail(&log, &err, EXIT_CODE_ARGUMENTS);
    config_init(&config);
    if (config_load_file(&config, o.config_file, &err) ||
        config_validate(&config, &err))
        code = main_fail(&log, &err, EXIT_CODE_CONFIG);
    else if (o.check)
        code = main_check(&config, &log);
    else
        code = main_start(&config, &o, &log, start_ns);
    config_fini(&config);
    return code;
}
