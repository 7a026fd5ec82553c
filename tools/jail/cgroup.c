/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jail/cgroup.h"

#include "vmm/cleanup.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>

/* syscalls: openat mkdirat read write unlinkat nanosleep */
/* syscalls: fsetxattr fgetxattr */

#define CG_TRIES        1000
#define CG_VALUE_MAX    4096
#define CG_WAIT_STEP_NS 2000000L
#define CG_WAIT_STEPS   1000 /* two seconds */

/* On groups that we made, as root and without: the last jail in one removes
 * it, and nobody else's is removed. */
static const char *const cg_marks[] = {"trusted.mote-jail", "user.mote-jail"};

static int cg_fail(const struct cgroup_place *place, const char *name,
                   const char *what, int rc, struct errmsg *err)
{
    return err_set(err, rc, "cgroup %s/%s: %s: %s", place->mount, name, what,
                   err_reason(rc));
}

static int cg_open_dir(int at, const char *name, int *out_fd)
{
    *out_fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *out_fd < 0 ? neg_errno() : 0;
}

static int cg_write(int dir, const char *file, const char *value)
{
    CLEANUP_FD int fd = openat(dir, file, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return neg_errno();
    /* One write: each is a command of its own here. */
    return write(fd, value, strlen(value)) < 0 ? neg_errno() : 0;
}

/* Reads a whole small file; its last newline goes. */
static int cg_read(int dir, const char *file, char *buf, size_t cap)
{
    CLEANUP_FD int fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return neg_errno();
    n = read(fd, buf, cap - 1);
    if (n < 0)
        return neg_errno();
    buf[n] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    return 0;
}

/* A v1 cpuset without CPUs or memory nodes takes no process in. */
static int cg_inherit_cpuset(int parent, int child)
{
    static const char *const files[] = {"cpuset.cpus", "cpuset.mems"};

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        char value[CG_VALUE_MAX] = "";
        int rc = cg_read(child, files[i], value, sizeof(value));

        if (rc == 0 && value[0])
            continue;
        if (rc == 0)
            rc = cg_read(parent, files[i], value, sizeof(value));
        if (rc == 0)
            rc = cg_write(child, files[i], value);
        if (rc)
            return rc;
    }
    return 0;
}

/* Whether `word` is one of the words of `list`. */
static bool cg_has_word(const char *list, const char *word)
{
    size_t len = strlen(word);

    for (const char *p = list; *p;) {
        size_t n = strcspn(p, " ");

        if (n == len && !memcmp(p, word, len))
            return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

/* v2: the children of `dir` have the controllers that the options name. */
static int cg_enable(const struct jail_options *o, int dir)
{
    char have[CG_VALUE_MAX] = "";
    int rc = cg_read(dir, "cgroup.subtree_control", have, sizeof(have));

    if (rc)
        return rc;
    for (size_t i = 0; i < o->cgroup_count; i++) {
        const struct jail_cgroup *c = &o->cgroups[i];
        char word[64];

        (void)snprintf(word, sizeof(word), "+%.*s",
                       (int)min_u64(c->controller_len, sizeof(word) - 2),
                       c->file);
        /* Without root it may only be there already. */
        if (!cg_has_word(have, word + 1))
            rc = cg_write(dir, "cgroup.subtree_control", word);
        if (rc)
            return rc;
    }
    return 0;
}

/* A hierarchy that takes no mark keeps the parents that were made in it. */
static void cg_mark(int dir)
{
    for (size_t i = 0; i < ARRAY_SIZE(cg_marks); i++) {
        if (fsetxattr(dir, cg_marks[i], "1", 1, 0) == 0)
            return;
    }
}

static bool cg_is_marked(int dir)
{
    char mark[4];

    for (size_t i = 0; i < ARRAY_SIZE(cg_marks); i++) {
        if (fgetxattr(dir, cg_marks[i], mark, sizeof(mark)) >= 0)
            return true;
    }
    return false;
}

static int cg_step(const struct jail_options *o, struct cgroup_place *place,
                   int at, const char *name, int *out_fd)
{
    bool made;
    int rc = place->v2 ? cg_enable(o, at) : 0;

    if (rc)
        return rc;
    made = mkdirat(at, name, 0755) == 0;
    if (!made && errno != EEXIST)
        return neg_errno();
    rc = cg_open_dir(at, name, out_fd);
    if (rc == 0 && made)
        cg_mark(*out_fd);
    if (rc == 0 && place->cpuset)
        rc = cg_inherit_cpuset(at, *out_fd);
    return rc;
}

/* Opens the mount point, then walks down `name`, making what is missing. */
static int cg_descend(const struct jail_options *o, struct cgroup_place *place,
                      const char *name, int *out_fd)
{
    char copy[CGROUP_NAME_MAX];
    char *save = NULL;
    CLEANUP_FD int fd = -1;
    int rc = cg_open_dir(AT_FDCWD, place->mount, &fd);

    (void)snprintf(copy, sizeof(copy), "%s", name);
    for (char *part = strtok_r(copy, "/", &save); part && rc == 0;
         part = strtok_r(NULL, "/", &save)) {
        int next = -1;

        rc = cg_step(o, place, fd, part, &next);
        drop_fd(&fd);
        fd = next;
    }
    if (rc == 0)
        *out_fd = take_fd(&fd);
    return rc;
}

/* A v2 hierarchy lacks what a v1 one has, or was built without. */
static int cg_check_controllers(const struct jail_options *o,
                                const struct cgroup_place *place,
                                struct errmsg *err)
{
    char have[CG_VALUE_MAX] = "";
    CLEANUP_FD int top = -1;
    int rc = cg_open_dir(AT_FDCWD, place->mount, &top);

    if (rc == 0)
        rc = cg_read(top, "cgroup.controllers", have, sizeof(have));
    if (rc)
        return cg_fail(place, "cgroup.controllers", "reading", rc, err);
    for (size_t i = 0; i < o->cgroup_count; i++) {
        const struct jail_cgroup *c = &o->cgroups[i];
        char name[64];

        (void)snprintf(name, sizeof(name), "%.*s",
                       (int)min_u64(c->controller_len, sizeof(name) - 1),
                       c->file);
        if (!cg_has_word(have, name))
            return err_set(err, -ENOENT,
                           "--cgroup %s: the cgroup v2 hierarchy %s has no "
                           "controller %s; it has: %s",
                           c->file, place->mount, name, have);
    }
    return 0;
}

static int cg_make_place(const struct jail_options *o, struct cgroup_plan *p,
                         size_t i, struct errmsg *err)
{
    struct cgroup_place *place = &p->places[i];
    CLEANUP_FD int dir = -1;
    int rc = place->v2 ? cg_check_controllers(o, place, err) : 0;

    if (rc)
        return rc;
    rc = -ENOENT;
    place->tried = true;
    /* Another jail's end may remove the parent between two steps. */
    for (int n = 0; n < CG_TRIES && (rc == -ENOENT || rc == -ENODEV); n++) {
        drop_fd(&dir);
        rc = cg_descend(o, place, p->name, &dir);
    }
    if (rc == -EBUSY && place->v2)
        return err_set(err, rc,
                       "cgroup %s/%s: a group above it has processes of its "
                       "own; name another --parent-cgroup",
                       place->mount, p->name);
    if (rc)
        return cg_fail(place, p->name, "cannot be made", rc, err);
    for (size_t k = 0; k < o->cgroup_count; k++) {
        char file[256];

        if (p->place_of[k] != i)
            continue;
        (void)snprintf(file, sizeof(file), "%.*s", (int)o->cgroups[k].file_len,
                       o->cgroups[k].file);
        rc = cg_write(dir, file, o->cgroups[k].value);
        if (rc)
            return err_set(err, rc, "--cgroup %s: writing to %s/%s: %s",
                           o->cgroups[k].file, place->mount, p->name,
                           err_reason(rc));
    }
    return 0;
}

/* Joining an existing group: only where it is, but it must be somewhere. */
static int cg_find_places(struct cgroup_plan *p, struct errmsg *err)
{
    size_t kept = 0;

    for (size_t i = 0; i < p->count; i++) {
        CLEANUP_FD int top = -1;
        CLEANUP_FD int dir = -1;

        if (cg_open_dir(AT_FDCWD, p->places[i].mount, &top) == 0 &&
            cg_open_dir(top, p->name, &dir) == 0)
            p->places[kept++] = p->places[i];
    }
    p->count = kept;
    if (kept == 0)
        return err_set(err, -ENOENT,
                       "--parent-cgroup %s: there is no such cgroup; make it, "
                       "or give a --cgroup limit",
                       p->name);
    return 0;
}

int cgroup_make(const struct jail_options *o, struct cgroup_plan *p,
                struct errmsg *err)
{
    if (!p->own_group)
        return p->name[0] ? cg_find_places(p, err) : 0;
    for (size_t i = 0; i < p->count; i++) {
        int rc = cg_make_place(o, p, i, err);

        if (rc)
            return rc;
    }
    return 0;
}

int cgroup_join(const struct cgroup_plan *p, pid_t pid, struct errmsg *err)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%d", (int)pid);
    for (size_t i = 0; i < p->count; i++) {
        const struct cgroup_place *place = &p->places[i];
        char path[CGROUP_PATH_MAX + CGROUP_NAME_MAX];
        CLEANUP_FD int dir = -1;
        int rc;

        (void)snprintf(path, sizeof(path), "%s/%s", place->mount, p->name);
        rc = cg_open_dir(AT_FDCWD, path, &dir);
        if (rc == 0)
            rc = cg_write(dir, "cgroup.procs", text);
        if (rc)
            return cg_fail(place, p->name, "joining", rc, err);
    }
    return 0;
}

/* A process that was reaped is for a moment still counted. */
static int cg_rmdir_wait(int at, const char *name)
{
    const struct timespec step = {.tv_nsec = CG_WAIT_STEP_NS};

    for (int i = 0; unlinkat(at, name, AT_REMOVEDIR) < 0; i++) {
        if (errno == ENOENT)
            return 0;
        if (errno != EBUSY || i == CG_WAIT_STEPS)
            return neg_errno();
        (void)nanosleep(&step, NULL);
    }
    return 0;
}

/* Removes empty parents from below, as long as they are ours. */
static void cg_remove_parents(int top, char *path)
{
    for (char *slash = strrchr(path, '/');; slash = strrchr(path, '/')) {
        CLEANUP_FD int dir = -1;

        if (cg_open_dir(top, path, &dir) || !cg_is_marked(dir) ||
            unlinkat(top, path, AT_REMOVEDIR) < 0 || !slash)
            return;
        *slash = '\0';
    }
}

static int cg_remove_place(const struct cgroup_plan *p,
                           const struct cgroup_place *place)
{
    char path[CGROUP_NAME_MAX];
    CLEANUP_FD int top = -1;
    char *slash;
    int rc = cg_open_dir(AT_FDCWD, place->mount, &top);

    if (rc)
        return rc;
    (void)snprintf(path, sizeof(path), "%s", p->name);
    rc = cg_rmdir_wait(top, path);
    if (rc)
        return rc;
    slash = strrchr(path, '/');
    if (slash) {
        *slash = '\0';
        cg_remove_parents(top, path);
    }
    return 0;
}

unsigned cgroup_remove(struct cgroup_plan *p)
{
    unsigned stay = 0;

    if (!p->own_group)
        return 0;
    for (size_t i = 0; i < p->count; i++) {
        if (p->places[i].tried && cg_remove_place(p, &p->places[i]))
            stay++;
    }
    return stay;
}
