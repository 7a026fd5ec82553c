/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_VSOCK_H
#define DEVICES_VIRTIO_VSOCK_H

/*
 * virtio-vsock: stream sockets between the guest and Unix sockets of the host.
 * vsock.md tells the conventions, limits and rules.
 *
 * Ownership: the device is freed by its ops->free; `env` is borrowed.
 * Threads: io. Errors: 0 or -errno, with a line for the user in `err`.
 * spec: virtio-1.2 5.10
 */

#include "devices/virtio.h"
#include "vmm/errmsg.h"

#define VVSOCK_MAX_CONNS 4096u

/*
 * `guest_cid` is 3 .. 0xfffffffe. Listens at `uds_path` from now on; clients
 * are refused until a driver is there.
 */
int vvsock_new(const struct vdev_env *env, uint64_t guest_cid,
               const char *uds_path, struct virtio_dev **out_dev,
               struct errmsg *err) MUST_CHECK;

/* Counters since the device was made; gauges where told. */
struct vvsock_stats {
    uint32_t conns;    /* gauge: connections, those below included */
    uint32_t draining; /* gauge: closed by the guest, bytes still to deliver */
    uint32_t waiting;  /* gauge: clients that have not said CONNECT */
    uint32_t resets_waiting; /* gauge: resets without a guest buffer yet */
    uint64_t promised_bytes; /* gauge: sum of the buffers promised */
    uint64_t opened;         /* connections that were established */
    uint64_t refused;        /* by a limit, or nobody there */
    uint64_t resets_sent;
    uint64_t bad_packets; /* rules broken by the guest */
    uint64_t begun;       /* connections, by either side */
    uint64_t ended;       /* in any way */
    uint64_t cut;         /* of those, by us and told the guest by a reset */
    uint64_t to_host_packets;
    uint64_t to_guest_packets;
    uint64_t to_host_bytes;
    uint64_t to_guest_bytes;
};

/* thread: io */
void vvsock_get_stats(const struct virtio_dev *dev,
                      struct vvsock_stats *out_stats);

#endif
