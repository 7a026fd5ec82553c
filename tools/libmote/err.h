/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_ERR_H
#define TOOLS_LIBMOTE_ERR_H

/* The library's way to fail: `return lm_err(err, -ENOENT, "...")`. */

#include "tools/libmote/mote.h"
#include "vmm/util.h"

/*
 * Stores the line and `rc`, and returns `rc`. `err` may be NULL. The text
 * reads `thing: reason; remedy`.
 */
int lm_err(struct mote_err *err, int rc, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* Out of memory: the one failure that needs no words of its own. */
int lm_err_nomem(struct mote_err *err);

#endif
