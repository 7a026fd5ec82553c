/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The section "network-interfaces" of the configuration. Beyond Firecracker's
 * fields an interface takes an object "mote":
 *   socket       path of a Unix stream socket that speaks passt's framing
 *   fd           a descriptor that mote-vmm inherits: such a socket or a TAP
 *   queue_pairs  1 to 4; more than 1 needs a TAP made with multi_queue
 *   create       true: make the TAP host_dev_name if it is not there
 *   without      list of virtio features that are not offered, for tests
 * host_dev_name may be left out if socket or fd is given.
 */
#include "vmm/config_int.h"

#include <linux/virtio_net.h>
#include <stdio.h>
#include <string.h>

#define NET_MIN_MTU         68u
#define NET_MAX_MTU         65535u
#define NET_MAX_QUEUE_PAIRS 4u

static int config_net_mac(struct config_ctx *x, const char *f, const json_t *v,
                          struct config_net *n)
{
    static const char want[] = "a unicast address such as 02:00:00:12:34:56";
    const char *s = json_string_value(v);
    uint8_t mac[6];
    uint8_t any = 0;

    if (!s || json_string_length(v) != 17)
        return config_bad(x, f, want);
    for (int i = 0; i < 6; i++, s += 3) {
        unsigned byte = 0;
        int used = 0;

        if (strspn(s, "0123456789abcdefABCDEF") != 2 ||
            s[2] != (i < 5 ? ':' : '\0') ||
            sscanf(s, "%2x%n", &byte, &used) != 1 || used != 2)
            return config_bad(x, f, want);
        mac[i] = (uint8_t)byte;
        any |= mac[i];
    }
    if (!any || (mac[0] & 1))
        return config_bad(x, f, want);
    memcpy(n->mac, mac, sizeof(mac));
    n->has_mac = true;
    return 0;
}

static int config_net_without(struct config_ctx *x, const char *f,
                              const json_t *v, struct config_net *n)
{
    static const struct {
        const char *name;
        uint8_t bit;
    } features[] = {
        {"csum", VIRTIO_NET_F_CSUM},
        {"guest_csum", VIRTIO_NET_F_GUEST_CSUM},
        {"host_tso4", VIRTIO_NET_F_HOST_TSO4},
        {"host_tso6", VIRTIO_NET_F_HOST_TSO6},
        {"host_ecn", VIRTIO_NET_F_HOST_ECN},
        {"guest_tso4", VIRTIO_NET_F_GUEST_TSO4},
        {"guest_tso6", VIRTIO_NET_F_GUEST_TSO6},
        {"guest_ecn", VIRTIO_NET_F_GUEST_ECN},
        {"mrg_rxbuf", VIRTIO_NET_F_MRG_RXBUF},
        {"ctrl_vq", VIRTIO_NET_F_CTRL_VQ},
        {"ctrl_guest_offloads", VIRTIO_NET_F_CTRL_GUEST_OFFLOADS},
        {"mq", VIRTIO_NET_F_MQ},
        {"mtu", VIRTIO_NET_F_MTU},
        {"status", VIRTIO_NET_F_STATUS},
    };
    const char *name;

    if (!json_is_array(v))
        return config_bad(x, f, "a list of names of virtio features");
    for (size_t i = 0; i < json_array_size(v); i++) {
        bool known = false;

        name = json_string_value(json_array_get(v, i));
        for (size_t k = 0; name && k < ARRAY_SIZE(features); k++) {
            if (!strcmp(name, features[k].name)) {
                n->without |= 1ull << features[k].bit;
                known = true;
            }
        }
        if (!known)
            return config_bad(x, f,
                              "a list of names of virtio features such as "
                              "mrg_rxbuf");
    }
    return 0;
}

static int config_net_mote_field(struct config_ctx *x, struct config_net *n,
                                 const char *f, const json_t *v)
{
    uint64_t value = 0;
    int rc;

    if (!strcmp(f, "socket"))
        return config_string(x, f, v, &n->socket);
    if (!strcmp(f, "create"))
        return config_bool(x, f, v, &n->create);
    if (!strcmp(f, "without"))
        return config_net_without(x, f, v, n);
    if (!strcmp(f, "fd")) {
        rc = config_uint(x, f, v, 3, INT32_MAX, &value);
        if (rc == 0)
            n->fd = (int)value;
        return rc;
    }
    if (!strcmp(f, "queue_pairs")) {
        rc = config_uint(x, f, v, 1, NET_MAX_QUEUE_PAIRS, &value);
        if (rc == 0)
            n->queue_pairs = (uint16_t)value;
        return rc;
    }
    return config_unknown(x, f);
}

static int config_net_mote(struct config_ctx *x, struct config_net *n,
                           json_t *v)
{
    const char *f;
    json_t *fv;
    int rc = 0;

    if (json_is_null(v))
        return 0;
    if (!json_is_object(v))
        return config_bad(x, "mote", "an object");
    x->section = "network-interfaces.mote";
    json_object_foreach(v, f, fv)
    {
        rc = config_net_mote_field(x, n, f, fv);
        if (rc)
            break;
    }
    if (rc == 0)
        x->section = "network-interfaces";
    return rc;
}

static int config_net_field(struct config_ctx *x, struct config_net *n,
                            const char *f, json_t *v)
{
    uint64_t mtu = 0;
    int rc;

    if (!strcmp(f, "iface_id"))
        return config_string(x, f, v, &n->id);
    if (!strcmp(f, "host_dev_name"))
        return config_string(x, f, v, &n->tap);
    if (!strcmp(f, "mote"))
        return config_net_mote(x, n, v);
    if (!strcmp(f, "rx_rate_limiter"))
        return config_rate_limit(x, f, v, &n->rx);
    if (!strcmp(f, "tx_rate_limiter"))
        return config_rate_limit(x, f, v, &n->tx);
    if (!strcmp(f, "guest_mac"))
        return json_is_null(v) ? 0 : config_net_mac(x, f, v, n);
    if (!strcmp(f, "mtu")) {
        rc = json_is_null(v)
                 ? 0
                 : config_uint(x, f, v, NET_MIN_MTU, NET_MAX_MTU, &mtu);
        if (rc == 0)
            n->mtu = (uint32_t)mtu;
        return rc;
    }
    return config_unknown(x, f);
}

static int config_net_twice(struct config_ctx *x, const struct config_net *a,
                            const struct config_net *b, const char *field,
                            const char *value)
{
    return err_set(x->err, -EINVAL,
                   "%s: network-interfaces: %s and %s have the same %s %s; "
                   "change one",
                   x->file, a->id, b->id, field, value);
}

static int config_check_net_unique(struct config_ctx *x,
                                   const struct config_net *n)
{
    for (size_t i = 0; i + 1 < x->c->num_nets; i++) {
        const struct config_net *o = &x->c->nets[i];

        if (!strcmp(o->id, n->id))
            return config_net_twice(x, o, n, "iface_id", n->id);
        if (o->tap && n->tap && !strcmp(o->tap, n->tap))
            return config_net_twice(x, o, n, "host_dev_name", n->tap);
        if (o->fd >= 0 && o->fd == n->fd)
            return config_net_twice(x, o, n, "fd", "");
        if (o->has_mac && n->has_mac && !memcmp(o->mac, n->mac, 6))
            return config_net_twice(x, o, n, "guest_mac", "address");
    }
    return 0;
}

static int config_check_net(struct config_ctx *x, const struct config_net *n)
{
    if (!n->id)
        return err_set(x->err, -EINVAL,
                       "%s: network-interfaces: each needs iface_id and "
                       "host_dev_name",
                       x->file);
    if (!config_id_ok(n->id))
        return config_bad(x, "iface_id", "letters, digits and underscores");
    if (!!n->tap + !!n->socket + (n->fd >= 0) != 1)
        return err_set(x->err, -EINVAL,
                       "%s: network-interfaces: %s needs host_dev_name, or "
                       "else one of mote.socket and mote.fd; give one of them",
                       x->file, n->id);
    if (!n->tap && (n->queue_pairs > 1 || n->create))
        return err_set(x->err, -EINVAL,
                       "%s: network-interfaces: %s: mote.queue_pairs above 1 "
                       "and mote.create are for host_dev_name; remove them",
                       x->file, n->id);
    return config_check_net_unique(x, n);
}

int config_nets(struct config_ctx *x, json_t *list)
{
    size_t i;
    json_t *item;

    if (json_is_null(list))
        return 0;
    if (!json_is_array(list))
        return err_set(x->err, -EINVAL,
                       "%s: network-interfaces: must be a list", x->file);
    json_array_foreach(list, i, item)
    {
        struct config_net *n = &x->c->nets[x->c->num_nets];
        const char *f;
        json_t *v;
        int rc;

        if (x->c->num_nets == CONFIG_MAX_NETS)
            return err_set(x->err, -EINVAL,
                           "%s: network-interfaces: %u at most; remove some",
                           x->file, CONFIG_MAX_NETS);
        if (!json_is_object(item))
            return err_set(x->err, -EINVAL,
                           "%s: network-interfaces: must be objects", x->file);
        *n = (struct config_net){.fd = -1, .queue_pairs = 1};
        x->c->num_nets++; /* from now on config_fini() frees it */
        json_object_foreach(item, f, v)
        {
            rc = config_net_field(x, n, f, v);
            if (rc)
                return rc;
        }
        rc = config_check_net(x, n);
        if (rc)
            return rc;
    }
    return 0;
}
