/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_BLK_H
#define DEVICES_VIRTIO_BLK_H

/*
 * The virtio block device over any disk backend: read, write, flush, identity.
 * spec: virtio-1.2 5.2
 *
 * Threads: the loop's; the configuration space is immutable.
 */

#include "devices/disk.h"
#include "devices/virtio.h"

/*
 * Owns `disk` if it succeeds. `id` is what the guest reads as the disk's
 * serial (its first 20 bytes) and names it in log lines; copied. 0 or -ENOMEM.
 */
int vblk_new(const struct vdev_env *env, struct disk *disk, const char *id,
             struct virtio_dev **out_dev) MUST_CHECK;

#endif
