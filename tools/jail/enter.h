/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JAIL_ENTER_H
#define JAIL_ENTER_H

/*
 * The way into the jail, in the process that becomes the monitor. Runs after
 * clone(); waits for a byte on `go_fd`, shuts itself in, reports, waits for
 * one more byte, and executes the monitor.
 * `report_fd` gets one byte ENTER_READY, later end of file if the monitor
 * runs; or ENTER_FAILED and the text of an errmsg at any time.
 */

#include "tools/jail/jail.h"

#define ENTER_READY  'R'
#define ENTER_FAILED 'F'

_Noreturn void enter_jail(const struct jail *j, int go_fd, int report_fd);

/* --in-place: the calling process becomes the monitor. Returns on failure, and
 * can then do nothing but end. */
int enter_in_place(const struct jail *j, struct errmsg *err) MUST_CHECK;

#endif
