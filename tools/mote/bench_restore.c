/* SPDX-License-Identifier: Apache-2.0 */
/* `mote bench restore`: from a snapshot's files to a guest that runs. */
#include "tools/libmote/api.h"
#include "tools/mote/bench.h"
#include "tools/mote/bench_guest.h"
#include "tools/mote/bench_process.h"
#include "tools/mote/bench_table.h"
#include "tools/mote/ui.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RESTORE_MAX_RUNS   1000u
#define RESTORE_WARM_UPS   2u
#define RESTORE_IDLE_RUNS  5u
#define RESTORE_IDLE_NS    300000000 /* until a restored machine is at rest */
#define RESTORE_TICKS      40u
#define RESTORE_TICK_GUARD 20000

/*
 * What the guest does by itself: it computes without a system call for a
 * while, then writes a line to its serial port, for ever. Two bytes go out at
 * once, so a restored guest's first one was written by a process that ran,
 * unless the snapshot caught it in the middle of that.
 */
static const char restore_ticker[] =
    "(while :; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; echo; done) "
    "</dev/null >/dev/ttyS0 2>&1 &";

struct restore_opts {
    uint64_t runs;
    uint64_t mem_bytes;
    const char *kernel;
    bool json;
};

static const struct opt_def restore_defs[] = {
    {"runs", 'n', OPT_NUMBER, offsetof(struct restore_opts, runs), "N",
     "how often, after 2 that do not count", "50", 1, RESTORE_MAX_RUNS},
    {"mem", 'm', OPT_SIZE, offsetof(struct restore_opts, mem_bytes), "SIZE",
     "memory of the guest", "128M", 64 * MIB, 64 * GIB},
    {"kernel", 'k', OPT_TEXT, offsetof(struct restore_opts, kernel), "KERNEL",
     "tiny, sandbox or a file", "tiny where ring 0 is emulated, else sandbox",
     0, 0},
    {"json", 0, OPT_FLAG, offsetof(struct restore_opts, json), NULL,
     "print one JSON document", NULL, 0, 0},
};

static const struct opt_table restore_table = {
    .usage = "bench restore [options]",
    .summary = "measure the restore of a snapshot",
    .defs = restore_defs,
    .count = ARRAY_SIZE(restore_defs),
    .notes =
        "KVM_RUN: the monitor is about to enter the guest for the first time.\n"
        "user space: the first byte of a process in the guest that writes a\n"
        "line to its serial port every `tick` ms and computes in between; on\n"
        "average half a tick of it is the wait for the next line.\n"
        "exec: from before the exec of mote-vmm with a snapshot in its\n"
        "configuration; load: from PUT /snapshot/load to a monitor that "
        "waits.\n"
        "first output: of `echo` by the agent, after RESTORE, with a jail.\n"
        "private memory: pages that the monitor and the guest have written;\n"
        "others are the file's, which all machines of a snapshot share.\n",
};

enum restore_row {
    ROW_EXEC_RUN,
    ROW_EXEC_USER,
    ROW_LOAD_ANSWER,
    ROW_LOAD_RUN,
    ROW_LOAD_USER,
    ROW_READY,
    ROW_OUTPUT,
    ROW_CPU,
    ROW_PRIVATE,
    ROW_COUNT,
};

struct restore_bench {
    const struct restore_opts *o;
    struct bench_guest guest;
    char dir[32];
    char vmm[MOTE_PATH_CAP];
    double tick_ms;
    struct bench_row rows[ROW_COUNT];
    struct mote_err err;
};

static const struct bench_row restore_rows[ROW_COUNT] = {
    {"exec_kvm_run_ms", "exec of mote-vmm to KVM_RUN", "ms", 0, NULL, 0},
    {"exec_user_space_ms", "exec of mote-vmm to user space", "ms", 0, NULL, 0},
    {"load_answer_ms", "PUT /snapshot/load to its answer", "ms", 0, NULL, 0},
    {"load_kvm_run_ms", "PUT /snapshot/load to KVM_RUN", "ms", 0, NULL, 0},
    {"load_user_space_ms", "PUT /snapshot/load to user space", "ms", 0, NULL,
     0},
    {"ready_ms", "start of a monitor to the end of RESTORE", "ms", 0, NULL, 0},
    {"first_output_ms", "start of a monitor to first output", "ms", 0, NULL, 0},
    {"cpu_ms", "CPU time of the monitor until user space", "ms", 0, NULL, 0},
    {"private_kib", "private, written memory of an idle machine", "KiB", 0,
     NULL, 0},
};

static int restore_add(struct restore_bench *b, enum restore_row row, double v)
{
    return bench_row_add(&b->rows[row], v) ? lm_err_nomem(&b->err) : 0;
}

static double restore_ms(uint64_t from_ns, uint64_t to_ns)
{
    return ((double)to_ns - (double)from_ns) / 1e6;
}

/* --- the snapshots ----------------------------------------------------------
 */

/* When the next line came. */
static int restore_next_tick(struct restore_bench *b, uint64_t *out_ns)
{
    struct pollfd p = {.fd = b->guest.console_fd, .events = POLLIN};
    char c = 0;

    while (c != '\n') {
        if (poll(&p, 1, RESTORE_TICK_GUARD) <= 0 || read(p.fd, &c, 1) != 1)
            return lm_err(&b->err, -ETIMEDOUT,
                          "guest: nothing comes out of its serial port");
    }
    *out_ns = util_now_ns();
    return 0;
}

static int restore_measure_tick(struct restore_bench *b)
{
    uint64_t first = 0;
    uint64_t last = 0;
    int rc = restore_next_tick(b, &first);

    for (unsigned i = 0; i < RESTORE_TICKS && rc == 0; i++)
        rc = restore_next_tick(b, &last);
    b->tick_ms = restore_ms(first, last) / RESTORE_TICKS;
    return rc;
}

static int restore_save(struct restore_bench *b, const char *name)
{
    char path[sizeof(b->dir) + 16];
    const struct mote_save_params p = {.dir = path, .cancel_fd = -1};

    (void)snprintf(path, sizeof(path), "%s/%s", b->dir, name);
    return mote_snapshot_save(&b->guest.info, &p, &b->err);
}

/* One of a guest at rest, and one of a guest that ticks. The ticker has no
 * connection, which a copy's agent would be busy with first. */
static int restore_make_snapshots(struct restore_bench *b)
{
    uint64_t ns;
    int rc = bench_guest_sh(b->guest.info.vsock_path, ":", &b->err);

    if (rc == 0)
        rc = restore_save(b, "idle");
    if (rc == 0)
        rc = bench_guest_sh(b->guest.info.vsock_path, restore_ticker, &b->err);
    if (rc == 0)
        rc = restore_measure_tick(b);
    if (rc == 0)
        rc = restore_next_tick(b, &ns);
    return rc ? rc : restore_save(b, "tick");
}

/* --- a bare monitor ---------------------------------------------------------
 */

struct restore_run {
    char vsock[64];
    char config[64];
    char exit_file[64];
    char api[64];
    char start_us[24];
    int out_fd; /* the guest's serial port */
    pid_t pid;
    uint64_t start_ns;
};

static json_t *restore_body(const struct restore_bench *b, const char *name,
                            const char *vsock)
{
    char state[64];
    char memory[64];

    (void)snprintf(state, sizeof(state), "%s/%s/state", b->dir, name);
    (void)snprintf(memory, sizeof(memory), "%s/%s/memory", b->dir, name);
    return json_pack("{s:s, s:{s:s, s:s}, s:b, s:{s:s}}", "snapshot_path",
                     state, "mem_backend", "backend_type", "File",
                     "backend_path", memory, "resume_vm", 1, "vsock_override",
                     "uds_path", vsock);
}

/* `name` NULL: it waits at its control socket. */
static int restore_spawn(struct restore_bench *b, const char *name,
                         struct restore_run *r)
{
    CLEANUP_FD int far_end = -1;
    const char *words[] = {b->vmm,       "--exit-file",
                           r->exit_file, "--api-sock",
                           r->api,       "--start-time-us",
                           r->start_us,  name ? "--config-file" : NULL,
                           r->config,    NULL};
    json_t *doc;
    int ends[2];
    int rc;

    (void)snprintf(r->vsock, sizeof(r->vsock), "%s/v", b->dir);
    (void)snprintf(r->config, sizeof(r->config), "%s/config", b->dir);
    (void)snprintf(r->exit_file, sizeof(r->exit_file), "%s/exit", b->dir);
    (void)snprintf(r->api, sizeof(r->api), "%s/api", b->dir);
    doc = name ? json_pack("{s:o}", "snapshot-load",
                           restore_body(b, name, r->vsock))
               : json_object();
    rc = doc && json_dump_file(doc, r->config, 0) == 0 ? 0 : -EIO;
    json_decref(doc);
    if (rc == 0 && pipe2(ends, O_CLOEXEC) < 0)
        rc = neg_errno();
    if (rc)
        return lm_err(&b->err, rc, "%s: %s", b->dir, err_reason(rc));
    r->out_fd = ends[0];
    far_end = ends[1];
    r->start_ns = util_now_ns();
    (void)snprintf(r->start_us, sizeof(r->start_us), "%llu",
                   (unsigned long long)(r->start_ns / 1000));
    rc = bench_spawn(words, far_end, &r->pid);
    return rc ? lm_err(&b->err, rc, "%s: %s", b->vmm, err_reason(rc)) : 0;
}

/* Ends it; *out_run_ms is when the first KVM_RUN was, from `from_ns`. */
static int restore_end(struct restore_bench *b, struct restore_run *r,
                       bool orderly, uint64_t from_ns, double *out_run_ms)
{
    json_t *doc;
    json_t *us;

    bench_end(r->pid, orderly);
    drop_fd(&r->out_fd);
    doc = json_load_file(r->exit_file, 0, NULL);
    us = json_object_get(doc, "first_run_us");
    *out_run_ms =
        (double)json_integer_value(us) / 1e3 - restore_ms(r->start_ns, from_ns);
    (void)unlink(r->exit_file);
    (void)unlink(r->api);
    (void)unlink(r->vsock);
    json_decref(doc);
    return us || !orderly ? 0
                          : lm_err(&b->err, -EIO,
                                   "mote-vmm: did not say when it entered the "
                                   "guest");
}

static int restore_once_exec(struct restore_bench *b, bool counts)
{
    struct restore_run r = {.out_fd = -1};
    uint64_t user_ns = 0;
    double cpu_ms = 0;
    double run_ms = 0;
    int rc = restore_spawn(b, "tick", &r);

    if (rc)
        return rc;
    rc = bench_first_byte(r.out_fd, &user_ns);
    if (rc == 0)
        rc = bench_cpu_ms(r.pid, &cpu_ms);
    if (rc)
        rc = lm_err(&b->err, rc, "mote-vmm: the restored guest says nothing");
    if (restore_end(b, &r, rc == 0, r.start_ns, &run_ms) && rc == 0)
        rc = b->err.rc;
    if (rc || !counts)
        return rc;
    rc = restore_add(b, ROW_EXEC_RUN, run_ms);
    if (rc == 0)
        rc = restore_add(b, ROW_EXEC_USER, restore_ms(r.start_ns, user_ns));
    return rc ? rc : restore_add(b, ROW_CPU, cpu_ms);
}

static int restore_once_load(struct restore_bench *b, bool counts)
{
    struct restore_run r = {.out_fd = -1};
    uint64_t from_ns = 0;
    uint64_t answer_ns = 0;
    uint64_t user_ns = 0;
    double run_ms = 0;
    json_t *body;
    int rc = restore_spawn(b, NULL, &r);

    if (rc)
        return rc;
    body = restore_body(b, "tick", r.vsock);
    rc = body ? bench_wait_api(r.pid, r.api) : -ENOMEM;
    if (rc)
        (void)lm_err(&b->err, rc, "mote-vmm: does not answer");
    from_ns = util_now_ns();
    if (rc == 0)
        rc = lm_api_call(r.api, "PUT", "/snapshot/load", body, NULL, &b->err);
    answer_ns = util_now_ns();
    if (rc == 0 && bench_first_byte(r.out_fd, &user_ns))
        rc = lm_err(&b->err, -EIO, "mote-vmm: the restored guest says nothing");
    if (restore_end(b, &r, rc == 0, from_ns, &run_ms) && rc == 0)
        rc = b->err.rc;
    json_decref(body);
    if (rc || !counts)
        return rc;
    rc = restore_add(b, ROW_LOAD_RUN, run_ms);
    if (rc == 0)
        rc = restore_add(b, ROW_LOAD_ANSWER, restore_ms(from_ns, answer_ns));
    return rc ? rc
              : restore_add(b, ROW_LOAD_USER, restore_ms(from_ns, user_ns));
}

static int restore_once_idle(struct restore_bench *b)
{
    const struct timespec rest = {0, RESTORE_IDLE_NS};
    struct restore_run r = {.out_fd = -1};
    double kib = 0;
    double run_ms;
    int rc = restore_spawn(b, "idle", &r);

    if (rc)
        return rc;
    (void)nanosleep(&rest, NULL);
    rc = bench_private_kib(r.pid, true, &kib);
    if (rc)
        rc = lm_err(&b->err, rc, "/proc: its memory: %s", err_reason(rc));
    if (restore_end(b, &r, rc == 0, r.start_ns, &run_ms) && rc == 0)
        rc = b->err.rc;
    return rc ? rc : restore_add(b, ROW_PRIVATE, kib);
}

/* As a user's: through the library, RESTORE and a command. */
static int restore_once_user(struct restore_bench *b, bool counts)
{
    char dir[sizeof(b->dir) + 8];
    const struct mote_load_params p = {
        .dir = dir, .console_fd = -1, .log_fd = -1};
    struct mote_vm *vm = NULL;
    uint64_t from_ns = util_now_ns();
    uint64_t ready_ns;
    uint64_t output_ns = 0;
    int rc;

    (void)snprintf(dir, sizeof(dir), "%s/idle", b->dir);
    rc = mote_vm_load(&p, BENCH_GUARD_MS, -1, &vm, &b->err);
    if (rc)
        return rc;
    ready_ns = util_now_ns();
    rc = bench_guest_echo(mote_vm_vsock_path(vm), &output_ns, &b->err);
    mote_vm_free(vm);
    if (rc == 0 && counts)
        rc = restore_add(b, ROW_READY, restore_ms(from_ns, ready_ns));
    if (rc == 0 && counts)
        rc = restore_add(b, ROW_OUTPUT, restore_ms(from_ns, output_ns));
    return rc;
}

/* --- the whole --------------------------------------------------------------
 */

static int restore_measure(struct restore_bench *b)
{
    unsigned n = (unsigned)b->o->runs + RESTORE_WARM_UPS;
    int rc = 0;

    for (unsigned i = 0; i < n && rc == 0; i++)
        rc = restore_once_exec(b, i >= RESTORE_WARM_UPS);
    for (unsigned i = 0; i < n && rc == 0; i++)
        rc = restore_once_load(b, i >= RESTORE_WARM_UPS);
    for (unsigned i = 0; i < n && rc == 0; i++)
        rc = restore_once_user(b, i >= RESTORE_WARM_UPS);
    for (unsigned i = 0; i < RESTORE_IDLE_RUNS && rc == 0; i++)
        rc = restore_once_idle(b);
    return rc;
}

/* Only what a bench makes; what is not there has been removed already. */
static void restore_remove(const struct restore_bench *b)
{
    static const char *const files[] = {"idle/state",
                                        "idle/memory",
                                        "idle/snapshot.json",
                                        "idle",
                                        "tick/state",
                                        "tick/memory",
                                        "tick/snapshot.json",
                                        "tick",
                                        "config",
                                        "exit",
                                        "api",
                                        "v"};
    char path[64];

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", b->dir, files[i]);
        (void)remove(path);
    }
    (void)rmdir(b->dir);
}

static int restore_run(struct restore_bench *b)
{
    int rc = mote_find_file("mote-vmm", b->vmm, &b->err);

    if (rc == 0)
        rc = bench_guest_start(&b->guest, true, &b->err);
    if (rc == 0)
        rc = restore_make_snapshots(b);
    bench_guest_end(&b->guest); /* it would take a CPU from what is measured */
    return rc ? rc : restore_measure(b);
}

static void restore_print(struct restore_bench *b)
{
    double gib = (double)b->o->mem_bytes / (double)GIB;

    b->rows[ROW_EXEC_RUN].bar = 1.5 + 0.5 * gib;
    if (b->o->mem_bytes <= 128 * MIB)
        b->rows[ROW_EXEC_USER].bar = 6;
    if (b->o->json) {
        bench_print_doc(json_pack(
            "{s:s, s:I, s:f, s:o}", "kernel", b->guest.flavour, "mem_bytes",
            (json_int_t)b->o->mem_bytes, "tick_ms", b->tick_ms, "figures",
            bench_rows_json(b->rows, ROW_COUNT)));
        return;
    }
    (void)printf("restore of a snapshot (%s, %llu MiB); the guest ticks every "
                 "%.2f ms\n",
                 b->guest.flavour, (unsigned long long)(b->o->mem_bytes / MIB),
                 b->tick_ms);
    bench_rows_print(b->rows, ROW_COUNT);
}

static int restore_main(const struct cli *cli, int argc, char **argv)
{
    struct restore_opts o = {.runs = 50, .mem_bytes = 128 * MIB};
    struct restore_bench b = {.o = &o, .dir = "/tmp/mote-bench-XXXXXX"};
    int code = EXIT_USAGE;
    int first = cmd_parse(&cmd_bench_restore, argc, argv, &o, &code);
    int rc;

    (void)cli;
    if (first < 0)
        return code;
    if (first < argc) {
        ui_error("bench restore: takes no operand, such as %s", argv[first]);
        return EXIT_USAGE;
    }
    b.guest = (struct bench_guest){
        .kernel = o.kernel, .mem_bytes = o.mem_bytes, .console_fd = -1};
    memcpy(b.rows, restore_rows, sizeof(b.rows));
    rc = mkdtemp(b.dir) ? restore_run(&b)
                        : lm_err(&b.err, neg_errno(), "%s: %s", b.dir,
                                 err_reason(neg_errno()));
    restore_remove(&b);
    if (rc)
        ui_fail(&b.err, o.json);
    else
        restore_print(&b);
    for (size_t i = 0; i < ROW_COUNT; i++)
        bench_row_fini(&b.rows[i]);
    return rc ? 1 : ui_finish(0);
}

const struct command cmd_bench_restore = {"bench restore", &restore_table,
                                          restore_main};
