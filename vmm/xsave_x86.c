/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/xsave_x86.h"

#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <cpuid.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define PART_X87 0x1ull
#define PART_SSE 0x2ull
#define PART_AVX 0x4ull

/* The legacy area, and the header behind it. */
#define AREA_X87_BYTES  24u  /* FCW to the pointers */
#define AREA_MXCSR      24u  /* and its mask, 8 bytes */
#define AREA_ST         32u  /* ST0 to ST7, 128 bytes */
#define AREA_XMM        160u /* XMM0 to XMM15, 256 bytes */
#define AREA_HEADER     512u
#define AREA_COMP       520u /* XCOMP_BV and reserved words: all 0 */
#define AREA_COMP_BYTES 16u
#define MXCSR_WRITABLE  0x2ffffu /* with AMD's misaligned mode */

#define PTE_PRESENT 0x1ull
#define PTE_WRITE   0x2ull
#define PTE_USER    0x4ull
#define PTE_DIRTY   0x40ull
#define PTE_HUGE    0x80ull
#define PTE_ADDRESS 0x000ffffffffff000ull

#define CR4_OSXSAVE     0x40000ull
#define CR4_LA57        0x1000ull
#define FAULT_PRESENT   0x1u
#define FAULT_WRITE     0x2u
#define VECTOR_GP       13u
#define VECTOR_PF       14u
#define AREA_ALIGN_MASK 63u

void xsave_read_layout(struct xsave_layout *out)
{
    memset(out, 0, sizeof(*out));
    out->known = PART_X87 | PART_SSE;
    for (uint32_t i = 2; i < XSAVE_PARTS; i++) {
        uint32_t bytes = 0;
        uint32_t offset = 0;
        uint32_t ecx = 0;
        uint32_t edx = 0;

        if (!__get_cpuid_count(0xd, i, &bytes, &offset, &ecx, &edx))
            return;
        if (bytes == 0 || (ecx & 1) || offset < XSAVE_MIN_BYTES ||
            offset > XSAVE_MAX_BYTES || bytes > XSAVE_MAX_BYTES - offset)
            continue; /* not there, the kernel's own, or too large for KVM */
        out->part[i].offset = offset;
        out->part[i].bytes = bytes;
        out->known |= 1ull << i;
    }
}

uint32_t xsave_area_bytes(const struct xsave_layout *l, uint64_t mask)
{
    uint32_t end = XSAVE_MIN_BYTES;

    for (uint32_t i = 2; i < XSAVE_PARTS; i++) {
        if ((mask & l->known) >> i & 1) {
            uint32_t e = l->part[i].offset + l->part[i].bytes;

            end = e > end ? e : end;
        }
    }
    return end;
}

/* Copies those of the parts from AVX on that are in `mask`. */
static void xsave_copy_parts(const struct xsave_layout *l, uint64_t mask,
                             const uint8_t *from, uint8_t *to)
{
    for (uint32_t i = 2; i < XSAVE_PARTS; i++) {
        if ((mask & l->known) >> i & 1)
            memcpy(to + l->part[i].offset, from + l->part[i].offset,
                   l->part[i].bytes);
    }
}

static void xsave_copy_x87(const uint8_t *from, uint8_t *to)
{
    memcpy(to, from, AREA_X87_BYTES);
    memcpy(to + AREA_ST, from + AREA_ST, AREA_XMM - AREA_ST);
}

void xsave_store(const struct xsave_layout *l, uint64_t mask,
                 const uint8_t *state, uint8_t *area)
{
    uint64_t used = get_le64(state + AREA_HEADER);
    uint64_t old = get_le64(area + AREA_HEADER);

    mask &= l->known;
    if (mask & PART_X87)
        xsave_copy_x87(state, area);
    if (mask & (PART_SSE | PART_AVX))
        memcpy(area + AREA_MXCSR, state + AREA_MXCSR, 8);
    if (mask & PART_SSE)
        memcpy(area + AREA_XMM, state + AREA_XMM, 256);
    xsave_copy_parts(l, mask, state, area); /* defaults where unused */
    put_le64(area + AREA_HEADER, (old & ~mask) | (used & mask));
}

int xsave_load(const struct xsave_layout *l, uint64_t xcr0, uint64_t mask,
               const uint8_t *area, uint8_t *state)
{
    static const uint8_t zeroes[AREA_COMP_BYTES];
    uint64_t have = get_le64(area + AREA_HEADER);
    uint64_t used = get_le64(state + AREA_HEADER);

    xcr0 &= l->known;
    mask &= xcr0;
    if ((have & ~xcr0) ||
        memcmp(area + AREA_COMP, zeroes, AREA_COMP_BYTES) != 0)
        return -EINVAL;
    if ((mask & (PART_SSE | PART_AVX)) &&
        (get_le32(area + AREA_MXCSR) & ~MXCSR_WRITABLE))
        return -EINVAL;
    used = (used & ~mask) | (have & mask); /* not used: KVM sets its default */
    if (mask & have & PART_X87)
        xsave_copy_x87(area, state);
    if (mask & (PART_SSE | PART_AVX)) {
        /* Loaded in any case; only a used SSE part keeps it. */
        memcpy(state + AREA_MXCSR, area + AREA_MXCSR, 4);
        if (!(used & PART_SSE))
            memset(state + AREA_XMM, 0, 256);
        used |= PART_SSE;
    }
    if (mask & have & PART_SSE)
        memcpy(state + AREA_XMM, area + AREA_XMM, 256);
    xsave_copy_parts(l, mask & have, area, state);
    put_le64(state + AREA_HEADER, used);
    return 0;
}

enum xsave_insn xsave_decode(const uint8_t *bytes, size_t n)
{
    /* Linux has its address in RDI everywhere. */
    static const uint8_t save[XSAVE_INSN_BYTES] = {0x48, 0x0f, 0xae, 0x27};
    static const uint8_t restore[XSAVE_INSN_BYTES] = {0x48, 0x0f, 0xae, 0x2f};

    if (n < XSAVE_INSN_BYTES)
        return XSAVE_INSN_NONE;
    if (memcmp(bytes, save, sizeof(save)) == 0)
        return XSAVE_INSN_SAVE;
    if (memcmp(bytes, restore, sizeof(restore)) == 0)
        return XSAVE_INSN_RESTORE;
    return XSAVE_INSN_NONE;
}

int xsave_translate(const struct guest_mem *gm, const struct xsave_walk *w,
                    uint64_t gva, gpa_t *out_gpa, uint32_t *out_code)
{
    uint64_t all = PTE_WRITE | PTE_USER;
    uint64_t table = w->cr3 & PTE_ADDRESS;
    uint32_t shift = 12 + 9 * (w->levels - 1);
    uint64_t within;
    uint64_t pte;

    *out_code = w->write ? FAULT_WRITE : 0;
    for (;; shift -= 9) {
        uint8_t raw[8];

        if (gm_read(gm, table + (gva >> shift & 511) * 8, raw, sizeof(raw)))
            return -EIO;
        pte = get_le64(raw);
        if (!(pte & PTE_PRESENT))
            return -EFAULT;
        all &= pte;
        if (shift == 12 || (shift <= 30 && (pte & PTE_HUGE)))
            break;
        table = pte & PTE_ADDRESS;
    }
    *out_code |= FAULT_PRESENT;
    if (w->write && !(all & PTE_WRITE))
        return -EFAULT;
    if (w->write && (all & PTE_USER) && !(pte & PTE_DIRTY))
        return -EFAULT;
    within = (1ull << shift) - 1;
    *out_gpa = (pte & PTE_ADDRESS & ~within) | (gva & within);
    return 0;
}

/* One instruction on its way. */
struct xsave_run {
    int fd;
    const struct guest_mem *gm;
    const struct xsave_layout *layout;
    struct kvm_regs regs;
    struct kvm_sregs sregs;
    uint64_t xcr0;
    uint8_t area[XSAVE_MAX_BYTES];
    uint32_t area_bytes;
    gpa_t page[2]; /* where the area begins, and goes on in the next page */
    uint32_t first_bytes;
    struct kvm_xsave state; /* last: KVM's structure may end in a list */
};

static int xsave_get(struct xsave_run *x)
{
    struct kvm_xcrs xcrs;

    if (ioctl(x->fd, KVM_GET_REGS, &x->regs) < 0 ||
        ioctl(x->fd, KVM_GET_SREGS, &x->sregs) < 0 ||
        ioctl(x->fd, KVM_GET_XSAVE, &x->state) < 0 ||
        ioctl(x->fd, KVM_GET_XCRS, &xcrs) < 0)
        return -EIO;
    /* Ring 3 runs it by itself; its rights are not checked here. */
    if ((x->sregs.cs.selector & 3) || !x->sregs.cs.l ||
        !(x->sregs.cr4 & CR4_OSXSAVE))
        return -EPERM;
    x->xcr0 = PART_X87;
    for (uint32_t i = 0; i < xcrs.nr_xcrs && i < KVM_MAX_XCRS; i++) {
        if (xcrs.xcrs[i].xcr == 0)
            x->xcr0 = xcrs.xcrs[i].value;
    }
    return 0;
}

static int xsave_raise(const struct xsave_run *x, uint8_t vector, uint32_t code)
{
    struct kvm_vcpu_events ev;

    if (ioctl(x->fd, KVM_GET_VCPU_EVENTS, &ev) < 0)
        return -EIO;
    ev.exception.injected = 1;
    ev.exception.nr = vector;
    ev.exception.has_error_code = 1;
    ev.exception.error_code = code;
    return ioctl(x->fd, KVM_SET_VCPU_EVENTS, &ev) < 0 ? -EIO : 0;
}

/* Finds the area's pages. 1: an exception was injected instead. */
static int xsave_find_area(struct xsave_run *x, bool write)
{
    struct xsave_walk w = {
        .cr3 = x->sregs.cr3,
        .levels = x->sregs.cr4 & CR4_LA57 ? 5 : 4,
        .write = write,
    };
    uint64_t gva = x->regs.rdi;
    uint32_t left = 4096 - (uint32_t)(gva & 4095);
    uint32_t code = 0;
    int rc;

    if (gva & AREA_ALIGN_MASK) {
        rc = xsave_raise(x, VECTOR_GP, 0);
        return rc ? rc : 1;
    }
    x->first_bytes = left < x->area_bytes ? left : x->area_bytes;
    for (uint32_t i = 0; i < 2; i++) {
        if (i == 1 && x->first_bytes == x->area_bytes)
            break;
        rc = xsave_translate(x->gm, &w, gva, &x->page[i], &code);
        if (rc == -EFAULT) {
            x->sregs.cr2 = gva;
            if (ioctl(x->fd, KVM_SET_SREGS, &x->sregs) < 0)
                return -EIO;
            rc = xsave_raise(x, VECTOR_PF, code);
            return rc ? rc : 1;
        }
        if (rc)
            return rc;
        gva += left;
    }
    return 0;
}

static int xsave_read_area(struct xsave_run *x)
{
    int rc = gm_read(x->gm, x->page[0], x->area, x->first_bytes);

    if (rc == 0 && x->first_bytes < x->area_bytes)
        rc = gm_read(x->gm, x->page[1], x->area + x->first_bytes,
                     x->area_bytes - x->first_bytes);
    return rc ? -EIO : 0;
}

static int xsave_write_area(struct xsave_run *x)
{
    int rc = gm_write(x->gm, x->page[0], x->area, x->first_bytes);

    if (rc == 0 && x->first_bytes < x->area_bytes)
        rc = gm_write(x->gm, x->page[1], x->area + x->first_bytes,
                      x->area_bytes - x->first_bytes);
    return rc ? -EIO : 0;
}

/* The processor writes single parts; what lies between them is written back
 * as it was, which nothing but this vCPU touches. */
static int xsave_run_insn(struct xsave_run *x, enum xsave_insn insn)
{
    uint64_t mask = x->regs.rdx << 32 | (uint32_t)x->regs.rax;
    uint8_t *state = (uint8_t *)x->state.region;
    int rc;

    x->area_bytes = xsave_area_bytes(x->layout, mask & x->xcr0);
    rc = xsave_find_area(x, insn == XSAVE_INSN_SAVE);
    if (rc)
        return rc;
    rc = xsave_read_area(x);
    if (rc)
        return rc;
    if (insn == XSAVE_INSN_SAVE) {
        xsave_store(x->layout, mask & x->xcr0, state, x->area);
        return xsave_write_area(x);
    }
    if (xsave_load(x->layout, x->xcr0, mask, x->area, state)) {
        rc = xsave_raise(x, VECTOR_GP, 0);
        return rc ? rc : 1;
    }
    return ioctl(x->fd, KVM_SET_XSAVE, &x->state) < 0 ? -EIO : 0;
}

int xsave_complete(int vcpu_fd, const struct guest_mem *gm,
                   const struct xsave_layout *l, enum xsave_insn insn)
{
    struct xsave_run x = {.fd = vcpu_fd, .gm = gm, .layout = l};
    int rc;

    rc = xsave_get(&x);
    if (rc == 0)
        rc = xsave_run_insn(&x, insn);
    if (rc < 0)
        return rc;
    if (rc == 1)
        return 0; /* the instruction stays: it raised an exception */
    x.regs.rip += XSAVE_INSN_BYTES;
    return ioctl(vcpu_fd, KVM_SET_REGS, &x.regs) < 0 ? -EIO : 0;
}
