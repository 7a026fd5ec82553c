/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that only read, and those that are turned down. */
#include "vmm/api_int.h"

static int api_result(struct api_call *c, json_t *result)
{
    c->result = result;
    return result ? 0 : err_set(&c->err, -ENOMEM, "out of memory");
}

static const char *api_state(const struct control *ctl)
{
    if (!ctl->machine)
        return "Not started";
    return machine_state(ctl->machine) == MACHINE_PAUSED ? "Paused" : "Running";
}

int api_get_instance(struct api_call *c)
{
    return api_result(
        c, json_pack("{s:s, s:s, s:s, s:s}", "id", control_id(c->ctl), "state",
                     api_state(c->ctl), "vmm_version", OPTIONS_FIRECRACKER,
                     "app_name", "Firecracker"));
}

int api_get_version(struct api_call *c)
{
    return api_result(
        c, json_pack("{s:s}", "firecracker_version", OPTIONS_FIRECRACKER));
}

int api_get_machine(struct api_call *c)
{
    return api_result(c, config_doc_machine(c->ctl->doc, &c->ctl->config));
}

int api_get_config(struct api_call *c)
{
    return api_result(c, config_doc_view(c->ctl->doc, &c->ctl->config));
}

int api_get_balloon(struct api_call *c)
{
    json_t *section = json_object_get(c->ctl->doc, "balloon");

    if (!json_is_object(section))
        return err_set(&c->err, -ENOENT, "There is no balloon device.");
    return api_result(c, json_incref(section));
}

int api_not_there(struct api_call *c)
{
    return err_set(&c->err, -ENOTSUP, "%s: not supported by this version.",
                   c->route->section);
}
