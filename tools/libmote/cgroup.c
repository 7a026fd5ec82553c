/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/cgroup.h"

#include "vmm/cleanup.h"

#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* The page cache of disks is counted as well; the kernel takes it back. */
#define CGROUP_MEM_EXTRA   (256 * MIB)
#define CGROUP_TASKS_EXTRA 64u
#define CGROUP_PARENT      "mote"
#define CGROUP_STEPS       200 /* of a millisecond, for the kernel's own delay */

static bool cgroup_write(const char *dir, const char *file, const char *text)
{
    CLEANUP_FD int fd = -1;
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && util_write_full(fd, text, strlen(text)) == 0;
}

static bool cgroup_limit(const char *dir, const char *file, uint64_t value)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return cgroup_write(dir, file, text);
}

/* What one hierarchy can bound. */
struct cgroup_kind {
    bool v2;
    bool memory;
    bool pids;
};

static bool cgroup_has_word(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = strstr(words, word); p; p = strstr(p + 1, word)) {
        if ((p == words || p[-1] == ' ' || p[-1] == ',') &&
            strchr(" ,\n", p[n]) /* also the end */)
            return true;
    }
    return false;
}

static struct cgroup_kind cgroup_kind_of(const struct mntent *m)
{
    struct cgroup_kind k = {.v2 = !strcmp(m->mnt_type, "cgroup2")};
    char path[256];
    char words[256] = "";
    FILE *f;

    if (!k.v2 && !strcmp(m->mnt_type, "cgroup"))
        (void)snprintf(words, sizeof(words), "%s", m->mnt_opts);
    if (k.v2) {
        (void)snprintf(path, sizeof(path), "%s/cgroup.controllers", m->mnt_dir);
        f = fopen(path, "re");
        if (f && !fgets(words, (int)sizeof(words), f))
            words[0] = '\0';
        if (f)
            (void)fclose(f);
    }
    k.memory = cgroup_has_word(words, "memory");
    k.pids = cgroup_has_word(words, "pids");
    return k;
}

struct cgroup_limits {
    uint64_t mem_bytes;
    unsigned tasks;
};

/* The machine's directory below `mount`, with its limits; false: not there.
 * `out` has room as in struct lm_cgroup. */
static bool cgroup_make_dir(const char *mount, struct cgroup_kind k,
                            const char *id, const struct cgroup_limits *l,
                            char *out)
{
    char parent[128];
    bool ok = true;
    int n = snprintf(parent, sizeof(parent), "%s/" CGROUP_PARENT, mount);

    if (n < 0 || (size_t)n >= sizeof(parent) ||
        (mkdir(parent, 0755) < 0 && errno != EEXIST))
        return false;
    if (k.v2) /* from the top down, each hands on what its children may use */
        ok = cgroup_write(mount, "cgroup.subtree_control", "+memory +pids") &&
             cgroup_write(parent, "cgroup.subtree_control", "+memory +pids");
    (void)snprintf(out, LM_CGROUP_PATH, "%s/%.20s", parent, id);
    if (!ok || mkdir(out, 0755) < 0)
        return false;
    if (k.memory)
        ok = cgroup_limit(out, k.v2 ? "memory.max" : "memory.limit_in_bytes",
                          l->mem_bytes);
    if (ok && k.pids)
        ok = cgroup_limit(out, "pids.max", l->tasks);
    if (!ok)
        (void)rmdir(out);
    return ok;
}

void lm_cgroup_make(const char *id, uint64_t mem_bytes, unsigned vcpus,
                    struct lm_cgroup *out)
{
    const struct cgroup_limits l = {.mem_bytes = mem_bytes + CGROUP_MEM_EXTRA,
                                    .tasks = vcpus + CGROUP_TASKS_EXTRA};
    FILE *f = setmntent("/proc/self/mounts", "re");
    struct mntent *m;

    out->count = 0;
    while (f && out->count < LM_CGROUP_MAX && (m = getmntent(f)) != NULL) {
        struct cgroup_kind k;

        if (strncmp(m->mnt_type, "cgroup", 6) != 0)
            continue;
        k = cgroup_kind_of(m);
        if (k.v2 ? !(k.memory && k.pids) : !(k.memory || k.pids))
            continue;
        if (cgroup_make_dir(m->mnt_dir, k, id, &l, out->dirs[out->count]))
            out->count++;
    }
    if (f)
        (void)endmntent(f);
}

int lm_cgroup_add(const struct lm_cgroup *g, pid_t pid)
{
    for (size_t i = 0; i < g->count; i++) {
        if (!cgroup_limit(g->dirs[i], "cgroup.procs", (uint64_t)pid))
            return neg_errno();
    }
    return 0;
}

void lm_cgroup_remove(struct lm_cgroup *g)
{
    const struct timespec step = {.tv_nsec = 1000000};

    for (size_t i = 0; i < g->count; i++) {
        for (int n = 0; rmdir(g->dirs[i]) < 0 && errno == EBUSY; n++) {
            if (n == CGROUP_STEPS)
                break; /* the next sweep of the remains has it */
            (void)nanosleep(&step, NULL);
        }
    }
    g->count = 0;
}

void lm_cgroup_sweep(const char *id)
{
    FILE *f = geteuid() == 0 ? setmntent("/proc/self/mounts", "re") : NULL;
    struct mntent *m;

    while (f && (m = getmntent(f)) != NULL) {
        char path[256];

        if (strncmp(m->mnt_type, "cgroup", 6) != 0)
            continue;
        (void)snprintf(path, sizeof(path), "%s/" CGROUP_PARENT "/%s",
                       m->mnt_dir, id);
        (void)rmdir(path);
    }
    if (f)
        (void)endmntent(f);
}
