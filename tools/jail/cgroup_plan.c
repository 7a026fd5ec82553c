/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jail/cgroup.h"

#include <string.h>

/* The fields of a line of /proc/self/mountinfo (proc(5)) that matter here. */
struct mount_line {
    char where[CGROUP_PATH_MAX];
    bool v2;
    const char *options; /* of the super block: names of controllers in v1 */
    size_t options_len;
};

static size_t plan_word(const char *p)
{
    return strcspn(p, " \n");
}

static const char *plan_skip(const char *p, unsigned words)
{
    while (words-- > 0) {
        p += plan_word(p);
        p += *p == ' ';
    }
    return p;
}

/* Blanks and backslashes come as \ and three octal digits. */
static bool plan_unescape(const char *from, size_t len, char *out, size_t cap)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        char c = from[i];

        if (n + 1 >= cap)
            return false;
        if (c == '\\' && i + 3 < len && from[i + 1] >= '0' &&
            from[i + 1] <= '3') {
            c = (char)((from[i + 1] - '0') * 64 + (from[i + 2] - '0') * 8 +
                       (from[i + 3] - '0'));
            i += 3;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return true;
}

/* ID PARENT MAJ:MIN ROOT WHERE OPTIONS [TAGS...] - TYPE SOURCE SUPER */
static bool plan_line(const char *line, size_t len, struct mount_line *out)
{
    const char *where = plan_skip(line, 4);
    const char *dash = memmem(line, len, " - ", 3);
    const char *type;

    if (!dash || where >= dash)
        return false;
    type = dash + 3;
    if (plan_word(type) == 7 && !strncmp(type, "cgroup2", 7))
        out->v2 = true;
    else if (plan_word(type) == 6 && !strncmp(type, "cgroup", 6))
        out->v2 = false;
    else
        return false;
    out->options = plan_skip(type, 2);
    if (out->options > line + len)
        return false;
    out->options_len = plan_word(out->options);
    return plan_unescape(where, plan_word(where), out->where,
                         sizeof(out->where));
}

static bool plan_has_option(const struct mount_line *m, const char *name,
                            size_t len)
{
    const char *p = m->options;
    const char *end = m->options + m->options_len;

    while (p < end) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        size_t n = (size_t)((comma ? comma : end) - p);

        if (n == len && !memcmp(p, name, len))
            return true;
        p += n + 1;
    }
    return false;
}

typedef bool plan_pick_fn(const struct mount_line *m, const void *ctx);

/* The last match: it lies on top where mounts hide each other. */
static bool plan_find(const char *mountinfo, plan_pick_fn *pick,
                      const void *ctx, struct mount_line *out)
{
    bool found = false;

    for (const char *p = mountinfo; *p;) {
        size_t len = strcspn(p, "\n");
        struct mount_line m = {.v2 = false};

        if (plan_line(p, len, &m) && pick(&m, ctx)) {
            *out = m;
            found = true;
        }
        p += len + (p[len] == '\n');
    }
    return found;
}

static bool pick_v1(const struct mount_line *m, const void *ctx)
{
    const struct jail_cgroup *c = ctx;

    return !m->v2 && plan_has_option(m, c->file, c->controller_len);
}

static bool pick_any_v1(const struct mount_line *m, const void *ctx)
{
    (void)ctx;
    return !m->v2;
}

static bool pick_v2(const struct mount_line *m, const void *ctx)
{
    (void)ctx;
    return m->v2;
}

/* The number of the place at a mount point; a new one if there is none. */
static int plan_place(struct cgroup_plan *p, const struct mount_line *m,
                      size_t *out)
{
    size_t i = 0;

    while (i < p->count && strcmp(p->places[i].mount, m->where) != 0)
        i++;
    if (i == CGROUP_MAX_PLACES)
        return -E2BIG;
    if (i == p->count) {
        memcpy(p->places[i].mount, m->where, sizeof(m->where));
        p->places[i].v2 = m->v2;
        p->places[i].cpuset = !m->v2 && plan_has_option(m, "cpuset", 6);
        p->count++;
    }
    *out = i;
    return 0;
}

static int plan_limits(const struct jail_options *o, const char *mountinfo,
                       bool v2, struct cgroup_plan *p, struct errmsg *err)
{
    for (size_t i = 0; i < o->cgroup_count; i++) {
        const struct jail_cgroup *c = &o->cgroups[i];
        struct mount_line m = {.v2 = false};
        int rc;

        if (!plan_find(mountinfo, v2 ? pick_v2 : pick_v1, c, &m))
            return err_set(err, -ENOENT,
                           "--cgroup %s: no mounted cgroup %s hierarchy has "
                           "controller %.*s%s",
                           c->file, v2 ? "v2" : "v1", (int)c->controller_len,
                           c->file, v2 ? "" : "; or is it --cgroup-version 2?");
        rc = plan_place(p, &m, &p->place_of[i]);
        if (rc)
            return err_set(err, rc, "--cgroup: more than %d hierarchies",
                           CGROUP_MAX_PLACES);
    }
    return 0;
}

/* --parent-cgroup without a limit: the monitor goes right into it. */
static int plan_join_only(const char *mountinfo, bool v2, struct cgroup_plan *p,
                          struct errmsg *err)
{
    const char *at = mountinfo;

    while (*at) {
        size_t len = strcspn(at, "\n");
        struct mount_line m = {.v2 = false};
        size_t place;

        if (plan_line(at, len, &m) && m.v2 == v2 &&
            /* Named hierarchies belong to whoever made them. */
            !memmem(m.options, m.options_len, "name=", 5) &&
            plan_place(p, &m, &place))
            return err_set(err, -E2BIG,
                           "--parent-cgroup: more than %d "
                           "hierarchies",
                           CGROUP_MAX_PLACES);
        at += len + (at[len] == '\n');
    }
    if (p->count == 0)
        return err_set(err, -ENOENT,
                       "--parent-cgroup: no cgroup %s hierarchy is mounted",
                       v2 ? "v2" : "v1");
    return 0;
}

int cgroup_plan(const struct jail_options *o, const char *mountinfo,
                struct cgroup_plan *out, struct errmsg *err)
{
    const char *parent = o->parent_cgroup ? o->parent_cgroup : o->exec_name;
    struct mount_line m = {.v2 = false};
    bool v2 = o->cgroup_version == 2;

    memset(out, 0, sizeof(*out));
    if (!o->cgroup_count && !o->parent_cgroup)
        return 0;
    /* Version 1 is the default, but where there is none it is no use. */
    if (o->cgroup_version == 0)
        v2 = !plan_find(mountinfo, pick_any_v1, NULL, &m) &&
             plan_find(mountinfo, pick_v2, NULL, &m);
    out->own_group = o->cgroup_count > 0;
    (void)snprintf(out->name, sizeof(out->name), "%s%s%s", parent,
                   out->own_group ? "/" : "", out->own_group ? o->id : "");
    return out->own_group ? plan_limits(o, mountinfo, v2, out, err)
                          : plan_join_only(mountinfo, v2, out, err);
}
