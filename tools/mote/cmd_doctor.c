/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/cmd.h"

#include "tools/mote/capture.h"
#include "tools/mote/doctor.h"
#include "tools/mote/ui.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <stdio.h>

#define DOCTOR_PROBE_WAIT_MS 60000
#define DOCTOR_PROBE_MAX     ((size_t)256 * 1024)

struct doctor_opts {
    bool json;
};

static const struct opt_def doctor_defs[] = {
    {"json", 0, OPT_FLAG, offsetof(struct doctor_opts, json), NULL,
     "print one JSON document", NULL, 0, 0},
};

static const struct opt_table doctor_table = {
    .usage = "doctor [options]",
    .summary = "check this host and this installation",
    .defs = doctor_defs,
    .count = ARRAY_SIZE(doctor_defs),
    .notes = "The exit code is 0 unless a check ends in an error.\n",
};

static const struct {
    const char *name;
    void (*run)(const struct doctor *d, struct check *c);
} doctor_checks[] = {
    {"kvm", doctor_kvm},
    {"kvm_features", doctor_kvm_features},
    {"guest_code", doctor_ring0},
    {"io_uring", doctor_io_uring},
    {"vsock", doctor_vsock},
    {"tun", doctor_tun},
    {"cgroup", doctor_cgroup},
    {"user_namespaces", doctor_userns},
    {"jail", doctor_jail},
    {"memory", doctor_memory},
    {"runtime_dir", doctor_runtime_dir},
    {"monitor", doctor_monitor},
    {"kernel_sandbox", doctor_kernel_sandbox},
    {"kernel_tiny", doctor_kernel_tiny},
    {"agent", doctor_agent},
    {"rootfs", doctor_rootfs},
};

#define DOCTOR_CHECKS ARRAY_SIZE(doctor_checks)

static const char *const doctor_words[] = {"ok", "warning", "error"};
static const char *const doctor_colours[] = {"\033[32m", "\033[33m",
                                             "\033[31m"};

/* What only the monitor can find out: it tries. */
static void doctor_probe(struct doctor *d)
{
    char path[MOTE_PATH_CAP];
    const char *argv[] = {path, "--probe", NULL};
    struct mote_err err = {0};
    struct capture cap = {0};
    json_error_t json_err;
    int rc = mote_find_file("mote-vmm", path, &err);

    if (rc) {
        (void)snprintf(d->probe_error, sizeof(d->probe_error), "%.300s",
                       err.text);
        return;
    }
    rc = capture_run(argv, DOCTOR_PROBE_WAIT_MS, DOCTOR_PROBE_MAX, &cap);
    if (!rc)
        d->probe = json_loads(cap.out, JSON_REJECT_DUPLICATES, &json_err);
    if (rc)
        (void)snprintf(d->probe_error, sizeof(d->probe_error),
                       "mote-vmm --probe: %s", err_reason(rc));
    else if (!d->probe)
        (void)snprintf(d->probe_error, sizeof(d->probe_error),
                       "mote-vmm --probe: ended with code %d: %s",
                       cap.exit_code,
                       cap.error[0] ? cap.error : "it printed no JSON");
    free(cap.out);
}

static void doctor_print_table(const struct check *checks)
{
    bool colour = isatty(STDOUT_FILENO);

    for (size_t i = 0; i < DOCTOR_CHECKS; i++) {
        const struct check *c = &checks[i];

        (void)printf("%-16s %s%-7s%s  %s\n", c->name,
                     colour ? doctor_colours[c->status] : "",
                     doctor_words[c->status], colour ? "\033[0m" : "",
                     c->detail);
        if (c->remedy[0])
            (void)printf("%-16s %-7s  -> %s\n", "", "", c->remedy);
    }
}

static void doctor_print_json(const struct doctor *d,
                              const struct check *checks, bool ok)
{
    CLEANUP_FREE char *text = NULL;
    json_t *array = json_array();
    json_t *doc;

    for (size_t i = 0; i < DOCTOR_CHECKS; i++) {
        const struct check *c = &checks[i];

        (void)json_array_append_new(
            array, json_pack("{s:s, s:s, s:s, s:s?}", "name", c->name, "status",
                             doctor_words[c->status], "detail", c->detail,
                             "remedy", c->remedy[0] ? c->remedy : NULL));
    }
    doc = json_pack("{s:b, s:o, s:O?}", "ok", ok, "checks", array, "probe",
                    d->probe);
    text = doc ? json_dumps(doc, JSON_INDENT(2)) : NULL;
    json_decref(doc);
    (void)printf("%s\n", text ? text : "{}");
}

static int doctor_main(const struct cli *cli, int argc, char **argv)
{
    struct check checks[DOCTOR_CHECKS] = {0};
    struct doctor_opts o = {0};
    struct doctor d = {0};
    bool ok = true;
    int code = EXIT_USAGE;
    int first = cmd_parse(&cmd_doctor, argc, argv, &o, &code);

    (void)cli;
    if (first < 0)
        return code;
    if (first < argc) {
        ui_error("doctor %s: takes no operand; `mote doctor --help` explains "
                 "it",
                 argv[first]);
        return EXIT_USAGE;
    }
    doctor_probe(&d);
    for (size_t i = 0; i < DOCTOR_CHECKS; i++) {
        checks[i].name = doctor_checks[i].name;
        doctor_checks[i].run(&d, &checks[i]);
        ok &= checks[i].status != CHECK_ERROR;
    }
    if (o.json)
        doctor_print_json(&d, checks, ok);
    else
        doctor_print_table(checks);
    json_decref(d.probe);
    return ui_finish(ok ? 0 : 1);
}

const struct command cmd_doctor = {"doctor", &doctor_table, doctor_main};
