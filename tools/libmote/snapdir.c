/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/snapdir.h"

#include "tools/libmote/rundir.h"
#include "tools/libmote/snapdir_meta.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"
#include "vmm/snapshot_pair.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define SNAPDIR_FILE_MAX ((size_t)1 << 20)
#define SNAPDIR_OPEN     (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

static int snapdir_error(struct mote_err *err, const char *path)
{
    int rc = neg_errno();

    return lm_err(err, rc, "%s: %s", path, err_reason(rc));
}

/* --- reading ---------------------------------------------------------------
 */

char *snapdir_file(const struct snapdir *d, const char *file)
{
    char *out = NULL;

    return asprintf(&out, "%s/%s", d->path, file) < 0 ? NULL : out;
}

static int snapdir_read_meta(struct snapdir *d, const char *path,
                             struct mote_err *err)
{
    CLEANUP_FREE char *text =
        lm_read_file(d->dir_fd, SNAPDIR_FILE, SNAPDIR_FILE_MAX);

    if (!text)
        return lm_err(err, -ENOENT,
                      "%s: is no snapshot: it has no " SNAPDIR_FILE
                      "; `mote snapshot save` writes one",
                      path);
    return snapdir_meta_read(text, path, &d->meta, err);
}

static int snapdir_read_config(struct snapdir *d, struct errmsg *e)
{
    struct state_in in;
    int rc = state_section(&d->state, "config", 1, &in, e);

    if (rc)
        return rc;
    d->config = json_loadb((const char *)in.at, (size_t)(in.end - in.at),
                           JSON_REJECT_DUPLICATES, NULL);
    return json_is_object(d->config)
               ? 0
               : err_set(e, -EBADMSG,
                         "the configuration in the saved state is "
                         "damaged");
}

static int snapdir_read_state(struct snapdir *d, struct mote_err *err)
{
    CLEANUP_FREE char *state = snapdir_file(d, SNAPDIR_STATE);
    CLEANUP_FREE char *memory = snapdir_file(d, SNAPDIR_MEMORY);
    char id[SNAPDIR_ID_TEXT];
    struct errmsg e = {{0}};
    int rc;

    if (!state || !memory)
        return lm_err_nomem(err);
    rc = snap_read_state(state, &d->data, &d->data_bytes, &e);
    if (rc)
        return lm_err(err, rc, "%s", e.text);
    rc = state_open(&d->state, d->data, d->data_bytes, &e);
    if (rc == 0)
        rc = snap_mem_load(&d->mem, &d->state, &e);
    if (rc == 0)
        rc = snapdir_read_config(d, &e);
    if (rc)
        return lm_err(err, rc, "%s: %s", state, e.text);
    rc = snap_pair_open_mem(memory, &d->mem, &d->state, &d->mem_fd, &e);
    if (rc)
        return lm_err(err, rc, "%s", e.text);
    snapdir_id_text(d->state.id, id);
    if (strcmp(id, d->meta.id))
        return lm_err(err, -EBADMSG,
                      "%s: its " SNAPDIR_FILE " and its state are of two "
                      "snapshots",
                      d->path);
    return 0;
}

int snapdir_open(struct snapdir *d, const char *path, struct mote_err *err)
{
    int rc;

    memset(d, 0, sizeof(*d));
    d->mem_fd = -1;
    d->path = realpath(path, NULL);
    d->dir_fd = d->path ? open(d->path, SNAPDIR_OPEN) : -1;
    if (d->dir_fd < 0) {
        rc = neg_errno();
        rc = lm_err(err, rc, "%s: %s; give the directory of a snapshot", path,
                    err_reason(rc));
    } else {
        rc = snapdir_read_meta(d, path, err);
    }
    if (rc == 0)
        rc = snapdir_read_state(d, err);
    if (rc)
        snapdir_close(d);
    return rc;
}

void snapdir_close(struct snapdir *d)
{
    snapdir_meta_fini(&d->meta);
    json_decref(d->config);
    d->config = NULL;
    snap_mem_fini(&d->mem);
    free(d->data);
    free(d->path);
    d->data = NULL;
    d->path = NULL;
    drop_fd(&d->mem_fd);
    drop_fd(&d->dir_fd);
}

/* --- writing ---------------------------------------------------------------
 */

/* Cuts `copy` into the directory around (".", "/" or the front of `copy`) and
 * the name, which is NULL if there is none. */
static const char *part_cut(char *copy, const char **out_name)
{
    char *slash;

    while ((slash = strrchr(copy, '/')) && slash > copy && !slash[1])
        *slash = '\0';
    *out_name = slash ? slash + 1 : copy;
    if (!**out_name || !strcmp(*out_name, ".") || !strcmp(*out_name, ".."))
        *out_name = NULL;
    if (!slash)
        return ".";
    *slash = '\0';
    return slash == copy ? "/" : copy;
}

/* Absolute, though its last part is not there yet. */
static int part_resolve(struct snapdir_part *p, const char *around,
                        const char *name, struct mote_err *err)
{
    char *up = realpath(around, NULL);
    int rc = 0;

    if (!up)
        return snapdir_error(err, around);
    if (asprintf(&p->path, "%s/%s", strcmp(up, "/") ? up : "", name) < 0)
        p->path = NULL;
    if (!p->path || asprintf(&p->part, "%s.part", p->path) < 0) {
        p->part = NULL;
        rc = lm_err_nomem(err);
    } else {
        p->up_fd = open(up, SNAPDIR_OPEN);
        rc = p->up_fd < 0 ? snapdir_error(err, up) : 0;
    }
    free(up);
    return rc;
}

static int part_names(struct snapdir_part *p, const char *path,
                      struct mote_err *err)
{
    char *copy = strdup(path);
    const char *name = NULL;
    const char *around;
    int rc;

    if (!copy)
        return lm_err_nomem(err);
    around = part_cut(copy, &name);
    rc = name ? part_resolve(p, around, name, err)
              : lm_err(err, -EINVAL,
                       "'%s': not the name of a directory to be made", path);
    free(copy);
    return rc;
}

/* Plain files only; a link is removed, not followed. */
static void part_empty(int dir_fd)
{
    int fd = openat(dir_fd, ".", SNAPDIR_OPEN);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    while (dir && (e = readdir(dir)) != NULL) {
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            (void)unlinkat(dir_fd, e->d_name, 0);
    }
    if (dir)
        (void)closedir(dir);
}

/* What a crash left there is taken over. */
static int part_make(struct snapdir_part *p, struct mote_err *err)
{
    if (mkdir(p->part, 0700) < 0 && errno != EEXIST)
        return snapdir_error(err, p->part);
    p->dir_fd = open(p->part, SNAPDIR_OPEN | O_NOFOLLOW);
    if (p->dir_fd < 0)
        return snapdir_error(err, p->part);
    if (flock(p->dir_fd, LOCK_EX | LOCK_NB) < 0) {
        drop_fd(&p->dir_fd);
        return lm_err(err, -EBUSY,
                      "%s: another snapshot is being written there; wait for "
                      "it or name another directory",
                      p->path);
    }
    part_empty(p->dir_fd);
    return 0;
}

int snapdir_begin(struct snapdir_part *p, const char *path,
                  struct mote_err *err)
{
    struct stat st;
    int rc;

    memset(p, 0, sizeof(*p));
    p->dir_fd = p->up_fd = -1;
    rc = part_names(p, path, err);
    assert(rc || (p->path && p->part));
    if (rc == 0 && lstat(p->path, &st) == 0)
        rc = lm_err(err, -EEXIST,
                    "%s: is there already; remove it or name another directory",
                    path);
    if (rc == 0)
        rc = part_make(p, err);
    if (rc)
        snapdir_abort(p);
    return rc;
}

static int part_sync_files(const struct snapdir_part *p, struct mote_err *err)
{
    CLEANUP_FD int own = openat(p->dir_fd, ".", SNAPDIR_OPEN);
    DIR *dir = own < 0 ? NULL : fdopendir(own);
    struct dirent *e;
    int rc = 0;

    if (!dir)
        return snapdir_error(err, p->part);
    (void)take_fd(&own);
    while (rc == 0 && (e = readdir(dir)) != NULL) {
        CLEANUP_FD int fd = -1;

        if (e->d_name[0] == '.')
            continue;
        fd = openat(p->dir_fd, e->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fsync(fd) < 0)
            rc = snapdir_error(err, p->part);
    }
    (void)closedir(dir);
    if (rc == 0 && fsync(p->dir_fd) < 0)
        rc = snapdir_error(err, p->part);
    return rc;
}

static int part_write_meta(const struct snapdir_part *p,
                           const struct snapdir_meta *m, struct mote_err *err)
{
    CLEANUP_FREE char *text = snapdir_meta_text(m);
    CLEANUP_FD int fd = -1;
    int rc;

    if (!text)
        return lm_err(err, -EINVAL,
                      "%s: a path of its disks is not valid UTF-8, or memory "
                      "is short; rename the file",
                      p->path);
    fd = openat(p->dir_fd, SNAPDIR_FILE,
                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return snapdir_error(err, p->part);
    rc = util_write_full(fd, text, strlen(text));
    return rc ? lm_err(err, rc, "%s: %s; free space there", p->part,
                       err_reason(rc))
              : 0;
}

int snapdir_commit(struct snapdir_part *p, const struct snapdir_meta *m,
                   struct mote_err *err)
{
    int rc = part_write_meta(p, m, err);

    assert(p->path && p->part);
    if (rc == 0)
        rc = part_sync_files(p, err);
    if (rc == 0 &&
        renameat2(AT_FDCWD, p->part, AT_FDCWD, p->path, RENAME_NOREPLACE) < 0) {
        rc = neg_errno();
        /* A file system without that flag: the look at the start counts. */
        rc = rc == -EINVAL && rename(p->part, p->path) == 0 ? 0 : rc;
        if (rc)
            (void)lm_err(err, rc, "%s: %s", p->path, err_reason(rc));
    }
    if (rc == 0)
        drop_fd(&p->dir_fd); /* nothing to be taken back any more */
    if (rc == 0 && fsync(p->up_fd) < 0)
        rc = snapdir_error(err, p->path);
    snapdir_abort(p);
    return rc;
}

void snapdir_abort(struct snapdir_part *p)
{
    if (p->dir_fd >= 0 && p->part) {
        part_empty(p->dir_fd);
        (void)rmdir(p->part);
    }
    drop_fd(&p->dir_fd);
    drop_fd(&p->up_fd);
    free(p->path);
    free(p->part);
    p->path = p->part = NULL;
}
