/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/machine_net.h"

#include "devices/net_stream.h"
#include "devices/net_tap.h"
#include "devices/virtio_net.h"

#include <string.h>
#include <sys/random.h>

static int net_open(const struct config_net *c, struct net_back **out_back,
                    struct errmsg *err)
{
    const struct net_tap_args tap = {
        .name = c->tap,
        .pairs = c->queue_pairs,
        .create = c->create,
        .mtu = c->mtu,
    };
    int rc;

    if (c->tap)
        return net_tap_open(&tap, out_back, err);
    if (c->socket)
        return net_stream_connect(c->socket, out_back, err);
    rc = net_tap_adopt(c->fd, out_back, err);
    return rc == -ENOTTY ? net_stream_adopt(c->fd, out_back, err) : rc;
}

/* Unicast, and marked as given out locally. */
static int net_make_mac(uint8_t *mac, struct errmsg *err)
{
    if (getrandom(mac, VNET_MAC_BYTES, 0) != VNET_MAC_BYTES)
        return err_set(err, -EIO, "network: the host gave no random address");
    mac[0] = (uint8_t)((mac[0] & 0xfc) | 0x02);
    return 0;
}

int machine_net_new(const struct vdev_env *env, const struct config_net *c,
                    const struct mmds_service *mmds,
                    struct virtio_dev **out_dev, struct errmsg *err)
{
    struct vnet_args args = {.id = c->id,
                             .mtu = c->mtu,
                             .without = c->without,
                             .rx = c->rx,
                             .tx = c->tx,
                             .mmds = mmds};
    struct net_back *back = NULL;
    int rc = 0;

    if (c->has_mac)
        memcpy(args.mac, c->mac, sizeof(args.mac));
    else
        rc = net_make_mac(args.mac, err);
    if (rc == 0)
        rc = net_open(c, &back, err);
    if (rc)
        return rc;
    rc = vnet_new(env, back, &args, out_dev);
    if (rc) {
        back->ops->free(back);
        return err_set(err, rc, "network %s: %s", c->id, err_reason(rc));
    }
    log_msg(env->log, LOG_INFO,
            "network %s: address %02x:%02x:%02x:%02x:%02x:%02x", c->id,
            args.mac[0], args.mac[1], args.mac[2], args.mac[3], args.mac[4],
            args.mac[5]);
    return 0;
}
