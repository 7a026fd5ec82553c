/* SPDX-License-Identifier: Apache-2.0 */
/* Requests about snapshots. */
#include "vmm/api_int.h"

#include <string.h>

static int api_need_text(struct api_call *c, const char *field,
                         const char **out)
{
    *out = json_string_value(json_object_get(c->body, field));
    if (*out && (*out)[0])
        return 0;
    return err_set(&c->err, -EINVAL, API_BODY_ERROR ": %s must be a path.",
                   field);
}

int api_snapshot_create(struct api_call *c)
{
    static const char *const fields[] = {"snapshot_path", "mem_file_path",
                                         "snapshot_type", NULL};
    json_t *given = json_object_get(c->body, "snapshot_type");
    const char *type = given ? json_string_value(given) : "Full";
    const char *state = NULL;
    const char *mem = NULL;
    uint64_t began_ns = util_now_ns();
    int rc = api_only_fields(c, fields);

    if (rc == 0)
        rc = api_need_text(c, "snapshot_path", &state);
    if (rc == 0)
        rc = api_need_text(c, "mem_file_path", &mem);
    if (rc)
        return rc;
    if (!type || (strcmp(type, "Full") != 0 && strcmp(type, "Diff") != 0))
        return err_set(&c->err, -EINVAL,
                       API_BODY_ERROR ": snapshot_type must be Full or Diff.");
    if (machine_state(c->ctl->machine) != MACHINE_PAUSED)
        return err_set(&c->err, -EPERM,
                       "Create snapshot: the microVM runs; pause it first.");
    rc = control_save(c->ctl, state, mem, !strcmp(type, "Diff"), &c->err);
    if (rc == 0)
        control_note_latency(c->ctl,
                             !strcmp(type, "Diff") ? LATENCY_DIFF_SNAPSHOT
                                                   : LATENCY_FULL_SNAPSHOT,
                             began_ns);
    return rc;
}

static void api_on_loaded(void *arg)
{
    api_finish(arg, 0, NULL);
}

int api_snapshot_load(struct api_call *c)
{
    const uint64_t began_ns = util_now_ns();
    bool later = false;
    int rc =
        control_load(c->ctl, c->body, api_on_loaded, c->ctl, &later, &c->err);

    c->deprecated = json_object_get(c->body, "mem_file_path") ||
                    json_object_get(c->body, "enable_diff_snapshots");
    if (rc)
        return rc;
    control_note_latency(c->ctl, LATENCY_LOAD_SNAPSHOT, began_ns);
    return later ? API_LATER : 0;
}

static void api_on_forked(void *arg, int rc, json_t *result,
                          const struct errmsg *err)
{
    api_finish_with(arg, rc, result, err);
}

int api_fork(struct api_call *c)
{
    static const char *const fields[] = {"children", "drives", NULL};
    int rc = api_only_fields(c, fields);

    if (rc == 0)
        rc = control_fork(c->ctl, c->body, api_on_forked, c->ctl, &c->err);
    return rc ? rc : API_LATER;
}
