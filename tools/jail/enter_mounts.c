/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jail/enter_mounts.h"

#include "tools/jail/path.h"
#include "vmm/cleanup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

/* syscalls: mount open_tree mount_setattr move_mount pivot_root umount2 */
/* syscalls: mknodat fchownat mkdir chdir fchdir */

/* A few nodes and no bytes. */
#define DEV_OPTIONS  "mode=0755,size=64k,nr_inodes=32"
#define ROOT_OPTIONS "mode=0755,size=64k,nr_inodes=128"

struct device {
    const char *path;
    unsigned major;
    unsigned minor; /* the kernel's fixed numbers (devices.txt) */
    bool if_host_has_it;
};

static const struct device devices[] = {
    {"/dev/kvm", 10, 232, false},
    {"/dev/net/tun", 10, 200, false},
    {"/dev/urandom", 1, 9, false},
    {"/dev/userfaultfd", 0, 0, true}, /* its minor is dynamic */
};

struct device_source {
    dev_t number; /* 0: none */
    int tree;     /* bind mount that hangs nowhere yet; -1: none */
};

static int mounts_fail(const char *what, int rc, struct errmsg *err)
{
    return err_set(err, rc, "%s: %s", what, err_reason(rc));
}

static int mounts_private(struct errmsg *err)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return mounts_fail("private mounts", neg_errno(), err);
    return 0;
}

/* The host's device, while its tree is still there. */
static int mounts_source(const struct jail *j, const struct device *d,
                         struct device_source *out, struct errmsg *err)
{
    struct stat st;
    bool there = stat(d->path, &st) == 0 && S_ISCHR(st.st_mode);

    out->tree = -1;
    out->number = makedev(d->major, d->minor);
    if (d->if_host_has_it)
        out->number = there ? st.st_rdev : 0;
    if (!j->bind_devices)
        return 0;
    out->number = there ? st.st_rdev : 0;
    if (!there)
        return 0;
    out->tree =
        open_tree(AT_FDCWD, d->path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    return out->tree < 0 ? mounts_fail(d->path, neg_errno(), err) : 0;
}

/*
 * Mounts the jail's directory over itself. Opened anew: the descriptor that
 * the keeper holds belongs to another mount namespace.
 */
static int mounts_root(const struct jail *j, int *out_tree, struct errmsg *err)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID};
    CLEANUP_FD int dir = open(j->root.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_FD int tree = -1;
    struct stat st;

    if (dir < 0 || fstat(dir, &st) < 0)
        return mounts_fail(j->root.path, neg_errno(), err);
    if (!path_same_file(&st, &j->root.st))
        return err_set(err, -ESTALE,
                       "%s: is another directory than a moment ago",
                       j->root.path);
    tree = open_tree(dir, "",
                     AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE |
                         OPEN_TREE_CLOEXEC);
    if (tree < 0)
        return mounts_fail("open_tree", neg_errno(), err);
    /* Nodes of block devices that a caller put there are good as drives. */
    if (j->bind_devices)
        attr.attr_set |= MOUNT_ATTR_NODEV;
    if (mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr,
                      sizeof(attr)) < 0)
        return mounts_fail("mount_setattr", neg_errno(), err);
    if (move_mount(tree, "", dir, "",
                   MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return mounts_fail("move_mount", neg_errno(), err);
    *out_tree = take_fd(&tree);
    return 0;
}

/* pivot_root(2): old and new may be one directory, the old one on top. */
static int mounts_pivot(int tree, struct errmsg *err)
{
    if (fchdir(tree) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return mounts_fail("pivot_root", neg_errno(), err);
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return mounts_fail("the old root", neg_errno(), err);
    return 0;
}

static int mounts_bind(const char *path, int tree)
{
    struct mount_attr attr = {
        .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC};
    CLEANUP_FD int fd =
        open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    /* A device is written to also on a read-only mount. */
    if (fd < 0 ||
        mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
        move_mount(tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return neg_errno();
    return 0;
}

static int mounts_node(const struct jail *j, const struct device *d,
                       const struct device_source *s)
{
    if (s->tree >= 0)
        return mounts_bind(d->path, s->tree);
    if (!s->number)
        return 0;
    if (mknod(d->path, S_IFCHR | 0600, s->number) < 0 ||
        chmod(d->path, 0600) < 0 || chown(d->path, j->o.uid, j->o.gid) < 0)
        return neg_errno();
    return 0;
}

static int mounts_nodes(const struct jail *j,
                        const struct device_source *sources, struct errmsg *err)
{
    if (mkdir("/dev/net", 0755) < 0)
        return mounts_fail("/dev/net", neg_errno(), err);
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        int rc = mounts_node(j, &devices[i], &sources[i]);

        if (rc)
            return mounts_fail(devices[i].path, rc, err);
    }
    return 0;
}

/* Already inside: no link can lead out any more. */
static int mounts_dev(const struct jail *j, const struct device_source *sources,
                      struct errmsg *err)
{
    const unsigned long flags = MS_NOSUID | MS_NOEXEC;
    int rc;

    if (mount("tmpfs", "/dev", "tmpfs", flags, DEV_OPTIONS) < 0)
        return mounts_fail("/dev", neg_errno(), err);
    rc = mounts_nodes(j, sources, err);
    if (rc)
        return rc;
    if (mount(NULL, "/dev", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | flags,
              NULL) < 0)
        return mounts_fail("/dev read-only", neg_errno(), err);
    return 0;
}

int enter_mounts(const struct jail *j, struct errmsg *err)
{
    struct device_source sources[ARRAY_SIZE(devices)];
    int tree = -1;
    int rc = mounts_private(err);

    /* Descriptors are close-on-exec, and this process execs or ends. */
    for (size_t i = 0; i < ARRAY_SIZE(devices) && rc == 0; i++)
        rc = mounts_source(j, &devices[i], &sources[i], err);
    if (rc == 0)
        rc = mounts_root(j, &tree, err);
    if (rc == 0)
        rc = mounts_pivot(tree, err);
    if (rc == 0)
        rc = mounts_dev(j, sources, err);
    return rc;
}

/* --- a root in memory --------------------------------------------------------
 */

/* The trees that go into it, taken while the host's is still there. */
struct memory_trees {
    struct device_source devices[ARRAY_SIZE(devices)];
    int program;
    int run;
    int binds[JAIL_MAX_BINDS];
    bool bind_is_dir[JAIL_MAX_BINDS];
};

/* A mount of its own that hangs nowhere yet. */
static int memory_take(const char *path, uint64_t attrs, int *out_tree,
                       struct stat *out_st, struct errmsg *err)
{
    struct mount_attr attr = {.attr_set = attrs};
    CLEANUP_FD int fd = open(path, O_PATH | O_CLOEXEC);
    CLEANUP_FD int tree = -1;

    if (fd < 0 || fstat(fd, out_st) < 0)
        return mounts_fail(path, neg_errno(), err);
    tree =
        open_tree(fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0 ||
        mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return mounts_fail(path, neg_errno(), err);
    *out_tree = take_fd(&tree);
    return 0;
}

static int memory_take_bind(const struct jail_bind *b, struct memory_trees *t,
                            size_t i, struct errmsg *err)
{
    const uint64_t attrs =
        MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    char *path = strndup(b->source, b->source_len);
    struct stat st = {0};
    int rc =
        path ? memory_take(path, attrs | (b->writable ? 0 : MOUNT_ATTR_RDONLY),
                           &t->binds[i], &st, err)
             : mounts_fail("--bind", -ENOMEM, err);

    free(path);
    if (rc == 0)
        t->bind_is_dir[i] = S_ISDIR(st.st_mode);
    return rc;
}

static int memory_take_all(const struct jail *j, struct memory_trees *t,
                           struct errmsg *err)
{
    struct stat opened = {0};
    struct stat st = {0};
    int rc = 0;

    for (size_t i = 0; i < ARRAY_SIZE(devices) && rc == 0; i++)
        rc = mounts_source(j, &devices[i], &t->devices[i], err);
    if (rc == 0)
        rc = memory_take(j->o.exec_file,
                         MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                             MOUNT_ATTR_NODEV,
                         &t->program, &st, err);
    if (rc == 0 &&
        (fstat(j->exec_fd, &opened) < 0 || !path_same_file(&st, &opened)))
        rc = err_set(err, -ESTALE, "%s: is another file than a moment ago",
                     j->o.exec_file);
    if (rc == 0)
        rc = memory_take(j->o.in_place,
                         MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                             MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSYMFOLLOW,
                         &t->run, &st, err);
    for (size_t i = 0; i < j->o.bind_count && rc == 0; i++)
        rc = memory_take_bind(&j->o.binds[i], t, i, err);
    return rc;
}

/* Hangs `tree` in at `path`, which is made. */
static int memory_hang(int tree, const char *path, bool is_dir,
                       struct errmsg *err)
{
    CLEANUP_FD int fd = -1;

    if (is_dir) {
        if (mkdir(path, 0755) < 0)
            return mounts_fail(path, neg_errno(), err);
    } else {
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
            return mounts_fail(path, neg_errno(), err);
    }
    if (move_mount(tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return mounts_fail(path, neg_errno(), err);
    return 0;
}

static int memory_hang_bind(const struct jail_bind *b, int tree, bool is_dir,
                            struct errmsg *err)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "%.*s", (int)b->target_len, b->target);
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return mounts_fail(path, neg_errno(), err);
        *p = '/';
    }
    return memory_hang(tree, path, is_dir, err);
}

static int memory_fill(const struct jail *j, const struct memory_trees *t,
                       struct errmsg *err)
{
    char program[260];
    int rc;

    (void)snprintf(program, sizeof(program), "/%s", j->o.exec_name);
    if (mkdir("/dev", 0755) < 0)
        return mounts_fail("/dev", neg_errno(), err);
    rc = mounts_nodes(j, t->devices, err);
    if (rc == 0)
        rc = memory_hang(t->program, program, false, err);
    if (rc == 0)
        rc = memory_hang(t->run, "/run", true, err);
    for (size_t i = 0; i < j->o.bind_count && rc == 0; i++)
        rc = memory_hang_bind(&j->o.binds[i], t->binds[i], t->bind_is_dir[i],
                              err);
    return rc;
}

int enter_mounts_in_memory(const struct jail *j, struct errmsg *err)
{
    const unsigned long flags = MS_NOSUID | MS_NOEXEC;
    struct memory_trees trees;
    CLEANUP_FD int root = -1;
    int rc = mounts_private(err);

    if (rc == 0)
        rc = memory_take_all(j, &trees, err);
    if (rc)
        return rc;
    /* The new root needs a place; its own /run is one that is there. */
    if (mount("tmpfs", j->o.in_place, "tmpfs", flags, ROOT_OPTIONS) < 0)
        return mounts_fail("a root in memory", neg_errno(), err);
    root = open(j->o.in_place, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return mounts_fail(j->o.in_place, neg_errno(), err);
    rc = mounts_pivot(root, err);
    if (rc == 0)
        rc = memory_fill(j, &trees, err);
    if (rc == 0 && mount(NULL, "/", NULL,
                         MS_REMOUNT | MS_BIND | MS_RDONLY | flags, NULL) < 0)
        rc = mounts_fail("/ read-only", neg_errno(), err);
    return rc;
}
