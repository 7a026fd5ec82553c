/* SPDX-License-Identifier: Apache-2.0 */
/* The process's machine, saved to files and loaded from them. */
#include "vmm/config_int.h"
#include "vmm/control_int.h"
#include "vmm/cpu_state_x86.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Where this process's own output goes is no part of a machine. */
static const char *const control_own[] = {"logger", "metrics", "serial"};

/* --- saving -----------------------------------------------------------------
 */

static json_t *control_doc_to_save(const struct control *c)
{
    json_t *doc = json_copy(c->doc);

    for (size_t i = 0; doc && i < ARRAY_SIZE(control_own); i++)
        (void)json_object_del(doc, control_own[i]);
    return doc;
}

int control_save(struct control *c, const char *state_path,
                 const char *mem_path, bool diff, struct errmsg *err)
{
    json_t *doc = control_doc_to_save(c);
    const struct snapshot_args args = {
        .state_path = state_path,
        .mem_path = mem_path,
        .diff = diff,
        .doc = doc,
    };
    int rc = doc ? snapshot_create(c->machine, &args, &c->base, err)
                 : err_set(err, -ENOMEM, "out of memory");

    json_decref(doc);
    return rc;
}

/* --- what to load -----------------------------------------------------------
 */

struct load_args {
    const char *state_path;
    const char *mem_path;
    const char *uffd_path;
    bool resume;
    bool track;
    bool track_given;
    bool clock_realtime;
    bool ignore_cpu;
    bool verify;
    json_t *nets; /* lists of overrides, borrowed; NULL: none */
    json_t *drives;
    json_t *vsock; /* an object */
};

static int load_bad(struct errmsg *err, const char *field, const char *want)
{
    return err_set(err, -EINVAL, API_BODY_ERROR ": %s must be %s.", field,
                   want);
}

static int load_text(json_t *v, const char *field, const char **out,
                     struct errmsg *err)
{
    const char *s = json_string_value(v);

    if (!s || !s[0])
        return load_bad(err, field, "a path");
    *out = s;
    return 0;
}

static int load_flag(json_t *v, const char *field, bool *out,
                     struct errmsg *err)
{
    if (!json_is_boolean(v))
        return load_bad(err, field, "true or false");
    *out = json_is_true(v);
    return 0;
}

static int load_backend(json_t *v, struct load_args *l, struct errmsg *err)
{
    const char *type = json_string_value(json_object_get(v, "backend_type"));
    const char *path = NULL;
    int rc = load_text(json_object_get(v, "backend_path"),
                       "mem_backend.backend_path", &path, err);

    if (rc)
        return rc;
    if (json_object_size(v) != 2 || !type ||
        (strcmp(type, "File") != 0 && strcmp(type, "Uffd") != 0))
        return load_bad(err, "mem_backend",
                        "{backend_type: File or Uffd, backend_path}");
    if (l->mem_path)
        return err_set(err, -EINVAL,
                       API_BODY_ERROR ": mem_backend and mem_file_path are "
                                      "both given; take one.");
    if (!strcmp(type, "File"))
        l->mem_path = path;
    else
        l->uffd_path = path;
    return 0;
}

static int load_mem_path(json_t *v, struct load_args *l, struct errmsg *err)
{
    if (l->mem_path || l->uffd_path)
        return err_set(err, -EINVAL,
                       API_BODY_ERROR ": mem_backend and mem_file_path are "
                                      "both given; take one.");
    return load_text(v, "mem_file_path", &l->mem_path, err);
}

/* Pages of another size than the snapshot's are not done. */
static int load_huge(json_t *v, struct errmsg *err)
{
    const char *s = json_string_value(v);

    if (s && (!strcmp(s, "Snapshot") || !strcmp(s, "None")))
        return 0;
    return load_bad(err, "huge_pages",
                    "Snapshot or None; others are not supported by this "
                    "version");
}

static int load_mote(json_t *v, struct load_args *l, struct errmsg *err)
{
    const char *name;
    json_t *value;
    int rc = json_is_object(v) ? 0 : load_bad(err, "mote", "an object");

    json_object_foreach(v, name, value)
    {
        if (rc)
            return rc;
        if (!strcmp(name, "ignore_cpu"))
            rc = load_flag(value, "mote.ignore_cpu", &l->ignore_cpu, err);
        else if (!strcmp(name, "verify"))
            rc = load_flag(value, "mote.verify", &l->verify, err);
        else
            rc = err_set(err, -EINVAL,
                         API_BODY_ERROR ": unknown field `mote.%.64s`.", name);
    }
    return rc;
}

static int load_list(json_t *v, const char *field, json_t **out,
                     struct errmsg *err)
{
    if (!json_is_array(v))
        return load_bad(err, field, "a list");
    *out = v;
    return 0;
}

static int load_field(const char *f, json_t *v, struct load_args *l,
                      struct errmsg *err)
{
    if (json_is_null(v))
        return 0;
    if (!strcmp(f, "snapshot_path"))
        return load_text(v, f, &l->state_path, err);
    if (!strcmp(f, "mem_file_path"))
        return load_mem_path(v, l, err);
    if (!strcmp(f, "mem_backend"))
        return load_backend(v, l, err);
    if (!strcmp(f, "resume_vm"))
        return load_flag(v, f, &l->resume, err);
    if (!strcmp(f, "track_dirty_pages") ||
        !strcmp(f, "enable_diff_snapshots")) {
        l->track_given = true;
        return load_flag(v, f, &l->track, err);
    }
    if (!strcmp(f, "clock_realtime"))
        return load_flag(v, f, &l->clock_realtime, err);
    if (!strcmp(f, "huge_pages"))
        return load_huge(v, err);
    if (!strcmp(f, "network_overrides"))
        return load_list(v, f, &l->nets, err);
    if (!strcmp(f, "drive_overrides"))
        return load_list(v, f, &l->drives, err);
    if (!strcmp(f, "vsock_override")) {
        l->vsock = v;
        return json_is_object(v) ? 0 : load_bad(err, f, "an object");
    }
    if (!strcmp(f, "mote"))
        return load_mote(v, l, err);
    return err_set(err, -EINVAL, API_BODY_ERROR ": unknown field `%.64s`.", f);
}

/* `files`: they are named in the body; else they came another way. */
static int load_parse(json_t *body, bool files, struct load_args *l,
                      struct errmsg *err)
{
    const char *name;
    json_t *value;
    int rc = 0;

    memset(l, 0, sizeof(*l));
    json_object_foreach(body, name, value)
    {
        if (rc == 0)
            rc = load_field(name, value, l, err);
    }
    if (rc == 0 && !files && (l->state_path || l->mem_path || l->uffd_path))
        rc = err_set(err, -EINVAL,
                     "a fork brings state and memory itself; leave out "
                     "snapshot_path and mem_backend");
    if (rc == 0 && l->verify && !l->mem_path)
        rc = err_set(err, -EINVAL,
                     API_BODY_ERROR
                     ": mote.verify needs a memory file to read.");
    if (rc || !files)
        return rc;
    if (!l->state_path)
        rc = err_set(err, -EINVAL,
                     API_BODY_ERROR ": missing field `snapshot_path`.");
    if (rc == 0 && !l->mem_path && !l->uffd_path)
        rc = err_set(err, -EINVAL,
                     API_BODY_ERROR ": missing field `mem_backend`.");
    return rc;
}

/* --- the configuration that comes of it -------------------------------------
 */

/* Lays the fields of an override over the item that it names. */
static int load_override_item(json_t **doc, const char *section,
                              const char *key, json_t *over, struct errmsg *err)
{
    const char *id = json_string_value(json_object_get(over, key));
    json_t *old = id ? config_doc_item(*doc, section, key, id) : NULL;
    json_t *item;
    json_t *changed;

    if (!old)
        return err_set(err, -EINVAL,
                       "%s: an override names %s `%.64s`, which the snapshot "
                       "does not have.",
                       section, key, id ? id : "");
    item = json_copy(old);
    /* Another host end takes the place of whichever there was. */
    if (item && !strcmp(section, "network-interfaces")) {
        (void)json_object_del(item, "host_dev_name");
        (void)json_object_del(item, "mote");
    }
    changed = item ? config_doc_patched(item, over) : NULL;
    json_decref(item);
    item = changed;
    changed = item ? config_doc_with_item(*doc, section, key, item) : NULL;
    json_decref(item);
    if (!changed)
        return err_set(err, -ENOMEM, "out of memory");
    json_decref(*doc);
    *doc = changed;
    return 0;
}

static int load_override_list(json_t **doc, const char *section,
                              const char *key, json_t *list, struct errmsg *err)
{
    size_t i;
    json_t *over;
    int rc = 0;

    json_array_foreach(list, i, over)
    {
        if (rc == 0)
            rc = load_override_item(doc, section, key, over, err);
    }
    return rc;
}

static int load_override_section(json_t **doc, const char *section,
                                 json_t *over, struct errmsg *err)
{
    json_t *old = json_object_get(*doc, section);
    json_t *item;
    json_t *changed;

    if (!over)
        return 0;
    if (!json_is_object(old))
        return err_set(err, -EINVAL,
                       "%s: an override is given, the snapshot has no such "
                       "device.",
                       section);
    item = config_doc_patched(old, over);
    changed = item ? config_doc_with(*doc, section, item) : NULL;
    json_decref(item);
    if (!changed)
        return err_set(err, -ENOMEM, "out of memory");
    json_decref(*doc);
    *doc = changed;
    return 0;
}

/* A vsock that was described before the load stands for an override: a client
 * of an older API does it so. Our own output stays ours. */
static int load_take_own(const struct control *c, json_t **doc,
                         struct errmsg *err)
{
    json_t *vsock = json_object_get(c->doc, "vsock");
    int rc = 0;

    if (vsock) {
        json_t *over =
            json_pack("{s:O}", "uds_path", json_object_get(vsock, "uds_path"));

        rc = over ? load_override_section(doc, "vsock", over, err)
                  : err_set(err, -ENOMEM, "out of memory");
        json_decref(over);
    }
    for (size_t i = 0; i < ARRAY_SIZE(control_own) && rc == 0; i++) {
        json_t *own = json_object_get(c->doc, control_own[i]);

        if (own && json_object_set(*doc, control_own[i], own))
            rc = err_set(err, -ENOMEM, "out of memory");
    }
    return rc;
}

static int load_make_doc(const struct control *c, const struct load_args *l,
                         json_t *saved, json_t **out, struct errmsg *err)
{
    json_t *doc = json_copy(saved);
    json_t *track = json_pack("{s:b}", "track_dirty_pages", l->track);
    int rc = doc && track ? 0 : err_set(err, -ENOMEM, "out of memory");

    if (rc == 0 && json_object_get(doc, "machine-config"))
        rc = load_override_section(&doc, "machine-config", track, err);
    else if (rc == 0 && json_object_set(doc, "machine-config", track))
        rc = err_set(err, -ENOMEM, "out of memory");
    if (rc == 0)
        rc = load_take_own(c, &doc, err);
    if (rc == 0)
        rc = load_override_section(&doc, "vsock", l->vsock, err);
    if (rc == 0)
        rc = load_override_list(&doc, "network-interfaces", "iface_id", l->nets,
                                err);
    if (rc == 0)
        rc = load_override_list(&doc, "drives", "drive_id", l->drives, err);
    json_decref(track);
    if (rc)
        json_decref(doc);
    else
        *out = doc;
    return rc;
}

/* Sections that would be thrown away without a word. */
static int load_check_fresh(const struct control *c, struct errmsg *err)
{
    static const char *const harmless[] = {"logger",     "metrics", "serial",
                                           "cpu-config", "vsock",   NULL};
    const char *name;
    json_t *value;

    json_object_foreach(c->doc, name, value)
    {
        if (!config_is_one_of(name, harmless) && !json_is_null(value) &&
            !(json_is_array(value) && json_array_size(value) == 0))
            return err_set(err, -EPERM,
                           "Loading a snapshot is not allowed after "
                           "configuring boot-specific resources (%s).",
                           name);
    }
    return 0;
}

/* --- loading ----------------------------------------------------------------
 */

static int load_ahead(const struct snapshot *s, uint64_t *out_ns,
                      struct errmsg *err)
{
    struct timespec now;
    uint64_t then = 0;
    uint64_t ns;
    int rc = kvm_clock_saved_at(&s->file, &then, err);

    if (rc || clock_gettime(CLOCK_REALTIME, &now) < 0)
        return rc;
    ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    *out_ns = ns > then ? ns - then : 0; /* a clock that was set back */
    return 0;
}

static int load_machine(struct control *c, const struct load_args *l,
                        const struct snapshot *s,
                        const struct vm_config *config, struct errmsg *err)
{
    struct machine_saved saved = {
        .state = &s->file,
        .mem_fd = s->mem_fd,
        .uffd_path = l->uffd_path,
        .force_cpu = l->ignore_cpu,
    };
    struct machine_options mo;
    int rc = l->clock_realtime ? load_ahead(s, &saved.ahead_ns, err) : 0;

    if (rc == 0 && config->mem_bytes != s->mem.ram_bytes)
        rc = err_set(err, -EBADMSG,
                     "the saved state says one thing of the memory and its "
                     "configuration another");
    if (rc == 0 && l->verify && s->mem_fd >= 0)
        rc = snap_mem_verify(&s->mem, s->mem_fd, l->mem_path, err);
    if (rc == 0)
        rc = control_machine_options(c, &mo, err);
    mmds_configure(c->mmds, &config->mmds);
    return rc ? rc : machine_new(config, &mo, &saved, &c->machine, err);
}

/* The configuration that goes with the snapshot becomes ours with the machine;
 * until then nothing has changed. */
static int load_settle(struct control *c, const struct load_args *l,
                       const struct snapshot *s, struct errmsg *err)
{
    struct vm_config config;
    json_t *doc = NULL;
    int rc = load_make_doc(c, l, s->doc, &doc, err);

    if (rc)
        return rc;
    rc = control_parse(doc, &config, err);
    if (rc)
        return rc;
    rc = load_machine(c, l, s, &config, err);
    rc = control_settle(c, rc, doc, &config);
    if (rc == 0) {
        memcpy(c->base.id, s->file.id, sizeof(c->base.id));
        c->base.there = true;
    }
    return rc;
}

static int load_start(struct control *c, const struct load_args *l,
                      machine_paused_fn done, void *arg, bool *out_later,
                      struct errmsg *err)
{
    *out_later = !l->resume;
    return l->resume ? machine_start(c->machine, err)
                     : machine_start_paused(c->machine, done, arg, err);
}

int control_load(struct control *c, json_t *body, machine_paused_fn done,
                 void *arg, bool *out_later, struct errmsg *err)
{
    struct load_args l;
    struct snapshot s;
    int rc = load_parse(body, true, &l, err);

    if (rc == 0)
        rc = load_check_fresh(c, err);
    if (rc == 0)
        rc = snapshot_open(&s, l.state_path, l.mem_path, err);
    if (rc)
        return rc;
    rc = load_settle(c, &l, &s, err);
    snapshot_close(&s);
    return rc ? rc : load_start(c, &l, done, arg, out_later, err);
}

/* --- forks ------------------------------------------------------------------
 */

static void control_child_paused(void *arg)
{
    (void)arg; /* nobody waits for it: the source was told that it is there */
}

int control_take_fork(void *arg, int state_fd, int mem_fd, const char *text,
                      size_t len, struct errmsg *err)
{
    struct control *c = arg;
    json_t *body = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    struct load_args l;
    struct snapshot s;
    bool later;
    int rc = c->machine ? err_set(err, -EBUSY,
                                  "the waiting monitor has a machine already")
                        : 0;

    if (rc == 0 && !json_is_object(body))
        rc = err_set(err, -EPROTO, "what a child is to change is no JSON");
    if (rc == 0)
        rc = load_parse(body, false, &l, err);
    if (rc == 0 && !json_object_get(body, "resume_vm"))
        l.resume = true;
    l.ignore_cpu = true; /* its source is on this very CPU */
    if (rc == 0)
        rc = load_check_fresh(c, err);
    if (rc == 0)
        rc = snapshot_open_fork(&s, state_fd, mem_fd, err);
    if (rc == 0) {
        rc = load_settle(c, &l, &s, err);
        snapshot_close(&s);
        c->base.there = false; /* of a fork no file is left to build on */
    }
    if (rc == 0)
        rc = load_start(c, &l, control_child_paused, c, &later, err);
    json_decref(body);
    return rc;
}

/* Out of memory: the document tells the old path, the drive has the new one. */
static void control_on_moved(void *arg, const char *drive_id, const char *path)
{
    struct control *c = arg;
    json_t *item = config_doc_item(c->doc, "drives", "drive_id", drive_id);

    (void)json_object_set_new(item, "path_on_host", json_string(path));
    for (size_t i = 0; i < c->config.num_drives; i++) {
        struct config_drive *d = &c->config.drives[i];
        char *copy = !strcmp(d->id, drive_id) ? strdup(path) : NULL;

        if (copy) {
            free(d->path);
            d->path = copy;
        }
    }
    log_msg(c->log, LOG_INFO, "drive %s goes on in %s", drive_id, path);
}

static void control_on_forked(void *arg, int rc, json_t *result,
                              const struct errmsg *err)
{
    struct control *c = arg;

    c->on_forked(c->on_forked_arg, rc, result, err);
}

int control_fork(struct control *c, json_t *body, fork_done_fn done, void *arg,
                 struct errmsg *err)
{
    json_t *doc = control_doc_to_save(c);
    const struct fork_args args = {
        .loop = c->loop,
        .machine = c->machine,
        .config = &c->config,
        .doc = doc,
        .children = json_object_get(body, "children"),
        .drives = json_object_get(body, "drives"),
        .done = control_on_forked,
        .moved = control_on_moved,
        .arg = c,
    };
    int rc = doc ? 0 : err_set(err, -ENOMEM, "out of memory");

    c->on_forked = done;
    c->on_forked_arg = arg;
    fork_free(c->fork); /* the last one is over, or we would not be asked */
    c->fork = NULL;
    if (rc == 0)
        rc = fork_new(&args, &c->fork, err);
    json_decref(doc);
    return rc;
}
