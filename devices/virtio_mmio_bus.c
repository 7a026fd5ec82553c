/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_mmio_int.h"

#include "vmm/le.h"

#include <linux/virtio_mmio.h>
#include <sys/eventfd.h>

/*
 * What a guest reads and writes in the window of a virtio-mmio device.
 * spec: virtio-1.2 4.2.2. thread: vcpu
 *
 * A write that starts or resets the device, or stops a queue, is carried to the
 * loop's thread; the vCPU waits for its end without the lock. While such a
 * change is under way (`busy`) no other register write begins.
 */

/* False when the VM stops and nothing may be waited for. */
static bool mmio_wait_idle_locked(struct virtio_mmio *m)
{
    while (m->busy && !m->cancelled)
        (void)pthread_cond_wait(&m->changed, &m->lock);
    return !m->cancelled && !m->dead;
}

static ev_call_fn mmio_call_of(enum mmio_action action)
{
    switch (action) {
    case MMIO_ACTIVATE:
        return mmio_do_activate;
    case MMIO_STOP_QUEUE:
        return mmio_do_stop_queue;
    default:
        return mmio_do_reset;
    }
}

static const char *mmio_write_reg_locked(struct virtio_mmio *m, uint32_t off,
                                         uint32_t g_value)
{
    struct mmio_outcome out;

    if (!mmio_wait_idle_locked(m))
        return NULL;
    out = mmio_regs_write(&m->regs, off, g_value);
    mmio_show_locked(m);
    if (out.action == MMIO_NOTHING)
        return out.fault;
    m->busy = true;
    m->stop_queue = out.queue;
    m->call.fn = mmio_call_of(out.action);
    m->call.arg = m;
    (void)pthread_mutex_unlock(&m->lock);
    evloop_post(m->loop, &m->call);
    (void)pthread_mutex_lock(&m->lock);
    (void)mmio_wait_idle_locked(m);
    return out.fault;
}

static void mmio_write_reg(struct virtio_mmio *m, uint32_t off,
                           uint32_t g_value)
{
    const char *fault;

    switch (off) {
    case VIRTIO_MMIO_QUEUE_NOTIFY:
        /* Comes here only where the host has no ioeventfd for it. */
        if (g_value < m->dev->num_queues)
            (void)eventfd_write(m->kick_fd[g_value], 1);
        return;
    case VIRTIO_MMIO_INTERRUPT_ACK:
        /* Not all of these come here: the bit must not seem to be cleared. */
        if (m->words)
            g_value &= ~(uint32_t)VIRTIO_MMIO_INT_VRING;
        (void)atomic_fetch_and_explicit(m->interrupt_status, ~g_value,
                                        memory_order_acq_rel);
        return;
    default:
        (void)pthread_mutex_lock(&m->lock);
        fault = mmio_write_reg_locked(m, off, g_value);
        (void)pthread_mutex_unlock(&m->lock);
        if (fault)
            mmio_log_fault(m, fault);
    }
}

static uint32_t mmio_read_reg(struct virtio_mmio *m, uint32_t off)
{
    uint32_t v;

    switch (off) {
    case VIRTIO_MMIO_INTERRUPT_STATUS:
        /* pairs with: mmio_interrupt() */
        return atomic_load_explicit(m->interrupt_status, memory_order_acquire);
    case VIRTIO_MMIO_CONFIG_GENERATION:
        /* pairs with: mmio_config_changed() */
        return atomic_load_explicit(&m->config_generation,
                                    memory_order_acquire);
    default:
        (void)pthread_mutex_lock(&m->lock);
        v = mmio_regs_read(&m->regs, off);
        (void)pthread_mutex_unlock(&m->lock);
        return v;
    }
}

/* There is no such register or field. */
static void mmio_no_access(struct virtio_mmio *m)
{
    (void)pthread_mutex_lock(&m->lock);
    counter_add(&m->dev->counts.cfg_fails, 1);
    (void)pthread_mutex_unlock(&m->lock);
}

static void mmio_config_read(struct virtio_mmio *m, uint64_t off, void *data,
                             uint32_t len)
{
    struct virtio_dev *dev = m->dev;

    if (off >= dev->config_len) {
        mmio_no_access(m);
        return;
    }
    /* What lies behind the end reads as the zeroes that it came with. */
    len = (uint32_t)min_u64(len, dev->config_len - off);
    (void)pthread_mutex_lock(&m->lock);
    dev->ops->config_read(dev, (uint32_t)off, data, len);
    (void)pthread_mutex_unlock(&m->lock);
}

static void mmio_config_write(struct virtio_mmio *m, uint64_t off,
                              const void *data, uint32_t len)
{
    struct virtio_dev *dev = m->dev;

    if (!dev->ops->config_write || off >= dev->config_len ||
        len > dev->config_len - off) {
        mmio_no_access(m);
        return;
    }
    (void)pthread_mutex_lock(&m->lock);
    dev->ops->config_write(dev, (uint32_t)off, data, len);
    (void)pthread_mutex_unlock(&m->lock);
}

static void mmio_bus_read(void *opaque, uint64_t off, void *data, uint32_t len)
{
    struct virtio_mmio *m = opaque;

    if (off >= VIRTIO_MMIO_CONFIG)
        mmio_config_read(m, off - VIRTIO_MMIO_CONFIG, data, len);
    else if (len == 4 && off % 4 == 0)
        put_le32(data, mmio_read_reg(m, (uint32_t)off));
    else /* spec: virtio-1.2 4.2.2.2 */
        mmio_no_access(m);
}

static void mmio_bus_write(void *opaque, uint64_t off, const void *data,
                           uint32_t len)
{
    struct virtio_mmio *m = opaque;

    if (off >= VIRTIO_MMIO_CONFIG)
        mmio_config_write(m, off - VIRTIO_MMIO_CONFIG, data, len);
    else if (len == 4 && off % 4 == 0)
        mmio_write_reg(m, (uint32_t)off, get_le32(data));
    else
        mmio_no_access(m);
}

const struct bus_ops virtio_mmio_bus_ops = {
    .name = "virtio-mmio",
    .read = mmio_bus_read,
    .write = mmio_bus_write,
};
