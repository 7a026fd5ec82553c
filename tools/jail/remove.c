/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jail/remove.h"

#include "vmm/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* syscalls: openat2 openat getdents64 fstatat unlinkat renameat chmod */

/* A descriptor each; what is deeper is moved to the top and found there. */
#define REMOVE_MAX_DEPTH 64
#define REMOVE_MAX_ROUND 1000

struct remover {
    enum remove_what what;
    int top;
    unsigned moved; /* directories taken to the top; names them */
    unsigned left;
};

static void remove_dir(struct remover *r, int at, const char *name,
                       unsigned depth);

static bool remove_wants(const struct remover *r, const struct stat *st)
{
    if (S_ISSOCK(st->st_mode) || r->what == REMOVE_ALL)
        return true;
    if (r->what == REMOVE_SOCKETS)
        return false;
    return !S_ISREG(st->st_mode) || st->st_size == 0 || st->st_nlink > 1;
}

static void remove_entry(struct remover *r, int at, const char *name,
                         unsigned depth)
{
    struct stat st;

    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (S_ISDIR(st.st_mode)) {
        if (r->what != REMOVE_SOCKETS || (depth == 0 && !strcmp(name, "run")))
            remove_dir(r, at, name, depth + 1);
        return;
    }
    if (!remove_wants(r, &st) || unlinkat(at, name, 0) < 0)
        r->left++;
}

static void remove_list(struct remover *r, int fd, unsigned depth)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;

    if (!d) {
        if (copy >= 0)
            (void)close(copy);
        r->left++;
        return;
    }
    while ((e = readdir(d))) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            remove_entry(r, fd, e->d_name, depth);
    }
    (void)closedir(d);
}

/* Too deep for a descriptor each: takes it up to where we began. */
static void remove_move_up(struct remover *r, int at, const char *name)
{
    char up[40];

    (void)snprintf(up, sizeof(up), ".mote-remove-%u", r->moved);
    if (renameat(at, name, r->top, up) == 0)
        r->moved++;
    else
        r->left++;
}

/*
 * A mount is not entered, be it of the same file system: what somebody has
 * bound into the jail is not the jail's.
 */
static int remove_openat(int at, const char *name, unsigned flags)
{
    const struct open_how how = {
        .flags = flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};

    return (int)syscall(SYS_openat2, at, name, &how, sizeof(how));
}

static int remove_open(int at, const char *name)
{
    CLEANUP_FD int path_fd = -1;
    char self[40];
    int fd = remove_openat(at, name, O_RDONLY);

    if (fd >= 0 || errno != EACCES)
        return fd;
    /* Without root: a directory of ours that forbids even us. */
    path_fd = remove_openat(at, name, O_PATH);
    if (path_fd < 0)
        return -1;
    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
    (void)chmod(self, 0700); /* the next open tells */
    return remove_openat(at, name, O_RDONLY);
}

static void remove_dir(struct remover *r, int at, const char *name,
                       unsigned depth)
{
    CLEANUP_FD int fd = -1;

    if (depth > REMOVE_MAX_DEPTH) {
        remove_move_up(r, at, name);
        return;
    }
    fd = remove_open(at, name);
    if (fd < 0) {
        r->left++;
        return;
    }
    remove_list(r, fd, depth);
    if (r->what != REMOVE_SOCKETS)
        (void)unlinkat(at, name, AT_REMOVEDIR); /* stays if it holds data */
}

unsigned remove_inside(int dir_fd, enum remove_what what)
{
    struct remover r = {.what = what, .top = dir_fd};
    unsigned moved;
    int round = 0;

    do {
        moved = r.moved;
        r.left = 0;
        remove_list(&r, dir_fd, 0);
    } while (r.moved != moved && ++round < REMOVE_MAX_ROUND);
    return r.left;
}
