/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_RNG_H
#define DEVICES_VIRTIO_RNG_H

/*
 * The virtio entropy device: fills the guest's buffers from the host kernel's
 * generator. spec: virtio-1.2 5.4. Threads: the loop's.
 */

#include "devices/virtio.h"

/* thread: io */
struct vrng_stats {
    uint64_t requests;
    uint64_t bytes;
    uint64_t dry; /* the host's generator had nothing yet */
};
void vrng_get_stats(const struct virtio_dev *dev, struct vrng_stats *out);

/* 0 or -ENOMEM. */
int vrng_new(const struct vdev_env *env,
             struct virtio_dev **out_dev) MUST_CHECK;

#endif
