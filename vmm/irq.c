/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/irq.h"

#include "vmm/cleanup.h"

#include <sys/eventfd.h>

static const uint32_t irq_device_gsis[] = LAYOUT_DEVICE_GSIS;

_Static_assert(ARRAY_SIZE(irq_device_gsis) == LAYOUT_MAX_DEVICES,
               "the limit is the number of lines");

void irq_init(struct irq_table *t)
{
    t->num = 0;
    t->num_device = 0;
}

void irq_fini(struct irq_table *t)
{
    while (t->num > 0)
        drop_fd(&t->fds[--t->num]);
}

int irq_take(struct irq_table *t, struct kvm *kvm, uint32_t gsi, int *out_fd,
             struct errmsg *err)
{
    CLEANUP_FD int fd = -1;
    int rc;

    if (t->num == ARRAY_SIZE(t->fds))
        return err_set(err, -ENOSPC, "interrupt %u: no line is left", gsi);
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        rc = neg_errno();
        return err_set(err, rc, "interrupt %u: %s", gsi, err_reason(rc));
    }
    rc = kvm_irqfd(kvm, fd, gsi, err);
    if (rc)
        return rc;
    *out_fd = fd;
    t->fds[t->num++] = take_fd(&fd);
    return 0;
}

int irq_take_device(struct irq_table *t, struct kvm *kvm, uint32_t *out_gsi,
                    int *out_fd, struct errmsg *err)
{
    uint32_t gsi;
    int rc;

    if (t->num_device == LAYOUT_MAX_DEVICES)
        return err_set(err, -ENOSPC,
                       "devices: a VM takes %u at most; remove some",
                       LAYOUT_MAX_DEVICES);
    gsi = irq_device_gsis[t->num_device];
    rc = irq_take(t, kvm, gsi, out_fd, err);
    if (rc)
        return rc;
    t->num_device++;
    *out_gsi = gsi;
    return 0;
}
