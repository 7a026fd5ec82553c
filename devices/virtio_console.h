/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_CONSOLE_H
#define DEVICES_VIRTIO_CONSOLE_H

/*
 * The virtio console with one port: output to a file descriptor that is never
 * waited for, input from one that is read only while the guest has room.
 * spec: virtio-1.2 5.3
 *
 * Threads: the loop's; the size of the terminal is atomic.
 */

#include "devices/virtio.h"

struct vcon_args {
    int in_fd;  /* -1: none; stays the caller's */
    int out_fd; /* -1: none; stays the caller's */
    uint16_t cols;
    uint16_t rows; /* both 0: the size is not known, nor ever told */
};

/* 0 or -errno. */
int vcon_new(const struct vdev_env *env, const struct vcon_args *args,
             struct virtio_dev **out_dev) MUST_CHECK;

/* The terminal has a new size. thread: io */
void vcon_resize(struct virtio_dev *dev, uint16_t cols, uint16_t rows);

/* Output that is left, as in uart_flush(). */
void vcon_flush(struct virtio_dev *dev);

#endif
