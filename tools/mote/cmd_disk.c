/* SPDX-License-Identifier: Apache-2.0 */
/* Copy-on-write disks: made, looked at, merged. */
#include "tools/libmote/err.h"
#include "tools/mote/cmd.h"
#include "tools/mote/ui.h"
#include "vmm/cleanup.h"
#include "vmm/cow_merge.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct disk_opts {
    const char *base;
    uint64_t size_bytes;
    bool json;
};

static const struct opt_def disk_defs[] = {
    {"base", 'b', OPT_TEXT, offsetof(struct disk_opts, base), "DISK[:cow]",
     "create: what is read where nothing was written; raw, unless :cow", "none",
     0, 0},
    {"size", 's', OPT_SIZE, offsetof(struct disk_opts, size_bytes), "SIZE",
     "create: size such as 10G", "the base's", MIB, COW_MAX_BYTES},
    {"json", 0, OPT_FLAG, offsetof(struct disk_opts, json), NULL,
     "info: print one JSON document", NULL, 0, 0},
};

static const struct opt_table disk_table = {
    .usage = "disk create [--base DISK[:cow]] [--size SIZE] FILE\n"
             "       mote disk info [--json] FILE\n"
             "       mote disk flatten FILE OUT[:cow]",
    .summary = "make, show and merge copy-on-write disks",
    .defs = disk_defs,
    .count = ARRAY_SIZE(disk_defs),
    .notes = "A copy-on-write disk is attached by `mote run --disk FILE:cow`. "
             "flatten writes a raw\nimage, or with :cow one file on the same "
             "raw base.\n",
};

static int disk_fail(int rc, const struct errmsg *err, bool json)
{
    struct mote_err e = {0};

    if (err->text[0])
        (void)lm_err(&e, rc, "%s", err->text);
    else
        (void)lm_err_nomem(&e);
    ui_fail(&e, json);
    return 1;
}

/* What stands before ":cow", as a copy; *out_cow: it was there. */
static char *disk_cut_cow(const char *spec, bool *out_cow)
{
    size_t len = strlen(spec);

    *out_cow = len > 4 && strcmp(spec + len - 4, ":cow") == 0;
    return strndup(spec, *out_cow ? len - 4 : len);
}

static int disk_create(const struct disk_opts *o, char *const *arg)
{
    struct errmsg err = {""};
    char *base = NULL;
    bool cow = false;
    int rc = 0;

    if (!o->base && o->size_bytes == 0) {
        ui_error("disk create %s: needs --base or --size", arg[0]);
        return EXIT_USAGE;
    }
    if (o->base) {
        base = disk_cut_cow(o->base, &cow);
        rc = base ? 0 : -ENOMEM;
    }
    if (rc == 0)
        rc = cow_create(arg[0], base,
                        !base ? COW_BASE_NONE
                        : cow ? COW_BASE_COW
                              : COW_BASE_RAW,
                        o->size_bytes, &err);
    free(base);
    return rc ? disk_fail(rc, &err, false) : 0;
}

/* --- info ------------------------------------------------------------------
 */

static void disk_hex(const uint8_t *id, char out[2 * COW_ID_BYTES + 1])
{
    for (unsigned i = 0; i < COW_ID_BYTES; i++)
        (void)snprintf(out + 2 * (size_t)i, 3, "%02x", id[i]);
}

static const char *const disk_kinds[] = {"none", "raw", "cow"};

static void disk_print_json(const struct cow_header *h, uint64_t allocated,
                            uint64_t stored)
{
    CLEANUP_FREE char *text = NULL;
    char id[2 * COW_ID_BYTES + 1];
    json_t *doc;

    disk_hex(h->id, id);
    doc = json_pack(
        "{s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:i, s:b, s:s, s:s*}", "format",
        "cow", "id", id, "version", (int)COW_VERSION, "size_bytes",
        (json_int_t)h->size_bytes, "cluster_bytes",
        (json_int_t)COW_CLUSTER_BYTES, "allocated_bytes", (json_int_t)allocated,
        "stored_bytes", (json_int_t)stored, "depth", (int)h->depth, "frozen",
        h->flags & COW_FROZEN ? 1 : 0, "base_format", disk_kinds[h->base_kind],
        "base", h->base_path[0] ? h->base_path : NULL);
    text = doc ? json_dumps(doc, JSON_INDENT(2)) : NULL;
    json_decref(doc);
    (void)printf("%s\n", text ? text : "{}");
}

static void disk_print(const struct cow_header *h, uint64_t allocated,
                       uint64_t stored)
{
    char id[2 * COW_ID_BYTES + 1];

    disk_hex(h->id, id);
    (void)printf(
        "format     copy-on-write, version %u\n"
        "id         %s\n"
        "size       %llu\n"
        "allocated  %llu in clusters of %u, %llu on the host's disk\n"
        "depth      %u of at most %u\n"
        "base       %s%s%s\n"
        "state      %s\n",
        COW_VERSION, id, (unsigned long long)h->size_bytes,
        (unsigned long long)allocated, COW_CLUSTER_BYTES,
        (unsigned long long)stored, h->depth, COW_MAX_DEPTH,
        disk_kinds[h->base_kind], h->base_path[0] ? " " : "", h->base_path,
        h->flags & COW_FROZEN ? "base of others, read-only" : "writable");
}

static void disk_show(const struct cow_file *f, const struct stat *st,
                      bool json)
{
    uint64_t allocated = cow_map_count(f->map, f->header.size_bytes);
    uint64_t stored = (uint64_t)st->st_blocks * 512;

    allocated *= COW_CLUSTER_BYTES;
    if (json)
        disk_print_json(&f->header, allocated, stored);
    else
        disk_print(&f->header, allocated, stored);
}

/* The file alone: its base may be elsewhere. */
static int disk_info(const struct disk_opts *o, char *const *arg)
{
    CLEANUP_FD int fd = open(arg[0], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct errmsg err = {""};
    struct cow_file *f;
    struct stat st;
    int rc;

    if (fd < 0 || fstat(fd, &st)) {
        rc = neg_errno();
        (void)err_set(&err, rc, "disk %s: cannot open it: %s; check the path",
                      arg[0], err_reason(rc));
        return disk_fail(rc, &err, o->json);
    }
    f = calloc(1, sizeof(*f));
    rc = f ? cow_file_read(fd, arg[0], f, &err) : -ENOMEM;
    if (rc == 0) {
        disk_show(f, &st, o->json);
        free(f->map);
    }
    free(f);
    return rc ? disk_fail(rc, &err, o->json) : ui_finish(0);
}

static int disk_flatten(const struct disk_opts *o, char *const *arg)
{
    struct cow_chain *chain = NULL;
    struct errmsg err = {""};
    bool cow = false;
    char *out = disk_cut_cow(arg[1], &cow);
    int rc = out ? cow_chain_open(arg[0], true, &chain, &err) : -ENOMEM;

    (void)o;
    if (rc == 0)
        rc = cow_merge(chain, out, cow ? COW_BASE_COW : COW_BASE_RAW, &err);
    cow_chain_free(chain);
    free(out);
    return rc ? disk_fail(rc, &err, false) : 0;
}

/* --- the command -----------------------------------------------------------
 */

static const struct {
    const char *name;
    int num_args;
    int (*run)(const struct disk_opts *o, char *const *arg);
} disk_verbs[] = {
    {"create", 1, disk_create},
    {"info", 1, disk_info},
    {"flatten", 2, disk_flatten},
};

static int disk_main(const struct cli *cli, int argc, char **argv)
{
    struct disk_opts o = {0};
    int code = EXIT_USAGE;
    /* `mote disk VERB [options] FILE`: the verb stands before the options. */
    const char *verb = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
    int skip = *verb ? 1 : 0;
    int first = cmd_parse(&cmd_disk, argc - skip, argv + skip, &o, &code);

    (void)cli;
    if (first < 0)
        return code;
    first += skip;
    for (size_t i = 0; i < ARRAY_SIZE(disk_verbs); i++) {
        if (strcmp(verb, disk_verbs[i].name) != 0)
            continue;
        if (argc - first == disk_verbs[i].num_args)
            return disk_verbs[i].run(&o, argv + first);
        ui_error("disk %s: takes %d file(s); `mote disk --help` explains it",
                 verb, disk_verbs[i].num_args);
        return EXIT_USAGE;
    }
    ui_error("disk '%s': unknown; use create, info or flatten", verb);
    return EXIT_USAGE;
}

const struct command cmd_disk = {"disk", &disk_table, disk_main};
