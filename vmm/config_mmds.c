/* SPDX-License-Identifier: Apache-2.0 */
/* The section "mmds-config": the metadata service of the guest. */
#include "vmm/config_int.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

static int config_mmds_ids(struct config_ctx *x, const char *f, json_t *list)
{
    struct config_mmds *m = &x->c->mmds;
    json_t *id;
    size_t i;

    if (!json_is_array(list) || json_array_size(list) == 0 ||
        json_array_size(list) > CONFIG_MAX_NETS)
        return config_bad(x, f, "a list of ids of network interfaces");
    json_array_foreach(list, i, id)
    {
        int rc = config_string(x, f, id, &m->ids[i]);

        if (rc)
            return rc;
        m->num_ids = i + 1;
    }
    return 0;
}

/* Of 169.254.0.0/16, less the first and the last 256. spec: rfc3927 2.1 */
static int config_mmds_ip(struct config_ctx *x, const char *f, const json_t *v)
{
    const char *s = json_string_value(v);
    struct in_addr a;
    uint32_t ip;

    if (!s || inet_pton(AF_INET, s, &a) != 1)
        return config_bad(x, f, "an IPv4 address");
    ip = ntohl(a.s_addr);
    if (ip < 0xa9fe0100 || ip > 0xa9fefeff)
        return config_bad(x, f,
                          "a link-local address, 169.254.1.0 to "
                          "169.254.254.255");
    x->c->mmds.ip = ip;
    return 0;
}

static int config_mmds_version(struct config_ctx *x, const char *f,
                               const json_t *v)
{
    const char *s = json_string_value(v);

    if (!s || (strcmp(s, "V1") != 0 && strcmp(s, "V2") != 0))
        return config_bad(x, f, "V1 or V2");
    x->c->mmds.v2 = s[1] == '2';
    return 0;
}

int config_mmds_field(struct config_ctx *x, const char *f, json_t *v)
{
    if (!strcmp(f, "network_interfaces"))
        return config_mmds_ids(x, f, v);
    if (!strcmp(f, "version"))
        return json_is_null(v) ? 0 : config_mmds_version(x, f, v);
    if (!strcmp(f, "ipv4_address"))
        return json_is_null(v) ? 0 : config_mmds_ip(x, f, v);
    if (!strcmp(f, "imds_compat"))
        return json_is_null(v) ? 0
                               : config_bool(x, f, v, &x->c->mmds.imds_compat);
    return config_unknown(x, f);
}

static bool config_has_net(const struct vm_config *c, const char *id)
{
    for (size_t i = 0; i < c->num_nets; i++) {
        if (!strcmp(c->nets[i].id, id))
            return true;
    }
    return false;
}

int config_mmds_check(const struct vm_config *c, struct errmsg *err)
{
    const struct config_mmds *m = &c->mmds;

    if (m->present && m->num_ids == 0)
        return err_set(err, -EINVAL,
                       "mmds-config: network_interfaces is missing; name those "
                       "that are to have the service");
    for (size_t i = 0; i < m->num_ids; i++) {
        if (!config_has_net(c, m->ids[i]))
            return err_set(err, -EINVAL,
                           "mmds-config: network_interfaces: there is no "
                           "interface %.64s; add it first",
                           m->ids[i]);
    }
    return 0;
}

bool config_mmds_serves(const struct vm_config *c, const char *id)
{
    for (size_t i = 0; i < c->mmds.num_ids; i++) {
        if (!strcmp(c->mmds.ids[i], id))
            return true;
    }
    return false;
}

void config_mmds_fini(struct config_mmds *m)
{
    for (size_t i = 0; i < CONFIG_MAX_NETS; i++)
        free(m->ids[i]);
    memset(m, 0, sizeof(*m));
}
