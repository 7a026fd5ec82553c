/* SPDX-License-Identifier: Apache-2.0 */
/* `mote bench boot`: boots by phases, beside other monitors. */
#include "tools/mote/bench.h"
#include "tools/mote/bench_boot_opts.h"
#include "tools/mote/bench_svg.h"
#include "tools/mote/bench_table.h"
#include "tools/mote/ui.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOOT_MAX_RUNS     1000u
#define BOOT_MAX_MONITORS 4u

struct boot_bench_opts {
    uint64_t runs;
    uint64_t warm_ups;
    const char *svg;
    struct opt_list peers;
    struct boot_opts boot;
};

static const struct opt_def boot_defs[] = {
    {"runs", 'n', OPT_NUMBER, offsetof(struct boot_bench_opts, runs), "N",
     "boots of each monitor", "20", 1, BOOT_MAX_RUNS},
    {"warm-ups", 0, OPT_NUMBER, offsetof(struct boot_bench_opts, warm_ups), "N",
     "boots of each before, which are not counted", "1", 0, BOOT_MAX_RUNS},
    {"peer", 0, OPT_LIST, offsetof(struct boot_bench_opts, peers),
     "NAME[=PATH]",
     "boot this one in turn: qemu, kvmtool or firecracker; may be repeated",
     NULL, 0, 0},
    {"svg", 0, OPT_TEXT, offsetof(struct boot_bench_opts, svg), "FILE",
     "also draw the medians: a bar of phases for each monitor", NULL, 0, 0},
    BOOT_OPTS_ROWS(offsetof(struct boot_bench_opts, boot)),
};

static const struct opt_table boot_table = {
    .usage = "bench boot [options]",
    .summary = "measure boots by phases, beside other monitors",
    .defs = boot_defs,
    .count = ARRAY_SIZE(boot_defs),
    .notes =
        "From the exec of the monitor to the first output of a command. All\n"
        "monitors get the same kernel, initial ramdisk and root disk, and run\n"
        "in turn; ratios are of neighbours. A phase that a monitor cannot\n"
        "tell belongs to the next one: QEMU tells those from /init on,\n"
        "Firecracker all that the agent knows, kvmtool /init alone.\n",
};

struct boot_series {
    struct boot_monitor monitor;
    double (*at_ms)[BOOT_POINTS]; /* of each run */
    size_t runs;                  /* done */
};

struct boot_bench {
    const struct boot_bench_opts *o;
    struct boot_guest guest;
    struct boot_series series[BOOT_MAX_MONITORS]; /* the first is mote's */
    size_t count;
    double *values; /* room for one of each run, to sort */
};

/* --- figures ----------------------------------------------------------------
 */

/* How long run `i` took to this point from the one before it that is known. */
static double boot_phase(const struct boot_series *s, size_t i, size_t point)
{
    double from = 0;

    for (size_t p = 0; p < point; p++) {
        if (s->at_ms[i][p] >= 0)
            from = s->at_ms[i][p];
    }
    return s->at_ms[i][point] < 0 ? -1 : s->at_ms[i][point] - from;
}

/* Where all runs of both stand at last; BOOT_POINTS: nowhere. */
static size_t boot_common(const struct boot_series *a,
                          const struct boot_series *b)
{
    for (size_t p = BOOT_POINTS; p-- > 0;) {
        bool all = a->runs > 0 && b->runs == a->runs;

        for (size_t i = 0; i < a->runs && all; i++)
            all = a->at_ms[i][p] >= 0 && b->at_ms[i][p] >= 0;
        if (all)
            return p;
    }
    return BOOT_POINTS;
}

/* What is asked of a run: the time to a point, or the phase before it. */
enum boot_want { BOOT_TOTAL, BOOT_PHASE };

/* The sorted values; the count, 0 if it is not known. */
static size_t boot_values(const struct boot_series *s, size_t point,
                          enum boot_want want, double *out)
{
    size_t n = 0;

    for (size_t i = 0; i < s->runs; i++) {
        double v =
            want == BOOT_PHASE ? boot_phase(s, i, point) : s->at_ms[i][point];

        if (s->at_ms[i][point] >= 0)
            out[n++] = v;
    }
    bench_sort(out, n);
    return n;
}

static void boot_ratios(const struct boot_series *mote,
                        const struct boot_series *peer, size_t point,
                        double *out)
{
    for (size_t i = 0; i < mote->runs; i++)
        out[i] = peer->at_ms[i][point] / mote->at_ms[i][point];
    bench_sort(out, mote->runs);
}

/* --- as a table -------------------------------------------------------------
 */

static void boot_print_series(const struct boot_bench *b,
                              const struct boot_series *s, double *values)
{
    (void)printf("%s, n=%zu, ms %28s %9s %9s   %9s %9s\n", s->monitor.name,
                 s->runs, "phase p50", "p95", "max", "since exec", "p95");
    for (size_t p = 0; p < BOOT_POINTS; p++) {
        size_t n = boot_values(s, p, BOOT_PHASE, values);

        if (n == 0)
            continue;
        (void)printf("  to %-31s %9.2f %9.2f %9.2f", boot_point_names[p],
                     bench_quantile(values, n, 0.5),
                     bench_quantile(values, n, 0.95), values[n - 1]);
        n = boot_values(s, p, BOOT_TOTAL, values);
        (void)printf("   %9.2f %9.2f\n", bench_quantile(values, n, 0.5),
                     bench_quantile(values, n, 0.95));
    }
    if (s != b->series) {
        size_t p = boot_common(b->series, s);

        if (p == BOOT_POINTS)
            return;
        boot_ratios(b->series, s, p, values);
        (void)printf("  %s : mote, exec to %s, pair by pair: p50 %.2f "
                     "(%.2f to %.2f)\n",
                     s->monitor.name, boot_point_names[p],
                     bench_quantile(values, s->runs, 0.5), values[0],
                     values[s->runs - 1]);
    }
}

static void boot_print(const struct boot_bench *b, double *values)
{
    char command[4096];

    (void)printf("kernel %s, %llu MiB, %u CPU%s\n", b->guest.kernel,
                 (unsigned long long)(b->guest.mem_bytes / MIB), b->guest.cpus,
                 b->guest.cpus == 1 ? "" : "s");
    for (size_t i = 0; i < b->count; i++)
        boot_print_series(b, &b->series[i], values);
    for (size_t i = 1; i < b->count; i++) {
        boot_command_text(&b->series[i].monitor, &b->guest, command,
                          sizeof(command));
        (void)printf("%s was run as: %s\n", b->series[i].monitor.name, command);
    }
}

/* --- as a document ----------------------------------------------------------
 */

static json_t *boot_json_values(const double *sorted, size_t n)
{
    return n == 0 ? NULL
                  : json_pack("{s:I, s:f, s:f, s:f, s:f}", "n", (json_int_t)n,
                              "p50", bench_quantile(sorted, n, 0.5), "p95",
                              bench_quantile(sorted, n, 0.95), "min", sorted[0],
                              "max", sorted[n - 1]);
}

static json_t *boot_json_series(const struct boot_bench *b,
                                const struct boot_series *s, double *values)
{
    json_t *phases = json_object();
    json_t *totals = json_object();
    json_t *ratio = NULL;
    char command[4096];
    size_t common = boot_common(b->series, s);

    for (size_t p = 0; p < BOOT_POINTS; p++) {
        size_t n = boot_values(s, p, BOOT_PHASE, values);

        if (n == 0)
            continue;
        (void)json_object_set_new(phases, boot_point_keys[p],
                                  boot_json_values(values, n));
        n = boot_values(s, p, BOOT_TOTAL, values);
        (void)json_object_set_new(totals, boot_point_keys[p],
                                  boot_json_values(values, n));
    }
    if (s != b->series && common < BOOT_POINTS) {
        boot_ratios(b->series, s, common, values);
        ratio = json_pack("{s:s, s:o}", "to", boot_point_keys[common],
                          "to_mote", boot_json_values(values, s->runs));
    }
    boot_command_text(&s->monitor, &b->guest, command, sizeof(command));
    return json_pack("{s:s, s:s, s:o, s:o, s:o*}", "name", s->monitor.name,
                     "command", command, "phase_ms", phases, "since_exec_ms",
                     totals, "ratio", ratio);
}

static void boot_print_json(const struct boot_bench *b, double *values)
{
    json_t *list = json_array();

    for (size_t i = 0; i < b->count; i++)
        (void)json_array_append_new(list,
                                    boot_json_series(b, &b->series[i], values));
    bench_print_doc(json_pack("{s:I, s:s, s:s, s:I, s:i, s:o}", "n",
                              (json_int_t)b->series[0].runs, "kernel",
                              b->guest.kernel, "initrd", b->guest.initrd,
                              "mem_mib", (json_int_t)(b->guest.mem_bytes / MIB),
                              "cpus", (int)b->guest.cpus, "monitors", list));
}

/* --- as a picture -----------------------------------------------------------
 */

static int boot_draw(const struct boot_bench *b, double *values,
                     struct mote_err *err)
{
    struct svg_bar bars[BOOT_MAX_MONITORS] = {0};
    char note[256];
    struct svg_chart c = {.title = "Boot: exec of the monitor to the first "
                                   "output of a command",
                          .note = note,
                          .unit = "ms",
                          .parts = boot_point_names,
                          .part_count = BOOT_POINTS,
                          .bars = bars,
                          .bar_count = b->count};
    FILE *f = fopen(b->o->svg, "we");
    bool good;

    if (!f)
        return lm_err(err, neg_errno(), "option --svg: %s: %s", b->o->svg,
                      err_reason(neg_errno()));
    (void)snprintf(note, sizeof(note),
                   "Medians of %zu boots each, in turn: %llu MiB, %u CPU(s); a "
                   "part is named by the point where it ends.",
                   b->series[0].runs,
                   (unsigned long long)(b->guest.mem_bytes / MIB),
                   b->guest.cpus);
    for (size_t i = 0; i < b->count; i++) {
        bars[i].name = b->series[i].monitor.name;
        for (size_t p = 0; p < BOOT_POINTS; p++) {
            size_t n = boot_values(&b->series[i], p, BOOT_PHASE, values);

            bars[i].parts[p] = n ? bench_quantile(values, n, 0.5) : 0;
        }
    }
    svg_write(f, &c);
    good = !ferror(f);
    good = fclose(f) == 0 && good;
    return good ? 0
                : lm_err(err, -EIO, "option --svg: %s: writing failed",
                         b->o->svg);
}

/* --- the runs ---------------------------------------------------------------
 */

static int boot_prepare(struct boot_bench *b, struct mote_err *err)
{
    struct boot_monitor *mote = &b->series[0].monitor;
    int rc = 0;

    if (b->o->peers.count >= BOOT_MAX_MONITORS)
        return lm_err(err, -EINVAL, "option --peer: at most %u",
                      BOOT_MAX_MONITORS - 1);
    *mote = (struct boot_monitor){.kind = BOOT_MOTE, .name = "mote"};
    b->count = 1;
    for (size_t i = 0; i < b->o->peers.count && rc == 0; i++)
        rc = boot_monitor_find(&b->series[b->count++].monitor,
                               b->o->peers.items[i], err);
    if (rc == 0)
        rc = mote_find_file("mote-vmm", mote->program, err);
    if (rc == 0)
        rc = boot_opts_guest(&b->o->boot, &b->guest, err);
    if (rc)
        return rc;
    b->values = calloc(b->o->runs, sizeof(*b->values));
    if (!b->values)
        return lm_err_nomem(err);
    for (size_t i = 0; i < b->count && rc == 0; i++) {
        b->series[i].at_ms = calloc(b->o->runs, sizeof(*b->series[i].at_ms));
        if (!b->series[i].at_ms)
            rc = lm_err_nomem(err);
    }
    return rc;
}

static int boot_run_all(struct boot_bench *b, struct mote_err *err)
{
    size_t warm = (size_t)b->o->warm_ups;
    int rc = 0;

    for (size_t run = 0; run < warm + b->o->runs && rc == 0; run++) {
        for (size_t i = 0; i < b->count && rc == 0; i++) {
            struct boot_series *s = &b->series[i];
            struct boot_result r;

            bench_progress("boot %zu of %zu: %s", run + 1,
                           warm + (size_t)b->o->runs, s->monitor.name);
            rc = boot_once(&s->monitor, &b->guest, &r, err);
            if (rc)
                break;
            if (run >= warm)
                memcpy(s->at_ms[s->runs++], r.at_ms, sizeof(r.at_ms));
            boot_result_fini(&r);
        }
    }
    bench_progress_end();
    return rc;
}

static int boot_bench_run(struct boot_bench *b, struct mote_err *err)
{
    int rc = boot_prepare(b, err);

    if (rc)
        return rc;
    assert(b->values); /* made there */
    rc = boot_run_all(b, err);
    if (rc == 0 && b->o->svg)
        rc = boot_draw(b, b->values, err);
    if (rc)
        return rc;
    if (b->o->boot.json)
        boot_print_json(b, b->values);
    else
        boot_print(b, b->values);
    return 0;
}

static int boot_main(const struct cli *cli, int argc, char **argv)
{
    struct boot_bench_opts o = {
        .runs = 20, .warm_ups = 1, .boot = BOOT_OPTS_DEFAULT};
    struct boot_bench b = {.o = &o, .guest = {.signal_fd = -1}};
    struct mote_err err = {0};
    int code;

    (void)cli;
    if (bench_parse(&cmd_bench_boot, argc, argv, &o, &code))
        code = boot_bench_run(&b, &err) ? bench_failed(&err, o.boot.json)
                                        : ui_finish(0);
    for (size_t i = 0; i < b.count; i++)
        free(b.series[i].at_ms);
    free(b.values);
    drop_fd(&b.guest.signal_fd);
    opts_free(&boot_table, &o);
    return code;
}

const struct command cmd_bench_boot = {"bench boot", &boot_table, boot_main};
