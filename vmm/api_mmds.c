/* SPDX-License-Identifier: Apache-2.0 */
/* Requests about the metadata service of the guest. */
#include "vmm/api_int.h"

#include <string.h>

int api_put_mmds_config(struct api_call *c)
{
    const char *version =
        json_string_value(json_object_get(c->body, "version"));
    int rc = api_put_section(c);

    /* V1, also where it is not said. */
    c->deprecated = !version || strcmp(version, "V2") != 0;
    return rc;
}

/* A machine that was started without the service never gets it. */
static int api_need_mmds(struct api_call *c)
{
    const struct control *ctl = c->ctl;

    if (!ctl->machine || ctl->config.mmds.present || ctl->mmds->store.doc)
        return 0;
    return err_set(&c->err, -EPERM,
                   "mmds: it was not set up before the microVM was started.");
}

static int api_mmds_result(struct api_call *c, int rc)
{
    switch (rc) {
    case -EFBIG:
        c->status = 413;
        return err_set(&c->err, rc,
                       "mmds: the data would have more than %zu bytes.",
                       c->ctl->mmds->store.limit);
    case -ENOENT:
        return err_set(&c->err, rc, "The MMDS data store is not initialized.");
    default:
        return rc ? err_set(&c->err, rc, "out of memory") : 0;
    }
}

int api_get_mmds(struct api_call *c)
{
    int rc = api_need_mmds(c);

    if (rc)
        return rc;
    c->result = mmds_store_get(&c->ctl->mmds->store);
    return api_mmds_result(c, c->result ? 0 : -ENOMEM);
}

int api_put_mmds(struct api_call *c)
{
    int rc = api_need_mmds(c);

    return rc ? rc
              : api_mmds_result(c,
                                mmds_store_put(&c->ctl->mmds->store, c->body));
}

int api_patch_mmds(struct api_call *c)
{
    int rc = api_need_mmds(c);

    return rc ? rc
              : api_mmds_result(
                    c, mmds_store_patch(&c->ctl->mmds->store, c->body));
}
