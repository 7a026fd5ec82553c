/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that describe a machine before it is started. */
#include "vmm/api_int.h"

#include "boot/boot_x86.h"
#include "vmm/cleanup.h"

#include <fcntl.h>
#include <string.h>

/* Fields that are taken and answered with "Deprecation: true". */
static void api_note_deprecated(struct api_call *c)
{
    c->deprecated = json_object_get(c->body, "vsock_id") ||
                    json_object_get(c->body, "cpu_template");
}

/* Makes a changed document the configuration; takes `doc` over. */
static int api_adopt(struct api_call *c, json_t *doc)
{
    api_note_deprecated(c);
    return control_adopt(c->ctl, doc, &c->err);
}

int api_put_section(struct api_call *c)
{
    return api_adopt(c,
                     config_doc_with(c->ctl->doc, c->route->section, c->body));
}

int api_patch_section(struct api_call *c)
{
    const char *section = c->route->section;
    json_t *merged;
    json_t *doc;

    if (json_object_size(c->body) == 0)
        return err_set(&c->err, -EINVAL, "Empty PATCH request.");
    merged = config_doc_patched(json_object_get(c->ctl->doc, section), c->body);
    doc = merged ? config_doc_with(c->ctl->doc, section, merged) : NULL;
    json_decref(merged);
    return api_adopt(c, doc);
}

int api_put_item(struct api_call *c)
{
    return api_adopt(c, config_doc_with_item(c->ctl->doc, c->route->section,
                                             c->route->key, c->body));
}

/* --- sections whose files are looked at ------------------------------------
 */

static int api_check_file(struct api_call *c, const char *field,
                          const char *path, int flags)
{
    CLEANUP_FD int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);
    int rc;

    if (fd >= 0)
        return 0;
    rc = neg_errno();
    return err_set(&c->err, rc, "%s %s: %s", field, path, err_reason(rc));
}

static int api_check_boot_source(struct api_call *c,
                                 const struct vm_config *config)
{
    int rc = boot_check_kernel(config->kernel_path, &c->err);

    if (rc == 0 && config->boot_args)
        rc = boot_check_cmdline(config->boot_args, &c->err);
    if (rc == 0 && config->initrd_path)
        rc = api_check_file(c, "initrd_path", config->initrd_path, O_RDONLY);
    return rc;
}

static int api_check_drive(struct api_call *c, const struct vm_config *config)
{
    for (size_t i = 0; i < config->num_drives; i++) {
        const struct config_drive *d = &config->drives[i];

        if (!strcmp(d->id, c->id))
            return api_check_file(c, "path_on_host", d->path,
                                  d->read_only ? O_RDONLY : O_RDWR);
    }
    return 0;
}

/*
 * As api_adopt(), with a step between reading the document and its taking the
 * old one's place.
 */
static int api_adopt_after(struct api_call *c, json_t *doc,
                           int (*step)(struct api_call *c,
                                       const struct vm_config *config))
{
    struct vm_config config;
    int rc = control_parse(doc, &config, &c->err);

    return rc ? rc : control_settle(c->ctl, step(c, &config), doc, &config);
}

int api_put_boot_source(struct api_call *c)
{
    return api_adopt_after(
        c, config_doc_with(c->ctl->doc, c->route->section, c->body),
        api_check_boot_source);
}

int api_put_drive(struct api_call *c)
{
    return api_adopt_after(c,
                           config_doc_with_item(c->ctl->doc, c->route->section,
                                                c->route->key, c->body),
                           api_check_drive);
}

/* --- sections that take effect at once -------------------------------------
 */

static int api_use_logger(struct api_call *c, const struct vm_config *config)
{
    return control_set_logger(c->ctl, config, &c->err);
}

/* May be repeated: what is left out stays, but for the level. */
int api_put_logger(struct api_call *c)
{
    json_t *merged =
        config_doc_patched(json_object_get(c->ctl->doc, "logger"), c->body);
    json_t *doc;

    if (merged && !json_object_get(c->body, "level"))
        (void)json_object_del(merged, "level"); /* -1: it was not there */
    doc = merged ? config_doc_with(c->ctl->doc, "logger", merged) : NULL;
    json_decref(merged);
    return api_adopt_after(c, doc, api_use_logger);
}

static int api_use_metrics(struct api_call *c, const struct vm_config *config)
{
    return control_set_metrics(c->ctl, config, &c->err);
}

int api_put_metrics(struct api_call *c)
{
    return api_adopt_after(c, config_doc_with(c->ctl->doc, "metrics", c->body),
                           api_use_metrics);
}

static int api_use_serial(struct api_call *c, const struct vm_config *config)
{
    return control_set_serial(c->ctl, config, &c->err);
}

int api_put_serial(struct api_call *c)
{
    return api_adopt_after(c, config_doc_with(c->ctl->doc, "serial", c->body),
                           api_use_serial);
}
