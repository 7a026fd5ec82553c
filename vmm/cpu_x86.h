/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_CPU_X86_H
#define VMM_CPU_X86_H

/*
 * The initial state of an x86-64 vCPU: CPUID, registers for the 64-bit Linux
 * entry, local APIC. Threads: before the vCPU runs, on one thread.
 * Errors: -errno with a line in `err`.
 */

#include "vmm/errmsg.h"
#include "vmm/guest_mem.h"
#include "vmm/kvm.h"

/* What vCPU 0 starts with; boot/ computes it. */
struct cpu_entry {
    uint64_t rip;
    uint64_t rsi;
    uint64_t cr3;
    uint64_t gdt_base;
    uint16_t gdt_limit;
    uint16_t code_selector;
    uint16_t data_selector;
};

/* The CPUID table of one VM, the same for each vCPU but for its ids. */
struct cpu_id;
/* What KVM supports; `kvm` NULL: empty, for a saved table that is to be taken
 * as it is. */
int cpu_id_new(const struct kvm *kvm, uint32_t ncpus, struct cpu_id **out_id,
               struct errmsg *err) MUST_CHECK;
void cpu_id_free(struct cpu_id *id); /* NULL is fine */
/* Clears bits of one register (0 EAX .. 3 EDX) of leaf `function`. */
void cpu_id_clear(struct cpu_id *id, uint32_t function, int reg, uint32_t bits);
/* Value of a register of a leaf for vCPU `index`; 0 where it is absent. */
uint32_t cpu_id_value(const struct cpu_id *id, uint32_t index,
                      uint32_t function, uint32_t subleaf, int reg);
/* The table before the ids of a vCPU are put in. Borrowed. */
struct kvm_cpuid2;
const struct kvm_cpuid2 *cpu_id_table(const struct cpu_id *id);
/* Takes a copy of `num` entries in its place. -EINVAL: too many. */
struct kvm_cpuid_entry2;
int cpu_id_replace(struct cpu_id *id, const struct kvm_cpuid_entry2 *entries,
                   uint32_t num) MUST_CHECK;
int cpu_id_apply(const struct cpu_id *id, int vcpu_fd, uint32_t index,
                 struct errmsg *err) MUST_CHECK;

/* Long mode, flat segments, paging by entry->cr3, interrupts off. */
int cpu_set_entry(int vcpu_fd, const struct cpu_entry *entry,
                  struct errmsg *err) MUST_CHECK;
/* FPU, MSRs and the local APIC's LINT pins as after a firmware. */
int cpu_set_boot_state(int vcpu_fd, struct errmsg *err) MUST_CHECK;

#endif
