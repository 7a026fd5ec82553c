/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/config.h"

#include "vmm/cleanup.h"
#include "vmm/config_int.h"
#include "vmm/layout_x86.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

/* A vsock path is extended by "_4294967295" for guest-initiated connections;
 * longer port suffixes than fit are refused per connection. */
#define CONFIG_SOCKET_MAX (sizeof(((struct sockaddr_un *)0)->sun_path) - 1)

void config_init(struct vm_config *c)
{
    memset(c, 0, sizeof(*c));
    c->num_vcpus = CONFIG_DEFAULT_VCPUS;
    c->mem_bytes = CONFIG_DEFAULT_MEM;
    c->vmgenid = true;
    c->mmds.ip = CONFIG_MMDS_IP;
    c->output.log_level = LOG_INFO;
}

void config_fini(struct vm_config *c)
{
    free(c->kernel_path);
    free(c->initrd_path);
    free(c->boot_args);
    free(c->vsock_path);
    config_output_fini(&c->output);
    config_mmds_fini(&c->mmds);
    for (size_t i = 0; i < c->num_drives; i++) {
        free(c->drives[i].id);
        free(c->drives[i].path);
        free(c->drives[i].partuuid);
    }
    config_ports_fini(c);
    for (size_t i = 0; i < c->num_nets; i++) {
        free(c->nets[i].id);
        free(c->nets[i].tap);
        free(c->nets[i].socket);
    }
    memset(c, 0, sizeof(*c));
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
    static const char *const later[] = {"smt", "cpu_template", "huge_pages",
                                        NULL};
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
    if (!strcmp(f, "track_dirty_pages"))
        return json_is_null(v) ? 0 : config_bool(x, f, v, &x->c->track_dirty);
    if (config_is_one_of(f, later))
        return config_machine_unsupported(x, f, v);
    return config_unknown(x, f);
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
    if (!strcmp(f, "console_ports"))
        return config_ports(x, f, v);
    if (!strcmp(f, "vmgenid"))
        return config_bool(x, f, v, &x->c->vmgenid);
    if (!strcmp(f, "no_device_tree"))
        return config_bool(x, f, v, &x->c->no_device_tree);
    if (!strcmp(f, "no_register_pages"))
        return config_bool(x, f, v, &x->c->no_register_pages);
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
    {"balloon", config_balloon_field},
    {"mmds-config", config_mmds_field},
    {"logger", config_logger_field},
    {"metrics", config_metrics_field},
    {"serial", config_serial_field},
    {"mote", config_mote_field},
};

/* Sections of the format that this version does not do: only empty ones. */
static int config_other_section(struct config_ctx *x, const char *name,
                                const json_t *v)
{
    static const char *const later[] = {"cpu-config", "pmem", "memory-hotplug",
                                        NULL};

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
    if (!strcmp(name, "network-interfaces"))
        return config_nets(x, v);
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
        if (!strcmp(name, "balloon"))
            x->c->balloon.present = true;
        if (!strcmp(name, "mmds-config"))
            x->c->mmds.present = true;
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

int config_apply(struct vm_config *c, json_t *doc, const char *name,
                 struct errmsg *err)
{
    struct config_ctx x = {.c = c, .err = err, .file = name};
    const char *section;
    json_t *v;

    if (!json_is_object(doc))
        return err_set(err, -EINVAL, "%s: must be one JSON object", name);
    json_object_foreach(doc, section, v)
    {
        int rc = config_section(&x, section, v);

        if (rc)
            return rc;
    }
    return 0;
}

static int config_take_doc(struct vm_config *c, json_t *doc, const char *name,
                           struct errmsg *err)
{
    int rc = config_apply(c, doc, name, err);

    json_decref(doc);
    return rc;
}

static int config_not_json(const char *name, const json_error_t *je,
                           struct errmsg *err)
{
    return err_set(err, -EINVAL, "%s: line %d: %s", name, je->line, je->text);
}

int config_load_text(struct vm_config *c, const char *text, size_t len,
                     const char *name, struct errmsg *err)
{
    json_error_t je;
    json_t *doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);

    return doc ? config_take_doc(c, doc, name, err)
               : config_not_json(name, &je, err);
}

int config_read_file(const char *path, json_t **out_doc, struct errmsg *err)
{
    json_error_t je;
    json_t *doc;
    int fd = util_open(path, O_RDONLY);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

    if (!f) {
        int rc = fd < 0 ? fd : neg_errno();

        drop_fd(&fd);
        return err_set(err, rc, "%s: %s; give --config-file a readable file",
                       path, err_reason(rc));
    }
    doc = json_loadf(f, JSON_REJECT_DUPLICATES, &je);
    (void)fclose(f); /* only read from */
    if (!doc)
        return config_not_json(path, &je, err);
    *out_doc = doc;
    return 0;
}

int config_load_file(struct vm_config *c, const char *path, struct errmsg *err)
{
    json_t *doc = NULL;
    int rc = config_read_file(path, &doc, err);

    return rc ? rc : config_take_doc(c, doc, path, err);
}

int config_check(const struct vm_config *c, struct errmsg *err)
{
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
    return config_mmds_check(c, err);
}

int config_validate(const struct vm_config *c, struct errmsg *err)
{
    int rc;

    if (!c->kernel_path)
        return err_set(err, -EINVAL,
                       "boot-source: no kernel; set kernel_image_path");
    rc = config_check(c, err);
    /* Sections come in any order: only now the memory's size is final. */
    return rc ? rc : config_balloon_validate(c, err);
}
