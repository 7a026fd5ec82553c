/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a machine: its start, and all that follows. */
#include "vmm/api_int.h"

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

int api_patch_drive(struct api_call *c)
{
    if (!machine_find_device(c->ctl->machine, VIRTIO_ID_BLOCK, c->id))
        return api_no_device(c);
    return err_set(&c->err, -ENOTSUP,
                   "drives: changing one that runs is not supported by this "
                   "version.");
}

int api_patch_net(struct api_call *c)
{
    if (!machine_find_device(c->ctl->machine, VIRTIO_ID_NET, c->id))
        return api_no_device(c);
    return err_set(&c->err, -ENOTSUP,
                   "network-interfaces: changing one that runs is not "
                   "supported by this version.");
}
