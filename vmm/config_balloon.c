/* SPDX-License-Identifier: Apache-2.0 */
/* The section "balloon" of the configuration. */
#include "vmm/config_int.h"

#include "devices/virtio_balloon.h"
#include "vmm/layout_x86.h"

#include <string.h>

/* A field that may be missing or null, which is false. */
static int config_balloon_flag(struct config_ctx *x, const char *f,
                               const json_t *v, bool *out)
{
    return json_is_null(v) ? 0 : config_bool(x, f, v, out);
}

int config_balloon_field(struct config_ctx *x, const char *f, json_t *v)
{
    struct config_balloon *b = &x->c->balloon;
    uint64_t n = 0;
    int rc;

    if (!strcmp(f, "amount_mib")) {
        rc = config_uint(x, f, v, 0, LAYOUT_MAX_RAM / MIB, &n);
        b->target_bytes = n * MIB;
        b->has_amount = rc == 0;
        return rc;
    }
    if (!strcmp(f, "deflate_on_oom")) {
        rc = config_bool(x, f, v, &b->deflate_on_oom);
        b->has_deflate = rc == 0;
        return rc;
    }
    if (!strcmp(f, "stats_polling_interval_s")) {
        if (json_is_null(v))
            return 0;
        rc = config_uint(x, f, v, 0, VBALLOON_MAX_INTERVAL_S, &n);
        b->stats_interval_s = (uint32_t)n;
        return rc;
    }
    if (!strcmp(f, "free_page_hinting"))
        return config_balloon_flag(x, f, v, &b->hinting);
    if (!strcmp(f, "free_page_reporting"))
        return config_balloon_flag(x, f, v, &b->reporting);
    return config_unknown(x, f);
}

int config_balloon_validate(const struct vm_config *c, struct errmsg *err)
{
    const struct config_balloon *b = &c->balloon;

    if (!b->present)
        return 0;
    if (!b->has_amount || !b->has_deflate)
        return err_set(err, -EINVAL, "balloon: %s is missing; set it",
                       b->has_amount ? "deflate_on_oom" : "amount_mib");
    if (b->target_bytes > c->mem_bytes)
        return err_set(err, -EINVAL,
                       "balloon: amount_mib is %llu, the guest has %llu; "
                       "lower it",
                       (unsigned long long)(b->target_bytes / MIB),
                       (unsigned long long)(c->mem_bytes / MIB));
    return 0;
}
