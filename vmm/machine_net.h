/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_MACHINE_NET_H
#define VMM_MACHINE_NET_H

/*
 * A network device from its configuration: the back end on the host, a MAC
 * address, the device. Threads: main. Errors: -errno with a line; nothing that
 * was created stays then.
 */

#include "devices/virtio.h"
#include "vmm/config.h"

/* An inherited descriptor is owned by the device once this succeeded. */
int machine_net_new(const struct vdev_env *env, const struct config_net *c,
                    struct virtio_dev **out_dev, struct errmsg *err) MUST_CHECK;

#endif
