/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_DIRTY_H
#define VMM_DIRTY_H

/*
 * Which pages of the guest's memory were written since they were last asked
 * for: by the guest, which KVM notes, and by us, which guest_mem notes.
 *
 * One bit for each page in the order of the memory's file. What was collected
 * stays in `bits` until somebody who has it safe clears it: a snapshot that
 * fails loses nothing.
 *
 * Ownership: owns the bits; borrows KVM and the memory. Threads: io.
 * Errors: -errno with a line.
 */

#include "vmm/guest_mem.h"
#include "vmm/kvm.h"

struct dirty {
    struct kvm *kvm;
    struct guest_mem *mem;
    bool on;
    uint64_t *bits; /* NULL before the first start */
    uint64_t words;
};

void dirty_init(struct dirty *d, struct kvm *kvm, struct guest_mem *mem);
void dirty_fini(struct dirty *d); /* idempotent */

/* From now on writes are noted; those before are not. Idempotent. */
int dirty_start(struct dirty *d, struct errmsg *err) MUST_CHECK;
int dirty_stop(struct dirty *d, struct errmsg *err) MUST_CHECK;
/* Adds to `bits` what KVM noted since the last time, and with `own` what we
 * did: that only while the devices are at rest. */
int dirty_collect(struct dirty *d, bool own, struct errmsg *err) MUST_CHECK;
void dirty_clear(struct dirty *d);

#endif
