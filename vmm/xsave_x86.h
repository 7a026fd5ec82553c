/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_XSAVE_X86_H
#define VMM_XSAVE_X86_H

/*
 * XSAVE64 and XRSTOR64 carried out in software, on a vCPU that stands on such
 * an instruction: for hosts that emulate ring 0 and lack them (quirks_x86.h).
 *
 * Programs in ring 3 run on the processor itself there, and see every part of
 * its extended state: AVX, AVX-512. A guest kernel without XSAVE keeps SSE
 * alone when it switches between two of them, so that each finds pieces of
 * the other in its registers.
 *
 * spec: AMD64 APM volume 2, 11.5 (standard form only; no compaction).
 * Ownership: nothing. Threads: the vCPU's. Errors: -errno; -EIO is what KVM or
 * guest memory refused.
 */

#include "vmm/guest_mem.h"
#include "vmm/util.h"

#define XSAVE_MAX_BYTES  4096u /* of struct kvm_xsave */
#define XSAVE_MIN_BYTES  576u  /* x87, SSE and the header */
#define XSAVE_PARTS      20u
#define XSAVE_INSN_BYTES 4u

/* Where each part of the state lies in an area. */
struct xsave_layout {
    uint64_t known; /* bits of XCR0 */
    struct {
        uint32_t offset;
        uint32_t bytes;
    } part[XSAVE_PARTS];
};

/* What the processor says. */
void xsave_read_layout(struct xsave_layout *out);

/* Length of an area that holds the parts of `mask`, in bytes. */
uint32_t xsave_area_bytes(const struct xsave_layout *l, uint64_t mask);

/* XSAVE: the parts of `mask` out of `state` into `area`. Both have
 * XSAVE_MAX_BYTES. */
void xsave_store(const struct xsave_layout *l, uint64_t mask,
                 const uint8_t *state, uint8_t *area);

/* XRSTOR: the other way. -EINVAL: the processor would raise #GP; `state` is
 * unchanged then. `xcr0` are the parts that the guest has switched on. */
int xsave_load(const struct xsave_layout *l, uint64_t xcr0, uint64_t mask,
               const uint8_t *area, uint8_t *state) MUST_CHECK;

/* Which instruction the bytes are; the only two forms that Linux has. */
enum xsave_insn { XSAVE_INSN_NONE, XSAVE_INSN_SAVE, XSAVE_INSN_RESTORE };
enum xsave_insn xsave_decode(const uint8_t *bytes, size_t n);

struct xsave_walk {
    uint64_t cr3;
    uint32_t levels; /* 4 or 5 */
    bool write;
};
/*
 * Guest virtual to guest physical, as ring 0 sees it with CR0.WP on.
 * -EFAULT: a page fault, *out_code is its error code. A write to a clean page
 * of user space is one too: the kernel sets the dirty bit then.
 */
int xsave_translate(const struct guest_mem *gm, const struct xsave_walk *w,
                    uint64_t gva, gpa_t *out_gpa,
                    uint32_t *out_code) MUST_CHECK;

/* Carries out `insn`, or injects the exception that it raises. -EPERM: not in
 * ring 0 of long mode with XSAVE switched on. */
int xsave_complete(int vcpu_fd, const struct guest_mem *gm,
                   const struct xsave_layout *l,
                   enum xsave_insn insn) MUST_CHECK;

#endif
