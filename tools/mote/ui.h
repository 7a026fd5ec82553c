/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_UI_H
#define TOOLS_MOTE_UI_H

/* Exit codes, and what mote itself says to people. Threads: one. */

#include "tools/libmote/mote.h"
#include "vmm/util.h"

enum {
    EXIT_USAGE = 2,            /* commands other than run and exec */
    EXIT_TIME_LIMIT = 124,     /* run and exec, as all below */
    EXIT_MOTE_FAILED = 125,    /* mote itself, not the command */
    EXIT_NOT_EXECUTABLE = 126, /* found in the guest, not executable */
    EXIT_NOT_FOUND = 127,      /* not found in the guest */
};

/* One line on standard error: "mote: ...", in one write. */
void ui_error(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* The same for `err`; with `json` as {"error":{code,message,remedy}}. */
void ui_fail(const struct mote_err *err, bool json);

/*
 * Flushes standard output of a command that printed a document or table.
 * `code`, or 1 with a line on standard error if not all could be written.
 */
int ui_finish(int code);

#endif
