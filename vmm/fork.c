/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/fork.h"

#include "vmm/fork_copy.h"
#include "vmm/fork_send.h"
#include "vmm/snapshot.h"

#include <stdlib.h>
#include <string.h>

/* So many children are being served at once: each is a connection here, and
 * a machine being made over there. */
#define FORK_AT_ONCE 8u

struct fork {
    struct evloop *loop;
    json_t *doc;
    json_t *children;
    fork_done_fn done;
    void *arg;
    struct fork_copy copy;
    size_t num;
    size_t next; /* the first that was not begun */
    size_t ended;
    struct fork_send *sends;
    json_t *results; /* a list, filled in order of the request */
};

/* --- the children -----------------------------------------------------------
 */

static void fork_finish(struct fork *f)
{
    json_t *result =
        json_pack("{s:I, s:I, s:O}", "stopped_us",
                  (json_int_t)(f->copy.stopped_ns / 1000), "copied_bytes",
                  (json_int_t)f->copy.copied_bytes, "children", f->results);
    struct errmsg err = {""};
    int rc = result ? 0 : err_set(&err, -ENOMEM, "out of memory");

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

static int fork_save_more(void *arg, struct state_out *out, struct errmsg *err)
{
    const struct fork *f = arg;

    return snapshot_save_config(f->doc, out, err);
}

static void fork_on_copied(struct fork_copy *c, int rc)
{
    struct fork *f = c->arg;

    if (rc)
        f->done(f->arg, rc, NULL, &c->err);
    else
        fork_begin_some(f);
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

static int fork_check(json_t *children, struct errmsg *err)
{
    size_t num = json_array_size(children); /* 0 for what is no list */
    int rc = 0;

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
    int rc = fork_check(args->children, err);

    if (rc)
        return rc;
    f = calloc(1, sizeof(*f));
    if (!f)
        return err_set(err, -ENOMEM, "out of memory");
    f->loop = args->loop;
    f->doc = json_incref(args->doc);
    f->children = json_incref(args->children);
    f->done = args->done;
    f->arg = args->arg;
    f->num = json_array_size(args->children);
    f->sends = calloc(f->num, sizeof(*f->sends));
    f->results = fork_no_results(f->num);
    f->copy = (struct fork_copy){
        .machine = args->machine,
        .loop = args->loop,
        .save_more = fork_save_more,
        .done = fork_on_copied,
        .arg = f,
        .state_fd = -1,
        .mem_fd = -1,
    };
    rc = f->sends && f->results ? fork_copy_start(&f->copy, err)
                                : err_set(err, -ENOMEM, "out of memory");
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
    fork_copy_fini(&f->copy);
    free(f->sends);
    json_decref(f->results);
    json_decref(f->children);
    json_decref(f->doc);
    free(f);
}
