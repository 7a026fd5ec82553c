/* SPDX-License-Identifier: Apache-2.0 */
/* A machine out of a snapshot: overrides, monitor, RESTORE. */
#include "tools/libmote/disk_copy.h"
#include "tools/libmote/restore.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct load {
    const struct mote_load_params *params;
    struct mote_vm *vm;
    int cancel_fd;
    struct snapdir snap;
    const char *iface_id; /* of its interface; NULL: it has none */
    uint8_t old_mac[6];
    bool has_mac;
    struct mote_net_params net; /* kind none: as the snapshot has it */
};

/* --- disks -----------------------------------------------------------------
 */

static const char *load_disk_given(const struct load *l, const char *id)
{
    for (size_t i = 0; i < l->params->disk_count; i++) {
        if (!strcmp(l->params->disks[i].id, id))
            return l->params->disks[i].path;
    }
    return NULL;
}

static int load_check_given(const struct load *l, struct mote_err *err)
{
    for (size_t i = 0; i < l->params->disk_count; i++) {
        const struct snapdir_meta *m = &l->snap.meta;
        bool found = false;

        for (size_t j = 0; j < m->disk_count; j++)
            found |= !strcmp(m->disks[j].id, l->params->disks[i].id);
        if (!found)
            return lm_err(err, -EINVAL,
                          "disk %.60s: the snapshot has no drive of that name; "
                          "`mote snapshot info` lists them",
                          l->params->disks[i].id);
    }
    return 0;
}

/* What was not copied has to be what it was. */
static int load_check_disk(const struct snapdir_disk *d, struct mote_err *err)
{
    CLEANUP_FD int fd = open(d->path, O_RDONLY | O_CLOEXEC);
    struct stat st = {0};
    uint64_t size = 0;
    int rc = fd < 0 || fstat(fd, &st) < 0 ? neg_errno() : 0;

    if (rc == 0)
        rc = lm_disk_size(fd, &size);
    if (rc)
        return lm_err(err, rc,
                      "disk %s: %s: %s; put it back or name another with "
                      "--disk %s=FILE",
                      d->id, d->path, err_reason(rc), d->id);
    if (size == d->size_bytes &&
        (!S_ISREG(st.st_mode) ||
         (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec ==
             d->mtime_ns))
        return 0;
    return lm_err(err, -ESTALE,
                  "disk %s: %s: was changed since the snapshot was saved; a "
                  "guest would find other data than it remembers; put the old "
                  "one back or name it with --disk %s=FILE",
                  d->id, d->path, d->id);
}

/* A file without a name, beside the snapshot or where there is room. */
static int load_tmpfile(const struct load *l)
{
    char name[] = "/var/tmp/mote-disk-XXXXXX";
    int fd = openat(l->snap.dir_fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

    if (fd < 0)
        fd = open("/var/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd < 0) { /* a file system without O_TMPFILE */
        fd = mkostemp(name, O_CLOEXEC);
        if (fd >= 0)
            (void)unlink(name);
    }
    return fd;
}

/* Others may load the same snapshot: each writes into a copy of its own. */
static int load_copy_disk(struct load *l, const struct snapdir_disk *d,
                          char *out_path, size_t size, struct mote_err *err)
{
    CLEANUP_FD int from =
        openat(l->snap.dir_fd, d->file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    CLEANUP_FD int to = load_tmpfile(l);
    int rc = from < 0 || to < 0 ? neg_errno() : 0;

    if (rc == 0)
        rc = lm_disk_copy(from, to, d->size_bytes, l->cancel_fd);
    if (rc)
        return lm_err(err, rc, "disk %s: a copy of %s/%s: %s; free space there",
                      d->id, l->snap.path, d->file, err_reason(rc));
    (void)snprintf(out_path, size, "/proc/%d/fd/%d", (int)getpid(), to);
    l->vm->disk_fds[l->vm->disk_fd_count++] = take_fd(&to);
    return 0;
}

/* How the monitor finds a file: in a jail it is opened for it. */
static int load_name(struct lm_files *f, const char *role, const char *path,
                     bool writable, const char **out, struct mote_err *err)
{
    if (f)
        return lm_files_open(f, role, path, writable, out, err);
    *out = path;
    return 0;
}

static int load_drive(struct load *l, const struct snapdir_disk *d,
                      struct lm_files *f, json_t *list, struct mote_err *err)
{
    const char *given = load_disk_given(l, d->id);
    const char *path = given ? given : d->path;
    char copy[64];
    int rc = 0;

    if (!given && d->file[0]) {
        rc = load_copy_disk(l, d, copy, sizeof(copy), err);
        path = copy;
    } else if (!given) {
        rc = load_check_disk(d, err);
    }
    if (rc == 0)
        rc = load_name(f, "disk", path, d->file[0] != 0, &path, err);
    if (rc == 0 &&
        json_array_append_new(list, json_pack("{s:s, s:s}", "drive_id", d->id,
                                              "path_on_host", path)))
        rc =
            lm_err(err, -EINVAL, "disk %s: its path is not valid UTF-8", d->id);
    return rc;
}

static int load_drives(struct load *l, struct lm_files *f, json_t *list,
                       struct mote_err *err)
{
    int rc = load_check_given(l, err);

    for (size_t i = 0; i < l->snap.meta.disk_count && rc == 0; i++)
        rc = load_drive(l, &l->snap.meta.disks[i], f, list, err);
    return rc;
}

/* --- network ---------------------------------------------------------------
 */

static void load_parse_mac(struct load *l, const char *text)
{
    unsigned m[6];

    l->has_mac = text && sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x", &m[0], &m[1],
                                &m[2], &m[3], &m[4], &m[5]) == 6;
    for (size_t i = 0; l->has_mac && i < ARRAY_SIZE(m); i++)
        l->old_mac[i] = (uint8_t)m[i];
}

/* What it has, and what it gets. */
static int load_plan_net(struct load *l, struct mote_err *err)
{
    json_t *list = json_object_get(l->snap.config, "network-interfaces");
    json_t *iface = json_array_get(list, 0);
    const struct mote_net_params *want = l->params->net;

    l->iface_id = json_string_value(json_object_get(iface, "iface_id"));
    load_parse_mac(l, json_string_value(json_object_get(iface, "guest_mac")));
    if (want && want->kind != MOTE_NET_NONE && !l->iface_id)
        return lm_err(err, -EINVAL,
                      "%s: its machine has no network interface; load it "
                      "without --net",
                      l->snap.path);
    if (want && want->kind == MOTE_NET_NONE && l->iface_id)
        return lm_err(err, -EINVAL,
                      "%s: its machine has a network interface, which cannot "
                      "be taken away; give --net user or --net tap=NAME",
                      l->snap.path);
    if (want)
        l->net = *want;
    else if (json_object_get(json_object_get(iface, "mote"), "fd"))
        l->net.kind = MOTE_NET_USER; /* its passt is gone */
    return lm_net_check(&l->net, err);
}

/* --- what the monitor is told ----------------------------------------------
 */

static int load_fields(struct load *l, const char *vsock, struct lm_files *f,
                       json_t *section, struct mote_err *err)
{
    const struct mote_load_params *p = l->params;
    CLEANUP_FREE char *state = snapdir_file(&l->snap, SNAPDIR_STATE);
    CLEANUP_FREE char *memory = snapdir_file(&l->snap, SNAPDIR_MEMORY);
    const char *s = NULL;
    const char *m = NULL;
    int rc = state && memory ? 0 : lm_err_nomem(err);

    if (rc == 0)
        rc = load_name(f, "snapshot", state, false, &s, err);
    if (rc == 0)
        rc = load_name(f, "snapshot", memory, false, &m, err);
    if (rc == 0 &&
        json_object_update_new(
            section,
            json_pack("{s:s, s:{s:s, s:s}, s:b, s:b, s:{s:s}, s:{s:b, s:b}}",
                      "snapshot_path", s, "mem_backend", "backend_type", "File",
                      "backend_path", m, "resume_vm", 1, "track_dirty_pages",
                      p->track_writes, "vsock_override", "uds_path", vsock,
                      "mote", "verify", p->verify, "ignore_cpu",
                      p->ignore_cpu)))
        rc = lm_err(err, -EINVAL, "%s: its path is not valid UTF-8; rename it",
                    l->snap.path);
    return rc;
}

static int load_lists(struct load *l, json_t *section, json_t *drives)
{
    json_t *net;

    if (json_array_size(drives) > 0 &&
        json_object_set(section, "drive_overrides", drives))
        return -1;
    if (l->net.kind == MOTE_NET_NONE)
        return 0;
    net = lm_net_override(&l->net, &l->vm->net, l->iface_id, LM_NET_FD);
    return net ? json_object_set_new(section, "network_overrides",
                                     json_pack("[o]", net))
               : -1;
}

static int load_config(void *arg, const char *run, struct lm_files *f,
                       char **out_text, struct mote_err *err)
{
    struct load *l = arg;
    char vsock[MOTE_PATH_CAP];
    json_t *drives = json_array();
    json_t *section = json_object();
    json_t *doc = json_pack("{s:o}", "snapshot-load", section);
    int rc = drives && doc ? 0 : lm_err_nomem(err);

    (void)snprintf(vsock, sizeof(vsock), "%s/" LM_VSOCK_FILE, run);
    if (rc == 0)
        rc = load_fields(l, vsock, f, section, err);
    if (rc == 0)
        rc = load_drives(l, f, drives, err);
    if (rc == 0) {
        *out_text = load_lists(l, section, drives)
                        ? NULL
                        : json_dumps(doc, JSON_INDENT(2));
        rc = *out_text ? 0 : lm_err_nomem(err);
    }
    json_decref(drives);
    json_decref(doc);
    return rc;
}

/* --- the whole -------------------------------------------------------------
 */

static int load_check(struct load *l, struct mote_err *err)
{
    if (l->snap.mem.kind == SNAP_DIFF)
        return lm_err(err, -EINVAL,
                      "%s: is a diff, which has only what changed; `mote "
                      "snapshot merge` makes a full one of it",
                      l->params->dir);
    if (!json_is_object(json_object_get(l->snap.config, "vsock")))
        return lm_err(err, -EINVAL,
                      "%s: its machine has no vsock, so its agent cannot be "
                      "reached; load it with mote-vmm",
                      l->params->dir);
    return load_plan_net(l, err);
}

static unsigned load_vcpus(const struct load *l)
{
    json_t *machine = json_object_get(l->snap.config, "machine-config");
    json_int_t n = json_integer_value(json_object_get(machine, "vcpu_count"));

    return n > 0 ? (unsigned)n : 1;
}

static int load_start(struct load *l, struct mote_err *err)
{
    const struct mote_vm_params params = {
        .name = l->params->name,
        .net = l->net,
        .vcpus = load_vcpus(l),
        .mem_bytes = l->snap.mem.ram_bytes,
        .console_fd = l->params->console_fd,
        .log_fd = l->params->log_fd,
        .log_level = l->params->log_level,
        .jail = l->params->jail,
    };
    struct lm_vm_start s = {
        .params = &params, .config = load_config, .config_arg = l};
    int rc = lm_slot_write(&l->vm->slot, LM_BASE_FILE, l->snap.meta.id, err);

    return rc ? rc : lm_vm_start(l->vm, &s, err);
}

static int load_run(struct load *l, int timeout_ms, int cancel_fd,
                    struct mote_err *err)
{
    const struct lm_restore r = {.hostname = l->params->name,
                                 .net = &l->net,
                                 .old_mac = l->has_mac ? l->old_mac : NULL,
                                 .note = l->params->note,
                                 .note_arg = l->params->note_arg};
    int rc = load_check(l, err);

    if (rc == 0)
        rc = lm_vm_new(l->params->name, &l->vm, err);
    if (rc == 0)
        rc = load_start(l, err);
    return rc ? rc : lm_restore(l->vm, &r, timeout_ms, cancel_fd, err);
}

int mote_vm_load(const struct mote_load_params *params, int timeout_ms,
                 int cancel_fd, struct mote_vm **out, struct mote_err *err)
{
    struct load l = {.params = params, .cancel_fd = cancel_fd};
    int rc = snapdir_open(&l.snap, params->dir, err);

    if (rc)
        return rc;
    rc = load_run(&l, timeout_ms, cancel_fd, err);
    snapdir_close(&l.snap);
    if (rc) {
        mote_vm_free(l.vm);
        return rc;
    }
    lm_rundir_reap(&l.vm->rundir);
    *out = l.vm;
    return 0;
}
