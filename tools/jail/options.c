/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jail/options.h"

#include "vmm/args.h"

#include <string.h>

#define JAIL_PID_SUFFIX_LEN 4 /* .pid */
#define JAIL_NAME_MAX       (255 - JAIL_PID_SUFFIX_LEN)
/* (uid_t)-1 means "leave as it is" to the kernel. */
#define JAIL_UID_MAX (UINT32_MAX - 1)

struct option_row {
    const char *name;
    const char *arg; /* NULL: a switch */
    const char *help;
    int (*set)(struct jail_options *o, const char *value, struct errmsg *err);
};

static bool opt_is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
}

static int opt_id(struct jail_options *o, const char *v, struct errmsg *err)
{
    size_t n = strlen(v);

    for (size_t i = 0; i < n; i++) {
        if (!opt_is_alnum(v[i]) && v[i] != '-')
            return err_set(err, -EINVAL,
                           "--id: only letters, digits and - are allowed");
    }
    if (n > JAIL_ID_MAX)
        return err_set(err, -EINVAL, "--id: longer than %d characters",
                       JAIL_ID_MAX);
    o->id = v;
    return 0;
}

static int opt_exec_file(struct jail_options *o, const char *v,
                         struct errmsg *err)
{
    const char *slash = strrchr(v, '/');
    const char *name = slash ? slash + 1 : v;

    if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
        return err_set(err, -EINVAL, "--exec-file: %s names no file", v);
    /* The jail has these directories. */
    if (!strcmp(name, "dev") || !strcmp(name, "run"))
        return err_set(err, -EINVAL,
                       "--exec-file: a program cannot be called %s in a jail, "
                       "which has a directory of that name",
                       name);
    if (strlen(name) > JAIL_NAME_MAX)
        return err_set(err, -EINVAL,
                       "--exec-file: the name is longer than %d bytes",
                       JAIL_NAME_MAX);
    o->exec_file = v;
    o->exec_name = name;
    return 0;
}

static int opt_ident(const char *flag, const char *v, uint32_t *out,
                     struct errmsg *err)
{
    uint64_t n = 0;

    if (util_parse_u64(v, 0, JAIL_UID_MAX, &n))
        return err_set(err, -EINVAL, "--%s: %s is no number from 0 to %u", flag,
                       v, JAIL_UID_MAX);
    *out = (uint32_t)n;
    return 0;
}

static int opt_uid(struct jail_options *o, const char *v, struct errmsg *err)
{
    o->uid_given = true;
    return opt_ident("uid", v, &o->uid, err);
}

static int opt_gid(struct jail_options *o, const char *v, struct errmsg *err)
{
    o->gid_given = true;
    return opt_ident("gid", v, &o->gid, err);
}

static int opt_base_dir(struct jail_options *o, const char *v,
                        struct errmsg *err)
{
    (void)err;
    o->base_dir = v;
    return 0;
}

static int opt_netns(struct jail_options *o, const char *v, struct errmsg *err)
{
    (void)err;
    o->netns = v;
    return 0;
}

int jail_cgroup_parse(const char *text, struct jail_cgroup *out,
                      struct errmsg *err)
{
    const char *eq = strchr(text, '=');
    const char *dot = strchr(text, '.');

    if (!eq || eq == text || !eq[1])
        return err_set(err, -EINVAL, "--cgroup: %s is not FILE=VALUE", text);
    if (!dot || dot > eq || dot == text || dot + 1 == eq)
        return err_set(err, -EINVAL,
                       "--cgroup: %s: the file is not CONTROLLER.NAME, as in "
                       "memory.max",
                       text);
    for (const char *p = text; p < eq; p++) {
        if (!opt_is_alnum(*p) && *p != '.' && *p != '_' && *p != '-')
            return err_set(err, -EINVAL,
                           "--cgroup: %s: only letters, digits, . _ and - are "
                           "allowed in the file's name",
                           text);
    }
    /* cgroup.procs and its like decide who is where: that is our task. */
    if (!strncmp(text, "cgroup.", 7))
        return err_set(err, -EINVAL,
                       "--cgroup: %s: cgroup.* files belong to the jailer",
                       text);
    out->file = text;
    out->file_len = (size_t)(eq - text);
    out->controller_len = (size_t)(dot - text);
    out->value = eq + 1;
    return 0;
}

static int opt_cgroup(struct jail_options *o, const char *v, struct errmsg *err)
{
    if (o->cgroup_count == JAIL_MAX_CGROUPS)
        return err_set(err, -E2BIG, "--cgroup: more than %d are given",
                       JAIL_MAX_CGROUPS);
    return jail_cgroup_parse(v, &o->cgroups[o->cgroup_count++], err);
}

static int opt_cgroup_version(struct jail_options *o, const char *v,
                              struct errmsg *err)
{
    uint64_t n = 0;

    if (util_parse_u64(v, 1, 2, &n))
        return err_set(err, -EINVAL, "--cgroup-version: %s is neither 1 nor 2",
                       v);
    o->cgroup_version = (int)n;
    return 0;
}

/* A relative path without empty, `.` or `..` components. */
static int opt_parent_cgroup(struct jail_options *o, const char *v,
                             struct errmsg *err)
{
    const char *p = v;

    while (*p) {
        size_t n = strcspn(p, "/");

        if (n == 0 || (n == 1 && p[0] == '.') ||
            (n == 2 && p[0] == '.' && p[1] == '.'))
            return err_set(err, -EINVAL,
                           "--parent-cgroup: %s is no path below the "
                           "hierarchy's root",
                           v);
        p += n;
        if (*p)
            p++;
    }
    if (strlen(v) > 1024)
        return err_set(err, -EINVAL, "--parent-cgroup: longer than 1024 bytes");
    o->parent_cgroup = v;
    return 0;
}

int jail_limit_parse(const char *text, struct jail_options *out,
                     struct errmsg *err)
{
    uint64_t n = 0;
    const char *eq = strchr(text, '=');

    if (!eq || util_parse_u64(eq + 1, 0, INT64_MAX, &n))
        return err_set(err, -EINVAL, "--resource-limit: %s is not NAME=NUMBER",
                       text);
    if (!strncmp(text, "fsize=", 6)) {
        out->fsize_given = true;
        out->fsize_bytes = n;
        return 0;
    }
    if (!strncmp(text, "no-file=", 8)) {
        out->no_file_given = true;
        out->no_file = n;
        return 0;
    }
    return err_set(err, -EINVAL,
                   "--resource-limit: %s: the names are fsize and no-file",
                   text);
}

static int opt_limit(struct jail_options *o, const char *v, struct errmsg *err)
{
    return jail_limit_parse(v, o, err);
}

/* One number, or the first and the last of several. */
static int opt_fd(struct jail_options *o, const char *v, struct errmsg *err)
{
    const char *dash = strchr(v, '-');
    char first[8];
    size_t len = dash ? (size_t)(dash - v) : strlen(v);
    uint64_t from = 0;
    uint64_t to = 0;

    (void)snprintf(first, sizeof(first), "%.*s", (int)min_u64(len, 7), v);
    if (len > 7 || util_parse_u64(first, 3, 1023, &from) ||
        util_parse_u64(dash ? dash + 1 : first, from, 1023, &to))
        return err_set(err, -EINVAL,
                       "--pass-fd: %s is no descriptor from 3 to 1023, nor "
                       "FIRST-LAST of such",
                       v);
    for (; from <= to; from++) {
        if (o->fd_count == JAIL_MAX_FDS)
            return err_set(err, -E2BIG, "--pass-fd: more than %d are given",
                           JAIL_MAX_FDS);
        o->fds[o->fd_count++] = (int)from;
    }
    return 0;
}

static int opt_in_place(struct jail_options *o, const char *v,
                        struct errmsg *err)
{
    (void)err;
    o->in_place = v;
    return 0;
}

static int opt_report_fd(struct jail_options *o, const char *v,
                         struct errmsg *err)
{
    uint64_t n = 0;

    if (util_parse_u64(v, 3, 1023, &n))
        return err_set(err, -EINVAL,
                       "--report-fd: %s is no descriptor from 3 to 1023", v);
    o->report_fd = (int)n;
    return 0;
}

/* A path inside: absolute, and nowhere but down. */
static bool opt_goes_down(const char *path, size_t len)
{
    size_t at = 0;

    if (len < 2 || path[0] != '/' || path[len - 1] == '/')
        return false;
    while (at < len) {
        size_t n = strcspn(path + ++at, "/:");

        if (n == 0 || (n == 1 && path[at] == '.') ||
            (n == 2 && path[at] == '.' && path[at + 1] == '.'))
            return false;
        at += n;
    }
    return true;
}

int jail_bind_parse(const char *text, struct jail_bind *out, struct errmsg *err)
{
    const char *colon = strchr(text, ':');
    const char *end = colon ? strchr(colon + 1, ':') : NULL;

    if (!colon || colon == text || (end && strcmp(end, ":rw") != 0))
        return err_set(err, -EINVAL,
                       "--bind: %s is not SOURCE:TARGET or SOURCE:TARGET:rw",
                       text);
    out->source = text;
    out->source_len = (size_t)(colon - text);
    out->target = colon + 1;
    out->target_len = end ? (size_t)(end - out->target) : strlen(out->target);
    out->writable = end != NULL;
    if (!opt_goes_down(out->target, out->target_len) ||
        out->target_len > JAIL_NAME_MAX)
        return err_set(err, -EINVAL,
                       "--bind: %s: the target is no absolute path without . "
                       "and .. of at most %d bytes",
                       text, JAIL_NAME_MAX);
    return 0;
}

static int opt_bind(struct jail_options *o, const char *v, struct errmsg *err)
{
    if (o->bind_count == JAIL_MAX_BINDS)
        return err_set(err, -E2BIG, "--bind: more than %d are given",
                       JAIL_MAX_BINDS);
    return jail_bind_parse(v, &o->binds[o->bind_count++], err);
}

#define SWITCH(name)                                                           \
    static int opt_##name(struct jail_options *o, const char *v,               \
                          struct errmsg *err)                                  \
    {                                                                          \
        (void)v;                                                               \
        (void)err;                                                             \
        o->name = true;                                                        \
        return 0;                                                              \
    }
SWITCH(daemonize)
SWITCH(new_pid_ns)
SWITCH(new_net_ns)
SWITCH(purge)
SWITCH(help)
SWITCH(version)

static const struct option_row option_rows[] = {
    {"id", "ID", "name of the jail and the VM: letters, digits, -", opt_id},
    {"exec-file", "FILE", "the monitor; copied into the jail", opt_exec_file},
    {"uid", "N", "user of the monitor", opt_uid},
    {"gid", "N", "group of the monitor", opt_gid},
    {"chroot-base-dir", "DIR", "where jails are (default " JAIL_BASE_DIR ")",
     opt_base_dir},
    {"netns", "FILE", "join this network namespace", opt_netns},
    {"new-net-ns", NULL, "a new, empty network namespace", opt_new_net_ns},
    {"new-pid-ns", NULL, "a new PID namespace; return once it runs",
     opt_new_pid_ns},
    {"daemonize", NULL, "no terminal, no streams; return once it runs",
     opt_daemonize},
    {"cgroup", "FILE=VALUE", "write VALUE to FILE of the VM's cgroup",
     opt_cgroup},
    {"cgroup-version", "1|2", "hierarchy of --cgroup (default 1 if mounted)",
     opt_cgroup_version},
    {"parent-cgroup", "PATH", "cgroup to be in (default: name of FILE)",
     opt_parent_cgroup},
    {"resource-limit", "NAME=N", "fsize=BYTES or no-file=N (default 2048)",
     opt_limit},
    {"pass-fd", "N[-LAST]", "the monitor keeps these open descriptors", opt_fd},
    {"in-place", "DIR", "become the monitor; root in memory, DIR is its /run",
     opt_in_place},
    {"bind", "SRC:DST[:rw]", "with --in-place: DST inside is SRC", opt_bind},
    {"report-fd", "N", "with --in-place: tell failures there; exec closes it",
     opt_report_fd},
    {"purge", NULL, "at the end remove the jail with all that is in it",
     opt_purge},
    {"version", NULL, "print the version", opt_version},
    {"help", NULL, "print this", opt_help},
};

static struct args_row options_row(size_t i)
{
    if (i >= ARRAY_SIZE(option_rows))
        return (struct args_row){NULL, NULL, NULL};
    return (struct args_row){option_rows[i].name, option_rows[i].arg,
                             option_rows[i].help};
}

static const struct args_table options_table = {
    .row = options_row,
    .hint = "mote-jail --help lists them, the monitor's own come after --",
    .help_column = 24,
};

static int options_settle(const struct jail_options *o, struct errmsg *err)
{
    if (o->help || o->version)
        return 0;
    if (!o->id)
        return err_set(err, -EINVAL, "--id: needed; it names the jail");
    if (!o->exec_file)
        return err_set(err, -EINVAL, "--exec-file: needed; it is the monitor");
    if (o->netns && o->new_net_ns)
        return err_set(err, -EINVAL,
                       "--netns and --new-net-ns exclude each other");
    if (o->in_place && (o->daemonize || o->new_pid_ns || o->purge))
        return err_set(err, -EINVAL,
                       "--in-place excludes --daemonize, --new-pid-ns and "
                       "--purge: it needs another process for them");
    if (o->in_place && o->cgroup_count)
        return err_set(err, -EINVAL,
                       "--in-place excludes --cgroup: nobody would remove the "
                       "group; make one, and name it as --parent-cgroup");
    if (!o->in_place && (o->bind_count || o->report_fd >= 0))
        return err_set(err, -EINVAL,
                       "--bind and --report-fd belong to --in-place");
    return 0;
}

int jail_options_parse(int argc, char *const *argv, struct jail_options *out,
                       struct errmsg *err)
{
    memset(out, 0, sizeof(*out));
    out->base_dir = JAIL_BASE_DIR;
    out->report_fd = -1;
    for (int i = 1; i < argc;) {
        struct args_found f;
        int rc;

        if (!strcmp(argv[i], "--")) {
            out->rest = argv + i + 1;
            out->rest_count = (size_t)(argc - i - 1);
            break;
        }
        rc = args_next(&options_table, argv, &i, &f, err);
        if (rc == 0)
            rc = option_rows[f.index].set(out, f.value, err);
        if (rc)
            return rc;
    }
    return options_settle(out, err);
}

void jail_options_print_help(FILE *out)
{
    fprintf(out, "usage: mote-jail --id ID --exec-file FILE --uid N --gid N "
                 "[options] [-- ARGUMENT...]\n"
                 "Runs a monitor in a jail and takes the jail down after it.\n"
                 "Without root: in a user namespace; --uid and --gid are then "
                 "optional.\n\n");
    args_print_rows(&options_table, out);
    fprintf(out, "\nThe jail is DIR/NAME-OF-FILE/ID/root. Exit code: the "
                 "monitor's own; 153 arguments,\n1 the jail failed. "
                 "tools/jail/README.md says what stays behind.\n");
}
