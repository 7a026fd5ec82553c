/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_FILES_H
#define TOOLS_LIBMOTE_FILES_H

/*
 * The descriptors that a monitor inherits, and the files among them: in a jail
 * it has neither their folders nor the right to open them, so the caller opens
 * them, and the configuration names them as /dev/fd/N/PATH (util_open()).
 *
 * Ownership: the struct owns the descriptors of files and the names.
 * Threads: one. Errors: -errno with `err`.
 */

#include "tools/libmote/spawn.h"

#define LM_FILES_MAX LM_SPAWN_MAX_FDS

struct lm_files {
    int fds[LM_FILES_MAX];
    bool own[LM_FILES_MAX];
    char *names[LM_FILES_MAX];
    size_t count; /* the next one's number in the monitor */
};

/* Takes a descriptor of the caller's (-1: /dev/null) as the next. */
int lm_files_lend(struct lm_files *f, int fd) MUST_CHECK;

/*
 * Opens `path` as the next; `role` says what it is, in messages. *out_name is
 * how the monitor finds it, valid until lm_files_close().
 */
int lm_files_open(struct lm_files *f, const char *role, const char *path,
                  bool writable, const char **out_name,
                  struct mote_err *err) MUST_CHECK;

void lm_files_close(struct lm_files *f); /* idempotent */

/* Makes of such names in a monitor's words what the caller has called the
 * files. */
void lm_files_plain(char *text);

#endif
