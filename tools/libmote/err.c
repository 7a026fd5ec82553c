/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/err.h"

#include <stdarg.h>
#include <stdio.h>

int lm_err(struct mote_err *err, int rc, const char *fmt, ...)
{
    va_list ap;

    if (!err)
        return rc;
    err->rc = rc;
    va_start(ap, fmt);
    (void)vsnprintf(err->text, sizeof(err->text), fmt, ap); /* cut is fine */
    va_end(ap);
    return rc;
}

int lm_err_nomem(struct mote_err *err)
{
    return lm_err(err, -ENOMEM, "out of memory; free some on this host");
}

const char *mote_version(void)
{
    return MOTE_VERSION;
}
