/* SPDX-License-Identifier: Apache-2.0 */
/* Saving a running machine: pause, state and memory, disks, resume, rename. */
#include "tools/libmote/api.h"
#include "tools/libmote/disk_copy.h"
#include "tools/libmote/files.h"
#include "tools/libmote/launch.h"
#include "tools/libmote/rundir.h"
#include "tools/libmote/snap_room.h"
#include "tools/libmote/snapdir.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"
#include "vmm/snapshot_pair.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define SAVE_JAIL_RUN "/run" /* LM_RUN_DIR, as a jailed monitor sees it */

struct save {
    const struct mote_vm_info *vm;
    const struct mote_save_params *params;
    char slot[128]; /* the run-time directory of the machine */
    char api[160];  /* its control socket */
    int slot_fd;
    int lock_fd; /* LM_SAVE_FILE; says "paused" while it is by us */
    bool resume; /* it is to run again */
    bool jailed; /* it can write to the slot's LM_RUN_DIR only */
    bool diff;
    char base[SNAPDIR_ID_TEXT]; /* what the diff is to build on */
    json_t *config;
    struct snapdir_part part;
    struct snapdir_meta meta;
};

static int save_call(struct save *s, const char *method, const char *target,
                     json_t *body, json_t **out, struct mote_err *err)
{
    return lm_api_call(s->api, method, target, body, out, err);
}

/* --- one at a time ---------------------------------------------------------
 */

static int save_lock(struct save *s, struct mote_err *err)
{
    const char *slash = strrchr(s->vm->vsock_path, '/');
    int rc;

    (void)snprintf(s->slot, sizeof(s->slot), "%.*s",
                   slash ? (int)(slash - s->vm->vsock_path) : 0,
                   s->vm->vsock_path);
    /* The sockets of one in a jail are one directory further down. */
    slash = strrchr(s->slot, '/');
    if (slash && !strcmp(slash, "/" LM_RUN_DIR))
        s->slot[slash - s->slot] = '\0';
    (void)snprintf(s->api, sizeof(s->api), "%s/" LM_API_FILE, s->slot);
    s->slot_fd = open(s->slot, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->slot_fd < 0)
        return lm_err(err, -ESRCH, "machine %s: has ended", s->vm->id);
    s->lock_fd = openat(s->slot_fd, LM_SAVE_FILE,
                        O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (s->lock_fd < 0) {
        rc = neg_errno();
        return lm_err(err, rc, "%s/" LM_SAVE_FILE ": %s", s->slot,
                      err_reason(rc));
    }
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return lm_err(err, -EBUSY,
                      "machine %s: another snapshot of it is being saved; "
                      "wait for that",
                      s->vm->id);
    return 0;
}

/* --- what kind -------------------------------------------------------------
 */

static int save_read_base(struct save *s, struct mote_err *err)
{
    CLEANUP_FREE char *last = NULL;
    struct snapdir base;
    json_t *machine = json_object_get(s->config, "machine-config");
    int rc;

    if (!s->params->base_dir)
        return 0;
    s->diff = true;
    rc = snapdir_open(&base, s->params->base_dir, err);
    if (rc)
        return rc;
    (void)snprintf(s->base, sizeof(s->base), "%s", base.meta.id);
    snapdir_close(&base);
    if (!json_is_true(json_object_get(machine, "track_dirty_pages")))
        return lm_err(err, -EINVAL,
                      "machine %s: does not note which pages are written, so "
                      "there is no diff; start it with --track-writes, or save "
                      "without --diff",
                      s->vm->id);
    last = lm_read_file(s->slot_fd, LM_BASE_FILE, SNAPDIR_ID_TEXT);
    if (!last || strcmp(last, s->base))
        return lm_err(err, -EINVAL,
                      "%s: is not the last snapshot of machine %s, which a "
                      "diff builds on; name that one, or save without --diff",
                      s->params->base_dir, s->vm->id);
    return 0;
}

/* --- disks -----------------------------------------------------------------
 */

/* Where it is: what its owner called it, from where that was. */
static char *save_disk_path(const struct save *s, const char *path)
{
    char *plain = strdup(path);
    char *out = NULL;

    if (!plain)
        return NULL;
    lm_files_plain(plain);
    if (plain[0] == '/')
        return plain;
    if (asprintf(&out, "/proc/%d/cwd/%s", (int)s->vm->owner_pid, plain) < 0)
        out = NULL;
    free(plain);
    return out;
}

static int save_disk_open(struct save *s, json_t *drive, struct snapdir_disk *d,
                          int *out_fd, struct mote_err *err)
{
    const char *id = json_string_value(json_object_get(drive, "drive_id"));
    const char *path =
        json_string_value(json_object_get(drive, "path_on_host"));
    CLEANUP_FREE char *seen = id && path ? save_disk_path(s, path) : NULL;
    CLEANUP_FD int fd = seen ? open(seen, O_RDONLY | O_CLOEXEC) : -1;
    struct stat st;
    int rc = fd < 0 || fstat(fd, &st) < 0 ? neg_errno() : 0;
    const char *format = json_string_value(
        json_object_get(json_object_get(drive, "mote"), "format"));

    if (format && strcmp(format, "raw"))
        return lm_err(err, -EINVAL,
                      "disk %s: is a copy-on-write file; `mote snapshot` does "
                      "raw ones only",
                      id ? id : "?");
    if (rc == 0)
        rc = lm_disk_size(fd, &d->size_bytes);
    if (rc)
        return lm_err(err, rc, "disk %s: %s: %s", id ? id : "?",
                      path ? path : "?", err_reason(rc));
    d->id = strdup(id);
    /* A copy that has no name any more is told by the one that it had. */
    d->path = realpath(seen, NULL);
    if (!d->path)
        d->path = strdup(seen);
    if (!d->id || !d->path)
        return lm_err_nomem(err);
    d->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    *out_fd = take_fd(&fd);
    return 0;
}

static int save_disk_copy(struct save *s, struct snapdir_disk *d, int from,
                          struct mote_err *err)
{
    CLEANUP_FD int to =
        openat(s->part.dir_fd, d->file,
               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int rc = to < 0 ? neg_errno() : 0;

    if (rc == 0)
        rc = lm_disk_copy(from, to, d->size_bytes, s->params->cancel_fd);
    if (rc)
        return lm_err(err, rc, "disk %s: copy to %s: %s", d->id, s->part.part,
                      err_reason(rc));
    return 0;
}

/* While the machine stands still: all disks are of one instant. */
static int save_disks(struct save *s, struct mote_err *err)
{
    json_t *drives = json_object_get(s->config, "drives");
    size_t i;
    json_t *drive;

    if (json_array_size(drives) > SNAPDIR_MAX_DISKS)
        return lm_err(err, -EINVAL, "machine %s: more than %d disks", s->vm->id,
                      SNAPDIR_MAX_DISKS);
    json_array_foreach(drives, i, drive)
    {
        struct snapdir_disk *d = &s->meta.disks[i];
        bool read_only = json_is_true(json_object_get(drive, "is_read_only"));
        CLEANUP_FD int fd = -1;
        int rc;

        s->meta.disk_count = i + 1;
        rc = save_disk_open(s, drive, d, &fd, err);
        if (rc == 0 && !read_only) {
            (void)snprintf(d->file, sizeof(d->file), "disk-%u",
                           (unsigned)(uint8_t)i);
            rc = save_disk_copy(s, d, fd, err);
        }
        if (rc)
            return rc;
    }
    return 0;
}

/* When it runs again already. */
static int save_sums(struct save *s, struct mote_err *err)
{
    for (size_t i = 0; i < s->meta.disk_count; i++) {
        struct snapdir_disk *d = &s->meta.disks[i];
        CLEANUP_FD int fd = -1;
        int rc;

        if (!d->file[0])
            continue;
        fd = openat(s->part.dir_fd, d->file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        rc = fd < 0 ? neg_errno()
                    : lm_disk_sum(fd, d->size_bytes, &d->crc,
                                  s->params->cancel_fd);
        if (rc)
            return lm_err(err, rc, "disk %s: %s/%s: %s", d->id, s->part.part,
                          d->file, err_reason(rc));
    }
    return 0;
}

/* --- the machine -----------------------------------------------------------
 */

static void save_note_pause(struct save *s, const char *word)
{
    (void)!ftruncate(s->lock_fd, 0);
    (void)!pwrite(s->lock_fd, word, strlen(word), 0);
}

/*
 * One that was paused before us stays so, unless it was a save that died which
 * did that.
 */
static int save_pause(struct save *s, struct mote_err *err)
{
    json_t *info = NULL;
    json_t *body = NULL;
    const char *state;
    char word[8] = "";
    int rc = save_call(s, "GET", "/", NULL, &info, err);

    if (rc)
        return rc;
    state = json_string_value(json_object_get(info, "state"));
    s->resume = !state || strcmp(state, "Paused") != 0;
    if (!s->resume && pread(s->lock_fd, word, sizeof(word) - 1, 0) > 0 &&
        !strcmp(word, "paused"))
        s->resume = true;
    json_decref(info);
    if (!s->resume)
        return 0;
    save_note_pause(s, "paused");
    body = json_pack("{s:s}", "state", "Paused");
    rc = body ? save_call(s, "PATCH", "/vm", body, NULL, err)
              : lm_err_nomem(err);
    json_decref(body);
    return rc;
}

/* `rc` of what came before wins. */
static int save_resume(struct save *s, int rc, struct mote_err *err)
{
    json_t *body;
    int again;

    if (!s->resume)
        return rc;
    body = json_pack("{s:s}", "state", "Resumed");
    again = body ? save_call(s, "PATCH", "/vm", body, NULL, rc ? NULL : err)
                 : -ENOMEM;
    json_decref(body);
    if (again == 0)
        save_note_pause(s, "");
    return rc ? rc : again;
}

/* What the monitor calls the directory where its sockets are tells. */
static void save_look_jail(struct save *s)
{
    const char *uds = json_string_value(
        json_object_get(json_object_get(s->config, "vsock"), "uds_path"));

    s->jailed = uds && !strcmp(uds, SAVE_JAIL_RUN "/" LM_VSOCK_FILE);
}

/* The name by which the monitor reaches it, and the one by which we do. */
static char *save_path(const struct save *s, const char *file, bool inside)
{
    char *out = NULL;
    int n;

    if (!s->jailed)
        n = asprintf(&out, "%s/%s", s->part.part, file);
    else if (inside)
        n = asprintf(&out, SAVE_JAIL_RUN "/snap.%s", file);
    else
        n = asprintf(&out, "%s/" LM_RUN_DIR "/snap.%s", s->slot, file);
    return n < 0 ? NULL : out;
}

static int save_create(struct save *s, struct mote_err *err)
{
    CLEANUP_FREE char *state = save_path(s, SNAPDIR_STATE, true);
    CLEANUP_FREE char *memory = save_path(s, SNAPDIR_MEMORY, true);
    json_t *body;
    int rc;

    if (!state || !memory)
        return lm_err_nomem(err);
    body = json_pack("{s:s, s:s, s:s}", "snapshot_path", state, "mem_file_path",
                     memory, "snapshot_type", s->diff ? "Diff" : "Full");
    if (!body)
        return lm_err(err, -EINVAL,
                      "%s: its name is not valid UTF-8; choose another",
                      s->part.path);
    rc = save_call(s, "PUT", "/snapshot/create", body, NULL, err);
    json_decref(body);
    return rc;
}

/* Out of the jail, to where it belongs. */
static int save_fetch(struct save *s, const char *file, struct mote_err *err)
{
    CLEANUP_FREE char *from_path = save_path(s, file, false);
    CLEANUP_FD int from = -1;
    CLEANUP_FD int to = -1;
    uint64_t size = 0;
    int rc;

    if (!s->jailed)
        return 0;
    if (!from_path)
        return lm_err_nomem(err);
    from = open(from_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    to = openat(s->part.dir_fd, file,
                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    rc = from < 0 || to < 0 ? neg_errno() : lm_disk_size(from, &size);
    if (rc == 0)
        rc = lm_disk_copy(from, to, size, s->params->cancel_fd);
    (void)unlink(from_path);
    return rc ? lm_err(err, rc, "%s/%s: %s; free space there", s->part.part,
                       file, err_reason(rc))
              : 0;
}

static int save_fetch_all(struct save *s, struct mote_err *err)
{
    int rc = save_fetch(s, SNAPDIR_STATE, err);
    int second = save_fetch(s, SNAPDIR_MEMORY, rc ? NULL : err);

    return rc ? rc : second;
}

/* While it stands still; it runs again whatever comes of it. */
static int save_still(struct save *s, struct mote_err *err)
{
    int rc = save_pause(s, err);

    if (rc == 0)
        rc = save_create(s, err);
    if (rc == 0)
        rc = save_disks(s, err);
    return save_resume(s, rc, err);
}

/* --- the whole -------------------------------------------------------------
 */

/* What the monitor has written: its id, and whether it is the diff asked for.
 */
static int save_look(struct save *s, struct mote_err *err)
{
    CLEANUP_FREE char *path = NULL;
    CLEANUP_FREE void *data = NULL;
    struct errmsg e = {{0}};
    struct state_file f;
    struct snap_mem mem;
    struct timespec now;
    size_t len = 0;
    int rc;

    if (asprintf(&path, "%s/" SNAPDIR_STATE, s->part.part) < 0)
        return lm_err_nomem(err);
    rc = snap_read_state(path, &data, &len, &e);
    if (rc == 0)
        rc = state_open(&f, data, len, &e);
    if (rc == 0)
        rc = snap_mem_load(&mem, &f, &e);
    if (rc)
        return lm_err(err, rc, "%s: %s", path, e.text);
    snapdir_id_text(f.id, s->meta.id);
    if (mem.kind == SNAP_DIFF)
        snapdir_id_text(mem.parent, s->meta.parent);
    snap_mem_fini(&mem);
    if (s->diff && strcmp(s->meta.parent, s->base))
        return lm_err(err, -EINVAL,
                      "%s: is not what the machine's diff builds on; somebody "
                      "saved it meanwhile; save without --diff",
                      s->params->base_dir);
    (void)clock_gettime(CLOCK_REALTIME, &now);
    s->meta.created_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    (void)snprintf(s->meta.name, sizeof(s->meta.name), "%s", s->vm->name);
    return 0;
}

static int save_write_base(const struct save *s, struct mote_err *err)
{
    struct lm_slot slot = {.dir_fd = s->slot_fd};

    (void)snprintf(slot.path, sizeof(slot.path), "%.*s",
                   (int)sizeof(slot.path) - 1, s->slot);
    return lm_slot_write(&slot, LM_BASE_FILE, s->meta.id, err);
}

static int save_all(struct save *s, struct mote_err *err)
{
    int rc = save_lock(s, err);

    if (rc == 0)
        rc = snapdir_begin(&s->part, s->params->dir, err);
    if (rc == 0)
        rc = save_call(s, "GET", "/vm/config", NULL, &s->config, err);
    if (rc == 0)
        rc = save_read_base(s, err);
    save_look_jail(s);
    if (rc == 0)
        rc = s->jailed ? lm_save_room(s->vm, err) : 0;
    if (rc == 0)
        rc = save_still(s, err);
    if (rc == 0)
        rc = save_fetch_all(s, err);
    if (rc == 0)
        rc = save_look(s, err);
    if (rc == 0)
        rc = save_sums(s, err);
    if (rc == 0)
        rc = snapdir_commit(&s->part, &s->meta, err);
    return rc ? rc : save_write_base(s, err);
}

int mote_snapshot_save(const struct mote_vm_info *vm,
                       const struct mote_save_params *params,
                       struct mote_err *err)
{
    struct save *s = calloc(1, sizeof(*s));
    int rc;

    if (!s)
        return lm_err_nomem(err);
    s->vm = vm;
    s->params = params;
    s->slot_fd = s->lock_fd = -1;
    s->part.dir_fd = s->part.up_fd = -1;
    rc = save_all(s, err);
    snapdir_abort(&s->part);
    snapdir_meta_fini(&s->meta);
    json_decref(s->config);
    drop_fd(&s->lock_fd);
    drop_fd(&s->slot_fd);
    free(s);
    return rc;
}
