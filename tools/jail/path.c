/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jail/path.h"

#include "vmm/cleanup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define WALK_MAX_LINKS 40 /* as the kernel's own */

/* syscalls: openat mkdirat readlinkat fstat getcwd */

struct walk {
    int fd; /* where we are; O_PATH */
    char rest[PATH_OF_ALL];
    const char *whole; /* for messages */
    const char *what;
    int links;
    bool base; /* make what is missing, trust only root and us */
    struct errmsg *err;
};

static bool walk_is_ours(const struct stat *st)
{
    return st->st_uid == 0 || st->st_uid == geteuid();
}

/* Whether somebody else could swap what this directory holds. */
static int walk_check_dir(const struct walk *w, const char *name,
                          const struct stat *st)
{
    bool group =
        (st->st_mode & S_IWGRP) && st->st_gid != 0 && st->st_gid != getegid();

    if (!walk_is_ours(st))
        return err_set(w->err, -EPERM,
                       "%s %s: %s belongs to user %u, who could move what is "
                       "in it; use a path that belongs to root or you",
                       w->what, w->whole, name, (unsigned)st->st_uid);
    if ((group || (st->st_mode & S_IWOTH)) && !(st->st_mode & S_ISVTX))
        return err_set(w->err, -EPERM,
                       "%s %s: others can write to %s; take that right away "
                       "(chmod go-w)",
                       w->what, w->whole, name);
    return 0;
}

static int walk_fail(const struct walk *w, const char *name, int rc)
{
    return err_set(w->err, rc, "%s %s: %s: %s", w->what, w->whole, name,
                   err_reason(rc));
}

static int walk_to_root(struct walk *w)
{
    drop_fd(&w->fd);
    w->fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return w->fd < 0 ? neg_errno() : 0;
}

/* Puts the link's target before what is left of the path. */
static int walk_link(struct walk *w, int link_fd, const char *name,
                     const struct stat *st)
{
    char text[PATH_OF_ALL];
    char joined[PATH_OF_ALL];
    ssize_t n = readlinkat(link_fd, "", text, sizeof(text) - 1);

    if (n < 0)
        return walk_fail(w, name, neg_errno());
    text[n] = '\0';
    if (!walk_is_ours(st))
        return err_set(w->err, -ELOOP,
                       "%s %s: %s is a link of user %u; only root's and your "
                       "own are followed",
                       w->what, w->whole, name, (unsigned)st->st_uid);
    if (++w->links > WALK_MAX_LINKS)
        return walk_fail(w, name, -ELOOP);
    if (snprintf(joined, sizeof(joined), "%s/%s", text, w->rest) >=
        (int)sizeof(joined))
        return walk_fail(w, name, -ENAMETOOLONG);
    memcpy(w->rest, joined, sizeof(joined));
    return text[0] == '/' ? walk_to_root(w) : 0;
}

/* The next component of w->rest into `name`; false at the end. */
static bool walk_next(struct walk *w, char *name)
{
    const char *p = w->rest + strspn(w->rest, "/");
    size_t n = strcspn(p, "/");

    if (n == 0)
        return false;
    memcpy(name, p, n);
    name[n] = '\0';
    memmove(w->rest, p + n, strlen(p + n) + 1);
    return true;
}

static int walk_step(struct walk *w, const char *name)
{
    const int flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    CLEANUP_FD int fd = openat(w->fd, name, flags);
    struct stat st;

    if (fd < 0 && errno == ENOENT && w->base) {
        if (mkdirat(w->fd, name, 0755) < 0 && errno != EEXIST)
            return walk_fail(w, name, neg_errno());
        fd = openat(w->fd, name, flags);
    }
    if (fd < 0 || fstat(fd, &st) < 0)
        return walk_fail(w, name, neg_errno());
    if (S_ISLNK(st.st_mode))
        return walk_link(w, fd, name, &st);
    if (w->base) {
        int rc = S_ISDIR(st.st_mode) ? walk_check_dir(w, name, &st)
                                     : walk_fail(w, name, -ENOTDIR);

        if (rc)
            return rc;
    }
    drop_fd(&w->fd);
    w->fd = take_fd(&fd);
    return 0;
}

static int walk_start(struct walk *w, const char *path)
{
    char cwd[PATH_OF_ALL] = "";
    int rc = walk_to_root(w);

    if (rc)
        return walk_fail(w, "/", rc);
    if (*path != '/' && !getcwd(cwd, sizeof(cwd)))
        return walk_fail(w, ".", neg_errno());
    if (snprintf(w->rest, sizeof(w->rest), "%s/%s", cwd, path) >=
        (int)sizeof(w->rest))
        return walk_fail(w, "path", -ENAMETOOLONG);
    return 0;
}

/* On success w->fd is what the path leads to. */
static int walk_all(struct walk *w, const char *path)
{
    char name[PATH_OF_ALL];
    int rc = walk_start(w, path);

    while (rc == 0 && walk_next(w, name))
        rc = walk_step(w, name);
    if (rc)
        drop_fd(&w->fd);
    return rc;
}

/* An O_PATH descriptor cannot be read; its file is the one that was checked. */
static int walk_reopen(const struct walk *w, int flags, int *out_fd)
{
    char self[40];

    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", w->fd);
    *out_fd = open(self, flags | O_CLOEXEC);
    return *out_fd < 0 ? walk_fail(w, "open", neg_errno()) : 0;
}

int path_open_base(const char *path, int *out_fd, struct errmsg *err)
{
    struct walk w = {.fd = -1,
                     .whole = path,
                     .what = "--chroot-base-dir",
                     .base = true,
                     .err = err};
    int rc = walk_all(&w, path);

    if (rc == 0)
        rc = walk_reopen(&w, O_RDONLY | O_DIRECTORY, out_fd);
    drop_fd(&w.fd);
    return rc;
}

int path_open_file(const char *what, const char *path, int *out_fd,
                   struct errmsg *err)
{
    struct walk w = {.fd = -1, .whole = path, .what = what, .err = err};
    int rc = walk_all(&w, path);
    struct stat st;

    if (rc == 0 && fstat(w.fd, &st) < 0)
        rc = walk_fail(&w, "stat", neg_errno());
    /* To open a pipe or a device would have effects of its own. */
    if (rc == 0 && !S_ISREG(st.st_mode))
        rc = err_set(err, -EINVAL, "%s %s: is no regular file", what, path);
    if (rc == 0)
        rc = walk_reopen(&w, O_RDONLY, out_fd);
    drop_fd(&w.fd);
    return rc;
}

int path_enter(int at, const char *name, mode_t mode, bool *out_made,
               int *out_fd)
{
    bool made = mkdirat(at, name, mode) == 0;

    if (!made && errno != EEXIST)
        return neg_errno();
    *out_fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*out_fd < 0)
        return neg_errno();
    *out_made = made;
    return 0;
}

int path_of_fd(int fd, char *buf, size_t cap)
{
    char self[40];
    ssize_t n;

    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    n = readlink(self, buf, cap);
    if (n < 0)
        return neg_errno();
    if ((size_t)n >= cap)
        return -ENAMETOOLONG;
    buf[n] = '\0';
    return 0;
}

bool path_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}
