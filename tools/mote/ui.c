/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/ui.h"

#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ui_error(const char *fmt, ...)
{
    char line[1024] = "mote: ";
    size_t n = strlen(line);
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
    va_end(ap);
    n = strlen(line);
    line[n++] = '\n';
    (void)!util_write_full(STDERR_FILENO, line, n); /* nowhere else to say it */
}

static const char *ui_code(int rc)
{
    static const struct {
        int rc;
        const char *code;
    } codes[] = {
        {-ENOENT, "not_found"},
        {-EINVAL, "invalid_argument"},
        {-EACCES, "permission_denied"},
        {-EPERM, "permission_denied"},
        {-EEXIST, "already_exists"},
        {-ETIMEDOUT, "timed_out"},
        {-ESRCH, "gone"},
        {-ECHILD, "gone"},
        {-ENAMETOOLONG, "invalid_argument"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        if (codes[i].rc == rc)
            return codes[i].code;
    }
    return "failed";
}

void ui_fail(const struct mote_err *err, bool json)
{
    CLEANUP_FREE char *text = NULL;
    const char *remedy = strstr(err->text, "; ");
    size_t len = remedy ? (size_t)(remedy - err->text) : strlen(err->text);
    json_t *doc;

    if (!json) {
        ui_error("%s", err->text);
        return;
    }
    doc = json_pack("{s:{s:s, s:s%, s:s*}}", "error", "code", ui_code(err->rc),
                    "message", err->text, len, "remedy",
                    remedy ? remedy + 2 : NULL);
    text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    json_decref(doc);
    (void)fprintf(stderr, "%s\n",
                  text ? text : "{\"error\":{\"code\":\"failed\"}}");
}

int ui_finish(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    ui_error("standard output: %s", err_reason(neg_errno()));
    return 1;
}
