/* SPDX-License-Identifier: Apache-2.0 */
/* Where log, metrics and the guest's serial port go. */
#include "vmm/cleanup.h"
#include "vmm/control_int.h"
#include "vmm/sink.h"

#include <stdlib.h>
#include <string.h>

/* Takes `fd` over: log lines go there from now on. */
static void control_take_log(struct control *c, int fd)
{
    c->log->fd = fd;
    c->log->full = true;
    c->log->prefix = control_id(c);
    drop_fd(&c->log_fd);
    c->log_fd = fd;
}

/* NULL: lines of all files. 0 or -ENOMEM. */
static int control_set_module(struct control *c, const char *module,
                              struct errmsg *err)
{
    char *copy = module ? strdup(module) : NULL;

    if (module && !copy)
        return err_set(err, -ENOMEM, "out of memory");
    c->log->module = copy;
    free(c->log_module);
    c->log_module = copy;
    return 0;
}

int control_open_log(struct control *c, struct errmsg *err)
{
    const struct vmm_options *o = c->options;
    int fd = -1;
    int rc;

    c->log->level = o->level;
    c->log->show_level = o->show_level;
    c->log->show_origin = o->show_origin;
    if (o->id)
        c->log->prefix = o->id;
    rc = control_set_module(c, o->module, err);
    if (rc || !o->log_path)
        return rc;
    rc = sink_open(o->log_path, &fd);
    if (rc)
        return err_set(err, rc, "--log-path %s: %s", o->log_path,
                       err_reason(rc));
    control_take_log(c, fd);
    return 0;
}

int control_set_logger(struct control *c, const struct vm_config *config,
                       struct errmsg *err)
{
    const struct config_output *o = &config->output;
    int fd = -1;
    int rc = 0;

    if (!o->logger)
        return 0;
    if (o->log_path) {
        rc = sink_open(o->log_path, &fd);
        if (rc)
            return err_set(err, rc, "log_path %s: %s", o->log_path,
                           err_reason(rc));
    }
    if (o->log_module)
        rc = control_set_module(c, o->log_module, err);
    if (rc) {
        drop_fd(&fd);
        return rc;
    }
    if (fd >= 0)
        control_take_log(c, fd);
    c->log->level = o->log_level;
    /* What the section leaves out stays as the command line has it. */
    if (o->log_sets_show_level)
        c->log->show_level = o->log_show_level;
    if (o->log_sets_show_origin)
        c->log->show_origin = o->log_show_origin;
    return 0;
}

int control_set_metrics(struct control *c, const struct vm_config *config,
                        struct errmsg *err)
{
    const struct config_output *o = &config->output;
    const struct metrics_args args = {
        .loop = c->loop,
        .path = o->metrics_path,
        .id = o->metrics_emit_id ? control_id(c) : NULL,
        .properties = o->metrics_properties,
        .gather = control_gather,
        .arg = c,
    };

    if (!o->metrics_path)
        return 0;
    if (c->metrics)
        return err_set(err, -EEXIST,
                       "metrics: the metrics system is configured already");
    return metrics_new(&args, &c->metrics, err);
}

int control_set_serial(struct control *c, const struct vm_config *config,
                       struct errmsg *err)
{
    const char *path = config->output.serial_path;
    int fd = -1;
    int rc = path ? sink_open(path, &fd) : 0;

    if (rc)
        return err_set(err, rc, "serial_out_path %s: %s", path, err_reason(rc));
    drop_fd(&c->serial_fd);
    c->serial_fd = fd;
    return 0;
}

void control_output_fini(struct control *c)
{
    drop_fd(&c->serial_fd);
    if (c->log_fd >= 0) {
        c->log->fd = STDERR_FILENO;
        c->log->full = false;
        drop_fd(&c->log_fd);
    }
    c->log->module = NULL;
    free(c->log_module);
    c->log_module = NULL;
}
