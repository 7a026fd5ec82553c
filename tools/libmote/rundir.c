/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/rundir.h"

#include "tools/libmote/cgroup.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#define LM_DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* 32 signs, so that five random bits are one of them. */
static const char lm_id_signs[] = "abcdefghijkmnpqrstuvwxyz23456789";

/* --- the root --------------------------------------------------------------
 */

/*
 * Opens a directory that must be ours alone. /tmp is writable by all: the
 * owner and mode are those of the opened directory, not of its name.
 */
static int lm_open_private(int at, const char *path, int *out_fd,
                           const char **out_why)
{
    CLEANUP_FD int fd = -1;
    struct stat st;

    if (mkdirat(at, path, 0700) < 0 && errno != EEXIST) {
        *out_why = err_reason(neg_errno());
        return neg_errno();
    }
    fd = openat(at, path, LM_DIR_FLAGS);
    if (fd < 0 || fstat(fd, &st) < 0) {
        *out_why = errno == ELOOP || errno == ENOTDIR
                       ? "is a link or no directory"
                       : err_reason(neg_errno());
        return neg_errno();
    }
    if (st.st_uid != geteuid()) {
        *out_why = "belongs to another user";
        return -EPERM;
    }
    if (st.st_mode & 077 && fchmod(fd, 0700) < 0) {
        *out_why = "is open to other users";
        return -EPERM;
    }
    *out_fd = take_fd(&fd);
    return 0;
}

static int lm_root_try(struct lm_rundir *rd, const char *path,
                       struct mote_err *err)
{
    const char *why = NULL;
    int rc;

    if (strlen(path) > LM_ROOT_MAX)
        return lm_err(err, -ENAMETOOLONG,
                      "run-time directory %s: longer than the %d bytes that "
                      "leave room for socket paths; set MOTE_RUNTIME_DIR to a "
                      "shorter one",
                      path, LM_ROOT_MAX);
    rc = lm_open_private(AT_FDCWD, path, &rd->fd, &why);
    if (rc)
        return lm_err(err, rc,
                      "run-time directory %s: %s; set MOTE_RUNTIME_DIR to a "
                      "directory of your own",
                      path, why);
    (void)snprintf(rd->path, sizeof(rd->path), "%s", path);
    return 0;
}

/* The first of the usual places that is fit for use. */
static int lm_root_open(struct lm_rundir *rd, struct mote_err *err)
{
    const char *chosen = getenv("MOTE_RUNTIME_DIR");
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    char path[MOTE_PATH_CAP];

    if (chosen && *chosen) {
        CLEANUP_FREE char *abs = NULL;

        (void)mkdir(chosen, 0700); /* lm_root_try() tells what is wrong */
        abs = realpath(chosen, NULL);
        return lm_root_try(rd, abs ? abs : chosen, err);
    }
    if (geteuid() == 0 && lm_root_try(rd, "/run/mote", NULL) == 0)
        return 0;
    if (xdg && *xdg == '/') {
        (void)snprintf(path, sizeof(path), "%s/mote", xdg);
        if (lm_root_try(rd, path, NULL) == 0)
            return 0;
    }
    (void)snprintf(path, sizeof(path), "/tmp/mote-%u", (unsigned)geteuid());
    return lm_root_try(rd, path, err);
}

int lm_rundir_open(struct lm_rundir *rd, struct mote_err *err)
{
    const char *why = NULL;
    int rc;

    *rd = LM_RUNDIR_CLOSED;
    rc = lm_root_open(rd, err);
    if (rc)
        return rc;
    rc = lm_open_private(rd->fd, "vm", &rd->vm_fd, &why);
    if (!rc)
        rc = lm_open_private(rd->fd, "names", &rd->names_fd, &why);
    if (rc) {
        (void)lm_err(err, rc,
                     "run-time directory %s: its subdirectory %s; remove it",
                     rd->path, why);
        lm_rundir_close(rd);
    }
    return rc;
}

void lm_rundir_close(struct lm_rundir *rd)
{
    drop_fd(&rd->names_fd);
    drop_fd(&rd->vm_fd);
    drop_fd(&rd->fd);
}

/* --- locks -----------------------------------------------------------------
 */

static int lm_flock(int fd, int how)
{
    int rc;

    do {
        rc = flock(fd, how);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? neg_errno() : 0;
}

/* The registry's lock; closing the fd releases it. */
static int lm_registry_lock(const struct lm_rundir *rd, int *out_fd)
{
    CLEANUP_FD int fd =
        openat(rd->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    int rc;

    if (fd < 0)
        return neg_errno();
    rc = lm_flock(fd, LOCK_EX);
    if (rc)
        return rc;
    *out_fd = take_fd(&fd);
    return 0;
}

int lm_slot_alive(const struct lm_rundir *rd, const char *id)
{
    CLEANUP_FD int fd = -1;
    char path[MOTE_ID_LEN + 8];

    (void)snprintf(path, sizeof(path), "%.*s/lock", MOTE_ID_LEN, id);
    fd = openat(rd->vm_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return 0;
    return flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

/* --- removal ----------------------------------------------------------------
 */

/*
 * Slots hold plain files and sockets, and at most one directory of such. A
 * monitor that was taken over may have made more: that stays, as an empty
 * effort of its own. Nothing below is followed.
 */
static void lm_remove_files(int at, const char *name, bool deeper)
{
    CLEANUP_FD int fd = openat(at, name, LM_DIR_FLAGS);
    struct dirent *e;
    DIR *dir;

    if (fd < 0)
        return;
    dir = fdopendir(fd);
    if (!dir)
        return;
    (void)take_fd(&fd); /* the DIR owns it now */
    while ((e = readdir(dir)) != NULL) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (unlinkat(dirfd(dir), e->d_name, 0) < 0 && errno == EISDIR && deeper)
            lm_remove_files(dirfd(dir), e->d_name, false);
    }
    (void)closedir(dir);
    (void)unlinkat(at, name, AT_REMOVEDIR);
}

static void lm_remove_dir(int at, const char *name)
{
    lm_remove_files(at, name, true);
}

/* The id that a name stands for; -ENOENT if there is no such name. */
static int lm_name_target(const struct lm_rundir *rd, const char *name,
                          char *out_id)
{
    char link[64];
    ssize_t n = readlinkat(rd->names_fd, name, link, sizeof(link) - 1);
    const char *id;

    if (n < 0)
        return neg_errno();
    link[n] = '\0';
    id = strrchr(link, '/');
    if (!id || !lm_id_valid(id + 1))
        return -ENOENT;
    memcpy(out_id, id + 1, MOTE_ID_LEN + 1);
    return 0;
}

/* Calls fn for every entry of a directory apart from the dots. */
static void lm_each(const struct lm_rundir *rd, int dir_fd,
                    void (*fn)(const struct lm_rundir *rd, const char *name))
{
    CLEANUP_FD int fd = openat(dir_fd, ".", LM_DIR_FLAGS);
    struct dirent *e;
    DIR *dir;

    if (fd < 0)
        return;
    dir = fdopendir(fd);
    if (!dir)
        return;
    (void)take_fd(&fd);
    while ((e = readdir(dir)) != NULL) {
        if (e->d_name[0] != '.')
            fn(rd, e->d_name);
    }
    (void)closedir(dir);
}

static void lm_reap_slot(const struct lm_rundir *rd, const char *id)
{
    if (!lm_id_valid(id) || lm_slot_alive(rd, id))
        return;
    lm_cgroup_sweep(id);
    lm_remove_dir(rd->vm_fd, id);
}

static void lm_reap_name(const struct lm_rundir *rd, const char *name)
{
    char id[MOTE_ID_LEN + 1];

    if (lm_name_target(rd, name, id) || faccessat(rd->vm_fd, id, F_OK, 0) < 0)
        (void)unlinkat(rd->names_fd, name, 0);
}

void lm_rundir_reap(struct lm_rundir *rd)
{
    CLEANUP_FD int lock = -1;

    if (lm_registry_lock(rd, &lock))
        return; /* the remains stay until the next time */
    lm_each(rd, rd->vm_fd, lm_reap_slot);
    lm_each(rd, rd->names_fd, lm_reap_name);
}

/* --- slots ------------------------------------------------------------------
 */

bool lm_id_valid(const char *id)
{
    return strlen(id) == MOTE_ID_LEN && strspn(id, lm_id_signs) == MOTE_ID_LEN;
}

int mote_name_check(const char *name, struct mote_err *err)
{
    static const char signs[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    size_t len = strlen(name);

    if (len >= 1 && len <= MOTE_NAME_MAX && name[0] != '-' &&
        strspn(name, signs) == len)
        return 0;
    return lm_err(err, -EINVAL,
                  "name '%.80s': not a name; use 1 to %d of a-z, 0-9 and -, "
                  "not beginning with -",
                  name, MOTE_NAME_MAX);
}

static int lm_id_new(char *out)
{
    uint8_t raw[MOTE_ID_LEN];

    if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
        return neg_errno();
    for (size_t i = 0; i < sizeof(raw); i++)
        out[i] = lm_id_signs[raw[i] % (sizeof(lm_id_signs) - 1)];
    out[MOTE_ID_LEN] = '\0';
    return 0;
}

/* Under the registry's lock. */
static int lm_claim_name_locked(const struct lm_rundir *rd, const char *name,
                                const char *id, struct mote_err *err)
{
    char target[32];
    char holder[MOTE_ID_LEN + 1];
    int rc;

    if (lm_name_target(rd, name, holder) == 0 && lm_slot_alive(rd, holder))
        return lm_err(err, -EEXIST,
                      "name '%s': taken by a running machine; choose another, "
                      "or end that one with `mote stop %s`",
                      name, name);
    (void)snprintf(target, sizeof(target), "../vm/%s", id);
    (void)unlinkat(rd->names_fd, name, 0); /* a dead owner's, if any */
    if (symlinkat(target, rd->names_fd, name) == 0)
        return 0;
    rc = neg_errno();
    return lm_err(err, rc, "%s/names/%s: %s", rd->path, name, err_reason(rc));
}

/* Under the registry's lock: directory, then the lock in it. */
static int lm_slot_make_locked(const struct lm_rundir *rd, struct lm_slot *s)
{
    int rc = lm_id_new(s->id);

    if (rc)
        return rc;
    (void)snprintf(s->path, sizeof(s->path), "%s/vm/%s", rd->path, s->id);
    if (mkdirat(rd->vm_fd, s->id, 0700) < 0)
        return neg_errno();
    s->dir_fd = openat(rd->vm_fd, s->id, LM_DIR_FLAGS);
    if (s->dir_fd < 0)
        return neg_errno();
    (void)snprintf(s->run_path, sizeof(s->run_path), "%s", s->path);
    s->run_fd = fcntl(s->dir_fd, F_DUPFD_CLOEXEC, 0);
    if (s->run_fd < 0)
        return neg_errno();
    s->lock_fd =
        openat(s->dir_fd, "lock",
               O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (s->lock_fd < 0)
        return neg_errno();
    /* At most a lm_slot_alive() of another process is in the way. */
    return lm_flock(s->lock_fd, LOCK_EX);
}

int lm_slot_new(struct lm_rundir *rd, const char *name, struct lm_slot *out,
                struct mote_err *err)
{
    CLEANUP_FD int registry = -1;
    struct lm_slot s = LM_SLOT_CLOSED;
    int rc = name ? mote_name_check(name, err) : 0;

    if (rc)
        return rc;
    rc = lm_registry_lock(rd, &registry);
    if (!rc)
        rc = lm_slot_make_locked(rd, &s);
    if (rc)
        (void)lm_err(err, rc,
                     "run-time directory %s: %s; check its file system",
                     rd->path, err_reason(rc));
    if (!rc && name)
        rc = lm_claim_name_locked(rd, name, s.id, err);
    if (rc) {
        lm_remove_dir(rd->vm_fd, s.id);
        drop_fd(&s.dir_fd);
        drop_fd(&s.run_fd);
        drop_fd(&s.lock_fd);
        return rc;
    }
    if (name)
        (void)snprintf(s.name, sizeof(s.name), "%s", name);
    *out = s;
    return 0;
}

void lm_slot_remove(struct lm_rundir *rd, struct lm_slot *slot)
{
    CLEANUP_FD int registry = -1;
    char holder[MOTE_ID_LEN + 1];

    if (slot->dir_fd < 0)
        return;
    /* Without the lock the worst case is a left-over that is reaped later. */
    (void)!lm_registry_lock(rd, &registry);
    if (slot->name[0] && lm_name_target(rd, slot->name, holder) == 0 &&
        !strcmp(holder, slot->id))
        (void)unlinkat(rd->names_fd, slot->name, 0);
    lm_remove_dir(rd->vm_fd, slot->id);
    drop_fd(&slot->dir_fd);
    drop_fd(&slot->run_fd);
    drop_fd(&slot->lock_fd);
}

int lm_slot_split(struct lm_slot *slot, const char *const *names,
                  struct mote_err *err)
{
    CLEANUP_FD int fd = -1;
    int rc = 0;

    if (mkdirat(slot->dir_fd, LM_RUN_DIR, 0700) < 0)
        rc = neg_errno();
    if (!rc) {
        fd = openat(slot->dir_fd, LM_RUN_DIR, LM_DIR_FLAGS);
        rc = fd < 0 ? neg_errno() : 0;
    }
    for (size_t i = 0; !rc && names[i]; i++) {
        char target[64];

        (void)snprintf(target, sizeof(target), LM_RUN_DIR "/%s", names[i]);
        if (symlinkat(target, slot->dir_fd, names[i]) < 0)
            rc = neg_errno();
    }
    if (rc)
        return lm_err(err, rc, "%s/" LM_RUN_DIR ": %s", slot->path,
                      err_reason(rc));
    drop_fd(&slot->run_fd);
    slot->run_fd = take_fd(&fd);
    (void)snprintf(slot->run_path, sizeof(slot->run_path), "%s/" LM_RUN_DIR,
                   slot->path);
    return 0;
}

int lm_slot_write(const struct lm_slot *slot, const char *file,
                  const char *text, struct mote_err *err)
{
    CLEANUP_FD int fd = -1;
    char draft[32];
    int rc = 0;

    (void)snprintf(draft, sizeof(draft), "%.24s.new", file);
    fd = openat(slot->dir_fd, draft,
                O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        rc = neg_errno();
    if (!rc)
        rc = util_write_full(fd, text, strlen(text));
    if (!rc && renameat(slot->dir_fd, draft, slot->dir_fd, file) < 0)
        rc = neg_errno();
    if (rc)
        return lm_err(err, rc, "%s/%s: %s; free space there", slot->path, file,
                      err_reason(rc));
    return 0;
}

int lm_rundir_lookup(const struct lm_rundir *rd, const char *name_or_id,
                     char *out)
{
    if (mote_name_check(name_or_id, NULL))
        return -ENOENT;
    if (lm_name_target(rd, name_or_id, out) == 0 && lm_slot_alive(rd, out))
        return 0;
    if (!lm_id_valid(name_or_id) || !lm_slot_alive(rd, name_or_id))
        return -ENOENT;
    memcpy(out, name_or_id, MOTE_ID_LEN + 1);
    return 0;
}

char *lm_read_file(int dir_fd, const char *file, size_t max_bytes)
{
    CLEANUP_FD int fd =
        openat(dir_fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    CLEANUP_FREE char *text = NULL;
    struct stat st;
    size_t len;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size > max_bytes)
        return NULL;
    len = (size_t)st.st_size;
    text = malloc(len + 1);
    if (!text || util_pread_full(fd, text, len, 0))
        return NULL;
    text[len] = '\0';
    return take_ptr(text);
}
