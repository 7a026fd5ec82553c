/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/mmds.h"

#include "vmm/metric_rows.h"

#include <stdlib.h>

struct mmds *mmds_new(size_t limit)
{
    struct mmds *m = calloc(1, sizeof(*m));

    if (!m)
        return NULL;
    m->store.limit = limit;
    m->service.counts = &m->counts.net;
    m->service.respond = mmds_respond;
    m->service.arg = m;
    return m;
}

void mmds_free(struct mmds *m)
{
    if (!m)
        return;
    mmds_store_fini(&m->store);
    free(m);
}

int mmds_load(struct mmds *m, const char *path, struct errmsg *err)
{
    json_t *doc = NULL;
    int rc = config_read_file(path, &doc, err);

    if (rc && rc != -EINVAL)
        return err_set(err, rc, "--metadata %s: %s", path, err_reason(rc));
    if (rc)
        return rc;
    rc = json_is_object(doc) ? mmds_store_put(&m->store, doc) : -EINVAL;
    json_decref(doc);
    if (rc == -EINVAL)
        return err_set(err, rc, "--metadata %s: must be one JSON object", path);
    if (rc == -EFBIG)
        return err_set(err, -EINVAL,
                       "--metadata %s: more than %zu bytes; raise "
                       "--mmds-size-limit",
                       path, m->store.limit);
    return rc ? err_set(err, rc, "out of memory") : 0;
}

void mmds_configure(struct mmds *m, const struct config_mmds *c)
{
    m->v2 = c->v2;
    m->imds_compat = c->imds_compat;
    m->service.ip = c->ip;
}

#define TOTAL(key, field) METRIC_ROW(key, struct mmds_totals, field)

static const struct metric_row mmds_rows[] = {
    TOTAL("rx_accepted", net.rx_accepted),
    TOTAL("rx_accepted_err", net.rx_accepted_err),
    TOTAL("rx_accepted_unusual", net.rx_accepted_unusual),
    TOTAL("rx_count", net.rx_count),
    TOTAL("rx_no_token", no_token),
    TOTAL("rx_invalid_token", bad_token),
    TOTAL("tx_bytes", net.tx_bytes),
    TOTAL("tx_count", net.tx_count),
    TOTAL("tx_errors", net.tx_errors),
    TOTAL("tx_frames", net.tx_frames),
    TOTAL("connections_created", net.connections_created),
    TOTAL("connections_destroyed", net.connections_destroyed),
};

void mmds_gather(struct mmds *m, json_t *line)
{
    metric_rows_add(metric_group(line, "mmds"), mmds_rows,
                    ARRAY_SIZE(mmds_rows), &m->counts, &m->told);
    m->told = m->counts;
}
