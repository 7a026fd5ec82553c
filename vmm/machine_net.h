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

struct mmds_service;

/* An inherited descriptor is owned by the device once this succeeded. `mmds`:
 * the metadata service on this link, or NULL; borrowed. */
int machine_net_new(const struct vdev_env *env, const struct config_net *c,
                    const struct mmds_service *mmds,
                    struct virtio_dev **out_dev, struct errmsg *err) MUST_CHECK;

#endif
