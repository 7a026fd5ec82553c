/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio.h"

#include <string.h>

void virtio_dev_init(struct virtio_dev *dev, const struct virtio_ops *ops,
                     const struct vdev_env *env, const char *name,
                     uint32_t device_id)
{
    memset(dev, 0, sizeof(*dev));
    dev->ops = ops;
    dev->env = *env;
    dev->name = name;
    dev->device_id = device_id;
}

void virtio_signal(struct virtio_dev *dev, uint16_t q)
{
    if (!vq_should_signal(&dev->vq[q]))
        return;
    counter_add(&dev->counts.interrupts, 1);
    dev->transport_ops->signal_queue(dev->transport, q);
}

void virtio_config_changed(struct virtio_dev *dev)
{
    counter_add(&dev->counts.config_updates, 1);
    dev->transport_ops->config_changed(dev->transport);
}

void virtio_config_update(struct virtio_dev *dev, virtio_change_fn change,
                          void *arg)
{
    counter_add(&dev->counts.config_updates, 1);
    dev->transport_ops->config_update(dev->transport, change, arg);
}

void virtio_needs_reset(struct virtio_dev *dev)
{
    /* One bad queue stops all: the driver has to start over anyway. */
    for (uint16_t q = 0; q < dev->num_queues; q++)
        dev->vq[q].broken = true;
    counter_add(&dev->counts.broken, 1);
    dev->transport_ops->needs_reset(dev->transport);
}

void virtio_reset_done(struct virtio_dev *dev)
{
    dev->transport_ops->reset_done(dev->transport);
}

void virtio_rested(struct virtio_dev *dev)
{
    dev->transport_ops->rested(dev->transport);
}
