/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/metrics.h"

#include "vmm/cleanup.h"
#include "vmm/sink.h"

#include <string.h>
#include <time.h>

#define METRICS_PERIOD_NS 60000000000ull

struct metrics {
    struct metrics_args args;
    int fd;
    struct ev_timer timer;
    uint64_t num_lost;
};

static json_t *metrics_head(const struct metrics *m)
{
    struct timespec ts;
    json_t *line;
    json_t *props = NULL;

    (void)clock_gettime(CLOCK_REALTIME, &ts); /* cannot fail on Linux */
    if (m->args.properties)
        props = json_loads(m->args.properties, 0, NULL);
    line = json_pack("{s:I, s:s*, s:o*}", "utc_timestamp_ms",
                     (json_int_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000, "id",
                     m->args.id, "properties", props);
    return line;
}

/* One write(2), so that lines do not mix with those of others. */
static int metrics_write(struct metrics *m, const json_t *line)
{
    CLEANUP_FREE char *text = json_dumps(line, JSON_COMPACT);
    size_t n;

    if (!text)
        return -ENOMEM;
    n = strlen(text);
    text[n] = '\n'; /* takes the place of the NUL */
    errno = 0;      /* a short write sets none */
    return write(m->fd, text, n + 1) == (ssize_t)(n + 1) ? 0 : neg_errno();
}

int metrics_flush(struct metrics *m)
{
    json_t *line = metrics_head(m);
    int rc = line ? 0 : -ENOMEM;

    if (rc == 0 && m->args.gather(m->args.arg, line))
        rc = metrics_write(m, line);
    json_decref(line);
    if (rc)
        m->num_lost++;
    return rc;
}

static int metrics_arm(struct metrics *m);

static void metrics_on_timer(struct ev_timer *t)
{
    struct metrics *m = t->arg;

    (void)!metrics_flush(m); /* counted */
    (void)!metrics_arm(m);   /* only memory can lack: then no more lines */
}

static int metrics_arm(struct metrics *m)
{
    uint64_t period = m->args.period_ns ? m->args.period_ns : METRICS_PERIOD_NS;

    return evloop_timer_arm(m->args.loop, &m->timer, util_now_ns() + period,
                            metrics_on_timer, m);
}

int metrics_new(const struct metrics_args *args, struct metrics **out_metrics,
                struct errmsg *err)
{
    struct metrics *m = calloc(1, sizeof(*m));
    int rc;

    if (!m)
        return err_set(err, -ENOMEM, "metrics: out of memory");
    m->args = *args;
    rc = sink_open(args->path, &m->fd);
    if (rc == 0) {
        rc = metrics_arm(m);
        if (rc)
            drop_fd(&m->fd);
    }
    if (rc) {
        free(m);
        return err_set(err, rc, "metrics_path %s: %s", args->path,
                       err_reason(rc));
    }
    *out_metrics = m;
    return 0;
}

void metrics_free(struct metrics *m)
{
    if (!m)
        return;
    (void)!metrics_flush(m); /* nobody is left to tell */
    evloop_timer_cancel(m->args.loop, &m->timer);
    drop_fd(&m->fd);
    free(m);
}

uint64_t metrics_num_lost(const struct metrics *m)
{
    return m->num_lost;
}
