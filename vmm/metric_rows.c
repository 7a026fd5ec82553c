/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/metric_rows.h"

static const struct span span_none;
static const struct histogram histogram_none;

static void metric_raise(json_t *group, const char *key, uint64_t by)
{
    json_int_t before = json_integer_value(json_object_get(group, key));

    (void)json_object_set_new(group, key,
                              json_integer(before + (json_int_t)by));
}

static void metric_add_count(json_t *group, const char *key,
                             const uint64_t *now, const uint64_t *told)
{
    metric_raise(group, key, now ? *now - *told : 0);
}

static void metric_add_span(json_t *group, const char *key,
                            const struct span *now, const struct span *told)
{
    json_t *o = metric_group(group, key);
    uint64_t min_us = now->min_ns / 1000;
    uint64_t max_us = now->max_ns / 1000;
    uint64_t max_before =
        (uint64_t)json_integer_value(json_object_get(o, "max_us"));
    const json_t *min_before = json_object_get(o, "min_us");

    /* Among those that have any: one that has counted nothing has no least. */
    if (!min_before || max_before == 0 ||
        (now->min_ns && min_us < (uint64_t)json_integer_value(min_before)))
        (void)json_object_set_new(o, "min_us",
                                  json_integer((json_int_t)min_us));
    if (max_us < max_before)
        max_us = max_before;
    (void)json_object_set_new(o, "max_us", json_integer((json_int_t)max_us));
    /* Both cut to whole microseconds, so that no part is lost for good. */
    metric_raise(o, "sum_us", now->sum_ns / 1000 - told->sum_ns / 1000);
}

static void metric_add_histogram(json_t *group, const char *key,
                                 const struct histogram *now,
                                 const struct histogram *told)
{
    json_t *list = json_object_get(group, key);

    if (!list) {
        list = json_array();
        (void)json_object_set_new(group, key, list);
    }
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        json_int_t before = json_integer_value(json_array_get(list, i));
        json_t *n = json_integer(before + (json_int_t)(now->n[i] - told->n[i]));

        if (i < json_array_size(list))
            (void)json_array_set_new(list, i, n);
        else
            (void)json_array_append_new(list, n);
    }
}

static const void *metric_at(const void *counts, const struct metric_row *r,
                             const void *none)
{
    return counts ? (const char *)counts + r->offset_bytes : none;
}

void metric_rows_add(json_t *group, const struct metric_row *rows,
                     size_t num_rows, const void *now, const void *told)
{
    for (size_t i = 0; i < num_rows; i++) {
        const struct metric_row *r = &rows[i];

        switch (r->kind) {
        case METRIC_COUNT:
            metric_add_count(group, r->key, metric_at(now, r, NULL),
                             metric_at(told, r, NULL));
            break;
        case METRIC_SPAN:
            metric_add_span(group, r->key, metric_at(now, r, &span_none),
                            metric_at(told, r, &span_none));
            break;
        case METRIC_HISTOGRAM:
            metric_add_histogram(group, r->key,
                                 metric_at(now, r, &histogram_none),
                                 metric_at(told, r, &histogram_none));
            break;
        }
    }
}

json_t *metric_group(json_t *line, const char *key)
{
    json_t *group = json_object_get(line, key);

    if (group)
        return group;
    group = json_object();
    return json_object_set_new(line, key, group) ? NULL : group;
}
