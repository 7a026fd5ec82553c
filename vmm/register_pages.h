/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_REGISTER_PAGES_H
#define VMM_REGISTER_PAGES_H

/*
 * Memory behind the registers of the virtio windows: the guest reads them there
 * without leaving KVM_RUN, which an interrupt handler does each time. Where KVM
 * cannot do that there are no pages and reads are answered as ever.
 *
 * Ownership: owns the pages, borrows KVM; a zeroed struct is fine to free.
 * Threads: set-up only.
 */

#include "vmm/kvm.h"

#include <stddef.h>

struct register_pages {
    void *mem; /* NULL: none */
    size_t num;
    int ack_fd; /* takes the acknowledgements; nobody reads it */
};

/*
 * `num` windows from LAYOUT_VIRTIO_BASE, in slots from `first_slot`. Before the
 * interrupt chips: see kvm_create_vm().
 */
int register_pages_init(struct register_pages *p, struct kvm *kvm, size_t num,
                        uint32_t first_slot, struct errmsg *err) MUST_CHECK;
void register_pages_fini(struct register_pages *p); /* idempotent */

/* The registers of window `i` (LAYOUT_VIRTIO_REGS bytes), or NULL. */
void *register_pages_get(const struct register_pages *p, size_t i);

#endif
