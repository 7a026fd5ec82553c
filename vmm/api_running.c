/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a machine: its start, and all that follows. */
#include "vmm/api_int.h"

#include "devices/virtio_blk.h"
#include "devices/virtio_net.h"
#include "vmm/drive.h"

#include <linux/virtio_ids.h>
#include <string.h>

/* --- actions ----------------------------------------------------------------
 */

static int api_instance_start(struct api_call *c)
{
    return control_boot(c->ctl, &c->err);
}

static int api_flush_metrics(struct api_call *c)
{
    int rc = c->ctl->metrics ? metrics_flush(c->ctl->metrics) : -ENOENT;

    if (rc == -ENOENT)
        return err_set(&c->err, rc, "metrics: no metrics_path was set");
    return rc ? err_set(&c->err, rc, "metrics: %s", err_reason(rc)) : 0;
}

static int api_ctrl_alt_del(struct api_call *c)
{
    if (machine_ctrl_alt_del(c->ctl->machine))
        return 0;
    return err_set(&c->err, -EBUSY,
                   "SendCtrlAltDel: the guest has not read the keys of the "
                   "last time; its kernel may have no keyboard driver");
}

int api_action(struct api_call *c)
{
    static const char *const fields[] = {"action_type", NULL};
    static const struct {
        const char *name;
        enum api_phase phase;
        api_fn fn;
    } actions[] = {
        {"InstanceStart", API_PRE, api_instance_start},
        {"FlushMetrics", API_POST, api_flush_metrics},
        {"SendCtrlAltDel", API_POST, api_ctrl_alt_del},
    };
    const char *name =
        json_string_value(json_object_get(c->body, "action_type"));
    enum api_phase now = c->ctl->machine ? API_POST : API_PRE;
    int rc = api_only_fields(c, fields);

    if (rc)
        return rc;
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
        if (!name || strcmp(name, actions[i].name) != 0)
            continue;
        if (actions[i].phase == now)
            return actions[i].fn(c);
        return err_set(&c->err, -EPERM,
                       "The requested operation is not supported %s starting "
                       "the microVM.",
                       now == API_POST ? "after" : "before");
    }
    return err_set(&c->err, -EINVAL,
                   API_BODY_ERROR ": action_type must be InstanceStart, "
                                  "FlushMetrics or SendCtrlAltDel.");
}

/* --- pause and resume -------------------------------------------------------
 */

static void api_on_paused(void *arg)
{
    struct control *ctl = arg;

    control_note_latency(ctl, LATENCY_PAUSE, ctl->pause_ns);
    api_finish(ctl, 0, NULL);
}

int api_patch_vm(struct api_call *c)
{
    static const char *const fields[] = {"state", NULL};
    const char *state = json_string_value(json_object_get(c->body, "state"));
    struct machine *m = c->ctl->machine;
    int rc = api_only_fields(c, fields);

    if (rc)
        return rc;
    if (state && !strcmp(state, "Resumed")) {
        uint64_t began_ns = util_now_ns();

        machine_resume(m);
        control_note_latency(c->ctl, LATENCY_RESUME, began_ns);
        return 0;
    }
    if (!state || strcmp(state, "Paused") != 0)
        return err_set(&c->err, -EINVAL,
                       API_BODY_ERROR ": state must be Paused or Resumed.");
    if (machine_state(m) == MACHINE_PAUSED)
        return 0;
    c->ctl->pause_ns = util_now_ns();
    machine_pause(m, api_on_paused, c->ctl);
    return API_LATER;
}

/* --- devices ----------------------------------------------------------------
 */

/* Whether the body has the field, and with a value. */
static bool api_given(const struct api_call *c, const char *field)
{
    const json_t *v = json_object_get(c->body, field);

    return v && !json_is_null(v);
}

/* A change of a device: what it is about, and what it would make of the
 * configuration. */
struct api_change {
    const char *const *fields; /* of the body: the id, and two to be changed */
    struct virtio_dev *dev;
    json_t *doc;
    struct vm_config config;
};

/*
 * Lays the body's fields over those of the item that the path names, and reads
 * the result. After a success control_settle() is due.
 */
static int api_begin_change(struct api_call *c, uint32_t virtio_id,
                            struct api_change *x)
{
    const struct api_route *r = c->route;
    json_t *item;
    int rc = api_only_fields(c, x->fields);

    if (rc)
        return rc;
    x->dev = machine_find_device(c->ctl->machine, virtio_id, c->id);
    if (!x->dev)
        return err_set(&c->err, -ENODEV,
                       "%s: there is no device with the ID %s.", r->section,
                       c->id);
    if (!api_given(c, x->fields[1]) && !api_given(c, x->fields[2]))
        return err_set(&c->err, -EINVAL, "%s: neither %s nor %s is given.",
                       r->section, x->fields[1], x->fields[2]);
    item = config_doc_patched(
        config_doc_item(c->ctl->doc, r->section, r->key, c->id), c->body);
    x->doc = item ? config_doc_with_item(c->ctl->doc, r->section, r->key, item)
                  : NULL;
    json_decref(item);
    return control_parse(x->doc, &x->config, &c->err);
}

static int api_use_drive(struct api_call *c, struct virtio_dev *dev,
                         const struct config_drive *d)
{
    int rc = 0;

    if (api_given(c, "path_on_host"))
        rc = drive_set_path(dev, d, d->path, &c->err);
    if (rc == 0 && api_given(c, "rate_limiter"))
        vblk_set_rate_limit(dev, &d->limit);
    return rc;
}

/*
 * Another file, or the same one with its size looked at anew; and limits, of
 * which a bucket that is left out stays. If the file is no good nothing
 * changes.
 */
int api_patch_drive(struct api_call *c)
{
    static const char *const fields[] = {"drive_id", "path_on_host",
                                         "rate_limiter", NULL};
    struct api_change x = {.fields = fields};
    int rc = api_begin_change(c, VIRTIO_ID_BLOCK, &x);

    if (rc)
        return rc;
    for (size_t i = 0; i < x.config.num_drives; i++) {
        if (!strcmp(x.config.drives[i].id, c->id))
            rc = api_use_drive(c, x.dev, &x.config.drives[i]);
    }
    return control_settle(c->ctl, rc, x.doc, &x.config);
}

/* Limits, of which a bucket that is left out stays. */
int api_patch_net(struct api_call *c)
{
    static const char *const fields[] = {"iface_id", "rx_rate_limiter",
                                         "tx_rate_limiter", NULL};
    struct api_change x = {.fields = fields};
    int rc = api_begin_change(c, VIRTIO_ID_NET, &x);

    if (rc)
        return rc;
    for (size_t i = 0; i < x.config.num_nets; i++) {
        const struct config_net *n = &x.config.nets[i];

        if (!strcmp(n->id, c->id))
            vnet_set_rate_limits(x.dev, api_given(c, fields[1]) ? &n->rx : NULL,
                                 api_given(c, fields[2]) ? &n->tx : NULL);
    }
    return control_settle(c->ctl, 0, x.doc, &x.config);
}
