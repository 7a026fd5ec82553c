/* SPDX-License-Identifier: Apache-2.0 */
/* `mote bench fork`: copies of a running machine. */
#include "tools/mote/bench.h"
#include "tools/mote/bench_guest.h"
#include "tools/mote/bench_process.h"
#include "tools/mote/bench_table.h"
#include "tools/mote/machine.h"
#include "tools/mote/ui.h"
#include "vmm/errmsg.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FORK_IDLE_NS 500000000 /* until copies are at rest */

struct fork_bench_opts {
    uint64_t copies;
    uint64_t rounds;
    uint64_t mem_bytes;
    uint64_t resident_bytes;
    const char *kernel;
    bool json;
};

static const struct opt_def fork_bench_defs[] = {
    {"copies", 'n', OPT_NUMBER, offsetof(struct fork_bench_opts, copies), "N",
     "how many at once", "8", 1, MOTE_FORK_MAX},
    {"rounds", 'r', OPT_NUMBER, offsetof(struct fork_bench_opts, rounds), "N",
     "how often", "5", 1, 1000},
    {"mem", 'm', OPT_SIZE, offsetof(struct fork_bench_opts, mem_bytes), "SIZE",
     "memory of the guest", "512M", 64 * MIB, 64 * GIB},
    {"resident", 0, OPT_SIZE, offsetof(struct fork_bench_opts, resident_bytes),
     "SIZE", "how much of it the guest fills first", "what a boot uses", 0,
     64 * GIB},
    {"kernel", 'k', OPT_TEXT, offsetof(struct fork_bench_opts, kernel),
     "KERNEL", "tiny, sandbox or a file",
     "tiny where ring 0 is emulated, else sandbox", 0, 0},
    {"json", 0, OPT_FLAG, offsetof(struct fork_bench_opts, json), NULL,
     "print one JSON document", NULL, 0, 0},
};

static const struct opt_table fork_bench_table = {
    .usage = "bench fork [options]",
    .summary = "measure copies of a running machine",
    .defs = fork_bench_defs,
    .count = ARRAY_SIZE(fork_bench_defs),
    .notes =
        "The monitors of the copies wait already when the clock starts.\n"
        "stop: the longest time for which the source stood still; answers: "
        "the\n"
        "agent of the last copy has said hello; ready: RESTORE has ended in\n"
        "the last copy; first output: of `echo` in one copy, from the request\n"
        "on. private memory: monitor and guest pages of each copy at rest,\n"
        "of which no other process has any.\n",
};

enum fork_row {
    ROW_STOP,
    ROW_REQUEST,
    ROW_ANSWERS,
    ROW_READY,
    ROW_EACH,
    ROW_OUTPUT,
    ROW_WAITING,
    ROW_COPIED,
    ROW_PRIVATE,
    ROW_COUNT,
};

static const struct bench_row fork_rows[ROW_COUNT] = {
    {"stopped_ms", "stop of the source", "ms", 5, NULL, 0},
    {"request_ms", "the request: all copies run", "ms", 0, NULL, 0},
    {"answers_ms", "until the last copy's agent answers", "ms", 0, NULL, 0},
    {"ready_ms", "until the last copy is ready", "ms", 0, NULL, 0},
    {"copy_ready_ms", "until each copy is ready", "ms", 0, NULL, 0},
    {"first_output_ms", "until the first output in a copy", "ms", 0, NULL, 0},
    {"waiting_ms", "before: until all monitors wait", "ms", 0, NULL, 0},
    {"copied_mib", "memory that was copied", "MiB", 0, NULL, 0},
    {"private_kib", "private memory of a copy at rest", "KiB", 512, NULL, 0},
};

struct fork_bench {
    const struct fork_bench_opts *o;
    struct bench_guest guest;
    struct mote_fork_child *children;
    struct bench_row rows[ROW_COUNT];
    double resident_mib;
    struct mote_err err;
};

static int fork_bench_add(struct fork_bench *b, enum fork_row row, double v)
{
    return bench_row_add(&b->rows[row], v) ? lm_err_nomem(&b->err) : 0;
}

/* --- the source -------------------------------------------------------------
 */

/* A file in the guest's memory that is no zeroes. */
static int fork_bench_fill(struct fork_bench *b)
{
    uint64_t mib = b->o->resident_bytes / MIB;
    char script[256];

    if (mib == 0)
        return 0;
    (void)snprintf(
        script, sizeof(script),
        "mkdir -p /tmp/f && mount -t tmpfs -o size=100%% f /tmp/f && "
        "tr '\\0' x </dev/zero | head -c %llu >/tmp/f/x",
        (unsigned long long)mib * MIB);
    return bench_guest_sh(b->guest.info.vsock_path, script, &b->err);
}

/* --- a round ----------------------------------------------------------------
 */

static int fork_bench_times(struct fork_bench *b,
                            const struct mote_fork_times *t)
{
    const double v[ROW_COUNT] = {
        [ROW_STOP] = t->stopped_ms,
        [ROW_REQUEST] = t->request_ms,
        [ROW_ANSWERS] = t->answers_ms,
        [ROW_READY] = t->ready_ms,
        [ROW_WAITING] = t->waiting_ms,
        [ROW_COPIED] = (double)t->copied_bytes / (double)MIB,
    };
    int rc = 0;

    for (size_t i = 0; i < ROW_COUNT && rc == 0; i++) {
        if (i != ROW_EACH && i != ROW_OUTPUT && i != ROW_PRIVATE)
            rc = fork_bench_add(b, (enum fork_row)i, v[i]);
    }
    return rc;
}

static int fork_bench_memory(struct fork_bench *b)
{
    struct mote_vm_info info;
    double kib = 0;
    int rc = 0;

    for (size_t i = 0; i < b->o->copies && rc == 0; i++) {
        rc = mote_find(mote_vm_id(b->children[i].vm), &info, &b->err);
        if (rc == 0 && bench_private_kib(info.monitor_pid, false, &kib))
            rc = lm_err(&b->err, -EIO, "/proc: the memory of a copy");
        if (rc == 0)
            rc = fork_bench_add(b, ROW_PRIVATE, kib);
    }
    return rc;
}

static int fork_bench_children(struct fork_bench *b)
{
    const struct timespec rest = {0, FORK_IDLE_NS};
    uint64_t done_ns;
    uint64_t output_ns = 0;
    int rc = 0;

    for (size_t i = 0; i < b->o->copies && rc == 0; i++) {
        if (!b->children[i].vm)
            return lm_err(&b->err, b->children[i].err.rc, "copy %zu: %s", i + 1,
                          b->children[i].err.text);
        rc = fork_bench_add(b, ROW_EACH, b->children[i].ready_ms);
    }
    (void)nanosleep(&rest, NULL);
    if (rc == 0)
        rc = fork_bench_memory(b);
    /* The pause is not a copy's. */
    done_ns = util_now_ns();
    if (rc == 0)
        rc = bench_guest_echo(mote_vm_vsock_path(b->children[0].vm), &output_ns,
                              &b->err);
    return rc ? rc
              : fork_bench_add(b, ROW_OUTPUT,
                               b->children[0].ready_ms +
                                   (double)(output_ns - done_ns) / 1e6);
}

static int fork_bench_round(struct fork_bench *b)
{
    const struct mote_fork_params p = {.count = (size_t)b->o->copies,
                                       .timeout_ms = BENCH_GUARD_MS,
                                       .cancel_fd = -1,
                                       .log_fd = -1};
    struct mote_fork_times t;
    int rc = mote_vm_fork(&b->guest.info, &p, b->children, &t, &b->err);

    if (rc == 0)
        rc = fork_bench_children(b);
    if (rc == 0)
        rc = fork_bench_times(b, &t);
    for (size_t i = 0; i < b->o->copies; i++)
        mote_vm_free(b->children[i].vm);
    memset(b->children, 0, (size_t)b->o->copies * sizeof(*b->children));
    return rc;
}

/* --- the whole --------------------------------------------------------------
 */

static int fork_bench_run(struct fork_bench *b)
{
    double kib = 0;
    int rc;

    b->children = calloc((size_t)b->o->copies, sizeof(*b->children));
    if (!b->children)
        return lm_err_nomem(&b->err);
    machine_raise_nofile();
    rc = bench_guest_start(&b->guest, false, &b->err);
    if (rc == 0)
        rc = fork_bench_fill(b);
    if (rc == 0 &&
        bench_private_kib(b->guest.info.monitor_pid, false, &kib) == 0)
        b->resident_mib = kib / 1024;
    for (uint64_t i = 0; i < b->o->rounds && rc == 0; i++)
        rc = fork_bench_round(b);
    bench_guest_end(&b->guest);
    return rc;
}

static void fork_bench_print(struct fork_bench *b)
{
    if (b->o->copies == 100)
        b->rows[ROW_ANSWERS].bar = 1000;
    if (b->o->copies == 1000)
        b->rows[ROW_ANSWERS].bar = 15000;
    if (b->o->json) {
        bench_print_doc(
            json_pack("{s:s, s:I, s:I, s:f, s:o}", "kernel", b->guest.flavour,
                      "mem_bytes", (json_int_t)b->o->mem_bytes, "copies",
                      (json_int_t)b->o->copies, "resident_mib", b->resident_mib,
                      "figures", bench_rows_json(b->rows, ROW_COUNT)));
        return;
    }
    (void)printf("%llu copies of a machine (%s, %llu MiB, %.0f resident)\n",
                 (unsigned long long)b->o->copies, b->guest.flavour,
                 (unsigned long long)(b->o->mem_bytes / MIB), b->resident_mib);
    bench_rows_print(b->rows, ROW_COUNT);
}

static int fork_bench_main(const struct cli *cli, int argc, char **argv)
{
    struct fork_bench_opts o = {
        .copies = 8, .rounds = 5, .mem_bytes = 512 * MIB};
    struct fork_bench b = {.o = &o};
    int code = EXIT_USAGE;
    int first = cmd_parse(&cmd_bench_fork, argc, argv, &o, &code);
    int rc;

    (void)cli;
    if (first < 0)
        return code;
    if (first < argc) {
        ui_error("bench fork: takes no operand, such as %s", argv[first]);
        return EXIT_USAGE;
    }
    b.guest = (struct bench_guest){
        .kernel = o.kernel, .mem_bytes = o.mem_bytes, .console_fd = -1};
    memcpy(b.rows, fork_rows, sizeof(b.rows));
    rc = fork_bench_run(&b);
    if (rc)
        ui_fail(&b.err, o.json);
    else
        fork_bench_print(&b);
    for (size_t i = 0; i < ROW_COUNT; i++)
        bench_row_fini(&b.rows[i]);
    free(b.children);
    return rc ? 1 : ui_finish(0);
}

const struct command cmd_bench_fork = {"bench fork", &fork_bench_table,
                                       fork_bench_main};
