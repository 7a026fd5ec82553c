/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/bench.h"
#include "tools/mote/bench_process.h"
#include "tools/mote/bench_table.h"
#include "tools/mote/ui.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BENCH_MAX_RUNS   1000u
#define BENCH_CPU_BAR_MS 3.0 /* Firecracker promises 8 */

/* From the spawn of a monitor to the answer of its first request. */
struct bench_start {
    double wall_ms;
    double cpu_ms; /* of the monitor's process, the spawn included */
};

struct bench_opts {
    uint64_t runs;
    bool json;
};

static const struct opt_def bench_defs[] = {
    {"runs", 'n', OPT_NUMBER, offsetof(struct bench_opts, runs), "N",
     "how often", "20", 1, BENCH_MAX_RUNS},
    {"json", 0, OPT_FLAG, offsetof(struct bench_opts, json), NULL,
     "print one JSON document", NULL, 0, 0},
};

static const struct opt_table bench_table = {
    .usage = "bench start [options]",
    .summary = "measure the start of a monitor",
    .defs = bench_defs,
    .count = ARRAY_SIZE(bench_defs),
    .notes = "From the exec of a monitor to its first answer on the\n"
             "control socket, and the CPU time that it takes. No guest runs.\n"
             "The figures judge nothing; a bar is printed beside them.\n",
};

struct bench_list {
    double values[BENCH_MAX_RUNS];
};

static json_t *bench_json(const struct bench_list *l, size_t n)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "median_ms",
                     bench_quantile(l->values, n, 0.5), "p95_ms",
                     bench_quantile(l->values, n, 0.95), "min_ms", l->values[0],
                     "max_ms", l->values[n - 1]);
}

static void bench_print_json(const struct bench_list *wall,
                             const struct bench_list *cpu, size_t n)
{
    CLEANUP_FREE char *text = NULL;
    json_t *doc =
        json_pack("{s:I, s:o, s:o, s:f}", "n", (json_int_t)n, "api_wall",
                  bench_json(wall, n), "api_cpu", bench_json(cpu, n),
                  "api_cpu_bar_ms", BENCH_CPU_BAR_MS);

    text =
        doc ? json_dumps(doc, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(doc);
    (void)printf("%s\n", text ? text : "{}");
}

static void bench_print_row(const char *what, const struct bench_list *l,
                            size_t n, const char *note)
{
    (void)printf("  %-9s median %6.2f ms, p95 %6.2f ms (%.2f to %.2f)%s\n",
                 what, bench_quantile(l->values, n, 0.5),
                 bench_quantile(l->values, n, 0.95), l->values[0],
                 l->values[n - 1], note);
}

static void bench_print(const struct bench_list *wall,
                        const struct bench_list *cpu, size_t n)
{
    char note[48];

    (void)snprintf(note, sizeof(note), "; bar %.0f ms: %s", BENCH_CPU_BAR_MS,
                   bench_quantile(cpu->values, n, 0.5) <= BENCH_CPU_BAR_MS
                       ? "met"
                       : "missed");
    (void)printf("exec of mote-vmm to its API answering, n=%zu\n", n);
    bench_print_row("wall", wall, n, "");
    bench_print_row("CPU time", cpu, n, note);
}

static int bench_measure(const char *vmm, const char *sock,
                         struct bench_start *out)
{
    const char *const words[] = {vmm, "--api-sock", sock, NULL};
    uint64_t began_ns = util_now_ns();
    uint64_t answered_ns;
    pid_t pid = 0;
    int rc = bench_spawn(words, -1, &pid);

    if (rc)
        return rc;
    rc = bench_wait_api(pid, sock);
    answered_ns = util_now_ns();
    if (rc == 0)
        rc = bench_cpu_ms(pid, &out->cpu_ms);
    out->wall_ms = (double)(answered_ns - began_ns) / 1e6;
    bench_end(pid, rc == 0);
    return rc;
}

static int bench_start_once(const char *vmm, struct bench_start *out,
                            struct mote_err *err)
{
    char dir[] = "/tmp/mote-bench-XXXXXX";
    char sock[sizeof(dir) + 8];
    int rc;

    if (!mkdtemp(dir))
        return lm_err(err, neg_errno(), "%s: %s", dir, err_reason(neg_errno()));
    (void)snprintf(sock, sizeof(sock), "%s/s", dir);
    rc = bench_measure(vmm, sock, out);
    (void)unlink(sock); /* there only if it did not end in order */
    (void)rmdir(dir);
    if (rc == -ECHILD)
        return lm_err(err, rc,
                      "%s: it ended before it answered; run it by hand with "
                      "--api-sock",
                      vmm);
    return rc ? lm_err(err, rc, "%s: no answer: %s", vmm, err_reason(rc)) : 0;
}

static int bench_start(const struct bench_opts *o)
{
    struct bench_list wall;
    struct bench_list cpu;
    struct mote_err err = {0};
    char vmm[MOTE_PATH_CAP];
    size_t n = (size_t)o->runs;
    int rc = mote_find_file("mote-vmm", vmm, &err);

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct bench_start one = {0};

        rc = bench_start_once(vmm, &one, &err);
        wall.values[i] = one.wall_ms;
        cpu.values[i] = one.cpu_ms;
    }
    if (rc) {
        ui_fail(&err, o->json);
        return 1;
    }
    bench_sort(wall.values, n);
    bench_sort(cpu.values, n);
    if (o->json)
        bench_print_json(&wall, &cpu, n);
    else
        bench_print(&wall, &cpu, n);
    return ui_finish(0);
}

static int bench_main(const struct cli *cli, int argc, char **argv)
{
    struct bench_opts o = {.runs = 20};
    int code = EXIT_USAGE;
    int first = cmd_parse(&cmd_bench_start, argc, argv, &o, &code);

    (void)cli;
    if (first < 0)
        return code;
    if (first < argc) {
        ui_error("bench start: takes no operand, such as %s", argv[first]);
        return EXIT_USAGE;
    }
    return bench_start(&o);
}

const struct command cmd_bench_start = {"bench start", &bench_table,
                                        bench_main};
