/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_mmio_int.h"

#include <assert.h>
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <stdio.h>
#include <string.h>

/*
 * A virtio-mmio device whose machine pauses, is saved and loaded. thread: io
 *
 * At rest no counter is watched, so kicks pile up in their eventfds or are lost
 * with a read that was under way. Neither matters: a wake kicks every queue,
 * and what is outstanding is told by the rings alone. So kicks are no state.
 *
 * Interrupts are: InterruptStatus says what the driver was to be told, but
 * whether its line was raised in time for a saved interrupt controller cannot
 * be seen from here (KVM may still have it on a work queue). A device that was
 * loaded raises it once more; a driver that has nothing to do finds that out.
 */

#define MMIO_STATE_VERSION 1u

/* --- rest ---------------------------------------------------------------- */

void mmio_forget_rest(struct virtio_mmio *m)
{
    evloop_later_cancel(m->loop, &m->rested);
    m->rest_done = NULL;
    m->rest_later = false;
}

/*
 * What was signalled in a turn is written at the start of the next, and what a
 * turn asks for at its end may signal. So the end of the next but one is the
 * first moment at which all that the device raised has left the process.
 */
static void mmio_on_rested(struct ev_later *l)
{
    struct virtio_mmio *m = l->arg;
    void (*done)(void *arg) = m->rest_done;

    if (--m->rest_turns > 0) {
        evloop_later(m->loop, l, mmio_on_rested, m);
        return;
    }
    m->rest_done = NULL;
    done(m->rest_arg); /* may end us */
}

void mmio_rested(void *transport)
{
    struct virtio_mmio *m = transport;

    if (!m->rest_done)
        return;
    m->rest_turns = 2;
    evloop_later(m->loop, &m->rested, mmio_on_rested, m);
}

static void mmio_begin_rest(struct virtio_mmio *m)
{
    struct virtio_dev *dev = m->dev;
    bool already = dev->resting;
    int rc = 0;

    mmio_stop_kicks(m);
    dev->resting = true;
    if (!already && m->active && dev->ops->rest)
        rc = dev->ops->rest(dev);
    if (rc == 0)
        mmio_rested(m);
    /* else: the device calls virtio_rested() */
}

void mmio_change_ended(struct virtio_mmio *m)
{
    if (!m->rest_later)
        return;
    m->rest_later = false;
    mmio_begin_rest(m);
}

void virtio_mmio_rest(struct virtio_mmio *m, void (*done)(void *arg), void *arg)
{
    bool busy;
    bool dead;

    assert(done && !m->rest_done);
    (void)pthread_mutex_lock(&m->lock);
    busy = m->busy;
    dead = m->dead;
    (void)pthread_mutex_unlock(&m->lock);
    if (dead)
        return;
    m->rest_done = done;
    m->rest_arg = arg;
    if (busy)
        m->rest_later = true;
    else
        mmio_begin_rest(m);
}

static bool mmio_is_broken(struct virtio_mmio *m)
{
    bool broken;

    (void)pthread_mutex_lock(&m->lock);
    broken = m->regs.status & VIRTIO_CONFIG_S_NEEDS_RESET;
    (void)pthread_mutex_unlock(&m->lock);
    return broken;
}

void virtio_mmio_wake(struct virtio_mmio *m)
{
    struct virtio_dev *dev = m->dev;

    mmio_forget_rest(m);
    if (!dev->resting)
        return;
    dev->resting = false;
    if (m->active && dev->ops->wake)
        dev->ops->wake(dev);
    if (m->active && !mmio_is_broken(m) && mmio_start_kicks(m))
        virtio_needs_reset(dev);
    for (uint16_t q = 0; q < dev->num_queues; q++) {
        /* A queue that breaks its rules here takes all kicks away. */
        if (m->kick[q].slot_ != 0)
            dev->ops->queue_kick(dev, q);
    }
    if (m->loaded &&
        atomic_load_explicit(m->interrupt_status, memory_order_acquire) != 0)
        evloop_signal(m->loop, &m->irq);
    m->loaded = false;
}

/* --- saving -------------------------------------------------------------- */

static void mmio_state_name(const char *name, char out[STATE_NAME_MAX + 1])
{
    int n = snprintf(out, STATE_NAME_MAX + 1, "%s/state", name);

    assert(n > 0 && n <= (int)STATE_NAME_MAX);
}

static void mmio_save_queue(const struct virtio_mmio *m, uint16_t q,
                            struct state_out *out)
{
    const struct mmio_queue *r = &m->regs.q[q];
    struct vq_position p = vq_position(&m->dev->vq[q]);

    state_put_u32(out, r->g_num);
    state_put_u64(out, r->g_desc);
    state_put_u64(out, r->g_avail);
    state_put_u64(out, r->g_used);
    state_put_u8(out, r->ready);
    state_put_u8(out, m->dev->vq[q].stopped);
    state_put_u16(out, p.next_avail);
    state_put_u16(out, p.next_used);
    state_put_u16(out, p.signalled);
    state_put_u8(out, p.signalled_valid);
}

/*
 * The rings are written through pointers that were taken when they were set up,
 * which nobody counts: all that the device ever writes in a ring is used
 * entries, their index and flags, and avail_event.
 */
static void mmio_mark_rings(const struct virtio_mmio *m)
{
    for (uint16_t q = 0; q < m->dev->num_queues; q++) {
        const struct virtq *vq = &m->dev->vq[q];

        if (vq->size != 0)
            gm_mark_dirty(vq->mem, m->regs.q[q].g_used,
                          vq_used_bytes(vq->size));
    }
}

void virtio_mmio_save(struct virtio_mmio *m, const char *name,
                      struct state_out *out)
{
    const struct virtio_ops *ops = m->dev->ops;
    char state_name[STATE_NAME_MAX + 1];

    assert(m->dev->resting && !m->rest_done);
    state_begin(out, name, MMIO_STATE_VERSION);
    (void)pthread_mutex_lock(&m->lock);
    state_put_u32(out, m->dev->device_id);
    state_put_u16(out, m->dev->num_queues);
    state_put_u32(out, m->regs.status);
    state_put_u32(out, m->regs.device_features_sel);
    state_put_u32(out, m->regs.driver_features_sel);
    state_put_u32(out, m->regs.queue_sel);
    state_put_u64(out, m->regs.driver_features);
    state_put_u8(out, m->regs.unoffered);
    state_put_u32(out, atomic_load(m->interrupt_status));
    state_put_u32(out, atomic_load(&m->config_generation));
    for (uint16_t q = 0; q < m->dev->num_queues; q++)
        mmio_save_queue(m, q, out);
    mmio_mark_rings(m);
    (void)pthread_mutex_unlock(&m->lock);
    state_end(out);
    if (!m->active || !ops->save)
        return;
    mmio_state_name(name, state_name);
    state_begin(out, state_name, ops->state_version);
    ops->save(m->dev, out);
    state_end(out);
}

/* --- loading ------------------------------------------------------------- */

/* What a section says, before any of it is believed. */
struct mmio_saved {
    struct mmio_regs regs;
    uint32_t device_id;
    uint16_t num_queues;
    uint32_t interrupt_status;
    uint32_t config_generation;
    bool stopped[VIRTIO_MAX_QUEUES];
    struct vq_position at[VIRTIO_MAX_QUEUES];
};

static void mmio_get_queue(struct mmio_saved *s, uint16_t q,
                           struct state_in *in)
{
    s->regs.q[q].g_num = state_get_u32(in);
    s->regs.q[q].g_desc = state_get_u64(in);
    s->regs.q[q].g_avail = state_get_u64(in);
    s->regs.q[q].g_used = state_get_u64(in);
    s->regs.q[q].ready = state_get_bool(in);
    s->stopped[q] = state_get_bool(in);
    s->at[q].next_avail = state_get_u16(in);
    s->at[q].next_used = state_get_u16(in);
    s->at[q].signalled = state_get_u16(in);
    s->at[q].signalled_valid = state_get_bool(in);
}

static int mmio_get(struct mmio_saved *s, const struct virtio_dev *dev,
                    struct state_in *in)
{
    mmio_regs_init(&s->regs, dev);
    s->device_id = state_get_u32(in);
    s->num_queues = state_get_u16(in);
    s->regs.status = state_get_u32(in);
    s->regs.device_features_sel = state_get_u32(in);
    s->regs.driver_features_sel = state_get_u32(in);
    s->regs.queue_sel = state_get_u32(in);
    s->regs.driver_features = state_get_u64(in);
    s->regs.unoffered = state_get_u8(in);
    s->interrupt_status = state_get_u32(in);
    s->config_generation = state_get_u32(in);
    for (uint16_t q = 0; q < s->num_queues && q < VIRTIO_MAX_QUEUES; q++)
        mmio_get_queue(s, q, in);
    return state_done(in);
}

/* NULL: fit for this device. */
static const char *mmio_check(struct virtio_mmio *m, const struct mmio_saved *s)
{
    const char *fault = mmio_regs_check(&s->regs);

    if (fault)
        return fault;
    if (s->interrupt_status &
        ~(uint32_t)(VIRTIO_MMIO_INT_VRING | VIRTIO_MMIO_INT_CONFIG))
        return "its InterruptStatus has unknown bits";
    for (uint16_t q = 0; q < m->dev->num_queues; q++) {
        if (!s->stopped[q])
            continue;
        if (s->regs.q[q].ready || !(s->regs.status & VIRTIO_CONFIG_S_DRIVER_OK))
            return "a queue is stopped that is in use, or never was";
        if (!mmio_regs_queue_fits(&s->regs, q))
            return "a stopped queue has a bad size or address";
    }
    return NULL;
}

/* The queues as they were, of a device that runs. */
static int mmio_restore_queues(struct virtio_mmio *m,
                               const struct mmio_saved *s)
{
    struct virtio_dev *dev = m->dev;
    int rc = 0;

    dev->features = s->regs.driver_features;
    for (uint16_t q = 0; rc == 0 && q < dev->num_queues; q++) {
        struct vq_setup_args args = mmio_regs_queue_args(&s->regs, q);
        struct virtq *vq = &dev->vq[q];

        vq_teardown(vq);
        if (s->regs.q[q].ready || s->stopped[q])
            rc = vq_setup(vq, dev->env.mem, &args);
        vq->stopped = s->stopped[q];
        vq->broken = s->regs.status & VIRTIO_CONFIG_S_NEEDS_RESET;
        if (rc == 0 && vq->size != 0)
            rc = vq_restore(vq, &s->at[q]);
    }
    return rc;
}

/* Everything that was checked shows from now on. */
static void mmio_take(struct virtio_mmio *m, const struct mmio_saved *s)
{
    (void)pthread_mutex_lock(&m->lock);
    m->regs = s->regs;
    mmio_show_locked(m);
    atomic_store(m->interrupt_status, s->interrupt_status);
    atomic_store(&m->config_generation, s->config_generation);
    mmio_show_word(m, VIRTIO_MMIO_CONFIG_GENERATION, s->config_generation);
    (void)pthread_mutex_unlock(&m->lock);
}

static int mmio_load_device(struct virtio_mmio *m, const char *name,
                            const struct state_file *f, struct errmsg *err)
{
    const struct virtio_ops *ops = m->dev->ops;
    char state_name[STATE_NAME_MAX + 1];
    struct state_in in;
    int rc;

    if (!ops->load)
        return 0;
    mmio_state_name(name, state_name);
    rc = state_section(f, state_name, ops->state_version, &in, err);
    if (rc)
        return rc == -ENOENT ? -EBADMSG : rc;
    if (err)
        err->text[0] = '\0';
    rc = ops->load(m->dev, &in, err);
    if (rc == 0)
        rc = state_done(&in);
    if (rc && err && err->text[0] == '\0')
        return err_set(err, rc, "section %s of the saved state: %s", state_name,
                       rc == -EBADMSG ? "it has impossible contents"
                                      : err_reason(rc));
    return rc;
}

/* A device that runs, but at rest. */
static int mmio_load_active(struct virtio_mmio *m, const char *name,
                            const struct mmio_saved *s,
                            const struct state_file *f, struct errmsg *err)
{
    int rc = mmio_restore_queues(m, s);

    if (rc)
        return err_set(err, -EBADMSG,
                       "section %s of the saved state: a queue does not lie in "
                       "memory, or is not where its ring says",
                       name);
    m->active = true;
    rc = m->dev->ops->activate(m->dev);
    /* One that did not start then need not start now. */
    if (rc && !(s->regs.status & VIRTIO_CONFIG_S_NEEDS_RESET))
        return err_set(err, rc, "%s of the saved state does not start: %s",
                       name, err_reason(rc));
    return mmio_load_device(m, name, f, err);
}

int virtio_mmio_load(struct virtio_mmio *m, const char *name,
                     const struct state_file *f, struct errmsg *err)
{
    struct mmio_saved s = {.device_id = 0};
    const char *fault;
    struct state_in in;
    int rc;

    assert(!m->active && !m->dev->resting);
    rc = state_section(f, name, MMIO_STATE_VERSION, &in, err);
    if (rc)
        return rc == -ENOENT ? -EBADMSG : rc;
    rc = mmio_get(&s, m->dev, &in);
    if (rc)
        return err_set(err, rc,
                       "section %s of the saved state is cut or has impossible "
                       "values",
                       name);
    if (s.device_id != m->dev->device_id || s.num_queues != m->dev->num_queues)
        return err_set(err, -EBADMSG,
                       "%s was saved as a device of type %u with %u queues, "
                       "here it has type %u and %u queues",
                       name, s.device_id, s.num_queues, m->dev->device_id,
                       m->dev->num_queues);
    fault = mmio_check(m, &s);
    if (fault)
        return err_set(err, -EBADMSG, "section %s of the saved state: %s", name,
                       fault);
    mmio_take(m, &s);
    m->dev->resting = true;
    m->loaded = true;
    if (!(s.regs.status & VIRTIO_CONFIG_S_DRIVER_OK))
        return 0;
    return mmio_load_active(m, name, &s, f, err);
}
