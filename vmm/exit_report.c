/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/exit_report.h"

#include <fcntl.h>
#include <jansson.h>
#include <unistd.h>

int exit_code_of(const struct machine_result *r)
{
    switch (r->reason) {
    case STOP_POWEROFF:
    case STOP_REBOOT:
    case STOP_HALT:
    case STOP_REQUEST:
        return 0;
    case STOP_TEST:
        return (int)(r->detail & 0xff);
    case STOP_PANIC:
        return EXIT_CODE_PANIC;
    case STOP_TRIPLE_FAULT:
        return EXIT_CODE_TRIPLE_FAULT;
    case STOP_KVM_ERROR:
        return EXIT_CODE_KVM_ERROR;
    case STOP_NONE:
    case STOP_INTERNAL:
        break;
    }
    return EXIT_CODE_OTHER;
}

int exit_report_open(const char *path, int *out_fd, struct errmsg *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0) {
        int rc = neg_errno();

        return err_set(err, rc,
                       "--exit-file %s: %s; give the path of a new "
                       "file in a directory that you can write",
                       path, err_reason(rc));
    }
    *out_fd = fd;
    return 0;
}

int exit_report_write(int fd, const struct machine_result *r,
                      const char *detail, int exit_code)
{
    json_t *marks = json_array();
    json_t *doc;
    int rc;

    for (size_t i = 0; i < r->num_marks; i++)
        (void)json_array_append_new(
            marks, json_pack("{s:i, s:I}", "mark", r->marks[i].mark, "us",
                             (json_int_t)(r->marks[i].at_ns / 1000)));
    doc = json_pack("{s:s, s:s, s:i, s:I, s:o}", "reason",
                    stop_reason_name(r->reason), "detail", detail, "exit_code",
                    exit_code, "first_run_us",
                    (json_int_t)(r->first_run_ns / 1000), "marks", marks);
    if (!doc)
        return -ENOMEM;
    rc = json_dumpfd(doc, fd, JSON_COMPACT) == 0 && write(fd, "\n", 1) == 1
             ? 0
             : neg_errno();
    json_decref(doc);
    return rc;
}
