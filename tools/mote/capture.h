/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_CAPTURE_H
#define TOOLS_MOTE_CAPTURE_H

/* Runs a helper program and reads what it prints. Threads: one. */

#include "tools/libmote/err.h"

struct capture {
    int exit_code;   /* -1 if a signal ended it */
    char *out;       /* its standard output, NUL-terminated; for free() */
    char error[256]; /* last line of its standard error, or "" */
};

/*
 * Runs `argv` (NULL-terminated, argv[0] a path) with /dev/null as standard
 * input and waits for its end; after `timeout_ms` it is killed. Output above
 * `max_bytes` is an error. On failure nothing is left to free. -ETIMEDOUT,
 * -EFBIG, or -errno.
 */
int capture_run(const char *const *argv, int timeout_ms, size_t max_bytes,
                struct capture *out) MUST_CHECK;

#endif
