/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/metrics.h"

#include "vmm/cleanup.h"
#include "vmm/sink.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define METRICS_PERIOD_NS 60000000000ull

struct metrics {
    struct metrics_args args;
    int fd;
    struct ev_timer timer;
    json_t *properties; /* NULL: none */
    /* A line that the reader has taken a part of; NULL: none. */
    char *text;
    size_t len;
    size_t done;
    struct ev_fd room;
    uint64_t num_lost;
    uint64_t num_failed;
};

static json_t *metrics_head(const struct metrics *m)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts); /* cannot fail on Linux */
    return json_pack("{s:I, s:s*, s:O*}", "utc_timestamp_ms",
                     (json_int_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000, "id",
                     m->args.id, "properties", m->properties);
}

static void metrics_on_room(struct ev_fd *w, uint32_t revents);

/*
 * Writes what is left of m->text. 0: all of it; -EAGAIN: its reader is too
 * slow, and the loop goes on with it; or -errno.
 */
static int metrics_drain(struct metrics *m)
{
    while (m->done < m->len) {
        ssize_t n = write(m->fd, m->text + m->done, m->len - m->done);

        if (n >= 0) {
            m->done += (size_t)n;
            continue;
        }
        if (errno == EINTR)
            continue;
        return neg_errno();
    }
    free(m->text);
    m->text = NULL;
    m->len = m->done = 0;
    return 0;
}

/* Of a line that has begun the rest must follow, or the next one joins it. */
static void metrics_on_room(struct ev_fd *w, uint32_t revents)
{
    struct metrics *m = w->arg;

    (void)revents;
    if (metrics_drain(m) != -EAGAIN)
        evloop_fd_del(m->args.loop, &m->room);
}

/*
 * Whether a line may come now, so that what has been counted is not gone with
 * one that cannot be written: it is told by the next instead. A pipe that says
 * POLLOUT takes at least PIPE_BUF bytes.
 */
static int metrics_ready(struct metrics *m)
{
    struct pollfd p = {.fd = m->fd, .events = POLLOUT};
    int rc = metrics_drain(m); /* of the line before */

    if (rc)
        return rc;
    return poll(&p, 1, 0) == 0 ? -EAGAIN : 0; /* an error shows in write() */
}

/*
 * A line is written at once, so that lines do not mix with those of others; a
 * FIFO may take only a part of one that is longer than PIPE_BUF. If nothing of
 * it is taken the line is lost.
 */
static int metrics_write(struct metrics *m, const json_t *line)
{
    int rc;

    m->text = json_dumps(line, JSON_COMPACT);
    if (!m->text)
        return -ENOMEM;
    m->len = strlen(m->text) + 1;
    m->text[m->len - 1] = '\n'; /* takes the place of the NUL */
    rc = metrics_drain(m);
    if (rc == 0)
        return 0;
    if (m->done == 0) {
        free(m->text);
        m->text = NULL;
        m->len = 0;
        return rc;
    }
    /* Whoever refuses a watch, as a file does, is tried by the next line. */
    (void)!evloop_fd_add(m->args.loop, &m->room, m->fd, POLLOUT,
                         metrics_on_room, m);
    return 0;
}

int metrics_flush(struct metrics *m)
{
    int rc = metrics_ready(m);
    json_t *line = rc ? NULL : metrics_head(m);

    if (rc == 0 && !line)
        rc = -ENOMEM;
    if (rc == 0 && m->args.gather(m->args.arg, line))
        rc = metrics_write(m, line);
    json_decref(line);
    m->num_lost += rc != 0;
    m->num_failed += rc && rc != -EAGAIN;
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
    m->args.path = NULL; /* the configuration that holds it may change */
    m->args.properties = NULL;
    if (args->properties)
        m->properties = json_loads(args->properties, 0, NULL);
    rc = args->properties && !m->properties ? -ENOMEM
                                            : sink_open(args->path, &m->fd);
    if (rc == 0) {
        rc = metrics_arm(m);
        if (rc)
            drop_fd(&m->fd);
    }
    if (rc) {
        json_decref(m->properties);
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
    evloop_fd_del(m->args.loop, &m->room);
    drop_fd(&m->fd);
    free(m->text);
    json_decref(m->properties);
    free(m);
}

uint64_t metrics_num_lost(const struct metrics *m)
{
    return m->num_lost;
}

uint64_t metrics_num_failed(const struct metrics *m)
{
    return m->num_failed;
}

int metrics_fd(const struct metrics *m)
{
    return m->fd;
}
