/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/cmd.h"

#include "tools/mote/ui.h"
#include "vmm/cleanup.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct ls_opts {
    bool json;
};

static const struct opt_def ls_defs[] = {
    {"json", 0, OPT_FLAG, offsetof(struct ls_opts, json), NULL,
     "print one JSON document", NULL, 0, 0},
};

static const struct opt_table ls_table = {
    .usage = "ls [options]",
    .summary = "list the running machines",
    .defs = ls_defs,
    .count = ARRAY_SIZE(ls_defs),
};

static int64_t ls_now_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts); /* cannot fail on Linux */
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The clock may have been set back since. */
static int64_t ls_uptime_ms(const struct mote_vm_info *vm, int64_t now_ms)
{
    return now_ms > vm->started_ms ? now_ms - vm->started_ms : 0;
}

static json_t *ls_json_item(const struct mote_vm_info *vm, int64_t now_ms)
{
    time_t s = (time_t)(vm->started_ms / 1000);
    char stamp[40];
    char started[48];
    struct tm tm;

    (void)gmtime_r(&s, &tm);
    (void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(started, sizeof(started), "%s.%03dZ", stamp,
                   (int)(vm->started_ms % 1000));
    return json_pack("{s:s, s:s?, s:s, s:i, s:i, s:i, s:I, s:s, s:I}", "id",
                     vm->id, "name", vm->name[0] ? vm->name : NULL, "state",
                     vm->ready ? "running" : "starting", "pid",
                     (int)vm->monitor_pid, "owner_pid", (int)vm->owner_pid,
                     "cpus", (int)vm->vcpus, "mem_bytes",
                     (json_int_t)vm->mem_bytes, "started_at", started,
                     "uptime_ms", (json_int_t)ls_uptime_ms(vm, now_ms));
}

static void ls_print_json(const struct mote_vm_info *list, size_t count)
{
    CLEANUP_FREE char *text = NULL;
    json_t *array = json_array();
    json_t *doc;

    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, ls_json_item(&list[i], ls_now_ms()));
    doc = json_pack("{s:o}", "sandboxes", array);
    text = doc ? json_dumps(doc, JSON_INDENT(2)) : NULL;
    json_decref(doc);
    (void)printf("%s\n", text ? text : "{}");
}

/* 5s, 12m05s, 3h07m, 9d04h: two units say enough. */
static void ls_format_uptime(int64_t ms, char *out, size_t cap)
{
    long long s = ms / 1000;

    if (s < 60)
        (void)snprintf(out, cap, "%llds", s);
    else if (s < 3600)
        (void)snprintf(out, cap, "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        (void)snprintf(out, cap, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else
        (void)snprintf(out, cap, "%lldd%02lldh", s / 86400, s / 3600 % 24);
}

static void ls_print_table(const struct mote_vm_info *list, size_t count)
{
    int width = 4;

    for (size_t i = 0; i < count; i++) {
        int n = (int)strlen(list[i].name);

        width = n > width ? n : width;
    }
    (void)printf("%-*s  %-12s  %-8s  %7s  %4s  %8s  %s\n", width, "NAME", "ID",
                 "STATE", "PID", "CPUS", "MEM", "UPTIME");
    for (size_t i = 0; i < count; i++) {
        const struct mote_vm_info *vm = &list[i];
        char uptime[32];

        ls_format_uptime(ls_uptime_ms(vm, ls_now_ms()), uptime, sizeof(uptime));
        (void)printf("%-*s  %-12s  %-8s  %7d  %4u  %5lluMiB  %s\n", width,
                     vm->name[0] ? vm->name : "-", vm->id,
                     vm->ready ? "running" : "starting", (int)vm->monitor_pid,
                     vm->vcpus, (unsigned long long)(vm->mem_bytes / MIB),
                     uptime);
    }
}

static int ls_main(const struct cli *cli, int argc, char **argv)
{
    CLEANUP_FREE struct mote_vm_info *list = NULL;
    struct ls_opts o = {0};
    struct mote_err err = {0};
    size_t count = 0;
    int code = EXIT_USAGE;
    int first = cmd_parse(&cmd_ls, argc, argv, &o, &code);

    (void)cli;
    if (first < 0)
        return code;
    if (first < argc) {
        ui_error("ls %s: takes no operand; `mote ls --help` explains it",
                 argv[first]);
        return EXIT_USAGE;
    }
    if (mote_list(&list, &count, &err)) {
        ui_fail(&err, o.json);
        return 1;
    }
    if (o.json)
        ls_print_json(list, count);
    else
        ls_print_table(list, count);
    return ui_finish(0);
}

const struct command cmd_ls = {"ls", &ls_table, ls_main};
