/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/snapshot_pair.h"

#include "vmm/cleanup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAIR_MODE 0600

static int pair_error(struct errmsg *err, const char *path)
{
    int rc = neg_errno();

    return err_set(err, rc, "%s: %s", path, err_reason(rc));
}

/* For reading; in a jail it is a descriptor that we inherited. */
static int pair_open(const char *path)
{
    int fd = util_open(path, O_RDONLY | O_NONBLOCK);

    if (fd < 0)
        errno = -fd;
    return fd;
}

/* --- paths ------------------------------------------------------------------
 */

static char *pair_name(const char *path, const char *suffix)
{
    char *out = NULL;

    return asprintf(&out, "%s%s", path, suffix) < 0 ? NULL : out;
}

static int pair_names(struct snap_pair *p, const char *state_path,
                      const char *mem_path, struct errmsg *err)
{
    p->state_path = strdup(state_path);
    p->mem_path = strdup(mem_path);
    p->state_part = pair_name(state_path, ".part");
    p->mem_part = pair_name(mem_path, ".part");
    p->mem_old = pair_name(mem_path, ".old");
    if (p->state_path && p->mem_path && p->state_part && p->mem_part &&
        p->mem_old)
        return 0;
    return err_set(err, -ENOMEM, "out of memory");
}

/* The directory of a path: what is before its last slash, or ".". */
static int pair_dir(const char *path, char *out, size_t size,
                    struct errmsg *err)
{
    const char *slash = strrchr(path, '/');

    if (slash && (size_t)(slash - path) + 2 > size)
        return err_set(err, -ENAMETOOLONG, "%s: the path is too long", path);
    (void)snprintf(out, size, "%.*s", slash ? (int)(slash - path) + 1 : 1,
                   slash ? path : ".");
    return 0;
}

static const char *pair_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Whether both would be one file, however their directory is written. One that
 * is not there is told when the parts are made. */
static bool pair_same(const char *a, const char *b)
{
    char dir_a[PATH_MAX];
    char dir_b[PATH_MAX];
    struct stat sa;
    struct stat sb;

    return !strcmp(pair_base(a), pair_base(b)) &&
           !pair_dir(a, dir_a, sizeof(dir_a), NULL) &&
           !pair_dir(b, dir_b, sizeof(dir_b), NULL) && stat(dir_a, &sa) == 0 &&
           stat(dir_b, &sb) == 0 && sa.st_dev == sb.st_dev &&
           sa.st_ino == sb.st_ino;
}

/* The names that are used on the way must not be those of the other file: it
 * would be cut before there is a new one, or be taken away after it. */
static int pair_check_names(const struct snap_pair *p, struct errmsg *err)
{
    if (pair_same(p->state_path, p->mem_path))
        return err_set(err, -EINVAL, "%s: state and memory need two files",
                       p->state_path);
    if (pair_same(p->state_path, p->mem_part) ||
        pair_same(p->state_path, p->mem_old) ||
        pair_same(p->mem_path, p->state_part))
        return err_set(err, -EINVAL,
                       "%s and %s: one is a name that is used while the other "
                       "is written (.part, .old); choose another name",
                       p->state_path, p->mem_path);
    return 0;
}

/* Only what we would write ourselves is replaced. */
static int pair_check_target(const char *path, struct errmsg *err)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : pair_error(err, path);
    if (S_ISREG(st.st_mode))
        return 0;
    return err_set(err, -EINVAL,
                   "%s: is there and no regular file; name another one", path);
}

/* --- writing ----------------------------------------------------------------
 */

/* A part that a crash left is taken over; one that is being written is not. */
static int pair_create(const char *path, int *out_fd, struct errmsg *err)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CLEANUP_FD int fd =
        open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, PAIR_MODE);

    if (fd < 0)
        return pair_error(err, path);
    if (fcntl(fd, F_OFD_SETLK, &lock) < 0)
        return err_set(err, -EBUSY,
                       "%s: another snapshot is being written there", path);
    if (ftruncate(fd, 0) < 0)
        return pair_error(err, path);
    *out_fd = take_fd(&fd);
    return 0;
}

int snap_pair_begin(struct snap_pair *p, const char *state_path,
                    const char *mem_path, struct errmsg *err)
{
    int rc;

    memset(p, 0, sizeof(*p));
    p->state_fd = p->mem_fd = -1;
    rc = pair_names(p, state_path, mem_path, err);
    if (rc == 0)
        rc = pair_check_names(p, err);
    if (rc == 0)
        rc = pair_check_target(state_path, err);
    if (rc == 0)
        rc = pair_check_target(mem_path, err);
    if (rc == 0)
        rc = pair_create(p->state_part, &p->state_fd, err);
    if (rc == 0)
        rc = pair_create(p->mem_part, &p->mem_fd, err);
    if (rc)
        snap_pair_abort(p);
    return rc;
}

static int pair_sync(int fd, const char *path, struct errmsg *err)
{
    return fsync(fd) < 0 ? pair_error(err, path) : 0;
}

static int pair_sync_dir(const char *path, struct errmsg *err)
{
    char dir[PATH_MAX];
    CLEANUP_FD int fd = -1;
    int rc = pair_dir(path, dir, sizeof(dir), err);

    if (rc)
        return rc;
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? pair_error(err, dir) : pair_sync(fd, dir, err);
}

static int pair_try_mem(const char *path, const struct snap_mem *m,
                        const struct state_file *f, int *out_fd,
                        struct errmsg *err)
{
    CLEANUP_FD int fd = pair_open(path);
    int rc;

    if (fd < 0)
        return pair_error(err, path);
    rc = snap_mem_check(m, f, fd, path, err);
    if (rc == 0)
        *out_fd = take_fd(&fd);
    return rc;
}

/* Is what a crash, or a commit that failed, left as NAME.old the memory of the
 * state that is there? */
static bool pair_old_counts(const struct snap_pair *p)
{
    CLEANUP_FREE void *data = NULL;
    CLEANUP_FD int fd = -1;
    struct snap_mem m = {.crc = NULL};
    struct state_file f;
    struct stat st;
    size_t len = 0;
    bool counts;

    if (lstat(p->mem_old, &st) < 0 ||
        snap_read_state(p->state_path, &data, &len, NULL) ||
        state_open(&f, data, len, NULL) || snap_mem_load(&m, &f, NULL))
        return false;
    counts = pair_try_mem(p->mem_old, &m, &f, &fd, NULL) == 0;
    snap_mem_fini(&m);
    return counts;
}

/* The old memory keeps a name until the old state is gone. */
static int pair_keep_old(const struct snap_pair *p, struct errmsg *err)
{
    if (pair_old_counts(p))
        return 0;
    if (unlink(p->mem_old) < 0 && errno != ENOENT)
        return pair_error(err, p->mem_old);
    if (link(p->mem_path, p->mem_old) < 0 && errno != ENOENT)
        return pair_error(err, p->mem_old);
    return 0;
}

static int pair_rename(const char *from, const char *to, struct errmsg *err)
{
    return rename(from, to) < 0 ? pair_error(err, to) : 0;
}

static int pair_put(struct snap_pair *p, struct errmsg *err)
{
    int rc = pair_keep_old(p, err);

    if (rc == 0)
        rc = pair_rename(p->mem_part, p->mem_path, err);
    if (rc == 0)
        rc = pair_sync_dir(p->mem_path, err);
    if (rc == 0)
        rc = pair_rename(p->state_part, p->state_path, err);
    if (rc == 0)
        rc = pair_sync_dir(p->state_path, err);
    if (rc == 0)
        (void)unlink(p->mem_old); /* a leftover harms nobody */
    return rc;
}

int snap_pair_commit(struct snap_pair *p, const void *state, size_t len_bytes,
                     struct errmsg *err)
{
    int rc = util_write_full(p->state_fd, state, len_bytes);

    if (rc)
        rc = err_set(err, rc, "%s: %s", p->state_path, err_reason(rc));
    if (rc == 0)
        rc = pair_sync(p->state_fd, p->state_path, err);
    if (rc == 0)
        rc = pair_sync(p->mem_fd, p->mem_path, err);
    if (rc == 0)
        rc = pair_put(p, err);
    snap_pair_abort(p); /* what has its place already stays */
    return rc;
}

void snap_pair_abort(struct snap_pair *p)
{
    /* The descriptors hold the locks: without one the part is another's. */
    if (p->state_fd >= 0)
        (void)unlink(p->state_part);
    if (p->mem_fd >= 0)
        (void)unlink(p->mem_part);
    drop_fd(&p->state_fd);
    drop_fd(&p->mem_fd);
    free(p->state_path);
    free(p->mem_path);
    free(p->state_part);
    free(p->mem_part);
    free(p->mem_old);
    memset(p, 0, sizeof(*p));
    p->state_fd = p->mem_fd = -1;
}

/* --- reading ----------------------------------------------------------------
 */

int snap_read_state(const char *path, void **out_data, size_t *out_len,
                    struct errmsg *err)
{
    /* Without waiting: a FIFO would hold us until somebody writes. */
    CLEANUP_FD int fd = pair_open(path);
    struct stat st;
    void *data;
    int rc;

    if (fd < 0 || fstat(fd, &st) < 0)
        return pair_error(err, path);
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 ||
        (uint64_t)st.st_size > SNAP_STATE_MAX)
        return err_set(err, -EBADMSG,
                       "%s: is no saved state: it has to be a regular file of "
                       "at most %llu MiB that is not empty",
                       path, (unsigned long long)(SNAP_STATE_MAX / MIB));
    data = malloc((size_t)st.st_size);
    if (!data)
        return err_set(err, -ENOMEM, "%s: out of memory", path);
    rc = util_pread_full(fd, data, (size_t)st.st_size, 0);
    if (rc) {
        free(data);
        return err_set(err, rc, "%s: %s", path, err_reason(rc));
    }
    *out_data = data;
    *out_len = (size_t)st.st_size;
    return 0;
}

int snap_pair_open_mem(const char *path, const struct snap_mem *m,
                       const struct state_file *f, int *out_fd,
                       struct errmsg *err)
{
    CLEANUP_FREE char *old = pair_name(path, ".old");
    int rc = pair_try_mem(path, m, f, out_fd, err);

    if (rc && old && pair_try_mem(old, m, f, out_fd, NULL) == 0)
        return 0;
    return rc;
}
