/* SPDX-License-Identifier: Apache-2.0 */
/* The sections "logger", "metrics" and "serial" of the configuration. */
#include "vmm/config_int.h"

#include <stdlib.h>
#include <string.h>

int config_logger_field(struct config_ctx *x, const char *f, json_t *v)
{
    struct config_output *o = &x->c->output;
    const char *s = json_string_value(v);

    o->logger = true;
    if (json_is_null(v) &&
        (!strcmp(f, "log_path") || !strcmp(f, "level") ||
         !strcmp(f, "show_level") || !strcmp(f, "show_log_origin") ||
         !strcmp(f, "module")))
        return 0;
    if (!strcmp(f, "log_path"))
        return config_string(x, f, v, &o->log_path);
    if (!strcmp(f, "level"))
        return s && log_level_parse(s, &o->log_level) == 0
                   ? 0
                   : config_bad(x, f, "Off, Error, Warn, Info, Debug or Trace");
    o->log_sets_show_level |= !strcmp(f, "show_level");
    o->log_sets_show_origin |= !strcmp(f, "show_log_origin");
    if (!strcmp(f, "show_level"))
        return config_bool(x, f, v, &o->log_show_level);
    if (!strcmp(f, "show_log_origin"))
        return config_bool(x, f, v, &o->log_show_origin);
    if (!strcmp(f, "module"))
        return config_string(x, f, v, &o->log_module);
    return config_unknown(x, f);
}

static int config_properties(struct config_ctx *x, const char *f, json_t *v)
{
    const char *name;
    json_t *value;

    if (!json_is_object(v))
        return config_bad(x, f, "an object of strings");
    json_object_foreach(v, name, value)
    {
        if (!json_is_string(value))
            return config_bad(x, f, "an object of strings");
    }
    free(x->c->output.metrics_properties);
    x->c->output.metrics_properties = json_dumps(v, JSON_COMPACT);
    return x->c->output.metrics_properties
               ? 0
               : err_set(x->err, -ENOMEM, "out of memory");
}

int config_metrics_field(struct config_ctx *x, const char *f, json_t *v)
{
    struct config_output *o = &x->c->output;

    if (!strcmp(f, "metrics_path"))
        return config_string(x, f, v, &o->metrics_path);
    if (!strcmp(f, "emit_id"))
        return json_is_null(v) ? 0 : config_bool(x, f, v, &o->metrics_emit_id);
    if (!strcmp(f, "properties"))
        return json_is_null(v) ? 0 : config_properties(x, f, v);
    return config_unknown(x, f);
}

int config_serial_field(struct config_ctx *x, const char *f, json_t *v)
{
    if (!strcmp(f, "serial_out_path"))
        return json_is_null(v)
                   ? 0
                   : config_string(x, f, v, &x->c->output.serial_path);
    if (!strcmp(f, "rate_limiter"))
        return json_is_null(v) ? 0 : config_unsupported(x, f);
    return config_unknown(x, f);
}

void config_output_fini(struct config_output *o)
{
    free(o->log_path);
    free(o->log_module);
    free(o->metrics_path);
    free(o->metrics_properties);
    free(o->serial_path);
    memset(o, 0, sizeof(*o));
}
