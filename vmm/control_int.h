/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_CONTROL_INT_H
#define VMM_CONTROL_INT_H

/*
 * Between control.c, which owns the process's parts, and api_*.c, which act on
 * them for clients. thread: io
 */

#include "vmm/api_server.h"
#include "vmm/config_doc.h"
#include "vmm/endings.h"
#include "vmm/fork.h"
#include "vmm/fork_wait.h"
#include "vmm/machine_metrics.h"
#include "vmm/metric_rows.h"
#include "vmm/metrics.h"
#include "vmm/mmds.h"
#include "vmm/options.h"
#include "vmm/snapshot.h"

#define API_MAX_ROUTES 64u
/* What a line of the parser begins with when a client is at fault. */
#define API_BODY_ERROR                                                         \
    "An error occurred when deserializing the json body of a request"

/* Requests of one route: in all, and what the last line of metrics said. */
struct api_stat {
    uint64_t count;
    uint64_t fails;
    uint64_t told_count;
    uint64_t told_fails;
};

/* Counted since the start; thread: io. */
struct control_counts {
    uint64_t deprecated_calls;
    uint64_t sighup;
    uint64_t sigint;
    uint64_t sigterm;
    uint64_t log_missed; /* these five are taken over from their owners */
    uint64_t log_fails;
    uint64_t log_held_back;
    uint64_t metrics_missed;
    uint64_t metrics_fails;
    struct histogram api_us;
};

/* Requests whose duration the metrics name. */
enum control_latency {
    LATENCY_FULL_SNAPSHOT,
    LATENCY_DIFF_SNAPSHOT,
    LATENCY_LOAD_SNAPSHOT,
    LATENCY_PAUSE,
    LATENCY_RESUME,
    NUM_LATENCIES,
};

struct control {
    const struct vmm_options *options; /* borrowed, as are log and start_ns */
    struct log *log;
    uint64_t start_ns;
    struct evloop *loop;
    struct endings endings;
    json_t *doc;             /* the configuration as clients see it */
    struct vm_config config; /* what it says */
    struct machine *machine; /* NULL before it was started */
    json_t *to_load;         /* what the file's section snapshot-load says */
    struct snapshot_base base;
    struct fork_wait *wait; /* NULL: we wait for no fork */
    struct fork *fork;      /* the last one; NULL: none yet */
    fork_done_fn on_forked;
    void *on_forked_arg;
    struct api_server *api;  /* NULL: no control socket */
    struct metrics *metrics; /* NULL: none asked for */
    struct mmds *mmds;
    int log_fd;            /* -1: standard error */
    char *log_module;      /* what log->module points at; NULL: none */
    int serial_fd;         /* -1: standard output */
    uint32_t early_signal; /* what ended us before there was a machine */
    struct api_stat stats[API_MAX_ROUTES];
    bool ending; /* a last line is due, whatever the state */
    /* For the metrics, as told_*, which is what their last line said. */
    uint64_t request_ns; /* when the request at hand came */
    uint64_t pause_ns;   /* when the pause under way began */
    uint64_t startup_us;
    uint64_t startup_cpu_us;
    uint64_t latency_us[NUM_LATENCIES]; /* of the last such request; 0: none */
    uint64_t inner_latency_us[NUM_LATENCIES];
    struct control_counts counts;
    struct control_counts told_counts;
    struct machine_told *told_machine;
};

static inline const char *control_id(const struct control *c)
{
    return c->options->id ? c->options->id : "anonymous-instance";
}

/*
 * Makes `doc` the configuration if it is a good one; takes the reference in
 * any case. -EINVAL or -ENOMEM with a line, and the old one stays.
 */
int control_adopt(struct control *c, json_t *doc,
                  struct errmsg *err) MUST_CHECK;
/*
 * The same in two steps, with something that may fail between them: what it
 * gave is `rc`, and the result of the second. A NULL `doc` stands for a lack of
 * memory. Both own what they are given.
 */
int control_parse(json_t *doc, struct vm_config *out,
                  struct errmsg *err) MUST_CHECK;
int control_settle(struct control *c, int rc, json_t *doc,
                   struct vm_config *config) MUST_CHECK;

/* Builds the machine and starts it. On failure there is none, unless its vCPUs
 * could not be started: then the process ends. */
int control_boot(struct control *c, struct errmsg *err) MUST_CHECK;

/*
 * control_snapshot.c. `body` is that of PUT /snapshot/load: files, overrides,
 * flags. The machine then runs, or is PAUSED when `done` runs: *out_later says
 * so. -EINVAL and others with a line; then there is no machine, and another
 * may be tried.
 */
int control_load(struct control *c, json_t *body, machine_paused_fn done,
                 void *arg, bool *out_later, struct errmsg *err) MUST_CHECK;
int control_save(struct control *c, const char *state_path,
                 const char *mem_path, bool diff,
                 struct errmsg *err) MUST_CHECK;
/* A fork_take_fn; `arg` is the control. */
int control_take_fork(void *arg, int state_fd, int mem_fd, const char *text,
                      size_t len, struct errmsg *err) MUST_CHECK;
/* `body` is that of PUT /mote/fork, `done` as in fork.h; the control keeps the
 * fork. */
int control_fork(struct control *c, json_t *body, fork_done_fn done, void *arg,
                 struct errmsg *err) MUST_CHECK;
/* What machines are made with, apart from their configuration. */
int control_machine_options(struct control *c, struct machine_options *out,
                            struct errmsg *err) MUST_CHECK;

/* control_output.c: what the section of `config` says, from now on. */
int control_set_logger(struct control *c, const struct vm_config *config,
                       struct errmsg *err) MUST_CHECK;
int control_set_metrics(struct control *c, const struct vm_config *config,
                        struct errmsg *err) MUST_CHECK;
int control_set_serial(struct control *c, const struct vm_config *config,
                       struct errmsg *err) MUST_CHECK;
/* What the command line says about the log; --log-path wins nothing over a
 * later section. */
int control_open_log(struct control *c, struct errmsg *err) MUST_CHECK;
void control_output_fini(struct control *c);

/* control_metrics.c. The process takes requests, or runs its machine. */
void control_note_started(struct control *c);
/* What the request at hand asks for is done; `began_ns`: when its own work
 * began, without what went before. */
void control_note_latency(struct control *c, enum control_latency what,
                          uint64_t began_ns);
void control_note_signal(struct control *c, uint32_t signo);
/* Writes the last line, if there are metrics. */
void control_end_metrics(struct control *c);
/* The groups of a line; `arg` is the control. */
bool control_gather(void *arg, json_t *line);

/* api_routes.c: one request of the control socket; `arg` is the control. */
void api_dispatch(void *arg, const struct http_request *req);
/* Adds the counts of requests since the last line. */
void api_gather(struct control *c, json_t *line);

#endif
