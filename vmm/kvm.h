/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_KVM_H
#define VMM_KVM_H

/*
 * The system and VM level of /dev/kvm. vCPUs are in vcpu.h.
 *
 * Ownership: the struct owns both fds. Threads: set-up on one thread;
 * kvm_irqfd and kvm_ioeventfd before the vCPUs run.
 * Errors: -errno with a line in `err`.
 * kvm: api.rst of Linux 6.12, constants from <linux/kvm.h>
 */

#include "vmm/errmsg.h"
#include "vmm/guest_mem.h"

struct kvm_caps {
    bool irqfd;
    bool ioeventfd;
    bool tsc_deadline;
    bool exit_on_emulation_failure;
    bool immediate_exit;
    int max_vcpus; /* what KVM takes at most */
    int nr_memslots;
};

struct kvm {
    int sys_fd; /* -1 when closed */
    int vm_fd;
    int vcpu_mmap_bytes;
    struct kvm_caps caps;
};

/* Opens /dev/kvm and checks version and capabilities that mote needs. */
int kvm_open(struct kvm *kvm, struct errmsg *err) MUST_CHECK;
/* The VM and, on top, its memory; the interrupt chips come after memory
 * because adding memory later is slow on some hosts. */
int kvm_create_vm(struct kvm *kvm, struct errmsg *err) MUST_CHECK;
int kvm_add_memory(struct kvm *kvm, const struct guest_mem *gm, bool log_dirty,
                   struct errmsg *err) MUST_CHECK;
/* Whether KVM notes which pages the guest writes; KVM_GET_DIRTY_LOG then tells,
 * by the number of the region. */
int kvm_log_dirty(struct kvm *kvm, const struct guest_mem *gm, bool on,
                  struct errmsg *err) MUST_CHECK;
/*
 * A page that the guest reads as memory and whose writes leave KVM_RUN as MMIO;
 * `slot` is a number above the regions of the guest's memory. -ENOTSUP, without
 * a message, where KVM has no such pages.
 */
int kvm_add_read_only_page(struct kvm *kvm, uint32_t slot, gpa_t gpa,
                           void *host, struct errmsg *err) MUST_CHECK;
int kvm_create_irqchip(struct kvm *kvm, struct errmsg *err) MUST_CHECK;
void kvm_fini(struct kvm *kvm); /* idempotent, also on a half-built one */

/* A write to `fd` raises `gsi` (edge). */
int kvm_irqfd(struct kvm *kvm, int fd, uint32_t gsi,
              struct errmsg *err) MUST_CHECK;
/* A guest's 32-bit MMIO write of `match` to `addr` signals `fd` instead of
 * leaving KVM_RUN. */
int kvm_ioeventfd(struct kvm *kvm, gpa_t addr, uint32_t match, int fd,
                  struct errmsg *err) MUST_CHECK;

/* The module behind /dev/kvm: "kvm_amd", "kvm_intel", "kvm_pvm" or "kvm". */
const char *kvm_module_name(void);

/* Name and value of each capability that mote looks at, for reports. */
struct kvm_cap_report {
    const char *name;
    int cap;
    bool required;
};
extern const struct kvm_cap_report kvm_cap_reports[];
extern const size_t kvm_num_cap_reports;
int kvm_check_cap(const struct kvm *kvm, int cap);

#endif
