/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/config_int.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

int config_bad(struct config_ctx *x, const char *field, const char *want)
{
    return err_set(x->err, -EINVAL, "%s: %s.%s: must be %s", x->file,
                   x->section, field, want);
}

int config_string(struct config_ctx *x, const char *field, const json_t *v,
                  char **out)
{
    if (!json_is_string(v) || json_string_length(v) == 0)
        return config_bad(x, field, "a non-empty string");
    if (strlen(json_string_value(v)) != json_string_length(v))
        return config_bad(x, field, "a string without NUL bytes");
    free(*out);
    *out = strdup(json_string_value(v));
    return *out ? 0 : err_set(x->err, -ENOMEM, "out of memory");
}

int config_bool(struct config_ctx *x, const char *field, const json_t *v,
                bool *out)
{
    if (!json_is_boolean(v))
        return config_bad(x, field, "true or false");
    *out = json_is_true(v);
    return 0;
}

int config_uint(struct config_ctx *x, const char *field, const json_t *v,
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

int config_unknown(struct config_ctx *x, const char *field)
{
    return err_set(x->err, -EINVAL, "%s: %s.%s: unknown field; remove it",
                   x->file, x->section, field);
}

int config_unsupported(struct config_ctx *x, const char *field)
{
    return err_set(x->err, -EINVAL,
                   "%s: %s.%s: not supported by this version; remove it",
                   x->file, x->section, field);
}

bool config_is_one_of(const char *field, const char *const *list)
{
    for (; *list; list++) {
        if (!strcmp(field, *list))
            return true;
    }
    return false;
}

bool config_id_ok(const char *id)
{
    if (!*id)
        return false;
    for (; *id; id++) {
        if (!isalnum((unsigned char)*id) && *id != '_')
            return false;
    }
    return true;
}

static int config_bucket(struct config_ctx *x, const char *which,
                         const json_t *v, struct bucket_config *out)
{
    struct bucket_config b = {0};
    const json_t *size = json_object_get(v, "size");
    const json_t *refill = json_object_get(v, "refill_time");
    const json_t *burst = json_object_get(v, "one_time_burst");
    int rc;

    if (json_is_null(v))
        return 0;
    if (!json_is_object(v) || !size || !refill)
        return config_bad(x, which, "an object with size and refill_time");
    rc = config_uint(x, "size", size, 0, INT64_MAX, &b.size);
    if (rc == 0)
        rc = config_uint(x, "refill_time", refill, 0, INT64_MAX, &b.refill_ms);
    if (rc == 0 && burst && !json_is_null(burst))
        rc = config_uint(x, "one_time_burst", burst, 0, INT64_MAX,
                         &b.one_time_burst);
    if (rc == 0)
        *out = b;
    return rc;
}

int config_rate_limit(struct config_ctx *x, const char *field, json_t *v,
                      struct rate_limit_config *out)
{
    const char *f;
    json_t *bucket;
    int rc = 0;

    if (json_is_null(v))
        return 0;
    if (!json_is_object(v))
        return config_bad(x, field, "an object with bandwidth and ops");
    json_object_foreach(v, f, bucket)
    {
        if (!strcmp(f, "bandwidth"))
            rc = config_bucket(x, f, bucket, &out->bandwidth);
        else if (!strcmp(f, "ops"))
            rc = config_bucket(x, f, bucket, &out->ops);
        else
            rc = config_unknown(x, f);
        if (rc)
            break;
    }
    return rc;
}
