/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/fork.h"

#include "vmm/drive_fork.h"
#include "vmm/fork_copy.h"
#include "vmm/fork_send.h"
#include "vmm/snapshot.h"

#include <linux/virtio_ids.h>
#include <stdlib.h>
#include <string.h>

/* So many children are being served at once: each is a connection here, and
 * a machine being made over there. */
#define FORK_AT_ONCE 8u

struct fork {
    struct evloop *loop;
    json_t *doc;
    json_t *children;
    json_t *drive_list; /* holds the strings that `drives` borrows */
    fork_done_fn done;
    void (*moved)(void *arg, const char *drive_id, const char *path);
    void *arg;
    struct drive_fork drives[CONFIG_MAX_DRIVES];
    size_t num_drives;
    struct fork_copy copy;
    size_t num;
    size_t next; /* the first that was not begun */
    size_t ended;
    struct fork_send *sends;
    json_t *results; /* a list, filled in order of the request */
};

/* --- the children -----------------------------------------------------------
 */

/* What was copied, and files that nobody came to need. */
static void fork_release(struct fork *f)
{
    fork_copy_fini(&f->copy);
    for (size_t i = 0; i < f->num_drives; i++)
        drive_fork_fini(&f->drives[i]);
}

static void fork_finish(struct fork *f)
{
    json_t *result =
        json_pack("{s:I, s:I, s:O}", "stopped_us",
                  (json_int_t)(f->copy.stopped_ns / 1000), "copied_bytes",
                  (json_int_t)f->copy.copied_bytes, "children", f->results);
    struct errmsg err = {""};
    int rc = result ? 0 : err_set(&err, -ENOMEM, "out of memory");

    fork_release(f);
    f->done(f->arg, rc, result, &err);
}

static void fork_begin_some(struct fork *f);

static void fork_on_child(struct fork_send *s, int rc)
{
    struct fork *f = s->arg;
    size_t i = (size_t)(s - f->sends);
    json_t *one = rc ? json_pack("{s:s, s:b, s:s}", "socket", s->path, "ok", 0,
                                 "error", s->err.text)
                     : json_pack("{s:s, s:b}", "socket", s->path, "ok", 1);

    (void)json_array_set_new(f->results, i, one); /* out of memory: null */
    fork_send_fini(s);
    if (++f->ended == f->num)
        fork_finish(f);
    else
        fork_begin_some(f);
}

/* The request to a child: its entry, without the socket. */
static char *fork_text(json_t *child)
{
    json_t *copy = json_copy(child);
    char *text = NULL;

    if (copy && json_object_del(copy, "socket") == 0)
        text = json_dumps(copy, JSON_COMPACT);
    json_decref(copy);
    return text;
}

static void fork_begin_child(struct fork *f, size_t i)
{
    json_t *child = json_array_get(f->children, i);
    struct fork_send *s = &f->sends[i];

    s->loop = f->loop;
    s->path = json_string_value(json_object_get(child, "socket"));
    s->text = fork_text(child);
    s->state_fd = f->copy.state_fd;
    s->mem_fd = f->copy.mem_fd;
    s->done = fork_on_child;
    s->arg = f;
    fork_send_start(s);
}

static void fork_begin_some(struct fork *f)
{
    while (f->next < f->num && f->next - f->ended < FORK_AT_ONCE)
        fork_begin_child(f, f->next++);
}

/* --- the copy ---------------------------------------------------------------
 */

/* In the stop: the disks are of the same instant as the memory. */
static int fork_save_more(void *arg, struct state_out *out, struct errmsg *err)
{
    struct fork *f = arg;
    int rc = snapshot_save_config(f->doc, out, err);

    for (size_t i = 0; i < f->num_drives && rc == 0; i++)
        rc = drive_fork_freeze(&f->drives[i], err);
    return rc;
}

/* Whatever became of the fork: this is where the machine writes now. */
static void fork_tell_moved(struct fork *f)
{
    for (size_t i = 0; i < f->num_drives; i++) {
        const struct drive_fork *d = &f->drives[i];

        if (d->frozen)
            f->moved(f->arg, d->drive->id, d->next_path);
    }
}

static void fork_on_copied(struct fork_copy *c, int rc)
{
    struct fork *f = c->arg;

    for (size_t i = 0; i < f->num_drives && rc == 0; i++)
        rc = drive_fork_finish(&f->drives[i], &c->err);
    fork_tell_moved(f);
    if (rc) {
        fork_release(f);
        f->done(f->arg, rc, NULL, &c->err);
        return;
    }
    for (size_t i = 0; i < f->num_drives; i++)
        drive_fork_keep(&f->drives[i]);
    fork_begin_some(f);
}

/* Before the last stop, while the guest still runs. */
static void fork_hurry(void *arg)
{
    struct fork *f = arg;

    for (size_t i = 0; i < f->num_drives; i++)
        drive_fork_hurry(&f->drives[i]);
}

/* --- disks ------------------------------------------------------------------
 */

static int fork_take_clones(struct drive_fork *d, json_t *list, size_t num,
                            struct errmsg *err)
{
    const char **clones;

    if (json_array_size(list) != num)
        return err_set(err, -EINVAL,
                       "fork: drive %s: clone_paths needs a path for each of "
                       "the %zu children.",
                       d->drive->id, num);
    clones = calloc(num, sizeof(*clones));
    if (!clones)
        return err_set(err, -ENOMEM, "out of memory");
    d->clones = clones;
    d->num_clones = num;
    for (size_t i = 0; i < num; i++) {
        clones[i] = json_string_value(json_array_get(list, i));
        if (!clones[i] || !clones[i][0])
            return err_set(err, -EINVAL,
                           "fork: drive %s: clone_paths must be paths.",
                           d->drive->id);
    }
    return 0;
}

/* What is given has to mean something. */
static int fork_check_drive(const struct config_drive *drive, json_t *entry,
                            struct errmsg *err)
{
    const char *name;
    json_t *value;

    json_object_foreach(entry, name, value)
    {
        if (!strcmp(name, "drive_id") || !strcmp(name, "clone_paths") ||
            (drive->cow && !strcmp(name, "next_path")))
            continue;
        return err_set(
            err, -EINVAL, "fork: drive %s: %s field `%.64s`.", drive->id,
            strcmp(name, "next_path") ? "unknown" : "a raw file has no", name);
    }
    return 0;
}

static int fork_take_drive(struct fork *f, const struct fork_args *args,
                           const struct config_drive *drive, json_t *entry,
                           struct errmsg *err)
{
    struct drive_fork *d = &f->drives[f->num_drives];
    int rc;

    *d = (struct drive_fork){
        .dev = machine_find_device(args->machine, VIRTIO_ID_BLOCK, drive->id),
        .drive = drive,
        .next_path = json_string_value(json_object_get(entry, "next_path")),
        .next_fd = -1,
    };
    if (!d->dev)
        return err_set(err, -ENODEV, "fork: there is no drive %s.", drive->id);
    if (drive->cow &&
        (!d->next_path || d->next_path[0] != '/' || drive->path[0] != '/'))
        return err_set(err, -EINVAL,
                       "fork: drive %s is a copy-on-write file: it needs "
                       "next_path, a new file for the machine to go on in, and "
                       "both paths have to be absolute.",
                       drive->id);
    f->num_drives++; /* from now on fork_free() frees it */
    rc =
        fork_take_clones(d, json_object_get(entry, "clone_paths"), f->num, err);
    return rc ? rc : drive_fork_begin(d, err);
}

static json_t *fork_find_drive(json_t *list, const char *id)
{
    size_t i;
    json_t *entry;

    json_array_foreach(list, i, entry)
    {
        const char *name =
            json_string_value(json_object_get(entry, "drive_id"));

        if (name && !strcmp(name, id))
            return entry;
    }
    return NULL;
}

/* Named alone: whoever asks has seen to the children's disks. */
static int fork_check_own(const struct fork_args *args,
                          const struct config_drive *drive, struct errmsg *err)
{
    if (machine_state(args->machine) == MACHINE_PAUSED)
        return 0;
    return err_set(err, -EINVAL,
                   "fork: drive %s: a copy made by others is of the same "
                   "instant only if the machine is paused; pause it, or give "
                   "clone_paths.",
                   drive->id);
}

/* Every drive that can be written is spoken of, and no other. */
static int fork_take_drives(struct fork *f, const struct fork_args *args,
                            struct errmsg *err)
{
    size_t used = 0;
    int rc = 0;

    for (size_t i = 0; i < args->config->num_drives && rc == 0; i++) {
        const struct config_drive *drive = &args->config->drives[i];
        json_t *entry = fork_find_drive(args->drives, drive->id);

        if (drive->read_only)
            continue;
        if (!entry)
            return err_set(err, -EINVAL,
                           "fork: drive %s can be written: say in drives which "
                           "new file each child gets (clone_paths).",
                           drive->id);
        used++;
        rc = fork_check_drive(drive, entry, err);
        if (rc == 0 && json_object_size(entry) == 1)
            rc = fork_check_own(args, drive, err);
        else if (rc == 0)
            rc = fork_take_drive(f, args, drive, entry, err);
    }
    if (rc == 0 && used != json_array_size(args->drives))
        rc = err_set(err, -EINVAL,
                     "fork: drives names one that is not there, twice, or "
                     "cannot be written.");
    return rc;
}

/* --- life -------------------------------------------------------------------
 */

static int fork_check_child(json_t *child, struct errmsg *err)
{
    const char *path = json_string_value(json_object_get(child, "socket"));
    char *text = fork_text(child);
    size_t len = text ? strlen(text) : 0;

    free(text);
    if (!path || !path[0])
        return err_set(err, -EINVAL,
                       "fork: each child needs the socket of a monitor that "
                       "waits (mote-vmm --fork-from).");
    if (!text || len > FORK_MAX_TEXT)
        return err_set(err, -EINVAL, "fork: what %s is to change is too long.",
                       path);
    return 0;
}

static int fork_check(json_t *children, json_t *drives, struct errmsg *err)
{
    size_t num = json_array_size(children); /* 0 for what is no list */
    int rc = 0;

    if (drives && !json_is_array(drives) && !json_is_null(drives))
        return err_set(err, -EINVAL, "fork: drives must be a list.");

    if (num == 0 || num > FORK_MAX_CHILDREN)
        return err_set(err, -EINVAL,
                       "fork: children must be a list of 1 to %u.",
                       FORK_MAX_CHILDREN);
    for (size_t i = 0; i < num && rc == 0; i++)
        rc = fork_check_child(json_array_get(children, i), err);
    return rc;
}

static json_t *fork_no_results(size_t num)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < num; i++)
        (void)json_array_append_new(list, json_null());
    return list;
}

int fork_new(const struct fork_args *args, struct fork **out_fork,
             struct errmsg *err)
{
    struct fork *f;
    int rc = fork_check(args->children, args->drives, err);

    if (rc)
        return rc;
    f = calloc(1, sizeof(*f));
    if (!f)
        return err_set(err, -ENOMEM, "out of memory");
    f->loop = args->loop;
    f->doc = json_incref(args->doc);
    f->children = json_incref(args->children);
    f->drive_list = json_incref(args->drives);
    f->done = args->done;
    f->moved = args->moved;
    f->arg = args->arg;
    f->num = json_array_size(args->children);
    f->sends = calloc(f->num, sizeof(*f->sends));
    f->results = fork_no_results(f->num);
    f->copy = (struct fork_copy){
        .machine = args->machine,
        .loop = args->loop,
        .save_more = fork_save_more,
        .hurry = fork_hurry,
        .done = fork_on_copied,
        .arg = f,
        .state_fd = -1,
        .mem_fd = -1,
    };
    rc = f->sends && f->results ? fork_take_drives(f, args, err)
                                : err_set(err, -ENOMEM, "out of memory");
    if (rc == 0)
        rc = fork_copy_start(&f->copy, err);
    if (rc) {
        fork_free(f);
        return rc;
    }
    *out_fork = f;
    return 0;
}

void fork_free(struct fork *f)
{
    if (!f)
        return;
    for (size_t i = 0; f->sends && i < f->num; i++)
        fork_send_fini(&f->sends[i]);
    fork_release(f);
    for (size_t i = 0; i < f->num_drives; i++)
        free(f->drives[i].clones);
    json_decref(f->drive_list);
    free(f->sends);
    json_decref(f->results);
    json_decref(f->children);
    json_decref(f->doc);
    free(f);
}
