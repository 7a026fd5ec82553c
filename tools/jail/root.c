/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jail/root.h"

#include "tools/jail/remove.h"
#include "vmm/cleanup.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <time.h>

/* syscalls: openat mkdirat fstat fstatat flock fchown fchmod unlinkat */
/* syscalls: sendfile write */

/* Other jails of the same program come and go: their last one removes the
 * directory that this one has just found. */
#define ROOT_TRIES 1000
/* The monitor of a jail may be gone a moment before its keeper is. */
#define ROOT_LOCK_STEP_NS 10000000L
#define ROOT_LOCK_STEPS   50 /* half a second */

static int root_fail(const struct jail_options *o, const char *what, int rc,
                     struct errmsg *err)
{
    return err_set(err, rc, "jail %s/%s/%s: %s: %s", o->base_dir, o->exec_name,
                   o->id, what, err_reason(rc));
}

/* Whether `name` in `at` is still the directory that we hold open. */
static bool root_is_there(int at, const char *name, int fd)
{
    struct stat by_name;
    struct stat by_fd;

    return fstatat(at, name, &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstat(fd, &by_fd) == 0 && path_same_file(&by_name, &by_fd);
}

/* A jail's directory belongs to root, the caller or the jail's own user. */
static int root_check_owner(const struct jail_options *o, int fd,
                            const char *name, struct errmsg *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return root_fail(o, name, neg_errno(), err);
    if (st.st_uid != 0 && st.st_uid != geteuid() && st.st_uid != o->uid)
        return err_set(
            err, -EPERM, "jail %s/%s/%s: %s belongs to user %u; remove it",
            o->base_dir, o->exec_name, o->id, name, (unsigned)st.st_uid);
    return 0;
}

static int root_lock(int fd)
{
    const struct timespec step = {.tv_nsec = ROOT_LOCK_STEP_NS};

    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
        if (errno != EWOULDBLOCK || i == ROOT_LOCK_STEPS)
            return neg_errno();
        (void)nanosleep(&step, NULL);
    }
    return 0;
}

/* -EAGAIN: a directory went away under us. */
static int root_try(struct jail_root *r, const struct jail_options *o,
                    struct errmsg *err)
{
    bool made = false;
    int rc = path_enter(r->base_fd, o->exec_name, 0755, &made, &r->exec_fd);

    if (rc == 0)
        rc = path_enter(r->exec_fd, o->id, 0755, &made, &r->id_fd);
    if (rc == -ENOENT)
        return -EAGAIN;
    if (rc)
        return root_fail(o, "directory", rc, err);
    rc = root_lock(r->id_fd);
    if (rc == -EWOULDBLOCK)
        return err_set(err, -EBUSY,
                       "--id %s: a jail of this name is in use under %s/%s; "
                       "choose another",
                       o->id, o->base_dir, o->exec_name);
    if (rc)
        return root_fail(o, "lock", rc, err);
    return root_is_there(r->exec_fd, o->id, r->id_fd) &&
                   root_is_there(r->base_fd, o->exec_name, r->exec_fd)
               ? 0
               : -EAGAIN;
}

static int root_open_dirs(struct jail_root *r, const struct jail_options *o,
                          struct errmsg *err)
{
    int rc = path_open_base(o->base_dir, &r->base_fd, err);

    if (rc)
        return rc;
    rc = -EAGAIN;
    for (int i = 0; i < ROOT_TRIES && rc == -EAGAIN; i++) {
        drop_fd(&r->id_fd);
        drop_fd(&r->exec_fd);
        rc = root_try(r, o, err);
    }
    if (rc == -EAGAIN)
        return root_fail(o, "directory", rc, err);
    return rc;
}

int jail_root_open(struct jail_root *r, const struct jail_options *o,
                   bool *out_made, struct errmsg *err)
{
    int rc = root_open_dirs(r, o, err);

    if (rc) {
        /* Without the lock nothing in there is ours. */
        drop_fd(&r->id_fd);
        return rc;
    }
    rc = root_check_owner(o, r->exec_fd, o->exec_name, err);
    if (rc == 0)
        rc = root_check_owner(o, r->id_fd, o->id, err);
    if (rc)
        return rc;
    rc = path_enter(r->id_fd, "root", 0700, &r->made, &r->fd);
    if (rc)
        return root_fail(o, "root", rc, err);
    if (r->made)
        *out_made = true;
    rc = root_check_owner(o, r->fd, "root", err);
    if (rc) {
        drop_fd(&r->fd); /* not ours to clean */
        return rc;
    }
    rc = path_of_fd(r->fd, r->path, sizeof(r->path));
    if (rc == 0 && fstat(r->fd, &r->st) < 0)
        rc = neg_errno();
    return rc ? root_fail(o, "root", rc, err) : 0;
}

static int root_copy(int from, int to)
{
    struct stat st;
    off_t off = 0;

    if (fstat(from, &st) < 0)
        return neg_errno();
    while (off < st.st_size) {
        ssize_t n = sendfile(to, from, &off, (size_t)(st.st_size - off));

        if (n < 0 && errno != EINTR)
            return neg_errno();
        if (n == 0)
            return -ENODATA; /* it shrinks while we read it */
    }
    return 0;
}

/* A new file: one of that name, left by an earlier jail, is replaced. */
static int root_create(const struct jail_root *r, const char *name, mode_t mode,
                       int *out_fd)
{
    if (unlinkat(r->fd, name, 0) < 0 && errno != ENOENT)
        return neg_errno();
    *out_fd =
        openat(r->fd, name,
               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (*out_fd < 0)
        return neg_errno();
    return fchmod(*out_fd, mode) < 0 ? neg_errno() : 0;
}

static int root_copy_program(const struct jail_root *r,
                             const struct jail_options *o, int exec_fd)
{
    CLEANUP_FD int fd = -1;
    /* Not the monitor's own: it cannot change what runs. */
    int rc = root_create(r, o->exec_name, 0555, &fd);

    return rc ? rc : root_copy(exec_fd, fd);
}

static int root_make_dir(const struct jail_root *r, const char *name,
                         bool for_monitor, const struct jail_options *o)
{
    CLEANUP_FD int fd = -1;
    bool made = false;
    struct stat st;
    int rc = path_enter(r->fd, name, 0700, &made, &fd);

    if (rc)
        return rc;
    if (fstat(fd, &st) < 0)
        return neg_errno();
    if (st.st_uid != 0 && st.st_uid != geteuid() && st.st_uid != o->uid)
        return -EPERM;
    if (for_monitor && fchown(fd, o->uid, o->gid) < 0)
        return neg_errno();
    return fchmod(fd, 0700) < 0 ? neg_errno() : 0;
}

int jail_root_fill(struct jail_root *r, const struct jail_options *o,
                   int exec_fd, bool chown, struct errmsg *err)
{
    int rc = root_copy_program(r, o, exec_fd);

    if (rc)
        return root_fail(o, "copy of the program", rc, err);
    rc = root_make_dir(r, "dev", false, o);
    if (rc)
        return root_fail(o, "dev", rc, err);
    rc = root_make_dir(r, "run", chown, o);
    if (rc)
        return root_fail(o, "run", rc, err);
    if (chown && fchown(r->fd, o->uid, o->gid) < 0)
        return root_fail(o, "chown", neg_errno(), err);
    if (fchmod(r->fd, 0700) < 0)
        return root_fail(o, "chmod", neg_errno(), err);
    return 0;
}

static void root_pid_name(const struct jail_options *o, char *buf, size_t cap)
{
    (void)snprintf(buf, cap, "%s.pid", o->exec_name);
}

int jail_root_write_pid(const struct jail_root *r, const struct jail_options *o,
                        pid_t pid, struct errmsg *err)
{
    CLEANUP_FD int fd = -1;
    char name[256];
    char text[24];
    int rc;

    root_pid_name(o, name, sizeof(name));
    rc = root_create(r, name, 0644, &fd);
    /* No newline: some readers take the whole file for a number. */
    (void)snprintf(text, sizeof(text), "%d", (int)pid);
    if (rc == 0)
        rc = util_write_full(fd, text, strlen(text));
    return rc ? root_fail(o, name, rc, err) : 0;
}

unsigned jail_root_clean(struct jail_root *r, const struct jail_options *o)
{
    enum remove_what what = REMOVE_SOCKETS;
    unsigned left = 0;
    char name[256];

    if (r->id_fd < 0)
        return 0;
    if (o->purge)
        what = REMOVE_ALL;
    else if (r->made)
        what = REMOVE_ALL_BUT_DATA;
    if (r->fd >= 0) {
        root_pid_name(o, name, sizeof(name));
        (void)unlinkat(r->fd, name, 0); /* absent after an early failure */
        (void)unlinkat(r->fd, o->exec_name, 0);
        left = remove_inside(o->purge ? r->id_fd : r->fd, what);
        (void)unlinkat(r->fd, "dev", AT_REMOVEDIR);
        (void)unlinkat(r->fd, "run", AT_REMOVEDIR);
        /* Empty ones only; whoever shares them needs them not. */
        (void)unlinkat(r->id_fd, "root", AT_REMOVEDIR);
    }
    (void)unlinkat(r->exec_fd, o->id, AT_REMOVEDIR);
    (void)unlinkat(r->base_fd, o->exec_name, AT_REMOVEDIR);
    return left;
}

void jail_root_close(struct jail_root *r)
{
    drop_fd(&r->fd);
    drop_fd(&r->id_fd);
    drop_fd(&r->exec_fd);
    drop_fd(&r->base_fd);
}
