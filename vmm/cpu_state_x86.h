/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_CPU_STATE_X86_H
#define VMM_CPU_STATE_X86_H

/*
 * All that KVM holds of a running machine, written to a saved state and read
 * from it: vCPUs, interrupt chips, timer, clock, CPUID. No vCPU runs meanwhile.
 *
 * Threads: any, one at a time. Errors: -errno with a line; of a saved state,
 * -EBADMSG (damaged) or -ENOTSUP (another host).
 * kvm: api.rst of Linux 6.12
 */

#include "vmm/cpu_x86.h"
#include "vmm/kvm.h"
#include "vmm/state.h"

/* Section "cpu/<index>". */
int cpu_state_save(const struct kvm *kvm, int vcpu_fd, uint32_t index,
                   struct state_out *out, struct errmsg *err) MUST_CHECK;
/*
 * After cpu_id_apply(), all vCPUs in a row. `tsc_ahead_ns`: by how much the
 * time stamp counter goes on from where it stood.
 */
int cpu_state_load(const struct kvm *kvm, int vcpu_fd, uint32_t index,
                   uint64_t tsc_ahead_ns, const struct state_file *f,
                   struct errmsg *err) MUST_CHECK;

/* Section "cpuid": what the guest was told of its CPUs. */
void cpu_id_save(const struct cpu_id *id, struct state_out *out);
/*
 * The saved table in place of the host's, if the host has every feature in it.
 * `force`: in any case. -ENOTSUP names the missing ones.
 */
int cpu_id_load(struct cpu_id *host, bool force, const struct state_file *f,
                struct errmsg *err) MUST_CHECK;

/* Section "chips": PICs, I/O APIC, PIT. Before the vCPUs' state is loaded. */
int kvm_chips_save(const struct kvm *kvm, struct state_out *out,
                   struct errmsg *err) MUST_CHECK;
int kvm_chips_load(const struct kvm *kvm, const struct state_file *f,
                   struct errmsg *err) MUST_CHECK;

/* Section "clock": KVM's clock, and the host's wall clock at that time. */
int kvm_clock_save(const struct kvm *kvm, struct state_out *out,
                   struct errmsg *err) MUST_CHECK;
/* The host's wall clock of the snapshot, in ns since 1970. */
int kvm_clock_saved_at(const struct state_file *f, uint64_t *out_ns,
                       struct errmsg *err) MUST_CHECK;
/* After the vCPUs' state. The clock goes on where it stood, and `ahead_ns`
 * later. */
int kvm_clock_load(const struct kvm *kvm, uint64_t ahead_ns,
                   const struct state_file *f, struct errmsg *err) MUST_CHECK;

#endif
