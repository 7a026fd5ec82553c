/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm.h"

#include "vmm/cleanup.h"
#include "vmm/layout_x86.h"

#include <fcntl.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>

#define KVM_PATH "/dev/kvm"

const struct kvm_cap_report kvm_cap_reports[] = {
    {"user_memory", KVM_CAP_USER_MEMORY, true},
    {"irqchip", KVM_CAP_IRQCHIP, true},
    {"pit2", KVM_CAP_PIT2, true},
    {"irqfd", KVM_CAP_IRQFD, true},
    {"ioeventfd", KVM_CAP_IOEVENTFD, true},
    {"set_tss_addr", KVM_CAP_SET_TSS_ADDR, true},
    {"set_identity_map_addr", KVM_CAP_SET_IDENTITY_MAP_ADDR, true},
    {"ext_cpuid", KVM_CAP_EXT_CPUID, true},
    {"mp_state", KVM_CAP_MP_STATE, true},
    {"vcpu_events", KVM_CAP_VCPU_EVENTS, true},
    {"immediate_exit", KVM_CAP_IMMEDIATE_EXIT, true},
    {"tsc_deadline_timer", KVM_CAP_TSC_DEADLINE_TIMER, false},
    {"exit_on_emulation_failure", KVM_CAP_EXIT_ON_EMULATION_FAILURE, false},
    {"readonly_mem", KVM_CAP_READONLY_MEM, false},
    {"xsave", KVM_CAP_XSAVE, false},
    {"adjust_clock", KVM_CAP_ADJUST_CLOCK, false},
    {"dirty_log_manual", KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, false},
};
const size_t kvm_num_cap_reports = ARRAY_SIZE(kvm_cap_reports);

int kvm_check_cap(const struct kvm *kvm, int cap)
{
    return ioctl(kvm->sys_fd, KVM_CHECK_EXTENSION, cap);
}

const char *kvm_module_name(void)
{
    static const char *const names[] = {"kvm_amd", "kvm_intel", "kvm_pvm"};
    static const char *const paths[] = {
        "/sys/module/kvm_amd", "/sys/module/kvm_intel", "/sys/module/kvm_pvm"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (access(paths[i], F_OK) == 0)
            return names[i];
    }
    return "kvm";
}

static int kvm_open_error(int rc, struct errmsg *err)
{
    if (rc == -ENOENT || rc == -ENXIO || rc == -ENODEV)
        return err_set(err, rc,
                       KVM_PATH ": not there; enable virtualisation in the "
                                "firmware and load the module kvm_intel or "
                                "kvm_amd");
    if (rc == -EACCES || rc == -EPERM)
        return err_set(err, rc,
                       KVM_PATH ": permission denied; join the group kvm "
                                "(usermod -aG kvm USER, then log in again) or "
                                "run as root");
    return err_set(err, rc, KVM_PATH ": %s; see mote doctor", err_reason(rc));
}

static int kvm_read_caps(struct kvm *kvm, struct errmsg *err)
{
    for (size_t i = 0; i < kvm_num_cap_reports; i++) {
        const struct kvm_cap_report *r = &kvm_cap_reports[i];

        if (r->required && kvm_check_cap(kvm, r->cap) <= 0)
            return err_set(err, -ENOTSUP,
                           KVM_PATH ": this KVM lacks the capability %s; use "
                                    "a newer kernel",
                           r->name);
    }
    kvm->caps.irqfd = true; /* all the required ones */
    kvm->caps.ioeventfd = true;
    kvm->caps.immediate_exit = true;
    kvm->caps.tsc_deadline = kvm_check_cap(kvm, KVM_CAP_TSC_DEADLINE_TIMER) > 0;
    kvm->caps.exit_on_emulation_failure =
        kvm_check_cap(kvm, KVM_CAP_EXIT_ON_EMULATION_FAILURE) > 0;
    kvm->caps.max_vcpus = kvm_check_cap(kvm, KVM_CAP_MAX_VCPUS);
    kvm->caps.nr_memslots = kvm_check_cap(kvm, KVM_CAP_NR_MEMSLOTS);
    return 0;
}

int kvm_open(struct kvm *kvm, struct errmsg *err)
{
    int version;
    int rc;

    memset(kvm, 0, sizeof(*kvm));
    kvm->vm_fd = -1;
    kvm->sys_fd = open(KVM_PATH, O_RDWR | O_CLOEXEC);
    if (kvm->sys_fd < 0)
        return kvm_open_error(neg_errno(), err);
    version = ioctl(kvm->sys_fd, KVM_GET_API_VERSION, 0);
    if (version < 0) {
        rc = neg_errno();
        rc = err_set(err, rc,
                     KVM_PATH ": is another device, not KVM (%s); remove it "
                              "and load the module kvm_intel or kvm_amd",
                     err_reason(rc));
        goto err;
    }
    if (version != KVM_API_VERSION) {
        rc = err_set(err, -ENOTSUP,
                     KVM_PATH ": API version %d where %d is needed; use a "
                              "kernel of this century",
                     version, KVM_API_VERSION);
        goto err;
    }
    kvm->vcpu_mmap_bytes = ioctl(kvm->sys_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
    if (kvm->vcpu_mmap_bytes <= 0) {
        rc = kvm_open_error(neg_errno(), err);
        goto err;
    }
    rc = kvm_read_caps(kvm, err);
    if (rc == 0)
        return 0;
err:
    kvm_fini(kvm);
    return rc;
}

int kvm_create_vm(struct kvm *kvm, struct errmsg *err)
{
    uint64_t identity = LAYOUT_IDENTITY_MAP;

    do {
        /* A signal while KVM sets up gives EINTR on some kernels. */
        kvm->vm_fd = ioctl(kvm->sys_fd, KVM_CREATE_VM, 0);
    } while (kvm->vm_fd < 0 && errno == EINTR);
    if (kvm->vm_fd < 0) {
        int rc = neg_errno();

        return err_set(err, rc, KVM_PATH ": creating a VM failed: %s",
                       err_reason(rc));
    }
    if (ioctl(kvm->vm_fd, KVM_SET_IDENTITY_MAP_ADDR, &identity) < 0 ||
        ioctl(kvm->vm_fd, KVM_SET_TSS_ADDR, LAYOUT_TSS) < 0) {
        int rc = neg_errno();

        return err_set(err, rc, KVM_PATH ": placing the TSS failed: %s",
                       err_reason(rc));
    }
    return 0;
}

static int kvm_set_slot(struct kvm *kvm,
                        const struct kvm_userspace_memory_region *r,
                        struct errmsg *err)
{
    if (ioctl(kvm->vm_fd, KVM_SET_USER_MEMORY_REGION, r) < 0) {
        int rc = neg_errno();

        return err_set(
            err, rc, KVM_PATH ": adding %llu KiB of guest memory failed: %s",
            (unsigned long long)(r->memory_size / KIB), err_reason(rc));
    }
    return 0;
}

int kvm_add_memory(struct kvm *kvm, const struct guest_mem *gm, bool log_dirty,
                   struct errmsg *err)
{
    for (size_t i = 0; i < gm_region_count(gm); i++) {
        const struct gm_region *r = gm_region(gm, i);
        const struct kvm_userspace_memory_region slot = {
            .slot = (uint32_t)i,
            .flags = log_dirty ? KVM_MEM_LOG_DIRTY_PAGES : 0,
            .guest_phys_addr = r->gpa,
            .memory_size = r->len_bytes,
            .userspace_addr = (uint64_t)(uintptr_t)r->host,
        };
        int rc = kvm_set_slot(kvm, &slot, err);

        if (rc)
            return rc;
    }
    return 0;
}

int kvm_log_dirty(struct kvm *kvm, const struct guest_mem *gm, bool on,
                  struct errmsg *err)
{
    return kvm_add_memory(kvm, gm, on, err); /* the same slots, other flags */
}

int kvm_add_read_only_page(struct kvm *kvm, uint32_t slot, gpa_t gpa,
                           void *host, struct errmsg *err)
{
    const struct kvm_userspace_memory_region r = {
        .slot = slot,
        .flags = KVM_MEM_READONLY,
        .guest_phys_addr = gpa,
        .memory_size = 4 * KIB,
        .userspace_addr = (uint64_t)(uintptr_t)host,
    };

    if (kvm_check_cap(kvm, KVM_CAP_READONLY_MEM) <= 0)
        return -ENOTSUP;
    return kvm_set_slot(kvm, &r, err);
}

int kvm_create_irqchip(struct kvm *kvm, struct errmsg *err)
{
    /* The port 0x61 of the speaker answers, so that guests which calibrate
     * against the PIT get through. */
    struct kvm_pit_config pit = {.flags = KVM_PIT_SPEAKER_DUMMY};

    if (ioctl(kvm->vm_fd, KVM_CREATE_IRQCHIP, 0) < 0 ||
        ioctl(kvm->vm_fd, KVM_CREATE_PIT2, &pit) < 0) {
        int rc = neg_errno();

        return err_set(err, rc,
                       KVM_PATH ": creating interrupt chips failed: %s",
                       err_reason(rc));
    }
    return 0;
}

void kvm_fini(struct kvm *kvm)
{
    drop_fd(&kvm->vm_fd);
    drop_fd(&kvm->sys_fd);
}

int kvm_irqfd(struct kvm *kvm, int fd, uint32_t gsi, struct errmsg *err)
{
    struct kvm_irqfd req = {.fd = (uint32_t)fd, .gsi = gsi};

    if (ioctl(kvm->vm_fd, KVM_IRQFD, &req) < 0) {
        int rc = neg_errno();

        return err_set(err, rc, KVM_PATH ": wiring interrupt %u failed: %s",
                       gsi, err_reason(rc));
    }
    return 0;
}

int kvm_ioeventfd(struct kvm *kvm, gpa_t addr, uint32_t match, int fd,
                  struct errmsg *err)
{
    struct kvm_ioeventfd req = {
        .datamatch = match,
        .addr = addr,
        .len = sizeof(match),
        .fd = fd,
        .flags = KVM_IOEVENTFD_FLAG_DATAMATCH,
    };

    if (ioctl(kvm->vm_fd, KVM_IOEVENTFD, &req) < 0) {
        int rc = neg_errno();

        return err_set(err, rc, KVM_PATH ": wiring a queue kick failed: %s",
                       err_reason(rc));
    }
    return 0;
}
