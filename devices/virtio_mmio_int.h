/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_MMIO_INT_H
#define DEVICES_VIRTIO_MMIO_INT_H

/*
 * Between the transport's files: virtio_mmio.c (the loop's thread, life),
 * virtio_mmio_bus.c (accesses by vCPU threads) and virtio_mmio_state.c (a
 * machine that pauses, is saved and loaded).
 */

#include "devices/virtio_mmio.h"
#include "devices/virtio_mmio_regs.h"

#include <pthread.h>
#include <stdatomic.h>

struct virtio_mmio {
    /* immutable */
    struct virtio_dev *dev;
    struct evloop *loop;
    int kick_fd[VIRTIO_MAX_QUEUES];

    /* io thread */
    struct ev_counter kick[VIRTIO_MAX_QUEUES];
    struct ev_signal irq; /* its fd is borrowed */
    bool active;          /* the device was activated and not yet reset */
    void (*shutdown_done)(void *arg);
    void *shutdown_arg;
    void (*rest_done)(void *arg); /* who waits for the device's rest */
    void *rest_arg;
    bool rest_later;        /* it begins when the change under way has ended */
    uint8_t rest_turns;     /* turns of the loop before it is told */
    struct ev_later rested; /* counts them */
    bool loaded; /* and not woken: its last interrupt may have been lost */

    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct mmio_regs regs;
    struct ev_call call; /* posted while busy */
    uint16_t stop_queue; /* its argument */
    bool busy;
    bool cancelled; /* the VM stops: wait for nothing */
    bool dead;      /* shut down: never start the device again */

    /* Written under the lock, read by the guest at any time; NULL: none. */
    _Atomic uint32_t *words;

    /* atomic */
    _Atomic uint32_t *interrupt_status; /* own_status, or among the words */
    _Atomic uint32_t own_status;
    _Atomic uint32_t config_generation;

    /* guarded by log_lock, a leaf */
    pthread_mutex_t log_lock;
    struct log_limit log_limit;
};

/* The driver broke a rule: a line or a few, however often it does. */
void mmio_log_fault(struct virtio_mmio *m, const char *what);

/* After any change of the registers; the lock is held. */
void mmio_show_locked(struct virtio_mmio *m);

/* The kicks of all queues that are in use; 0 or -errno. thread: io */
int mmio_start_kicks(struct virtio_mmio *m) MUST_CHECK;
void mmio_stop_kicks(struct virtio_mmio *m);
/* Sets bits of InterruptStatus and raises the interrupt. thread: io */
void mmio_interrupt(struct virtio_mmio *m, uint32_t why);

/* A register that changes without the lock or has a writer of its own. */
void mmio_show_word(struct virtio_mmio *m, uint32_t off, uint32_t v);

/* virtio_mmio_state.c: the device has ended what it had begun; the change that
 * a rest waited for has ended; no rest is waited for any more. thread: io */
void mmio_rested(void *transport);
void mmio_change_ended(struct virtio_mmio *m);
void mmio_forget_rest(struct virtio_mmio *m);

/* What `m->call` does on the loop's thread, arg = m. thread: io */
void mmio_do_reset(struct ev_call *c);
void mmio_do_stop_queue(struct ev_call *c);
void mmio_do_activate(struct ev_call *c);

#endif
