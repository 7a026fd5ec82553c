/* SPDX-License-Identifier: Apache-2.0 */
/* `mote bench density`: what many idle machines cost. */
#include "tools/mote/bench.h"
#include "tools/mote/bench_boot_opts.h"
#include "tools/mote/bench_process.h"
#include "tools/mote/bench_table.h"
#include "tools/mote/ui.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define DENSITY_MAX       10000u
#define DENSITY_VM_FDS    12u /* about what libmote keeps of a machine */
#define DENSITY_SETTLE_MS 1000

struct density_opts {
    uint64_t count;
    uint64_t idle_ms;
    uint64_t need_bytes; /* of a machine */
    struct boot_opts boot;
};

static const struct opt_def density_defs[] = {
    {"count", 'n', OPT_NUMBER, offsetof(struct density_opts, count), "N",
     "machines", "10", 1, DENSITY_MAX},
    {"idle", 0, OPT_DURATION, offsetof(struct density_opts, idle_ms), "TIME",
     "how long the idle machines' CPU time is watched", "10s", 100, 3600000},
    {"need", 0, OPT_SIZE, offsetof(struct density_opts, need_bytes), "SIZE",
     "what a machine is expected to take of the host's memory", "64M", MIB,
     BOOT_MEM_HI},
    BOOT_OPTS_ROWS(offsetof(struct density_opts, boot)),
};

static const struct opt_table density_table = {
    .usage = "bench density [options]",
    .summary = "start many idle machines: memory, CPU and time of each",
    .defs = density_defs,
    .count = ARRAY_SIZE(density_defs),
    .notes = "Memory is that of the monitor and its guest: private (it alone\n"
             "has it) and proportional (shared pages divided by their users),\n"
             "and what the host has less of, which counts the kernel's part.\n"
             "All of them end with the command, Ctrl-C included.\n",
};

enum {
    DENSITY_START,
    DENSITY_PRIVATE,
    DENSITY_PSS,
    DENSITY_CPU,
    DENSITY_HOST,
    DENSITY_ROWS
};

struct density {
    const struct density_opts *o;
    struct boot_guest guest;
    struct mote_vm **vms;
    pid_t *pids;
    double *cpu_ms; /* before the watch */
    size_t count;   /* started */
    struct bench_row rows[DENSITY_ROWS];
};

/* --- of the host and its processes ------------------------------------------
 */

/* The sum of the lines of a file that begin with `key`; below 0: unreadable. */
static double density_kib(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    char line[256];
    double sum = -1;

    while (f && fgets(line, sizeof(line), f)) {
        const char *colon = strchr(line, ':');

        if (colon && !strncmp(line, key, strlen(key)))
            sum = (sum < 0 ? 0 : sum) + strtod(colon + 1, NULL);
    }
    if (f)
        (void)fclose(f);
    return sum;
}

static double density_available_kib(void)
{
    return density_kib("/proc/meminfo", "MemAvailable:");
}

static int density_check(const struct density *d, struct mote_err *err)
{
    double need_kib = (double)d->o->need_bytes / 1024 * (double)d->o->count;
    double have_kib = density_available_kib();

    if (have_kib >= 0 && need_kib > have_kib)
        return lm_err(err, -ENOMEM,
                      "%llu machines: about %.0f MiB are needed, %.0f MiB are "
                      "available; take fewer, or say with --need what one "
                      "takes",
                      (unsigned long long)d->o->count, need_kib / 1024,
                      have_kib / 1024);
    return 0;
}

static int density_raise_fds(const struct density *d, struct mote_err *err)
{
    rlim_t need = (rlim_t)d->o->count * DENSITY_VM_FDS + 64;
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur >= need)
        return 0;
    if (r.rlim_max < need)
        return lm_err(err, -EMFILE,
                      "%llu machines: they need %llu open files, %llu are "
                      "allowed; raise `ulimit -n`",
                      (unsigned long long)d->o->count, (unsigned long long)need,
                      (unsigned long long)r.rlim_max);
    r.rlim_cur = need;
    return setrlimit(RLIMIT_NOFILE, &r) < 0
               ? lm_err(err, neg_errno(), "open files: %s",
                        err_reason(neg_errno()))
               : 0;
}

/* --- the machines -----------------------------------------------------------
 */

static int density_start(struct density *d, struct mote_err *err)
{
    const struct mote_disk root = {.path = d->guest.root, .read_only = true};
    const struct mote_vm_params p = {
        .kernel = d->guest.kernel,
        .initrd = d->guest.initrd,
        .boot_args = "console=null quiet panic=-1 reboot=k mote.exit=0x500 "
                     "root=/dev/vda ro mote.overlay=tmpfs",
        .disks = &root,
        .disk_count = 1,
        .vcpus = d->guest.cpus,
        .mem_bytes = d->guest.mem_bytes,
        .console_fd = -1,
        .log_fd = -1,
    };
    struct mote_vm_info info;
    struct mote_vm_times times;
    struct mote_vm *vm = NULL;
    int rc = mote_vm_start(&p, &vm, err);

    if (rc)
        return rc;
    d->vms[d->count++] = vm;
    rc = mote_vm_wait_ready(vm, d->guest.timeout_ms, d->guest.signal_fd, err);
    if (rc == 0)
        rc = mote_find(mote_vm_id(vm), &info, err);
    if (rc)
        return rc;
    d->pids[d->count - 1] = info.monitor_pid;
    mote_vm_times(vm, &times);
    return bench_row_add(&d->rows[DENSITY_START], times.start_to_ready_ms)
               ? lm_err_nomem(err)
               : 0;
}

static int density_sleep(const struct density *d, uint64_t ms,
                         struct mote_err *err)
{
    struct pollfd p = {.fd = d->guest.signal_fd, .events = POLLIN};

    return poll(&p, 1, (int)ms) == 0
               ? 0
               : lm_err(err, -ECANCELED, "ended by a signal");
}

static int density_memory(struct density *d, struct mote_err *err)
{
    for (size_t i = 0; i < d->count; i++) {
        char path[64];
        double own;
        double pss;

        (void)snprintf(path, sizeof(path), "/proc/%d/smaps_rollup",
                       (int)d->pids[i]);
        own = density_kib(path, "Private_");
        pss = density_kib(path, "Pss:");
        if (own < 0 || pss < 0)
            return lm_err(err, -ESRCH,
                          "machine %zu of %zu: %s is unreadable; it may have "
                          "ended, or its monitor belongs to another user",
                          i + 1, d->count, path);
        if (bench_row_add(&d->rows[DENSITY_PRIVATE], own / 1024) ||
            bench_row_add(&d->rows[DENSITY_PSS], pss / 1024))
            return lm_err_nomem(err);
    }
    return 0;
}

/* CPU time of each in percent of one processor, over the watch. */
static int density_watch(struct density *d, struct mote_err *err)
{
    uint64_t began_ns;
    int rc = 0;

    for (size_t i = 0; i < d->count && rc == 0; i++)
        rc = bench_cpu_ms(d->pids[i], &d->cpu_ms[i]);
    if (rc)
        return lm_err(err, rc, "CPU time: %s", err_reason(rc));
    began_ns = util_now_ns();
    rc = density_sleep(d, d->o->idle_ms, err);
    for (size_t i = 0; i < d->count && rc == 0; i++) {
        double wall_ms = (double)(util_now_ns() - began_ns) / 1e6;
        double now_ms = 0;

        rc = bench_cpu_ms(d->pids[i], &now_ms);
        if (rc)
            return lm_err(err, rc, "machine %zu of %zu: it has ended", i + 1,
                          d->count);
        if (bench_row_add(&d->rows[DENSITY_CPU],
                          100 * (now_ms - d->cpu_ms[i]) / wall_ms))
            rc = lm_err_nomem(err);
    }
    return rc;
}

/* --- the bench --------------------------------------------------------------
 */

static void density_init_rows(struct density *d)
{
    static const struct bench_row rows[DENSITY_ROWS] = {
        [DENSITY_START] = {.key = "start_ms",
                           .label = "start to agent ready",
                           .unit = "ms"},
        [DENSITY_PRIVATE] = {.key = "private_mib",
                             .label = "private memory, monitor and guest",
                             .unit = "MiB"},
        [DENSITY_PSS] = {.key = "proportional_mib",
                         .label = "proportional memory",
                         .unit = "MiB"},
        [DENSITY_CPU] = {.key = "idle_cpu_percent",
                         .label = "CPU while idle, of one processor",
                         .unit = "%"},
        [DENSITY_HOST] = {.key = "host_mib",
                          .label = "what the host has less, for each",
                          .unit = "MiB"},
    };

    memcpy(d->rows, rows, sizeof(rows));
}

static int density_measure(struct density *d, struct mote_err *err)
{
    double before_kib = density_available_kib();
    int rc = 0;

    for (size_t i = 0; i < d->o->count && rc == 0; i++) {
        bench_progress("starting machine %zu of %llu", i + 1,
                       (unsigned long long)d->o->count);
        rc = density_start(d, err);
    }
    bench_progress("%zu machines are up; they come to rest", d->count);
    if (rc == 0)
        rc = density_sleep(d, DENSITY_SETTLE_MS, err);
    if (rc == 0 && bench_row_add(&d->rows[DENSITY_HOST],
                                 (before_kib - density_available_kib()) / 1024 /
                                     (double)d->count))
        rc = lm_err_nomem(err);
    bench_progress("watching %zu idle machines", d->count);
    if (rc == 0)
        rc = density_watch(d, err);
    if (rc == 0)
        rc = density_memory(d, err);
    return rc;
}

static int density_run(struct density *d, struct mote_err *err)
{
    int rc;

    density_init_rows(d);
    d->vms = calloc(d->o->count, sizeof(void *));
    d->pids = calloc(d->o->count, sizeof(*d->pids));
    d->cpu_ms = calloc(d->o->count, sizeof(*d->cpu_ms));
    rc = d->vms && d->pids && d->cpu_ms ? 0 : lm_err_nomem(err);
    if (rc == 0)
        rc = density_check(d, err);
    if (rc == 0)
        rc = density_raise_fds(d, err);
    if (rc == 0)
        rc = boot_opts_guest(&d->o->boot, &d->guest, err);
    return rc ? rc : density_measure(d, err);
}

static void density_fini(struct density *d)
{
    for (size_t i = 0; i < d->count; i++) {
        bench_progress("ending machine %zu of %zu", i + 1, d->count);
        mote_vm_free(d->vms[i]);
    }
    bench_progress_end();
    for (size_t i = 0; i < DENSITY_ROWS; i++)
        bench_row_fini(&d->rows[i]);
    free(d->vms);
    free(d->pids);
    free(d->cpu_ms);
    drop_fd(&d->guest.signal_fd);
}

static void density_print(struct density *d)
{
    if (d->o->boot.json) {
        bench_print_doc(json_pack(
            "{s:I, s:s, s:I, s:o}", "n", (json_int_t)d->count, "kernel",
            d->guest.kernel, "idle_ms", (json_int_t)d->o->idle_ms, "figures",
            bench_rows_json(d->rows, DENSITY_ROWS)));
        return;
    }
    (void)printf("%zu idle machines of %llu MiB, kernel %s\n", d->count,
                 (unsigned long long)(d->guest.mem_bytes / MIB),
                 d->guest.kernel);
    bench_rows_print(d->rows, DENSITY_ROWS);
}

static int density_main(const struct cli *cli, int argc, char **argv)
{
    struct density_opts o = {.count = 10,
                             .idle_ms = 10000,
                             .need_bytes = 64 * MIB,
                             .boot = BOOT_OPTS_DEFAULT};
    struct density d = {.o = &o, .guest = {.signal_fd = -1}};
    struct mote_err err = {0};
    int code;

    (void)cli;
    if (bench_parse(&cmd_bench_density, argc, argv, &o, &code)) {
        if (density_run(&d, &err)) {
            code = bench_failed(&err, o.boot.json);
        } else {
            bench_progress_end();
            density_print(&d);
            code = ui_finish(0);
        }
    }
    density_fini(&d);
    return code;
}

const struct command cmd_bench_density = {"bench density", &density_table,
                                          density_main};
