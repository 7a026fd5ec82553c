/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/doctor.h"

#include "tools/mote/capture.h"
#include "vmm/cleanup.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BUILD_KEY_WAIT_MS 30000
#define BUILD_REMEDY      "`make run` in mote's source tree builds it"

/*
 * The source tree that a built file lies in, or false for an installed one.
 * A build folder is the tree's child: TREE/build/NAME.
 */
static bool build_tree(const char *file, const char *name, char *out)
{
    size_t len = strlen(file) - strlen(name);
    char probe[MOTE_PATH_CAP + 32];

    (void)snprintf(out, MOTE_PATH_CAP, "%.*s..", (int)len, file);
    (void)snprintf(probe, sizeof(probe), "%s/guest/abi.h", out);
    return access(probe, F_OK) == 0;
}

/* The newest of the sources in a folder, and when it was changed. */
static bool build_newest(const char *dir, struct timespec *newest, char *out,
                         size_t cap)
{
    DIR *d = opendir(dir);
    bool found = false;
    struct dirent *e;

    while (d && (e = readdir(d)) != NULL) {
        size_t len = strlen(e->d_name);
        struct stat st;

        if (len < 3 || e->d_name[len - 2] != '.' ||
            !strchr("chS", e->d_name[len - 1]) ||
            fstatat(dirfd(d), e->d_name, &st, 0) < 0)
            continue;
        if (st.st_mtim.tv_sec < newest->tv_sec ||
            (st.st_mtim.tv_sec == newest->tv_sec &&
             st.st_mtim.tv_nsec <= newest->tv_nsec))
            continue;
        *newest = st.st_mtim;
        (void)snprintf(out, cap, "%s", e->d_name);
        found = true;
    }
    if (d)
        (void)closedir(d);
    return found;
}

/* A file made from C sources: there, and not older than any of them. */
static void build_check(struct check *c, const char *name,
                        const char *const *dirs)
{
    char path[MOTE_PATH_CAP];
    char tree[MOTE_PATH_CAP];
    char dir[MOTE_PATH_CAP + 64];
    char newer[256] = "";
    struct mote_err err;
    struct stat st;

    if (mote_find_file(name, path, &err) || stat(path, &st) < 0) {
        check_set(c, CHECK_ERROR, BUILD_REMEDY, "%s: not built", name);
        return;
    }
    if (!build_tree(path, name, tree)) {
        check_set(c, CHECK_OK, "", "%s", path);
        return;
    }
    for (; *dirs; dirs++) {
        (void)snprintf(dir, sizeof(dir), "%s/%s", tree, *dirs);
        (void)build_newest(dir, &st.st_mtim, newer, sizeof(newer));
    }
    if (newer[0])
        check_set(c, CHECK_WARNING, BUILD_REMEDY,
                  "%s: older than its source %s", path, newer);
    else
        check_set(c, CHECK_OK, "", "%s, newer than its sources", path);
}

void doctor_monitor(const struct doctor *d, struct check *c)
{
    static const char *const dirs[] = {"vmm", "devices", "boot", NULL};

    (void)d;
    build_check(c, "mote-vmm", dirs);
}

void doctor_agent(const struct doctor *d, struct check *c)
{
    static const char *const dirs[] = {"guest/agent", "guest", NULL};

    (void)d;
    build_check(c, "guest/agent.cpio", dirs);
}

void doctor_rootfs(const struct doctor *d, struct check *c)
{
    static const char *const dirs[] = {NULL};

    (void)d;
    build_check(c, "guest/rootfs.img", dirs);
}

/* --- kernels
 * -------------------------------------------------------------------- */

/* Where the kernel script keeps what it built; see guest/kernel/build.sh. */
static void build_cache_file(const char *key, char *out, size_t cap)
{
    const char *mote = getenv("MOTE_CACHE");
    const char *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");

    if (mote && *mote)
        (void)snprintf(out, cap, "%s/kernel/%s/vmlinux", mote, key);
    else if (xdg && *xdg)
        (void)snprintf(out, cap, "%s/mote/kernel/%s/vmlinux", xdg, key);
    else
        (void)snprintf(out, cap, "%s/.cache/mote/kernel/%s/vmlinux",
                       home ? home : "", key);
}

/*
 * A kernel is as old as its cache entry, so times say nothing: it is fresh if
 * it is the entry that today's sources lead to.
 */
static void build_check_key(struct check *c, const char *path,
                            const char *script, const char *flavour,
                            const struct stat *st)
{
    const char *argv[] = {script, "--print-key", flavour, NULL};
    char cached[MOTE_PATH_CAP];
    struct capture cap;
    struct stat entry;
    int rc = capture_run(argv, BUILD_KEY_WAIT_MS, 4096, &cap);

    if (rc || cap.exit_code != 0) {
        check_set(c, CHECK_OK, "",
                  "%s (whether it is fresh cannot be told: %s)", path,
                  rc ? "build.sh does not run" : cap.error);
    } else {
        cap.out[strcspn(cap.out, "\n")] = '\0';
        build_cache_file(cap.out, cached, sizeof(cached));
        if (stat(cached, &entry) == 0 && entry.st_size == st->st_size &&
            (entry.st_dev != st->st_dev || entry.st_ino == st->st_ino))
            check_set(c, CHECK_OK, "", "%s, from today's sources", path);
        else
            check_set(c, CHECK_WARNING, BUILD_REMEDY,
                      "%s: not from today's sources and settings", path);
    }
    free(cap.out);
}

static bool build_kernel(struct check *c, const char *flavour)
{
    char name[64];
    char path[MOTE_PATH_CAP];
    char tree[MOTE_PATH_CAP];
    char script[MOTE_PATH_CAP + 64];
    struct mote_err err;
    struct stat st;

    (void)snprintf(name, sizeof(name), "guest/%s/vmlinux", flavour);
    if (mote_find_file(name, path, &err) || stat(path, &st) < 0)
        return false;
    check_set(c, CHECK_OK, "", "%s", path);
    if (!build_tree(path, name, tree))
        return true;
    (void)snprintf(script, sizeof(script), "%s/guest/kernel/build.sh", tree);
    if (access(script, X_OK) == 0)
        build_check_key(c, path, script, flavour, &st);
    return true;
}

static bool build_has(const char *name)
{
    char path[MOTE_PATH_CAP];

    return mote_find_file(name, path, NULL) == 0;
}

/* One of the two is needed; which one `make run` builds depends on the host. */
static void build_either_kernel(struct check *c, const char *flavour,
                                const char *other_file)
{
    if (build_kernel(c, flavour))
        return;
    if (build_has(other_file))
        check_set(c, CHECK_OK, "", "not built; the other kernel is");
    else
        check_set(c, CHECK_ERROR, BUILD_REMEDY, "guest/%s/vmlinux: not built",
                  flavour);
}

void doctor_kernel_sandbox(const struct doctor *d, struct check *c)
{
    (void)d;
    build_either_kernel(c, "sandbox", "guest/tiny/vmlinux");
}

void doctor_kernel_tiny(const struct doctor *d, struct check *c)
{
    (void)d;
    build_either_kernel(c, "tiny", "guest/sandbox/vmlinux");
}
