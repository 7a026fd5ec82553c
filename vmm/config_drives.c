/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The section "drives" of the configuration. Beyond Firecracker's fields a
 * drive takes an object "mote":
 *   format   "raw" (the default) or "cow": a copy-on-write file of ours. It is
 *            never guessed from the file, whose bytes a guest may have written.
 */
#include "vmm/config_int.h"

#include <stdio.h>
#include <string.h>

#define CONFIG_MAX_PARTUUID 64u

/* Firecracker's words. `out` is the word's place in `words`. */
static int config_word(struct config_ctx *x, const char *f, const json_t *v,
                       const char *const words[2], int *out)
{
    const char *s = json_string_value(v);
    char want[64];

    for (int i = 0; s && i < 2; i++) {
        if (!strcmp(s, words[i])) {
            *out = i;
            return 0;
        }
    }
    (void)snprintf(want, sizeof(want), "\"%s\" or \"%s\"", words[0], words[1]);
    return config_bad(x, f, want);
}

static int config_drive_cache(struct config_ctx *x, struct config_drive *d,
                              const char *f, const json_t *v)
{
    static const char *const words[2] = {"Unsafe", "Writeback"};
    int i = 0;
    int rc = config_word(x, f, v, words, &i);

    if (rc == 0)
        d->cache = i ? CACHE_WRITEBACK : CACHE_UNSAFE;
    return rc;
}

static int config_drive_engine(struct config_ctx *x, struct config_drive *d,
                               const char *f, const json_t *v)
{
    static const char *const words[2] = {"Sync", "Async"};
    int i = 0;
    int rc = config_word(x, f, v, words, &i);

    if (rc == 0)
        d->engine = i ? ENGINE_ASYNC : ENGINE_SYNC;
    return rc;
}

/* It becomes a word of the kernel's command line. */
static int config_drive_partuuid(struct config_ctx *x, struct config_drive *d,
                                 const char *f, const json_t *v)
{
    static const char *const want =
        "up to 64 hexadecimal digits and dashes, as lsblk -o PARTUUID tells";
    int rc = config_string(x, f, v, &d->partuuid);

    if (rc == 0 &&
        (strlen(d->partuuid) > CONFIG_MAX_PARTUUID ||
         d->partuuid[strspn(d->partuuid, "0123456789abcdefABCDEF-")]))
        return config_bad(x, f, want);
    return rc;
}

static int config_drive_format(struct config_ctx *x, struct config_drive *d,
                               const char *f, const json_t *v)
{
    static const char *const words[2] = {"raw", "cow"};
    int i = 0;
    int rc = config_word(x, f, v, words, &i);

    if (rc == 0)
        d->cow = i;
    return rc;
}

static int config_drive_mote(struct config_ctx *x, struct config_drive *d,
                             json_t *v)
{
    const char *f;
    json_t *fv;
    int rc = 0;

    if (!json_is_object(v))
        return config_bad(x, "mote", "an object");
    x->section = "drives.mote";
    json_object_foreach(v, f, fv)
    {
        rc = strcmp(f, "format") ? config_unknown(x, f)
                                 : config_drive_format(x, d, f, fv);
        if (rc)
            break;
    }
    if (rc == 0)
        x->section = "drives";
    return rc;
}

static int config_drive_optional(struct config_ctx *x, struct config_drive *d,
                                 const char *f, json_t *v)
{
    if (!strcmp(f, "is_read_only"))
        return config_bool(x, f, v, &d->read_only);
    if (!strcmp(f, "mote_direct"))
        return config_bool(x, f, v, &d->direct);
    if (!strcmp(f, "mote"))
        return config_drive_mote(x, d, v);
    if (!strcmp(f, "rate_limiter"))
        return config_rate_limit(x, f, v, &d->limit);
    if (!strcmp(f, "partuuid"))
        return config_drive_partuuid(x, d, f, v);
    if (!strcmp(f, "cache_type"))
        return config_drive_cache(x, d, f, v);
    if (!strcmp(f, "io_engine"))
        return config_drive_engine(x, d, f, v);
    return config_unsupported(x, f); /* socket */
}

static int config_drive_field(struct config_ctx *x, struct config_drive *d,
                              const char *f, json_t *v)
{
    static const char *const optional[] = {
        "is_read_only", "mote_direct", "mote",
        "rate_limiter", "partuuid",    "cache_type",
        "io_engine",    "socket",      NULL};

    if (!strcmp(f, "drive_id"))
        return config_string(x, f, v, &d->id);
    if (!strcmp(f, "path_on_host"))
        return config_string(x, f, v, &d->path);
    if (!strcmp(f, "is_root_device"))
        return config_bool(x, f, v, &d->is_root);
    if (!config_is_one_of(f, optional))
        return config_unknown(x, f);
    return json_is_null(v) ? 0 : config_drive_optional(x, d, f, v);
}

static int config_check_drive(struct config_ctx *x,
                              const struct config_drive *d)
{
    if (!d->id || !d->path)
        return err_set(x->err, -EINVAL,
                       "%s: drives: each needs drive_id and path_on_host",
                       x->file);
    if (d->cow && d->direct)
        return err_set(x->err, -EINVAL,
                       "%s: drives.mote.format: %s: a copy-on-write disk goes "
                       "through the host's page cache; leave mote_direct away",
                       x->file, d->id);
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
