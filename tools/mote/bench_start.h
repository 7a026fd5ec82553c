/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_BENCH_START_H
#define TOOLS_MOTE_BENCH_START_H

/* `mote bench start`: what a monitor costs until its control socket answers.
 * Threads: one. Errors: -errno with a line. */

#include "tools/libmote/err.h"

/* From the spawn of a monitor to the answer of its first request. */
struct bench_start {
    double wall_ms;
    double cpu_ms; /* of the monitor's process, the spawn included */
};

/* Once. `vmm` is the program; it is ended again. */
int bench_start_once(const char *vmm, struct bench_start *out,
                     struct mote_err *err) MUST_CHECK;

/* Of a sorted list; the p-th part of the values is not above the result. */
double bench_quantile(const double *sorted, size_t n, double p);
void bench_sort(double *values, size_t n);

#endif
