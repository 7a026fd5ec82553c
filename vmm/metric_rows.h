/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_METRIC_ROWS_H
#define VMM_METRIC_ROWS_H

/*
 * From counts to a group of a metrics line. A table of rows says under which
 * key a field of a struct of counts goes; what a line says is the increase
 * since the struct as it was at the line before. Several structs may be added
 * up in one group.
 *
 * Threads: io. Errors: none; a value that lacks memory is missing from the
 * line.
 */

#include "vmm/counter.h"

#include <jansson.h>

enum metric_kind {
    METRIC_COUNT, /* uint64_t: the increase */
    METRIC_SPAN,  /* struct span: {min_us, max_us, sum_us}; the first two since
                     the start, the sum's increase */
    METRIC_HISTOGRAM, /* struct histogram: a list of increases */
};

struct metric_row {
    const char *key;
    size_t offset_bytes;
    enum metric_kind kind;
};

/* A row of counter `field` of `type`. */
#define METRIC_ROW(key, type, field)                                           \
    {                                                                          \
        key, offsetof(type, field), METRIC_COUNT                               \
    }

/* `now` NULL: nothing was counted; the keys are there all the same. `told` is
 * of the line before. */
void metric_rows_add(json_t *group, const struct metric_row *rows,
                     size_t num_rows, const void *now, const void *told);

/* The object `key` of `line`, made if it is not there; borrowed. NULL: no
 * memory. */
json_t *metric_group(json_t *line, const char *key);

#endif
