/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_SPAWN_H
#define TOOLS_LIBMOTE_SPAWN_H

/*
 * A process with just the descriptors that it is given, in a session of its
 * own, with default signals and a small environment: what a guest may one day
 * reach holds no secret of the caller's environment.
 * Threads: any. Errors: -errno.
 */

#include "tools/libmote/err.h"

/* The monitor's own five, and a file for each that it may open. */
#define LM_SPAWN_MAX_FDS 48

struct lm_spawn {
    const char *program;
    const char *const *words; /* argv, NULL-terminated */
    /* Number i in the process is a copy of fds[i], or /dev/null for -1. */
    int fds[LM_SPAWN_MAX_FDS];
    size_t fd_count; /* at least 3 */
};

/* All descriptors stay the caller's. */
int lm_spawn(const struct lm_spawn *s, pid_t *out_pid) MUST_CHECK;

/*
 * A copy of a NULL-terminated list of words that posix_spawn() takes, in one
 * block for free(); NULL when out of memory.
 */
char **lm_words_copy(const char *const *words);

#endif
