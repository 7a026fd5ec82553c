/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/bench_table.h"

#include "vmm/cleanup.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return x < y ? -1 : x > y;
}

void bench_sort(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), bench_compare);
}

double bench_quantile(const double *sorted, size_t n, double p)
{
    size_t i = (size_t)((double)n * p);

    assert(n > 0);
    if ((double)i >= (double)n * p && i > 0)
        i--; /* n*p is whole: that many values are not above sorted[i] */
    return sorted[i < n ? i : n - 1];
}

int bench_row_add(struct bench_row *r, double value)
{
    double *p = reallocarray(r->values, r->n + 1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    r->values = p;
    r->values[r->n++] = value;
    return 0;
}

void bench_row_fini(struct bench_row *r)
{
    free(r->values);
    r->values = NULL;
    r->n = 0;
}

void bench_rows_print(struct bench_row *rows, size_t count)
{
    (void)printf("  %-44s %5s %9s %9s %9s %9s\n", "", "n", "p50", "p95", "p99",
                 "min");
    for (size_t i = 0; i < count; i++) {
        struct bench_row *r = &rows[i];
        double p50;

        if (r->n == 0)
            continue;
        bench_sort(r->values, r->n);
        p50 = bench_quantile(r->values, r->n, 0.5);
        (void)printf("  %-44s %5zu %9.2f %9.2f %9.2f %9.2f %s", r->label, r->n,
                     p50, bench_quantile(r->values, r->n, 0.95),
                     bench_quantile(r->values, r->n, 0.99), r->values[0],
                     r->unit);
        if (r->bar > 0)
            (void)printf("; bar %.4g: %s", r->bar,
                         p50 <= r->bar ? "met" : "missed");
        (void)printf("\n");
    }
}

json_t *bench_rows_json(struct bench_row *rows, size_t count)
{
    json_t *doc = json_object();

    for (size_t i = 0; doc && i < count; i++) {
        struct bench_row *r = &rows[i];
        json_t *one;

        if (r->n == 0)
            continue;
        bench_sort(r->values, r->n);
        one = json_pack(
            "{s:I, s:f, s:f, s:f, s:f, s:f, s:o*}", "n", (json_int_t)r->n,
            "p50", bench_quantile(r->values, r->n, 0.5), "p95",
            bench_quantile(r->values, r->n, 0.95), "p99",
            bench_quantile(r->values, r->n, 0.99), "min", r->values[0], "max",
            r->values[r->n - 1], "bar", r->bar > 0 ? json_real(r->bar) : NULL);
        (void)json_object_set_new(doc, r->key, one);
    }
    return doc;
}

void bench_print_doc(json_t *doc)
{
    CLEANUP_FREE char *text =
        doc ? json_dumps(doc, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;

    json_decref(doc);
    (void)printf("%s\n", text ? text : "{}");
}
