/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_BENCH_TABLE_H
#define TOOLS_MOTE_BENCH_TABLE_H

/*
 * The figures of a bench: one row a quantity, its values, what comes of them
 * as a table or a document.
 * Ownership: rows are the caller's; bench_row_fini() releases the values.
 * Threads: one.
 */

#include "vmm/util.h"

#include <jansson.h>

struct bench_row {
    const char *key;   /* of JSON, with its unit: "exec_kvm_run_ms" */
    const char *label; /* of the table */
    const char *unit;  /* "ms", "KiB" */
    double bar;        /* not above this at p50; 0: none */
    double *values;
    size_t n;
};

int bench_row_add(struct bench_row *r, double value) MUST_CHECK;
void bench_row_fini(struct bench_row *r); /* idempotent */

/* Sorts the values; those without any are left out. */
void bench_rows_print(struct bench_row *rows, size_t count);
json_t *bench_rows_json(struct bench_row *rows, size_t count);

/* One document on standard output; `doc` is owned by the callee. */
void bench_print_doc(json_t *doc);

/* Of a sorted list; the p-th part of the values is not above the result. */
double bench_quantile(const double *sorted, size_t n, double p);
void bench_sort(double *values, size_t n);

#endif
