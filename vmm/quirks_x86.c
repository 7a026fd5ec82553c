/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/quirks_x86.h"

#include <linux/kvm.h>
#include <linux/kvm_para.h>
#include <string.h>
#include <sys/ioctl.h>

#define INSN_INT3  0xccu
#define INSN_FWAIT 0x9bu
#define INSN_REX_W 0x48u
#define VECTOR_BP  3u

/* Leaf 0x40000001 EAX. */
#define HYPERCALL_FEATURES                                                     \
    (1u << KVM_FEATURE_PV_UNHALT | 1u << KVM_FEATURE_PV_TLB_FLUSH |            \
     1u << KVM_FEATURE_PV_SEND_IPI | 1u << KVM_FEATURE_PV_SCHED_YIELD)

const char *quirks_kernel_words(void)
{
    /*
     * clearcpuid: instructions that the emulator lacks, or runs byte by byte
     * (395 is FSRS, CPUID 7.1 EAX bit 11, which the kernel gives no name). Of
     * the XSAVE family the plain pair stays, which xsave_x86.c completes:
     * without it (noxsave) programs mix up the AVX state of each other;
     * lpj and no_timer_check: no calibration loops; mote.ring0: our kernel's
     * system call path for such hosts. tsc: the guest reads the host's TSC,
     * which nothing sets back at a load; kvm-clock goes on where it stood.
     */
    return "mote.ring0=emulated clearcpuid=smap,smep,fsgsbase,pcid,invpcid,"
           "xsaveopt,xsavec,xgetbv1,xsaves,popcnt,cx16,erms,fsrm,395 "
           "lpj=1000000 no_timer_check tsc=unstable mitigations=off";
}

void quirks_fix_cpuid(struct cpu_id *id)
{
    cpu_id_clear(id, KVM_CPUID_FEATURES, 0, HYPERCALL_FEATURES);
}

static int quirks_failed_byte(const struct kvm_run *run)
{
    if (run->internal.suberror != KVM_INTERNAL_ERROR_EMULATION ||
        run->emulation_failure.ndata < 3 ||
        !(run->emulation_failure.flags &
          KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES) ||
        run->emulation_failure.insn_size < 1)
        return -1;
    return run->emulation_failure.insn_bytes[0];
}

static bool quirks_skip(int vcpu_fd)
{
    struct kvm_regs r;

    if (ioctl(vcpu_fd, KVM_GET_REGS, &r) < 0)
        return false;
    r.rip++;
    return ioctl(vcpu_fd, KVM_SET_REGS, &r) == 0;
}

static bool quirks_inject_bp(int vcpu_fd)
{
    struct kvm_vcpu_events ev;

    if (ioctl(vcpu_fd, KVM_GET_VCPU_EVENTS, &ev) < 0)
        return false;
    ev.exception.injected = 1;
    ev.exception.nr = VECTOR_BP;
    ev.exception.has_error_code = 0;
    return ioctl(vcpu_fd, KVM_SET_VCPU_EVENTS, &ev) == 0;
}

static bool quirks_xsave(const struct quirks *q, int vcpu_fd,
                         const struct kvm_run *run)
{
    const uint8_t *bytes = run->emulation_failure.insn_bytes;
    size_t n = run->emulation_failure.insn_size;
    enum xsave_insn insn = xsave_decode(bytes, n < 15 ? n : 15);

    return insn != XSAVE_INSN_NONE &&
           xsave_complete(vcpu_fd, q->gm, &q->xsave, insn) == 0;
}

void quirks_init(struct quirks *q, const struct guest_mem *gm)
{
    q->gm = gm;
    xsave_read_layout(&q->xsave);
}

bool quirks_complete(const struct quirks *q, int vcpu_fd,
                     const struct kvm_run *run)
{
    switch (quirks_failed_byte(run)) {
    case INSN_REX_W:
        return quirks_xsave(q, vcpu_fd, run);
    case INSN_INT3: /* the trap's return address is behind the instruction */
        return quirks_skip(vcpu_fd) && quirks_inject_bp(vcpu_fd);
    case INSN_FWAIT: /* the kernel runs it at the first process exit */
        return quirks_skip(vcpu_fd);
    default:
        return false;
    }
}
