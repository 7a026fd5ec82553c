/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_NET_H
#define DEVICES_VIRTIO_NET_H

/*
 * The virtio network device over a back end (net_back.h).
 *
 * Ownership: the device owns the back end once vnet_new() succeeded.
 * Threads: made on the main thread, then the loop's; config_read on vCPUs'.
 * spec: virtio-1.2 5.1
 */

#include "devices/mmds_net.h"
#include "devices/net_back.h"
#include "devices/rate_limit.h"
#include "devices/virtio.h"

#define VNET_MAC_BYTES 6u

struct vnet_args {
    const char *id; /* for log lines; copied */
    uint8_t mac[VNET_MAC_BYTES];
    uint32_t mtu;     /* told to the guest; 0: the back end's, if known */
    uint64_t without; /* features that are not to be offered */
    struct rate_limit_config rx; /* towards the guest */
    struct rate_limit_config tx;
    const struct mmds_service *mmds; /* on this link; NULL: none; borrowed */
};

int vnet_new(const struct vdev_env *env, struct net_back *back,
             const struct vnet_args *args,
             struct virtio_dev **out_dev) MUST_CHECK;

/* New limits, with full buckets; NULL leaves one as it is. thread: io */
void vnet_set_rate_limits(struct virtio_dev *dev,
                          const struct rate_limit_config *rx,
                          const struct rate_limit_config *tx);

/* Frames and bytes since the device was made. thread: io */
struct vnet_stats {
    uint64_t rx_frames;
    uint64_t rx_bytes;
    uint64_t rx_dropped;     /* too large for the guest, or not what it takes */
    uint64_t rx_bad_buffers; /* of the guest, given back unused */
    uint64_t tx_frames;
    uint64_t tx_bytes;
    uint64_t tx_dropped;   /* the network did not take them */
    uint64_t tx_bad;       /* frames that the guest described wrongly */
    uint64_t rx_no_buffer; /* times that the guest had given too little room */
    uint64_t rx_throttled; /* waited for the limiter, as the next */
    uint64_t tx_throttled;
    uint64_t ctrl_bad; /* control requests that were refused */
};
void vnet_get_stats(struct virtio_dev *dev, struct vnet_stats *out);

#endif
