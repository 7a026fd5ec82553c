/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_DRIVE_H
#define VMM_DRIVE_H

/*
 * A drive of the configuration as a block device: opened, and given another
 * file while it runs.
 *
 * Ownership: the device is the caller's (its ops->free).
 * Errors: -errno with one line that names the drive or its path.
 */

#include "devices/virtio.h"
#include "vmm/config.h"

/* The guest sees a queue for each vCPU, up to VBLK_MAX_QUEUES. */
int drive_new(const struct vdev_env *env, const struct config_drive *d,
              uint32_t num_vcpus, struct virtio_dev **out_dev,
              struct errmsg *err) MUST_CHECK;

/*
 * What PATCH /drives with a path does: `path` is opened the way `d` says (its
 * own path does not matter) and takes the place of the file in use. The same
 * file again means that its size is looked at anew. If it fails the device goes
 * on as it was. thread: io
 */
int drive_set_path(struct virtio_dev *dev, const struct config_drive *d,
                   const char *path, struct errmsg *err) MUST_CHECK;

#endif
