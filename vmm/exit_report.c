/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/exit_report.h"

#include "vmm/bus.h"
#include "vmm/cleanup.h"
#include "vmm/tally.h"
#include "vmm/vcpu.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
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

static json_t *exit_report_hex(uint64_t v)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "0x%llx", (unsigned long long)v);
    return json_string(text);
}

static json_t *exit_report_exit(const struct machine_result *r,
                                const struct tally_row *row)
{
    static const char *const kinds[VCPU_EXIT_KINDS] = {
        [VCPU_EXIT_IO_IN] = "pio_in",
        [VCPU_EXIT_IO_OUT] = "pio_out",
        [VCPU_EXIT_MMIO_READ] = "mmio_read",
        [VCPU_EXIT_MMIO_WRITE] = "mmio_write",
        [VCPU_EXIT_SIGNAL] = "signal",
        [VCPU_EXIT_INTERNAL] = "internal_error",
        [VCPU_EXIT_OTHER] = "other",
    };
    enum vcpu_exit_kind kind = VCPU_EXIT_KIND(row->key);
    uint64_t addr = VCPU_EXIT_ADDR(row->key);
    bool mmio = kind == VCPU_EXIT_MMIO_READ || kind == VCPU_EXIT_MMIO_WRITE;
    bool pio = kind == VCPU_EXIT_IO_IN || kind == VCPU_EXIT_IO_OUT;
    const char *who = NULL;
    uint64_t base = addr;

    if (mmio || pio)
        who = bus_who(mmio ? r->mmio : r->pio, addr, &base);
    return json_pack("{s:s, s:o, s:s*, s:o, s:I}", "kind", kinds[kind], "addr",
                     exit_report_hex(addr), "device", who, "base",
                     exit_report_hex(base), "count", (json_int_t)row->count);
}

static json_t *exit_report_sample(const struct machine_result *r,
                                  const struct tally_row *row)
{
    (void)r;
    return json_pack("{s:o, s:I}", "ip", exit_report_hex(row->key), "count",
                     (json_int_t)row->count);
}

/* NULL when out of memory. */
static json_t *exit_report_tally(const struct machine_result *r,
                                 struct tally *t,
                                 json_t *(*one)(const struct machine_result *r,
                                                const struct tally_row *row))
{
    CLEANUP_FREE struct tally_row *rows = NULL;
    uint64_t dropped = 0;
    size_t n = 0;
    json_t *list;

    if (tally_rows(t, &rows, &n, &dropped))
        return NULL;
    list = json_array();
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(list, one(r, &rows[i]));
    return json_pack("{s:I, s:o}", "dropped", (json_int_t)dropped, "rows",
                     list);
}

static int exit_report_counts(json_t *doc, const struct machine_result *r)
{
    int rc = 0;

    if (r->exits)
        rc = json_object_set_new(
            doc, "exits", exit_report_tally(r, r->exits, exit_report_exit));
    if (r->samples && rc == 0)
        rc = json_object_set_new(
            doc, "profile",
            exit_report_tally(r, r->samples, exit_report_sample));
    return rc ? -ENOMEM : 0;
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
    doc = json_pack("{s:s, s:s, s:i, s:I, s:I, s:o}", "reason",
                    stop_reason_name(r->reason), "detail", detail, "exit_code",
                    exit_code, "configured_us",
                    (json_int_t)(r->configured_ns / 1000), "first_run_us",
                    (json_int_t)(r->first_run_ns / 1000), "marks", marks);
    if (!doc)
        return -ENOMEM;
    if (exit_report_counts(doc, r)) {
        json_decref(doc);
        return -ENOMEM;
    }
    rc = json_dumpfd(doc, fd, JSON_COMPACT) == 0 && write(fd, "\n", 1) == 1
             ? 0
             : neg_errno();
    json_decref(doc);
    return rc;
}
