/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_IRQ_H
#define VMM_IRQ_H

/*
 * Interrupt lines: an eventfd each, wired into KVM's interrupt chips. A write
 * to the fd is one edge.
 *
 * Ownership: the table owns the fds. Threads: lines are taken before the vCPUs
 * run; raising one is a write(2), any thread.
 */

#include "vmm/kvm.h"
#include "vmm/layout_x86.h"

struct irq_table {
    size_t num;
    size_t num_device;               /* of LAYOUT_DEVICE_GSIS */
    int fds[LAYOUT_MAX_DEVICES + 2]; /* and the two fixed lines */
};

void irq_init(struct irq_table *t);
void irq_fini(struct irq_table *t); /* idempotent */

/* Wires one fixed line. The fd is borrowed from the table. */
int irq_take(struct irq_table *t, struct kvm *kvm, uint32_t gsi, int *out_fd,
             struct errmsg *err) MUST_CHECK;
/* Wires the next free device line; -ENOSPC names the limit. */
int irq_take_device(struct irq_table *t, struct kvm *kvm, uint32_t *out_gsi,
                    int *out_fd, struct errmsg *err) MUST_CHECK;

#endif
