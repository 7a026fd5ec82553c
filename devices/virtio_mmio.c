/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_mmio.h"

#include "devices/virtio_mmio_int.h"
#include "vmm/cleanup.h"

#include <assert.h>
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

/*
 * virtio over memory-mapped registers: what the registers (virtio_mmio_regs.c)
 * mean for threads, eventfds and the device; virtio_mmio_bus.c has the guest's
 * accesses. spec: virtio-1.2 4.2
 */

void mmio_log_fault(struct virtio_mmio *m, const char *what)
{
    (void)pthread_mutex_lock(&m->log_lock);
    log_limited(m->dev->env.log, &m->log_limit, LOG_WARN,
                "virtio device %s: the guest's driver %s", m->dev->name, what);
    (void)pthread_mutex_unlock(&m->log_lock);
}

/* --- registers that the guest reads as memory ---------------------------- */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "registers");

void mmio_show_word(struct virtio_mmio *m, uint32_t off, uint32_t v)
{
    if (m->words)
        atomic_store_explicit(&m->words[off / 4], v, memory_order_release);
}

/* All but those that change without the lock or have a writer of their own. */
void mmio_show_locked(struct virtio_mmio *m)
{
    for (uint32_t off = 0; m->words && off < VIRTIO_MMIO_CONFIG; off += 4) {
        if (off != VIRTIO_MMIO_INTERRUPT_STATUS &&
            off != VIRTIO_MMIO_CONFIG_GENERATION)
            mmio_show_word(m, off, mmio_regs_read(&m->regs, off));
    }
}

void virtio_mmio_show_registers(struct virtio_mmio *m, void *words)
{
    (void)pthread_mutex_lock(&m->lock);
    m->words = words;
    m->interrupt_status = &m->words[VIRTIO_MMIO_INTERRUPT_STATUS / 4];
    mmio_show_locked(m);
    (void)pthread_mutex_unlock(&m->lock);
}

/* --- interrupts ---------------------------------------------------------- */

/* thread: io. However often in a turn of the loop, one interrupt comes of it.
 */
void mmio_interrupt(struct virtio_mmio *m, uint32_t why)
{
    /* pairs with: the acquire load in mmio_read_reg() */
    (void)atomic_fetch_or_explicit(m->interrupt_status, why,
                                   memory_order_release);
    evloop_signal(m->loop, &m->irq);
}

static void mmio_signal_queue(void *transport, uint16_t q)
{
    (void)q; /* all queues of a device share its interrupt */
    mmio_interrupt(transport, VIRTIO_MMIO_INT_VRING);
}

static void mmio_next_generation_locked(struct virtio_mmio *m)
{
    /* pairs with: the acquire load in mmio_read_reg() */
    uint32_t last = atomic_fetch_add_explicit(&m->config_generation, 1,
                                              memory_order_release);

    mmio_show_word(m, VIRTIO_MMIO_CONFIG_GENERATION, last + 1);
}

/*
 * A driver reads the generation, the field in pieces, the generation. Each
 * piece is read under the lock, so all lie before or after the change, and a
 * driver that sees pieces of both sees the count move as well.
 */
static void mmio_config_update(void *transport, virtio_change_fn change,
                               void *arg)
{
    struct virtio_mmio *m = transport;
    bool running;

    (void)pthread_mutex_lock(&m->lock);
    if (change)
        change(m->dev, arg);
    mmio_next_generation_locked(m);
    running = m->regs.status & VIRTIO_CONFIG_S_DRIVER_OK;
    (void)pthread_mutex_unlock(&m->lock);
    /* spec: virtio-1.2 3.1.1: nothing is sent before DRIVER_OK */
    if (running)
        mmio_interrupt(m, VIRTIO_MMIO_INT_CONFIG);
}

static void mmio_config_changed(void *transport)
{
    mmio_config_update(transport, NULL, NULL);
}

/* --- on the loop's thread ------------------------------------------------ */

static void mmio_on_kick(struct ev_counter *c, uint64_t count)
{
    struct virtio_mmio *m = c->arg;
    uint16_t q = (uint16_t)(c - m->kick);

    (void)count;
    counter_add(&m->dev->counts.kicks[q], 1);
    m->dev->ops->queue_kick(m->dev, q);
}

void mmio_stop_kicks(struct virtio_mmio *m)
{
    for (uint16_t q = 0; q < m->dev->num_queues; q++)
        evloop_counter_del(m->loop, &m->kick[q]);
}

int mmio_start_kicks(struct virtio_mmio *m)
{
    int rc = 0;

    for (uint16_t q = 0; rc == 0 && q < m->dev->num_queues; q++) {
        if (m->dev->vq[q].size == 0 || m->dev->vq[q].stopped)
            continue;
        rc = evloop_counter_add(m->loop, &m->kick[q], m->kick_fd[q],
                                mmio_on_kick, m);
    }
    return rc;
}

static void mmio_needs_reset(void *transport)
{
    struct virtio_mmio *m = transport;
    bool running;

    mmio_stop_kicks(m); /* what a broken device is told costs nothing */
    (void)pthread_mutex_lock(&m->lock);
    m->regs.status |= VIRTIO_CONFIG_S_NEEDS_RESET;
    mmio_show_locked(m);
    running = m->regs.status & VIRTIO_CONFIG_S_DRIVER_OK;
    (void)pthread_mutex_unlock(&m->lock);
    mmio_log_fault(m, "broke the protocol; it has to reset the device");
    if (running)
        mmio_config_changed(m);
}

static int mmio_setup_queues(struct virtio_mmio *m)
{
    struct virtio_dev *dev = m->dev;
    int rc = 0;

    (void)pthread_mutex_lock(&m->lock);
    dev->features = m->regs.driver_features;
    for (uint16_t q = 0; rc == 0 && q < dev->num_queues; q++) {
        struct vq_setup_args args = mmio_regs_queue_args(&m->regs, q);

        vq_teardown(&dev->vq[q]);
        if (m->regs.q[q].ready)
            rc = vq_setup(&dev->vq[q], dev->env.mem, &args);
    }
    (void)pthread_mutex_unlock(&m->lock);
    return rc;
}

/* The device is at rest: the change ends, and so may a shutdown. */
static void mmio_reset_done(void *transport)
{
    struct virtio_mmio *m = transport;
    void (*done)(void *arg) = m->shutdown_done;

    m->active = false;
    (void)pthread_mutex_lock(&m->lock);
    mmio_regs_clear(&m->regs);
    mmio_show_locked(m);
    atomic_store_explicit(m->interrupt_status, 0, memory_order_release);
    m->busy = false;
    (void)pthread_cond_broadcast(&m->changed);
    (void)pthread_mutex_unlock(&m->lock);
    if (done) {
        m->shutdown_done = NULL;
        done(m->shutdown_arg); /* may free us */
        return;
    }
    mmio_change_ended(m);
}

static void mmio_reset_device(struct virtio_mmio *m)
{
    int rc = 0;

    mmio_stop_kicks(m);
    m->dev->resting = false;
    if (m->active)
        rc = m->dev->ops->reset(m->dev);
    for (uint16_t q = 0; q < m->dev->num_queues; q++)
        vq_teardown(&m->dev->vq[q]);
    if (rc == 0)
        mmio_reset_done(m);
    /* else: the device calls virtio_reset_done() */
}

void mmio_do_reset(struct ev_call *c)
{
    mmio_reset_device(c->arg);
}

/*
 * Its ring is not touched any more, nor are kicks heard. Requests that are in
 * flight end without a word to the guest.
 */
void mmio_do_stop_queue(struct ev_call *c)
{
    struct virtio_mmio *m = c->arg;

    if (m->shutdown_done) {
        mmio_reset_device(m); /* the VM ended before it came to this */
        return;
    }
    evloop_counter_del(m->loop, &m->kick[m->stop_queue]);
    vq_stop(&m->dev->vq[m->stop_queue]);
    (void)pthread_mutex_lock(&m->lock);
    m->busy = false;
    (void)pthread_cond_broadcast(&m->changed);
    (void)pthread_mutex_unlock(&m->lock);
    mmio_change_ended(m);
}

void mmio_do_activate(struct ev_call *c)
{
    struct virtio_mmio *m = c->arg;
    int rc;

    if (m->shutdown_done) {
        mmio_reset_device(m); /* the VM ended before it came to this */
        return;
    }
    rc = mmio_setup_queues(m);
    if (rc == 0) {
        m->active = true;
        rc = m->dev->ops->activate(m->dev);
    }
    if (rc == 0)
        rc = mmio_start_kicks(m);
    (void)pthread_mutex_lock(&m->lock);
    m->regs.status |= VIRTIO_CONFIG_S_DRIVER_OK;
    mmio_show_locked(m);
    m->busy = false;
    (void)pthread_cond_broadcast(&m->changed);
    (void)pthread_mutex_unlock(&m->lock);
    if (rc) {
        counter_add(&m->dev->counts.activate_fails, 1);
        virtio_needs_reset(m->dev);
    }
    mmio_change_ended(m);
}

static const struct virtio_transport_ops mmio_transport_ops = {
    .signal_queue = mmio_signal_queue,
    .config_changed = mmio_config_changed,
    .config_update = mmio_config_update,
    .needs_reset = mmio_needs_reset,
    .reset_done = mmio_reset_done,
    .rested = mmio_rested,
};

/* --- life ---------------------------------------------------------------- */

static void mmio_fini(struct virtio_mmio *m)
{
    evloop_signal_cancel(m->loop, &m->irq);
    evloop_later_cancel(m->loop, &m->rested);
    for (uint16_t q = 0; q < VIRTIO_MAX_QUEUES; q++)
        drop_fd(&m->kick_fd[q]);
    (void)pthread_cond_destroy(&m->changed);
    (void)pthread_mutex_destroy(&m->lock);
    (void)pthread_mutex_destroy(&m->log_lock);
    free(m);
}

int virtio_mmio_new(struct virtio_dev *dev, int irq_fd,
                    struct virtio_mmio **out_mmio)
{
    struct virtio_mmio *m;
    int rc;

    assert(dev->num_queues <= VIRTIO_MAX_QUEUES);
    m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    m->dev = dev;
    m->loop = dev->env.loop;
    m->irq.fd = irq_fd;
    m->interrupt_status = &m->own_status;
    mmio_regs_init(&m->regs, dev);
    (void)pthread_mutex_init(&m->lock, NULL); /* these never fail on Linux */
    (void)pthread_mutex_init(&m->log_lock, NULL);
    (void)pthread_cond_init(&m->changed, NULL);
    for (uint16_t q = 0; q < VIRTIO_MAX_QUEUES; q++)
        m->kick_fd[q] = -1;
    for (uint16_t q = 0; q < dev->num_queues; q++) {
        m->kick_fd[q] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (m->kick_fd[q] < 0) {
            rc = neg_errno();
            mmio_fini(m);
            return rc;
        }
    }
    dev->transport_ops = &mmio_transport_ops;
    dev->transport = m;
    *out_mmio = m;
    return 0;
}

int virtio_mmio_kick_fd(const struct virtio_mmio *m, uint16_t q)
{
    return q < m->dev->num_queues ? m->kick_fd[q] : -1;
}

uint16_t virtio_mmio_num_queues(const struct virtio_mmio *m)
{
    return m->dev->num_queues;
}

/* What the guest asked for right before it ended is still carried out. */
static void mmio_last_kicks(struct virtio_mmio *m)
{
    for (uint16_t q = 0; q < m->dev->num_queues; q++) {
        /* A queue that breaks its rules here takes all kicks away. */
        if (m->kick[q].slot_ != 0)
            m->dev->ops->queue_kick(m->dev, q);
    }
}

void virtio_mmio_shutdown(struct virtio_mmio *m, void (*done)(void *arg),
                          void *arg)
{
    bool busy;

    assert(done && !m->shutdown_done);
    mmio_forget_rest(m);
    m->shutdown_done = done;
    m->shutdown_arg = arg;
    (void)pthread_mutex_lock(&m->lock);
    m->dead = true;
    busy = m->busy;
    (void)pthread_mutex_unlock(&m->lock);
    /* A change that is under way, or only posted, ends in a reset as well. */
    if (busy)
        return;
    if (m->active)
        mmio_last_kicks(m);
    mmio_reset_device(m);
}

void virtio_mmio_cancel_waits(struct virtio_mmio *m)
{
    (void)pthread_mutex_lock(&m->lock);
    m->cancelled = true;
    (void)pthread_cond_broadcast(&m->changed);
    (void)pthread_mutex_unlock(&m->lock);
}

void virtio_mmio_free(struct virtio_mmio *m)
{
    if (!m)
        return;
    /* A load that failed further on: it never woke, so nothing is in flight. */
    if (m->loaded && m->active)
        mmio_reset_device(m);
    assert(!m->active && !m->busy);
    m->dev->ops->free(m->dev);
    mmio_fini(m);
}
