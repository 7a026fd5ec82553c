/* SPDX-License-Identifier: Apache-2.0 */
/* `mote bench profile`: where a booting kernel spends its time. */
#include "tools/mote/bench.h"
#include "tools/mote/bench_boot_opts.h"
#include "tools/mote/bench_table.h"
#include "tools/mote/elf_syms.h"
#include "tools/mote/ui.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Half of the address space is the kernel's. */
#define PROFILE_KERNEL_LO 0xffff800000000000ull

struct profile_opts {
    uint64_t hz;
    uint64_t top;
    const char *symbols;
    struct boot_opts boot;
};

static const struct opt_def profile_defs[] = {
    {"hz", 0, OPT_NUMBER, offsetof(struct profile_opts, hz), "N",
     "samples a second; each takes the guest out once", "1000", 1, 10000},
    {"top", 0, OPT_NUMBER, offsetof(struct profile_opts, top), "N",
     "lines of the table", "30", 1, 100000},
    {"symbols", 0, OPT_TEXT, offsetof(struct profile_opts, symbols), "FILE",
     "the kernel with its symbols",
     "KERNEL.debug, else that of the kernels' cache", 0, 0},
    BOOT_OPTS_ROWS(offsetof(struct profile_opts, boot)),
};

static const struct opt_table profile_table = {
    .usage = "bench profile [options]",
    .summary = "sample a booting kernel's instruction pointer by symbol",
    .defs = profile_defs,
    .count = ARRAY_SIZE(profile_defs),
    .notes = "One boot and one command, on vCPU 0. Where KVM emulates the\n"
             "guest's kernel code a sample is as good as a count of\n"
             "instructions. Samples outside the kernel are one line.\n",
};

/* One line of the table. */
struct profile_row {
    const char *name; /* borrowed of the symbols */
    uint64_t addr;
    uint64_t count;
};

struct profile {
    char hz[24];
    const char *extra[3]; /* words for the monitor */
    void *map;            /* the file of symbols */
    size_t map_len;
    char symbols_path[PATH_MAX + 8];
    struct elf_syms syms;
    struct profile_row *rows;
    size_t count;
    uint64_t total;
};

/* --- symbols ----------------------------------------------------------------
 */

static int profile_map(struct profile *p, const char *path,
                       struct mote_err *err)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return lm_err(err, neg_errno(),
                      "symbols: %s: %s; name the unstripped vmlinux with "
                      "--symbols",
                      path, err_reason(neg_errno()));
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return lm_err(err, -ENOEXEC, "symbols: %s: no file with content", path);
    p->map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p->map == MAP_FAILED) {
        p->map = NULL;
        return lm_err(err, neg_errno(), "symbols: %s: %s", path,
                      err_reason(neg_errno()));
    }
    p->map_len = (size_t)st.st_size;
    return elf_syms_parse(p->map, p->map_len, &p->syms, err);
}

/* The kernels that `make kernel-*` has built are links into its cache. */
static void profile_find_cached(struct profile *p, const char *kernel)
{
    static const struct {
        const char *variable;
        const char *below;
    } places[] = {{"MOTE_CACHE", ""},
                  {"XDG_CACHE_HOME", "/mote"},
                  {"HOME", "/.cache/mote"}};
    char pattern[PATH_MAX] = "";
    glob_t g = {0};
    struct stat want;
    struct stat st;

    for (size_t i = 0; i < ARRAY_SIZE(places) && !pattern[0]; i++) {
        const char *dir = getenv(places[i].variable);

        if (dir && *dir)
            (void)snprintf(pattern, sizeof(pattern), "%s%s/kernel/*/vmlinux",
                           dir, places[i].below);
    }
    if (stat(kernel, &want) < 0 || glob(pattern, 0, NULL, &g) != 0)
        return;
    for (size_t i = 0; i < g.gl_pathc; i++) {
        if (stat(g.gl_pathv[i], &st) == 0 && st.st_ino == want.st_ino &&
            st.st_dev == want.st_dev)
            (void)snprintf(p->symbols_path, sizeof(p->symbols_path), "%s.debug",
                           g.gl_pathv[i]);
    }
    globfree(&g);
}

static int profile_load_symbols(struct profile *p, const char *chosen,
                                const char *kernel, struct mote_err *err)
{
    (void)snprintf(p->symbols_path, sizeof(p->symbols_path), "%s%s",
                   chosen ? chosen : kernel, chosen ? "" : ".debug");
    if (!chosen && access(p->symbols_path, R_OK) != 0)
        profile_find_cached(p, kernel);
    return profile_map(p, p->symbols_path, err);
}

/* --- from samples to rows ---------------------------------------------------
 */

static int profile_by_addr(const void *a, const void *b)
{
    const struct profile_row *x = a;
    const struct profile_row *y = b;

    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int profile_by_count(const void *a, const void *b)
{
    const struct profile_row *x = a;
    const struct profile_row *y = b;

    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return strcmp(x->name, y->name);
}

static struct profile_row profile_resolve(const struct profile *p, uint64_t ip,
                                          uint64_t count)
{
    const struct elf_sym *s = elf_syms_find(&p->syms, ip);

    if (s && ip >= PROFILE_KERNEL_LO)
        return (struct profile_row){s->name, s->addr, count};
    if (ip >= PROFILE_KERNEL_LO)
        return (struct profile_row){"[kernel, no symbol]", 1, count};
    return (struct profile_row){"[user space and early boot]", 0, count};
}

static int profile_sum(struct profile *p, const json_t *rows,
                       struct mote_err *err)
{
    size_t n = 0;
    json_t *row;
    size_t i;

    p->rows = calloc(json_array_size(rows) + 1, sizeof(*p->rows));
    if (!p->rows)
        return lm_err_nomem(err);
    json_array_foreach(rows, i, row)
    {
        const char *ip = json_string_value(json_object_get(row, "ip"));
        json_int_t count = json_integer_value(json_object_get(row, "count"));

        p->rows[n++] = profile_resolve(p, ip ? strtoull(ip, NULL, 16) : 0,
                                       count > 0 ? (uint64_t)count : 0);
        p->total += p->rows[n - 1].count;
    }
    qsort(p->rows, n, sizeof(*p->rows), profile_by_addr);
    for (i = 0; i < n; i++) {
        if (p->count > 0 && p->rows[p->count - 1].addr == p->rows[i].addr)
            p->rows[p->count - 1].count += p->rows[i].count;
        else
            p->rows[p->count++] = p->rows[i];
    }
    qsort(p->rows, p->count, sizeof(*p->rows), profile_by_count);
    return 0;
}

/* --- output -----------------------------------------------------------------
 */

static double profile_percent(const struct profile *p, uint64_t count)
{
    return p->total > 0 ? 100.0 * (double)count / (double)p->total : 0;
}

static void profile_print(const struct profile *p, const struct profile_opts *o)
{
    double sum = 0;

    (void)printf("%llu samples at %llu/s of vCPU 0, exec to first output\n",
                 (unsigned long long)p->total, (unsigned long long)o->hz);
    (void)printf("%8s %7s %7s  %s\n", "samples", "%", "sum", "symbol");
    for (size_t i = 0; i < p->count && i < o->top; i++) {
        sum += profile_percent(p, p->rows[i].count);
        (void)printf(
            "%8llu %7.2f %7.2f  %s\n", (unsigned long long)p->rows[i].count,
            profile_percent(p, p->rows[i].count), sum, p->rows[i].name);
    }
    if (p->count > o->top)
        (void)printf("and %zu more symbols\n", p->count - o->top);
}

static void profile_print_json(const struct profile *p,
                               const struct profile_opts *o,
                               const struct boot_guest *g, json_t *dropped)
{
    json_t *list = json_array();

    for (size_t i = 0; i < p->count && i < o->top; i++)
        (void)json_array_append_new(
            list, json_pack("{s:s, s:I, s:f}", "symbol", p->rows[i].name,
                            "samples", (json_int_t)p->rows[i].count, "percent",
                            profile_percent(p, p->rows[i].count)));
    bench_print_doc(json_pack(
        "{s:s, s:s, s:I, s:I, s:O, s:o}", "kernel", g->kernel, "symbols",
        p->symbols_path, "hz", (json_int_t)o->hz, "samples",
        (json_int_t)p->total, "dropped", dropped, "top", list));
}

/* --- the run ----------------------------------------------------------------
 */

static int profile_run(const struct profile_opts *o, struct boot_guest *g,
                       struct profile *p, struct mote_err *err)
{
    struct boot_result r = {.report = NULL};
    json_t *profile;
    int rc = boot_opts_guest(&o->boot, g, err);

    (void)snprintf(p->hz, sizeof(p->hz), "%llu", (unsigned long long)o->hz);
    p->extra[0] = "--profile-hz";
    p->extra[1] = p->hz;
    g->extra = p->extra;
    if (rc == 0)
        rc = profile_load_symbols(p, o->symbols, g->kernel, err);
    if (rc)
        return rc;
    bench_progress("booting");
    rc = boot_mote_once(g, &r, err);
    bench_progress_end();
    if (rc)
        return rc;
    profile = json_object_get(r.report, "profile");
    if (!profile)
        rc = lm_err(err, -EPROTO,
                    "mote-vmm: it took no samples; use the one that was built "
                    "with this mote");
    else
        rc = profile_sum(p, json_object_get(profile, "rows"), err);
    if (rc == 0 && o->boot.json)
        profile_print_json(p, o, g, json_object_get(profile, "dropped"));
    else if (rc == 0)
        profile_print(p, o);
    boot_result_fini(&r);
    return rc;
}

static int profile_main(const struct cli *cli, int argc, char **argv)
{
    struct profile_opts o = {.hz = 1000, .top = 30, .boot = BOOT_OPTS_DEFAULT};
    struct boot_guest g = {.signal_fd = -1};
    struct profile p = {.map = NULL};
    struct mote_err err = {0};
    int code;

    (void)cli;
    if (bench_parse(&cmd_bench_profile, argc, argv, &o, &code))
        code = profile_run(&o, &g, &p, &err) ? bench_failed(&err, o.boot.json)
                                             : ui_finish(0);
    drop_fd(&g.signal_fd);
    free(p.rows);
    elf_syms_fini(&p.syms);
    if (p.map)
        (void)munmap(p.map, p.map_len);
    return code;
}

const struct command cmd_bench_profile = {"bench profile", &profile_table,
                                          profile_main};
