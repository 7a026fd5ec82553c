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
    api_finish(arg, 0, NULL);
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
        machine_resume(m);
        return 0;
    }
    if (!state || strcmp(state, "Paused") != 0)
        return err_set(&c->err, -EINVAL,
                       API_BODY_ERROR ": state must be Paused or Resumed.");
    if (machine_state(m) == MACHINE_PAUSED)
        return 0;
    machine_pause(m, api_on_paused, c->ctl);
    return API_LATER;
}

/* --- devices ----------------------------------------------------------------
 */

static int api_no_device(struct api_call *c)
{
    return err_set(&c->err, -ENODEV, "%s: there is no device with the ID %s.",
                   c->route->section, c->id);
}

/*
 * The document with the body's fields over those of the item that the path
 * names, and what it says.
 */
static int api_parse_item(struct api_call *c, json_t **out_doc,
                          struct vm_config *out)
{
    const struct api_route *r = c->route;
    json_t *item = config_doc_patched(
        config_doc_item(c->ctl->doc, r->section, r->key, c->id), c->body);
    json_t *doc =
        item ? config_doc_with_item(c->ctl->doc, r->section, r->key, item)
             : NULL;
    int rc = control_parse(doc, out, &c->err);

    json_decref(item);
    if (rc == 0)
        *out_doc = doc;
    return rc;
}

/* Whether the body has the field, and with a value. */
static bool api_given(const struct api_call *c, const char *field)
{
    const json_t *v = json_object_get(c->body, field);

    return v && !json_is_null(v);
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
    struct virtio_dev *dev =
        machine_find_device(c->ctl->machine, VIRTIO_ID_BLOCK, c->id);
    struct vm_config config;
    json_t *doc = NULL;
    int rc = api_only_fields(c, fields);

    if (rc)
        return rc;
    if (!dev)
        return api_no_device(c);
    if (!api_given(c, "path_on_host") && !api_given(c, "rate_limiter"))
        return err_set(&c->err, -EINVAL,
                       "drives: neither path_on_host nor rate_limiter is "
                       "given.");
    rc = api_parse_item(c, &doc, &config);
    if (rc)
        return rc;
    for (size_t i = 0; i < config.num_drives; i++) {
        if (!strcmp(config.drives[i].id, c->id))
            rc = api_use_drive(c, dev, &config.drives[i]);
    }
    return control_settle(c->ctl, rc, doc, &config);
}

/* Limits, of which a bucket that is left out stays. */
int api_patch_net(struct api_call *c)
{
    static const char *const fields[] = {"iface_id", "rx_rate_limiter",
                                         "tx_rate_limiter", NULL};
    struct virtio_dev *dev =
        machine_find_device(c->ctl->machine, VIRTIO_ID_NET, c->id);
    struct vm_config config;
    json_t *doc = NULL;
    int rc = api_only_fields(c, fields);

    if (rc)
        return rc;
    if (!dev)
        return api_no_device(c);
    if (!api_given(c, fields[1]) && !api_given(c, fields[2]))
        return err_set(&c->err, -EINVAL,
                       "network-interfaces: neither rx_rate_limiter nor "
                       "tx_rate_limiter is given.");
    rc = api_parse_item(c, &doc, &config);
    if (rc)
        return rc;
    for (size_t i = 0; i < config.num_nets; i++) {
        const struct config_net *n = &config.nets[i];

        if (!strcmp(n->id, c->id))
            vnet_set_rate_limits(dev, api_given(c, fields[1]) ? &n->rx : NULL,
                                 api_given(c, fields[2]) ? &n->tx : NULL);
    }
    return control_settle(c->ctl, 0, doc, &config);
}
