/* SPDX-License-Identifier: Apache-2.0 */
/* `mote snapshot info`. */
#include "tools/mote/snapshot.h"

#include "tools/mote/ui.h"
#include "vmm/cleanup.h"

#include <jansson.h>
#include <stdio.h>
#include <time.h>

struct info_opts {
    bool json;
};

static const struct opt_def info_defs[] = {
    {"json", 0, OPT_FLAG, offsetof(struct info_opts, json), NULL,
     "print one JSON document", NULL, 0, 0},
};

static const struct opt_table info_table = {
    .usage = "snapshot info [options] DIR",
    .summary = "tell what is in a snapshot",
    .defs = info_defs,
    .count = ARRAY_SIZE(info_defs),
};

static void info_time(int64_t ms, char *out, size_t size)
{
    time_t s = (time_t)(ms / 1000);
    char stamp[24];
    struct tm tm;

    (void)gmtime_r(&s, &tm);
    (void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out, size, "%s.%03dZ", stamp, (int)(ms % 1000));
}

static json_t *info_disks_json(const struct mote_snapshot_info *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->disk_count; i++) {
        const struct mote_snapshot_disk *d = &s->disks[i];

        (void)json_array_append_new(
            list, json_pack("{s:s, s:b, s:s, s:I, s:I}", "id", d->id,
                            "read_only", d->read_only, "path", d->path,
                            "size_bytes", (json_int_t)d->size_bytes,
                            "stored_bytes", (json_int_t)d->stored_bytes));
    }
    return list;
}

static void info_print_json(const struct mote_snapshot_info *s)
{
    CLEANUP_FREE char *text = NULL;
    json_t *devices = json_array();
    char created[48];
    json_t *doc;

    info_time(s->created_ms, created, sizeof(created));
    for (size_t i = 0; i < s->device_count; i++)
        (void)json_array_append_new(devices, json_string(s->devices[i]));
    doc = json_pack(
        "{s:s, s:s, s:s?, s:s?, s:s, s:i, s:I, s:I, s:I, s:b, s:s, s:o, s:o}",
        "id", s->id, "kind", s->parent[0] ? "diff" : "full", "parent",
        s->parent[0] ? s->parent : NULL, "name", s->name[0] ? s->name : NULL,
        "created_at", created, "cpus", (int)s->vcpus, "mem_bytes",
        (json_int_t)s->mem_bytes, "mem_stored_bytes",
        (json_int_t)s->mem_stored_bytes, "state_bytes",
        (json_int_t)s->state_bytes, "track_writes", s->track_writes, "cpu",
        s->cpu, "devices", devices, "disks", info_disks_json(s));
    text = doc ? json_dumps(doc, JSON_INDENT(2)) : NULL;
    json_decref(doc);
    (void)printf("%s\n", text ? text : "{}");
}

static double info_mib(uint64_t bytes)
{
    return (double)bytes / (double)MIB;
}

static void info_print_text(const struct mote_snapshot_info *s)
{
    char created[48];

    info_time(s->created_ms, created, sizeof(created));
    (void)printf("id       %s\n", s->id);
    (void)printf("kind     %s%s\n", s->parent[0] ? "diff, builds on " : "full",
                 s->parent);
    (void)printf("machine  %s\n", s->name[0] ? s->name : "-");
    (void)printf("created  %s\n", created);
    (void)printf("cpus     %u\n", s->vcpus);
    (void)printf("memory   %.0f MiB, %.1f MiB on disk\n",
                 info_mib(s->mem_bytes), info_mib(s->mem_stored_bytes));
    (void)printf("state    %.1f MiB\n", info_mib(s->state_bytes));
    (void)printf("host     %s\n", s->cpu);
    (void)printf("devices ");
    for (size_t i = 0; i < s->device_count; i++)
        (void)printf(" %s", s->devices[i]);
    (void)printf("\n");
    for (size_t i = 0; i < s->disk_count; i++) {
        const struct mote_snapshot_disk *d = &s->disks[i];

        if (d->read_only)
            (void)printf("disk     %s: %.1f MiB, read-only, has to be at %s\n",
                         d->id, info_mib(d->size_bytes), d->path);
        else
            (void)printf("disk     %s: %.1f MiB, %.1f MiB on disk\n", d->id,
                         info_mib(d->size_bytes), info_mib(d->stored_bytes));
    }
}

static int info_main(const struct cli *cli, int argc, char **argv)
{
    CLEANUP_FREE struct mote_snapshot_info *s = NULL;
    struct info_opts o = {0};
    struct mote_err err = {0};
    struct snapshot_words w = {.count = 1};
    int code = EXIT_USAGE;

    (void)cli;
    if (!snapshot_parse(&cmd_snapshot_info, argc, argv, &o, &w, &code))
        return code;
    if (mote_snapshot_read(w.at[0], &s, &err)) {
        ui_fail(&err, o.json);
        return 1;
    }
    if (o.json)
        info_print_json(s);
    else
        info_print_text(s);
    return ui_finish(0);
}

const struct command cmd_snapshot_info = {"snapshot info", &info_table,
                                          info_main};
