/* SPDX-License-Identifier: Apache-2.0 */
/* The section "drives" of the configuration. */
#include "vmm/config_int.h"

#include <string.h>

static int config_drive_field(struct config_ctx *x, struct config_drive *d,
                              const char *f, json_t *v)
{
    static const char *const later[] = {"partuuid", "rate_limiter", "socket",
                                        NULL};

    if (!strcmp(f, "drive_id"))
        return config_string(x, f, v, &d->id);
    if (!strcmp(f, "path_on_host"))
        return config_string(x, f, v, &d->path);
    if (!strcmp(f, "is_root_device"))
        return config_bool(x, f, v, &d->is_root);
    if (!strcmp(f, "is_read_only"))
        return json_is_null(v) ? 0 : config_bool(x, f, v, &d->read_only);
    if (config_is_one_of(f, later))
        return json_is_null(v) ? 0 : config_unsupported(x, f);
    if (!strcmp(f, "cache_type")) {
        const char *s = json_string_value(v);

        if (s && !strcmp(s, "Writeback"))
            return 0; /* what mote always does */
        return config_unsupported(x, f);
    }
    if (!strcmp(f, "io_engine")) {
        const char *s = json_string_value(v);

        if (s && !strcmp(s, "Async"))
            return 0;
        return config_unsupported(x, f);
    }
    return config_unknown(x, f);
}

static int config_check_drive(struct config_ctx *x,
                              const struct config_drive *d)
{
    if (!d->id || !d->path)
        return err_set(x->err, -EINVAL,
                       "%s: drives: each needs drive_id and path_on_host",
                       x->file);
    if (!config_id_ok(d->id))
        return config_bad(x, "drive_id", "letters, digits and underscores");
    for (size_t i = 0; i < x->c->num_drives; i++) {
        const struct config_drive *o = &x->c->drives[i];

        if (o != d && !strcmp(o->id, d->id))
            return err_set(x->err, -EINVAL,
                           "%s: drives: two have the drive_id %s; rename one",
                           x->file, d->id);
        if (o != d && o->is_root && d->is_root)
            return err_set(x->err, -EINVAL,
                           "%s: drives: %s and %s are both is_root_device; "
                           "clear one",
                           x->file, o->id, d->id);
    }
    return 0;
}

int config_drives(struct config_ctx *x, json_t *list)
{
    size_t i;
    json_t *item;

    if (!json_is_array(list))
        return err_set(x->err, -EINVAL, "%s: drives: must be a list", x->file);
    json_array_foreach(list, i, item)
    {
        struct config_drive *d = &x->c->drives[x->c->num_drives];
        const char *f;
        json_t *v;
        int rc;

        if (x->c->num_drives == CONFIG_MAX_DRIVES)
            return err_set(x->err, -EINVAL,
                           "%s: drives: %u at most; remove some", x->file,
                           CONFIG_MAX_DRIVES);
        if (!json_is_object(item))
            return err_set(x->err, -EINVAL, "%s: drives: must be objects",
                           x->file);
        x->c->num_drives++; /* from now on config_fini() frees it */
        json_object_foreach(item, f, v)
        {
            rc = config_drive_field(x, d, f, v);
            if (rc)
                return rc;
        }
        rc = config_check_drive(x, d);
        if (rc)
            return rc;
    }
    return 0;
}
