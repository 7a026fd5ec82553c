/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_ERRMSG_H
#define VMM_ERRMSG_H

/*
 * The one line that a failed set-up step leaves for the user: the thing, the
 * reason, the remedy. Filled where the failure is known best, printed once by
 * main. The struct is the caller's.
 */

#include "vmm/util.h"

struct errmsg {
    char text[640];
};

/*
 * Stores the formatted line and returns `rc`, so that a failure reads
 * `return err_set(err, -EINVAL, "...")`. `err` may be NULL.
 */
int err_set(struct errmsg *err, int rc, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The usual text of an errno, without its number. `rc` is negative. */
const char *err_reason(int rc);

#endif
