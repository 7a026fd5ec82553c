/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_METRICS_H
#define VMM_METRICS_H

/*
 * The metrics file: one JSON object a line, every minute, on request and at
 * the end. A FIFO that nobody reads makes nobody wait: lines that do not fit
 * are dropped and counted.
 *
 * Ownership: owns its descriptor and timer; borrows the loop. Threads: io.
 * Errors: -errno.
 */

#include "vmm/errmsg.h"
#include "vmm/evloop.h"

#include <jansson.h>

struct metrics;

struct metrics_args {
    struct evloop *loop;
    const char *path;       /* read once */
    const char *id;         /* NULL: lines do not name the machine; borrowed */
    const char *properties; /* JSON object as text, or NULL; copied */
    uint64_t period_ns;     /* 0: a minute */
    /* Adds its groups to a line; false: it is not the time for one. */
    bool (*gather)(void *arg, json_t *line);
    void *arg;
};

int metrics_new(const struct metrics_args *args, struct metrics **out_metrics,
                struct errmsg *err) MUST_CHECK;
/* Writes a last line. NULL is fine. */
void metrics_free(struct metrics *m);

/* One line now; -EAGAIN: its reader is too slow, and the line is lost,
 * not what it would have told: gather() was not called. One that is taken in
 * part counts as written, and the rest follows. */
int metrics_flush(struct metrics *m) MUST_CHECK;
/* Lines that could not be written, and those of them that failed for another
 * reason than a slow reader. */
uint64_t metrics_num_lost(const struct metrics *m);
uint64_t metrics_num_failed(const struct metrics *m);
/* For a last word by somebody else. */
int metrics_fd(const struct metrics *m);

#endif
