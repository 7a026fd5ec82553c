/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/options.h"

#include "vmm/args.h"
#include "vmm/http_parse.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define OPT_MAX_BODY     (64u << 20)
#define OPT_MAX_HZ       10000u
#define OPT_DEFAULT_SOCK "/run/firecracker.socket"

struct option_row {
    const char *name;
    const char *arg; /* NULL: a switch */
    const char *help;
    int (*set)(struct vmm_options *o, const char *value, struct errmsg *err);
};

static int opt_config_file(struct vmm_options *o, const char *v,
                           struct errmsg *err)
{
    (void)err;
    o->config_file = v;
    return 0;
}

static int opt_fork_from(struct vmm_options *o, const char *v,
                         struct errmsg *err)
{
    (void)err;
    o->fork_from = v;
    return 0;
}

static int opt_exit_file(struct vmm_options *o, const char *v,
                         struct errmsg *err)
{
    (void)err;
    o->exit_file = v;
    return 0;
}

static int opt_log_path(struct vmm_options *o, const char *v,
                        struct errmsg *err)
{
    (void)err;
    o->log_path = v;
    return 0;
}

static int opt_id(struct vmm_options *o, const char *v, struct errmsg *err)
{
    size_t n = strlen(v);

    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)v[i]) && v[i] != '-' && v[i] != '_')
            n = 0;
    }
    if (n < 1 || n > 64)
        return err_set(err, -EINVAL,
                       "--id: 1 to 64 letters, digits, - and _ are allowed");
    o->id = v;
    return 0;
}

static int opt_level(struct vmm_options *o, const char *v, struct errmsg *err)
{
    if (log_level_parse(v, &o->level))
        return err_set(err, -EINVAL,
                       "--level: %s is none of Off, Error, Warn, Info, Debug, "
                       "Trace",
                       v);
    o->level_given = true;
    return 0;
}

static int opt_lifeline(struct vmm_options *o, const char *v,
                        struct errmsg *err)
{
    uint64_t fd = 0;

    if (util_parse_u64(v, 0, INT32_MAX, &fd) || fcntl((int)fd, F_GETFD) < 0)
        return err_set(err, -EINVAL,
                       "--lifeline-fd: %s is no open file descriptor; pass the "
                       "read end of a pipe",
                       v);
    o->lifeline_fd = (int)fd;
    return 0;
}

static int opt_start_us(struct vmm_options *o, const char *v,
                        struct errmsg *err)
{
    if (util_parse_u64(v, 0, UINT64_MAX / 1000, &o->start_us))
        return err_set(err, -EINVAL, "--start-time-us: %s is no number", v);
    return 0;
}

static int opt_ring0_ns(struct vmm_options *o, const char *v,
                        struct errmsg *err)
{
    if (util_parse_u64(v, 0, 1000000, &o->ring0_ns))
        return err_set(err, -EINVAL,
                       "--ring0-ns: %s is no number of nanoseconds from 0 to "
                       "1000000",
                       v);
    o->ring0_given = true;
    return 0;
}

static int opt_api_sock(struct vmm_options *o, const char *v,
                        struct errmsg *err)
{
    (void)err;
    o->api_sock = v;
    return 0;
}

static int opt_metrics_path(struct vmm_options *o, const char *v,
                            struct errmsg *err)
{
    (void)err;
    o->metrics_path = v;
    return 0;
}

static int opt_max_body(struct vmm_options *o, const char *v,
                        struct errmsg *err)
{
    if (util_parse_u64(v, 1, OPT_MAX_BODY, &o->max_body))
        return err_set(err, -EINVAL,
                       "--http-api-max-payload-size: %s is no number of bytes "
                       "from 1 to %u",
                       v, OPT_MAX_BODY);
    return 0;
}

static int opt_mmds_limit(struct vmm_options *o, const char *v,
                          struct errmsg *err)
{
    if (util_parse_u64(v, 1, OPT_MAX_BODY, &o->mmds_limit))
        return err_set(err, -EINVAL,
                       "--mmds-size-limit: %s is no number of bytes from 1 to "
                       "%u",
                       v, OPT_MAX_BODY);
    return 0;
}

static int opt_metadata(struct vmm_options *o, const char *v,
                        struct errmsg *err)
{
    (void)err;
    o->metadata = v;
    return 0;
}

static int opt_start_cpu_us(struct vmm_options *o, const char *v,
                            struct errmsg *err)
{
    if (util_parse_u64(v, 0, UINT64_MAX / 1000, &o->start_cpu_us))
        return err_set(err, -EINVAL, "--start-time-cpu-us: %s is no number", v);
    return 0;
}

static int opt_parent_cpu_us(struct vmm_options *o, const char *v,
                             struct errmsg *err)
{
    if (util_parse_u64(v, 0, UINT64_MAX / 1000, &o->parent_cpu_us))
        return err_set(err, -EINVAL, "--parent-cpu-time-us: %s is no number",
                       v);
    return 0;
}

static int opt_show_level(struct vmm_options *o, const char *v,
                          struct errmsg *err)
{
    (void)v;
    (void)err;
    o->show_level = true;
    return 0;
}

static int opt_show_origin(struct vmm_options *o, const char *v,
                           struct errmsg *err)
{
    (void)v;
    (void)err;
    o->show_origin = true;
    return 0;
}

static int opt_module(struct vmm_options *o, const char *v, struct errmsg *err)
{
    (void)err;
    o->module = v;
    return 0;
}

static int opt_boot_timer(struct vmm_options *o, const char *v,
                          struct errmsg *err)
{
    (void)v;
    (void)err;
    o->boot_timer = true;
    return 0;
}

/* A filter of Firecracker's compiler lists what its program calls, not ours. */
static int opt_seccomp_filter(struct vmm_options *o, const char *v,
                              struct errmsg *err)
{
    (void)o;
    return err_set(err, -EINVAL,
                   "--seccomp-filter: %s would be a filter for another "
                   "program; this one brings its own, so leave it out",
                   v);
}

static int opt_enable_pci(struct vmm_options *o, const char *v,
                          struct errmsg *err)
{
    (void)o;
    (void)v;
    return err_set(err, -EINVAL,
                   "--enable-pci: not supported by this version; devices are "
                   "virtio-mmio, so leave it out");
}

static int opt_no_seccomp(struct vmm_options *o, const char *v,
                          struct errmsg *err)
{
    (void)v;
    (void)err;
    o->no_seccomp = true;
    return 0;
}

static int opt_no_api(struct vmm_options *o, const char *v, struct errmsg *err)
{
    (void)v;
    (void)err;
    o->no_api = true;
    return 0;
}

static int opt_check(struct vmm_options *o, const char *v, struct errmsg *err)
{
    (void)v;
    (void)err;
    o->check = true;
    return 0;
}

static int opt_probe(struct vmm_options *o, const char *v, struct errmsg *err)
{
    (void)v;
    (void)err;
    o->probe = true;
    return 0;
}

static int opt_test_exit(struct vmm_options *o, const char *v,
                         struct errmsg *err)
{
    (void)v;
    (void)err;
    o->test_exit = true;
    return 0;
}

static int opt_count_exits(struct vmm_options *o, const char *v,
                           struct errmsg *err)
{
    (void)v;
    (void)err;
    o->count_exits = true;
    return 0;
}

static int opt_profile_hz(struct vmm_options *o, const char *v,
                          struct errmsg *err)
{
    if (util_parse_u64(v, 1, OPT_MAX_HZ, &o->profile_hz))
        return err_set(err, -EINVAL,
                       "--profile-hz: %s is no number of samples a second from "
                       "1 to %u",
                       v, OPT_MAX_HZ);
    return 0;
}

static int opt_help(struct vmm_options *o, const char *v, struct errmsg *err)
{
    (void)v;
    (void)err;
    o->help = true;
    return 0;
}

static int opt_version(struct vmm_options *o, const char *v, struct errmsg *err)
{
    (void)v;
    (void)err;
    o->version = true;
    return 0;
}

static int opt_snapshot_version(struct vmm_options *o, const char *v,
                                struct errmsg *err)
{
    (void)v;
    (void)err;
    o->snapshot_version = true;
    return 0;
}

static int opt_describe(struct vmm_options *o, const char *v,
                        struct errmsg *err)
{
    (void)err;
    o->describe = v;
    return 0;
}

static const struct option_row option_rows[] = {
    {"config-file", "FILE", "what the VM is, JSON in Firecracker's format",
     opt_config_file},
    {"api-sock", "PATH", "take requests on this Unix socket", opt_api_sock},
    {"no-api", NULL, "no control socket", opt_no_api},
    {"fork-from", "PATH", "wait at this Unix socket for a fork of another VM",
     opt_fork_from},
    {"http-api-max-payload-size", "BYTES", "longest body (default 51200)",
     opt_max_body},
    {"metadata", "FILE", "what the metadata service tells the guest, JSON",
     opt_metadata},
    {"mmds-size-limit", "BYTES", "of that (default: as a longest body)",
     opt_mmds_limit},
    {"id", "ID", "name of this VM in log lines", opt_id},
    {"exit-file", "FILE", "new file for the reason of the end, as JSON",
     opt_exit_file},
    {"lifeline-fd", "N", "end the VM when this pipe is closed by its writer",
     opt_lifeline},
    {"log-path", "FILE", "log there instead of to standard error",
     opt_log_path},
    {"level", "LEVEL", "Off, Error, Warn (default), Info, Debug or Trace",
     opt_level},
    {"show-level", NULL, "lines in a log file say their level", opt_show_level},
    {"show-log-origin", NULL, "and the source file and line", opt_show_origin},
    {"module", "PREFIX", "only lines of source files that begin so",
     opt_module},
    {"metrics-path", "FILE", "write metrics there, a JSON line a minute",
     opt_metrics_path},
    {"no-seccomp", NULL, "no filter of system calls: for debugging only",
     opt_no_seccomp},
    {"seccomp-filter", "FILE", "refused: the filter is built in",
     opt_seccomp_filter},
    {"enable-pci", NULL, "refused: devices are virtio-mmio", opt_enable_pci},
    {"start-time-us", "N", "monotonic time at exec, for the timings",
     opt_start_us},
    {"start-time-cpu-us", "N", "CPU time of this process at exec",
     opt_start_cpu_us},
    {"parent-cpu-time-us", "N", "CPU time of the processes before it",
     opt_parent_cpu_us},
    {"boot-timer", NULL, "log the time when the guest writes 123 to its device",
     opt_boot_timer},
    {"check", NULL, "check the configuration, start nothing", opt_check},
    {"probe", NULL, "say what this host's KVM can do, as JSON", opt_probe},
    {"ring0-ns", "N", "time of a kernel instruction, as --probe told it",
     opt_ring0_ns},
    {"test-exit", NULL, "let test programs end the VM with a result",
     opt_test_exit},
    {"snapshot-version", NULL, "print the version of snapshots that it writes",
     opt_snapshot_version},
    {"describe-snapshot", "FILE", "print the version of a snapshot's state",
     opt_describe},
    {"count-exits", NULL, "exit file: how often the guest left to us, and why",
     opt_count_exits},
    {"profile-hz", "N", "exit file: where vCPU 0 was, N times a second",
     opt_profile_hz},
    {"version", NULL, "print the version", opt_version},
    {"help", NULL, "print this", opt_help},
};

static struct args_row options_row(size_t i)
{
    if (i >= ARRAY_SIZE(option_rows))
        return (struct args_row){NULL, NULL, NULL};
    return (struct args_row){option_rows[i].name, option_rows[i].arg,
                             option_rows[i].help};
}

static const struct args_table options_table = {
    .row = options_row,
    .hint = "mote-vmm --help lists them",
    .help_column = 33,
};

static bool options_as_firecracker(const char *program)
{
    const char *slash = strrchr(program, '/');

    return !strncmp(slash ? slash + 1 : program, "firecracker", 11);
}

/* What one option says about another. */
static int options_settle(struct vmm_options *o, struct errmsg *err)
{
    if (o->no_api && o->api_sock)
        return err_set(err, -EINVAL,
                       "--no-api and --api-sock exclude each other");
    if (o->no_api && !o->config_file)
        return err_set(err, -EINVAL, "--no-api needs a --config-file");
    /*
     * Under our own name there is no socket at a fixed path: a second machine
     * with a configuration file would fail for nothing that it needs.
     */
    if (o->as_firecracker && !o->api_sock && !o->no_api)
        o->api_sock = OPT_DEFAULT_SOCK;
    if (o->fork_from && o->config_file)
        return err_set(err, -EINVAL,
                       "--fork-from and --config-file exclude each other: a "
                       "fork brings its configuration");
    if (!o->config_file && !o->api_sock && !o->fork_from)
        return err_set(err, -EINVAL,
                       "neither --config-file nor --api-sock; mote-vmm --help "
                       "lists the arguments");
    if ((o->count_exits || o->profile_hz) && !o->exit_file)
        return err_set(err, -EINVAL,
                       "--count-exits and --profile-hz need an --exit-file: "
                       "the counts go there");
    if (o->check && !o->config_file)
        return err_set(err, -EINVAL, "--check needs a --config-file");
    return 0;
}

int options_parse(int argc, char **argv, struct vmm_options *out,
                  struct errmsg *err)
{
    memset(out, 0, sizeof(*out));
    out->lifeline_fd = -1;
    out->level = LOG_WARN;
    out->max_body = HTTP_DEFAULT_BODY;
    out->as_firecracker = argc > 0 && options_as_firecracker(argv[0]);
    for (int i = 1; i < argc;) {
        struct args_found f;
        int rc = args_next(&options_table, argv, &i, &f, err);

        if (rc == 0)
            rc = option_rows[f.index].set(out, f.value, err);
        if (rc)
            return rc;
    }
    if (out->help || out->version || out->probe || out->snapshot_version ||
        out->describe)
        return 0;
    return options_settle(out, err);
}

void options_print_help(FILE *out)
{
    fprintf(out, "usage: mote-vmm --config-file FILE [options]\n"
                 "       mote-vmm --api-sock PATH [options]\n"
                 "Runs one virtual machine; the process is the machine.\n\n");
    args_print_rows(&options_table, out);
    fprintf(out, "\nThe guest's serial port is standard input and output.\n"
                 "Exit codes: 0 poweroff, halt, reboot or stopped by request; "
                 "20 guest panic;\n21 triple fault; 22 KVM error; 152 "
                 "configuration; 153 arguments; 1 other.\n");
}
