/* SPDX-License-Identifier: Apache-2.0 */
/* A line of metrics, group by group; metrics.md explains every key. */
#include "vmm/control_int.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define COUNTS(key, field) METRIC_ROW(key, struct control_counts, field)

static const struct metric_row deprecated_rows[] = {
    COUNTS("deprecated_http_api_calls", deprecated_calls),
};

static const struct metric_row signal_rows[] = {
    COUNTS("sighup", sighup),
    COUNTS("sigint", sigint),
    COUNTS("sigterm", sigterm),
};

static const struct metric_row logger_rows[] = {
    COUNTS("missed_log_count", log_missed),
    COUNTS("log_fails", log_fails),
    COUNTS("missed_metrics_count", metrics_missed),
    COUNTS("metrics_fails", metrics_fails),
};

static const struct metric_row mote_rows[] = {
    COUNTS("held_back_log_count", log_held_back),
};

static const struct metric_row api_histograms[] = {
    {"api_request", offsetof(struct control_counts, api_us), METRIC_HISTOGRAM},
};

static const char *const latency_names[NUM_LATENCIES] = {
    [LATENCY_FULL_SNAPSHOT] = "full_create_snapshot",
    [LATENCY_DIFF_SNAPSHOT] = "diff_create_snapshot",
    [LATENCY_LOAD_SNAPSHOT] = "load_snapshot",
    [LATENCY_PAUSE] = "pause_vm",
    [LATENCY_RESUME] = "resume_vm",
};

/* --- what is noted as it happens --------------------------------------------
 */

static uint64_t control_cpu_ns(void)
{
    struct timespec ts = {0, 0};

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts); /* cannot fail */
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Under what a jailer says, as it calls us: its own time counts as ours. */
void control_note_started(struct control *c)
{
    const struct vmm_options *o = c->options;
    uint64_t start_ns = o->start_us ? o->start_us * 1000 : c->start_ns;
    uint64_t now_ns = util_now_ns();
    uint64_t cpu_us = control_cpu_ns() / 1000;

    if (now_ns > start_ns)
        c->startup_us = (now_ns - start_ns) / 1000;
    if (cpu_us > o->start_cpu_us)
        cpu_us -= o->start_cpu_us;
    c->startup_cpu_us = cpu_us + o->parent_cpu_us;
}

void control_note_latency(struct control *c, enum control_latency what,
                          uint64_t began_ns)
{
    uint64_t now_ns = util_now_ns();

    c->latency_us[what] = (now_ns - c->request_ns) / 1000;
    c->inner_latency_us[what] = (now_ns - began_ns) / 1000;
}

void control_note_signal(struct control *c, uint32_t signo)
{
    counter_add(&c->counts.sighup, signo == SIGHUP);
    counter_add(&c->counts.sigint, signo == SIGINT);
    counter_add(&c->counts.sigterm, signo == SIGTERM);
}

/* --- the groups -------------------------------------------------------------
 */

static void control_gather_values(const struct control *c, json_t *line)
{
    json_t *latencies = metric_group(line, "latencies_us");

    (void)json_object_set_new(line, "api_server",
                              json_pack("{s:I, s:I}", "process_startup_time_us",
                                        (json_int_t)c->startup_us,
                                        "process_startup_time_cpu_us",
                                        (json_int_t)c->startup_cpu_us));
    for (size_t i = 0; i < NUM_LATENCIES; i++) {
        char key[64];

        (void)json_object_set_new(latencies, latency_names[i],
                                  json_integer((json_int_t)c->latency_us[i]));
        (void)snprintf(key, sizeof(key), "vmm_%s", latency_names[i]);
        (void)json_object_set_new(
            latencies, key, json_integer((json_int_t)c->inner_latency_us[i]));
    }
    /* The first violation ends the process: seccomp_filter.c writes that line.
     */
    (void)json_object_set_new(line, "seccomp",
                              json_pack("{s:i}", "num_faults", 0));
}

static void control_gather_counts(struct control *c, json_t *line)
{
    const struct control_counts *told = &c->told_counts;
    struct control_counts *now = &c->counts;

    now->log_missed = c->log->lost;
    now->log_fails = c->log->failed;
    now->log_held_back = c->log->suppressed;
    now->metrics_missed = metrics_num_lost(c->metrics);
    now->metrics_fails = metrics_num_failed(c->metrics);
    metric_rows_add(metric_group(line, "deprecated_api"), deprecated_rows,
                    ARRAY_SIZE(deprecated_rows), now, told);
    metric_rows_add(metric_group(line, "signals"), signal_rows,
                    ARRAY_SIZE(signal_rows), now, told);
    metric_rows_add(metric_group(line, "logger"), logger_rows,
                    ARRAY_SIZE(logger_rows), now, told);
    metric_rows_add(metric_group(line, "mote"), mote_rows,
                    ARRAY_SIZE(mote_rows), now, told);
    metric_rows_add(metric_group(metric_group(line, "mote"), "latency_us_log2"),
                    api_histograms, ARRAY_SIZE(api_histograms), now, told);
    c->told_counts = *now;
}

/* While the VM is paused, its metrics wait too. A group that lacks memory is
 * missing from the line. */
bool control_gather(void *arg, json_t *line)
{
    struct control *c = arg;

    if (c->machine && machine_state(c->machine) != MACHINE_RUNNING &&
        !c->ending)
        return false;
    api_gather(c, line);
    control_gather_values(c, line);
    control_gather_counts(c, line);
    machine_gather(c->machine, &c->told_machine, line);
    mmds_gather(c->mmds, line);
    return true;
}

void control_end_metrics(struct control *c)
{
    c->ending = true;
    metrics_free(c->metrics);
    c->metrics = NULL;
}
