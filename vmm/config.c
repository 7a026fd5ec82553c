/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/config.h"

#include "vmm/layout_x86.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

/* A vsock path is extended by "_4294967295" for guest-initiated connections;
 * longer port suffixes than fit are refused per connection. */
#define CONFIG_SOCKET_MAX (sizeof(((struct sockaddr_un *)0)->sun_path) - 1)

struct config_ctx {
    struct vm_config *c;
    struct errmsg *err;
    const char *file;
    const char *section;
};

void config_init(struct vm_config *c)
{
    memset(c, 0, sizeof(*c));
    c->num_vcpus = CONFIG_DEFAULT_VCPUS;
    c->mem_bytes = CONFIG_DEFAULT_MEM;
    c->vmgenid = true;
}

void config_fini(struct vm_config *c)
{
    free(c->kernel_path);
    free(c->initrd_path);
    free(c->boot_args);
    free(c->vsock_path);
    for (size_t i = 0; i < c->num_drives; i++) {
        free(c->drives[i].id);
        free(c->drives[i].path);
    }
    memset(c, 0, sizeof(*c));
}

/* --- typed fields ----------------------------------------------------------
 */

static int config_bad(struct config_ctx *x, const char *field, const char *want)
{
    return err_set(x->err, -EINVAL, "%s: %s.%s: must be %s", x->file,
                   x->section, field, want);
}

static int config_string(struct config_ctx *x, const char *field,
                         const json_t *v, char **out)
{
    if (!json_is_string(v) || json_string_length(v) == 0)
        return config_bad(x, field, "a non-empty string");
    if (strlen(json_string_value(v)) != json_string_length(v))
        return config_bad(x, field, "a string without NUL bytes");
    free(*out);
    *out = strdup(json_string_value(v));
    return *out ? 0 : err_set(x->err, -ENOMEM, "out of memory");
}

static int config_bool(struct config_ctx *x, const char *field, const json_t *v,
                       bool *out)
{
    if (!json_is_boolean(v))
        return config_bad(x, field, "true or false");
    *out = json_is_true(v);
    return 0;
}

static int config_uint(struct config_ctx *x, const char *field, const json_t *v,
                       uint64_t lo, uint64_t hi, uint64_t *out)
{
    char want[64];
    json_int_t n = json_integer_value(v);

    if (!json_is_integer(v) || n < 0 || (uint64_t)n < lo || (uint64_t)n > hi) {
        (void)snprintf(want, sizeof(want), "a whole number from %llu to %llu",
                       (unsigned long long)lo, (unsigned long long)hi);
        return config_bad(x, field, want);
    }
    *out = (uint64_t)n;
    return 0;
}

static int config_unknown(struct config_ctx *x, const char *field)
{
    return err_set(x->err, -EINVAL, "%s: %s.%s: unknown field; remove it",
                   x->file, x->section, field);
}

static int config_unsupported(struct config_ctx *x, const char *field)
{
    return err_set(x->err, -EINVAL,
                   "%s: %s.%s: not supported by this version; remove it",
                   x->file, x->section, field);
}

static bool config_is_one_of(const char *field, const char *const *list)
{
    for (; *list; list++) {
        if (!strcmp(field, *list))
            return true;
    }
    return false;
}

/* --- sections --------------------------------------------------------------
 */

static int config_boot_field(struct config_ctx *x, const char *f, json_t *v)
{
    if (!strcmp(f, "kernel_image_path"))
        return config_string(x, f, v, &x->c->kernel_path);
    if (!strcmp(f, "initrd_path"))
        return json_is_null(v) ? 0 : config_string(x, f, v, &x->c->initrd_path);
    if (!strcmp(f, "boot_args"))
        return json_is_null(v) ? 0 : config_string(x, f, v, &x->c->boot_args);
    return config_unknown(x, f);
}

/* A value that changes nothing is fine; any other one we cannot honour. */
static int config_machine_unsupported(struct config_ctx *x, const char *f,
                                      const json_t *v)
{
    const char *s = json_string_value(v);

    if (json_is_false(v) || json_is_null(v) || (s && !strcmp(s, "None")))
        return 0;
    return config_unsupported(x, f);
}

static int config_machine_field(struct config_ctx *x, const char *f, json_t *v)
{
    static const char *const later[] = {
        "smt", "cpu_template", "track_dirty_pages", "huge_pages", NULL};
    uint64_t n = 0;
    int rc;

    if (!strcmp(f, "vcpu_count")) {
        rc = config_uint(x, f, v, 1, LAYOUT_MAX_VCPUS, &n);
        if (rc == 0)
            x->c->num_vcpus = (uint32_t)n;
        return rc;
    }
    if (!strcmp(f, "mem_size_mib")) {
        rc = config_uint(x, f, v, LAYOUT_MIN_RAM / MIB, LAYOUT_MAX_RAM / MIB,
                         &n);
        if (rc == 0)
            x->c->mem_bytes = n * MIB;
        return rc;
    }
    if (config_is_one_of(f, later))
        return config_machine_unsupported(x, f, v);
    return config_unknown(x, f);
}

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

static bool config_id_ok(const char *id)
{
    if (!*id)
        return false;
    for (; *id; id++) {
        if (!isalnum((unsigned char)*id) && *id != '_')
            return false;
    }
    return true;
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

static int config_drives(struct config_ctx *x, json_t *list)
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

static int config_vsock_field(struct config_ctx *x, const char *f, json_t *v)
{
    uint64_t n = 0;
    int rc;

    if (!strcmp(f, "guest_cid")) {
        rc = config_uint(x, f, v, CONFIG_MIN_GUEST_CID, UINT32_MAX - 1, &n);
        if (rc == 0)
            x->c->guest_cid = (uint32_t)n;
        return rc;
    }
    if (!strcmp(f, "uds_path"))
        return config_string(x, f, v, &x->c->vsock_path);
    if (!strcmp(f, "vsock_id"))
        return json_is_string(v) ? 0 : config_bad(x, f, "a string");
    return config_unknown(x, f);
}

static int config_entropy_field(struct config_ctx *x, const char *f, json_t *v)
{
    if (!strcmp(f, "rate_limiter"))
        return json_is_null(v) ? 0 : config_unsupported(x, f);
    return config_unknown(x, f);
}

static int config_mote_field(struct config_ctx *x, const char *f, json_t *v)
{
    if (!strcmp(f, "virtio_console"))
        return config_bool(x, f, v, &x->c->virtio_console);
    if (!strcmp(f, "vmgenid"))
        return config_bool(x, f, v, &x->c->vmgenid);
    if (!strcmp(f, "no_device_tree"))
        return config_bool(x, f, v, &x->c->no_device_tree);
    return config_unknown(x, f);
}

struct config_section {
    const char *name;
    int (*field)(struct config_ctx *x, const char *f, json_t *v);
};

static const struct config_section config_sections[] = {
    {"boot-source", config_boot_field},
    {"machine-config", config_machine_field},
    {"vsock", config_vsock_field},
    {"entropy", config_entropy_field},
    {"mote", config_mote_field},
};

/* Sections of the format that this version does not do: only empty ones. */
static int config_other_section(struct config_ctx *x, const char *name,
                                const json_t *v)
{
    static const char *const later[] = {
        "cpu-config", "balloon", "network-interfaces", "logger",
        "metrics",    "pmem",    "memory-hotplug",     "mmds-config",
        "serial",     NULL};

    if (!config_is_one_of(name, later))
        return err_set(x->err, -EINVAL, "%s: %s: unknown section; remove it",
                       x->file, name);
    if (json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0))
        return 0;
    return err_set(x->err, -EINVAL,
                   "%s: %s: not supported by this version; remove it", x->file,
                   name);
}

static int config_section(struct config_ctx *x, const char *name, json_t *v)
{
    const char *f;
    json_t *fv;

    x->section = name;
    if (!strcmp(name, "drives"))
        return config_drives(x, v);
    for (size_t i = 0; i < ARRAY_SIZE(config_sections); i++) {
        if (strcmp(name, config_sections[i].name))
            continue;
        if (json_is_null(v))
            return 0;
        if (!json_is_object(v))
            return err_set(x->err, -EINVAL, "%s: %s: must be an object",
                           x->file, name);
        if (!strcmp(name, "entropy"))
            x->c->entropy = true;
        json_object_foreach(v, f, fv)
        {
            int rc = config_sections[i].field(x, f, fv);

            if (rc)
                return rc;
        }
        return 0;
    }
    return config_other_section(x, name, v);
}

static int config_from_json(struct vm_config *c, json_t *root, const char *name,
                            const json_error_t *je, struct errmsg *err)
{
    struct config_ctx x = {.c = c, .err = err, .file = name};
    const char *section;
    json_t *v;
    int rc = 0;

    if (!root)
        return err_set(err, -EINVAL, "%s: line %d: %s", name, je->line,
                       je->text);
    if (!json_is_object(root))
        rc = err_set(err, -EINVAL, "%s: must be one JSON object", name);
    if (rc == 0) {
        json_object_foreach(root, section, v)
        {
            rc = config_section(&x, section, v);
            if (rc)
                break;
        }
    }
    json_decref(root);
    return rc;
}

int config_load_text(struct vm_config *c, const char *text, size_t len,
                     const char *name, struct errmsg *err)
{
    json_error_t je;

    return config_from_json(
        c, json_loadb(text, len, JSON_REJECT_DUPLICATES, &je), name, &je, err);
}

int config_load_file(struct vm_config *c, const char *path, struct errmsg *err)
{
    json_error_t je;
    FILE *f = fopen(path, "re");
    int rc;

    if (!f) {
        rc = neg_errno();
        return err_set(err, rc, "%s: %s; give --config-file a readable file",
                       path, err_reason(rc));
    }
    rc = config_from_json(c, json_loadf(f, JSON_REJECT_DUPLICATES, &je), path,
                          &je, err);
    (void)fclose(f); /* only read from */
    return rc;
}

int config_validate(const struct vm_config *c, struct errmsg *err)
{
    if (!c->kernel_path)
        return err_set(err, -EINVAL,
                       "boot-source: no kernel; set kernel_image_path");
    if (c->vsock_path && c->guest_cid == 0)
        return err_set(err, -EINVAL,
                       "vsock: guest_cid is missing; set it to "
                       "3 or more");
    if (!c->vsock_path && c->guest_cid != 0)
        return err_set(err, -EINVAL, "vsock: uds_path is missing; set it");
    if (c->vsock_path && strlen(c->vsock_path) > CONFIG_SOCKET_MAX)
        return err_set(err, -EINVAL,
                       "vsock: uds_path has %zu bytes, a Unix socket takes "
                       "%zu; use a shorter path",
                       strlen(c->vsock_path), (size_t)CONFIG_SOCKET_MAX);
    return 0;
}
