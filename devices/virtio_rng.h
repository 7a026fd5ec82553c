/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_RNG_H
#define DEVICES_VIRTIO_RNG_H

/*
 * The virtio entropy device: fills the guest's buffers from the host kernel's
 * generator. spec: virtio-1.2 5.4. Threads: the loop's.
 */

#include "devices/virtio.h"

/* 0 or -ENOMEM. */
int vrng_new(const struct vdev_env *env,
             struct virtio_dev **out_dev) MUST_CHECK;

#endif
