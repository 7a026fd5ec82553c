/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_CONSOLE_H
#define DEVICES_VIRTIO_CONSOLE_H

/*
 * The virtio console. Port 0 is the console itself: output to a descriptor
 * that is never waited for, input from one that is read only while the guest
 * has room. More ports, each with a name and a Unix socket of the host, come
 * with VIRTIO_CONSOLE_F_MULTIPORT. spec: virtio-1.2 5.3
 *
 * Threads: the loop's; sizes of terminals are atomic, and the emergency write
 * comes on a vCPU's thread.
 */

#include "devices/virtio.h"
#include "vmm/errmsg.h"

#define VCON_MAX_PORTS 6u  /* beside port 0 */
#define VCON_NAME_MAX  63u /* bytes */

/*
 * A stream between the guest's port and one client of the socket at a time;
 * the next one waits. Neither side loses bytes to a slow reader; what the
 * guest sends while no client is there is dropped.
 */
struct vcon_port_args {
    const char *name; /* copied: the guest's /dev/virtio-ports/NAME */
    const char *path; /* copied */
};

struct vcon_args {
    int in_fd;  /* -1: none; stays the caller's */
    int out_fd; /* -1: none; stays the caller's */
    uint16_t cols;
    uint16_t rows; /* both 0: the size is not known at the start */
    uint32_t num_ports;
    struct vcon_port_args ports[VCON_MAX_PORTS];
};

/* 0 or -errno with a line. -EINVAL: too many ports, or a name too long. */
int vcon_new(const struct vdev_env *env, const struct vcon_args *args,
             struct virtio_dev **out_dev, struct errmsg *err) MUST_CHECK;

/* The terminal of port 0 has a new size. thread: io */
void vcon_resize(struct virtio_dev *dev, uint16_t cols, uint16_t rows);

/* Output that is left, as in uart_flush(). */
void vcon_flush(struct virtio_dev *dev);

#endif
