/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_BENCH_PROCESS_H
#define TOOLS_MOTE_BENCH_PROCESS_H

/*
 * A monitor as a bare process, for benches that look at just that.
 * Threads: one. Errors: -errno.
 */

#include "vmm/util.h"

#include <sys/types.h>

/* `words` NULL-terminated, the first is the program's path. `out_fd` becomes
 * its standard output, -1: nobody reads. */
int bench_spawn(const char *const *words, int out_fd,
                pid_t *out_pid) MUST_CHECK;
/* Until it has answered a request at its control socket. -ECHILD: it ended. */
int bench_wait_api(pid_t pid, const char *sock) MUST_CHECK;
/* Ends it, by a signal that it may handle or not, and reaps it. */
void bench_end(pid_t pid, bool orderly);

/* When the first byte came; it and what else is there is read. */
int bench_first_byte(int fd, uint64_t *out_ns) MUST_CHECK;

/* Of a process: the pages that it alone has, or of those just the `written`
 * ones; CPU time so far. */
int bench_private_kib(pid_t pid, bool written, double *out_kib) MUST_CHECK;
int bench_cpu_ms(pid_t pid, double *out_ms) MUST_CHECK;

#endif
