/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/errmsg.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct errmsg *err, int rc, const char *fmt, ...)
{
    va_list ap;

    if (!err)
        return rc;
    va_start(ap, fmt);
    (void)vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    return rc;
}

const char *err_reason(int rc)
{
    const char *text = strerrordesc_np(-rc);

    return text ? text : "unknown error";
}
