/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_TAP_H
#define TOOLS_LIBMOTE_TAP_H

/* Whom a TAP belongs to. Threads: any. */

#include "tools/libmote/err.h"

/* The user that TAP `name` was made for; -1: anybody, or not to be found out
 * here (no /sys, or that of another network namespace). */
long lm_tap_owner(const char *name);

/* -EPERM: it belongs to a user that the caller neither is nor can overrule. */
int lm_tap_check(const char *name, struct mote_err *err) MUST_CHECK;

#endif
