/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_QUIRKS_X86_H
#define VMM_QUIRKS_X86_H

/*
 * Everything that mote does only on a KVM that emulates the guest's ring 0 in
 * software (kvm-pvm): words for the guest kernel, hypercalls hidden, a few
 * instructions completed by hand. On any other KVM nothing of this runs, and
 * the whole file can go when such hosts are gone.
 */

#include "vmm/cpu_x86.h"
#include "vmm/xsave_x86.h"

struct kvm_run;

/* The words for the guest kernel's command line, separated by blanks. */
const char *quirks_kernel_words(void);

/* Hides hypercalls that never return there (PV IPI, TLB flush, yield, ...). */
void quirks_fix_cpuid(struct cpu_id *id);

/* What completing instructions needs; one for each vCPU. */
struct quirks {
    const struct guest_mem *gm; /* borrowed */
    struct xsave_layout xsave;
};
void quirks_init(struct quirks *q, const struct guest_mem *gm);

/*
 * After KVM_EXIT_INTERNAL_ERROR: true when the failed instruction was one that
 * we complete (INT3, FWAIT, XSAVE, XRSTOR), with the vCPU ready to run on.
 * thread: the vCPU's.
 */
bool quirks_complete(const struct quirks *q, int vcpu_fd,
                     const struct kvm_run *run);

#endif
