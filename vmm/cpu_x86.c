/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cpu_x86.h"

#include "vmm/le.h"

#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define CPUID_MAX_ENTRIES 256u

/* CR0.PE/ET/PG, CR4.PAE, EFER.LME/LMA. spec: AMD64 APM 2 3.1 */
#define CR0_PE   (1ull << 0)
#define CR0_ET   (1ull << 4)
#define CR0_PG   (1ull << 31)
#define CR4_PAE  (1ull << 5)
#define EFER_LME (1ull << 8)
#define EFER_LMA (1ull << 10)

#define MSR_MISC_ENABLE       0x1a0u
#define MISC_ENABLE_FASTSTR   (1ull << 0)
#define MSR_MTRR_DEF_TYPE     0x2ffu
#define MTRR_ENABLE_WRITEBACK 0x806ull

/* spec: Intel SDM 3 11.5.1 (local vector table) */
#define APIC_LVT0        0x350
#define APIC_LVT1        0x360
#define APIC_MODE_MASK   0x700u
#define APIC_MODE_EXTINT 0x700u
#define APIC_MODE_NMI    0x400u
#define APIC_LVT_MASKED  (1u << 16)

enum { REG_EAX, REG_EBX, REG_ECX, REG_EDX };

struct cpu_id {
    uint32_t ncpus;
    struct kvm_cpuid2 *table;
};

static struct kvm_cpuid2 *cpu_id_alloc(void)
{
    struct kvm_cpuid2 *t = calloc(
        1, sizeof(*t) + CPUID_MAX_ENTRIES * sizeof(struct kvm_cpuid_entry2));

    if (t)
        t->nent = CPUID_MAX_ENTRIES;
    return t;
}

/* Bits needed to number n things. */
static uint32_t cpu_id_width(uint32_t n)
{
    uint32_t w = 0;

    while ((1u << w) < n)
        w++;
    return w;
}

static uint32_t *cpu_id_reg(struct kvm_cpuid_entry2 *e, int reg)
{
    switch (reg) {
    case REG_EAX:
        return &e->eax;
    case REG_EBX:
        return &e->ebx;
    case REG_ECX:
        return &e->ecx;
    default:
        return &e->edx;
    }
}

/*
 * Topology told to the guest: one package, one thread per core, every cache
 * level below the last private to its core. Leaves that would contradict it
 * (host topology copied by KVM) are rewritten or emptied.
 */
static void cpu_id_fix_cache(struct kvm_cpuid_entry2 *e, uint32_t ncpus)
{
    uint32_t level = (e->eax >> 5) & 7;
    uint32_t sharing = level >= 3 ? ncpus : 1;

    if ((e->eax & 0x1f) == 0)
        return; /* no cache behind this subleaf */
    e->eax &= ~(0xfffu << 14);
    e->eax |= (sharing - 1) << 14;
    if (e->function == 4) {
        e->eax &= ~(0x3fu << 26);
        e->eax |= (ncpus - 1) << 26;
    }
}

static void cpu_id_fix_extended_topology(struct kvm_cpuid_entry2 *e,
                                         uint32_t index, uint32_t ncpus)
{
    static const uint32_t level_type[] = {1, 2}; /* SMT, core */

    e->eax = e->ebx = 0;
    e->ecx = e->index & 0xff;
    e->edx = index;
    if (e->index >= ARRAY_SIZE(level_type))
        return;
    e->eax = e->index == 0 ? 0 : cpu_id_width(ncpus);
    e->ebx = e->index == 0 ? 1 : ncpus;
    e->ecx |= level_type[e->index] << 8;
}

static void cpu_id_fix_entry(struct kvm_cpuid_entry2 *e, uint32_t index,
                             uint32_t ncpus)
{
    switch (e->function) {
    case 0x1:
        e->ebx &= 0x0000ffffu;
        e->ebx |= index << 24 | ncpus << 16;
        e->ecx |= 1u << 31 | 1u << 21; /* hypervisor, x2APIC */
        e->edx &= ~(1u << 28);
        if (ncpus > 1)
            e->edx |= 1u << 28; /* HTT: EBX[23:16] counts */
        break;
    case 0x4:
    case 0x8000001d:
        cpu_id_fix_cache(e, ncpus);
        break;
    case 0xa: /* no performance counters */
        e->eax = e->ebx = e->ecx = e->edx = 0;
        break;
    case 0xb:
        cpu_id_fix_extended_topology(e, index, ncpus);
        break;
    case 0x1f:
    case 0x80000026:
        e->eax = e->ebx = e->ecx = e->edx = 0;
        break;
    case 0x80000008:
        e->ecx &= ~0xf0ffu;
        e->ecx |= (ncpus - 1) | cpu_id_width(ncpus) << 12;
        break;
    case 0x8000001e: /* extended APIC id, one thread per core, node 0 */
        e->eax = index;
        e->ebx = index & 0xff;
        e->ecx = 0;
        e->edx = 0;
        break;
    default:
        break;
    }
}

static void cpu_id_drop_leaf(struct kvm_cpuid2 *t, uint32_t function)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < t->nent; i++) {
        if (t->entries[i].function != function)
            t->entries[kept++] = t->entries[i];
    }
    t->nent = kept;
}

static uint32_t cpu_id_max_basic_leaf(const struct kvm_cpuid2 *t)
{
    for (uint32_t i = 0; i < t->nent; i++) {
        if (t->entries[i].function == 0)
            return t->entries[i].eax;
    }
    return 0;
}

/*
 * KVM may report leaf 0xb with one subleaf of zeroes, or with the host's
 * levels: put our three there (SMT, core, end), filled by cpu_id_fix_entry().
 */
static void cpu_id_make_topology_leaf(struct kvm_cpuid2 *t)
{
    if (cpu_id_max_basic_leaf(t) < 0xb)
        return;
    cpu_id_drop_leaf(t, 0xb);
    for (uint32_t i = 0; i < 3 && t->nent < CPUID_MAX_ENTRIES; i++)
        t->entries[t->nent++] = (struct kvm_cpuid_entry2){
            .function = 0xb,
            .index = i,
            .flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
        };
}

/* What this host's KVM can give a guest. */
static int cpu_id_ask(struct cpu_id *id, const struct kvm *kvm)
{
    if (ioctl(kvm->sys_fd, KVM_GET_SUPPORTED_CPUID, id->table) < 0)
        return neg_errno();
    /* KVM emulates this timer but leaves it to us to say so. */
    for (uint32_t i = 0; i < id->table->nent; i++) {
        struct kvm_cpuid_entry2 *e = &id->table->entries[i];

        if (e->function == 1 && kvm->caps.tsc_deadline)
            e->ecx |= 1u << 24;
    }
    cpu_id_make_topology_leaf(id->table);
    return 0;
}

int cpu_id_new(const struct kvm *kvm, uint32_t ncpus, struct cpu_id **out_id,
               struct errmsg *err)
{
    struct cpu_id *id = calloc(1, sizeof(*id));
    int rc = -ENOMEM;

    if (id)
        id->table = cpu_id_alloc();
    if (!id || !id->table)
        goto err;
    id->ncpus = ncpus;
    if (kvm)
        rc = cpu_id_ask(id, kvm);
    else
        id->table->nent = 0;
    if (kvm && rc)
        goto err;
    *out_id = id;
    return 0;
err:
    cpu_id_free(id);
    return err_set(err, rc, "CPUID: reading what KVM supports failed: %s",
                   err_reason(rc));
}

void cpu_id_free(struct cpu_id *id)
{
    if (!id)
        return;
    free(id->table);
    free(id);
}

void cpu_id_clear(struct cpu_id *id, uint32_t function, int reg, uint32_t bits)
{
    for (uint32_t i = 0; i < id->table->nent; i++) {
        if (id->table->entries[i].function == function)
            *cpu_id_reg(&id->table->entries[i], reg) &= ~bits;
    }
}

uint32_t cpu_id_value(const struct cpu_id *id, uint32_t index,
                      uint32_t function, uint32_t subleaf, int reg)
{
    for (uint32_t i = 0; i < id->table->nent; i++) {
        struct kvm_cpuid_entry2 e = id->table->entries[i];

        if (e.function != function || e.index != subleaf)
            continue;
        cpu_id_fix_entry(&e, index, id->ncpus);
        return *cpu_id_reg(&e, reg);
    }
    return 0;
}

const struct kvm_cpuid2 *cpu_id_table(const struct cpu_id *id)
{
    return id->table;
}

int cpu_id_replace(struct cpu_id *id, const struct kvm_cpuid_entry2 *entries,
                   uint32_t num)
{
    if (num > CPUID_MAX_ENTRIES)
        return -EINVAL;
    memcpy(id->table->entries, entries, num * sizeof(*entries));
    id->table->nent = num;
    return 0;
}

int cpu_id_apply(const struct cpu_id *id, int vcpu_fd, uint32_t index,
                 struct errmsg *err)
{
    struct kvm_cpuid2 *copy = cpu_id_alloc();
    int rc = 0;

    if (!copy)
        return err_set(err, -ENOMEM, "CPUID: out of memory");
    copy->nent = id->table->nent;
    memcpy(copy->entries, id->table->entries,
           copy->nent * sizeof(copy->entries[0]));
    for (uint32_t i = 0; i < copy->nent; i++)
        cpu_id_fix_entry(&copy->entries[i], index, id->ncpus);
    if (ioctl(vcpu_fd, KVM_SET_CPUID2, copy) < 0) {
        rc = neg_errno();
        rc = err_set(err, rc, "CPUID: KVM refused the table: %s",
                     err_reason(rc));
    }
    free(copy);
    return rc;
}

static struct kvm_segment cpu_flat_segment(uint16_t selector, bool code)
{
    struct kvm_segment s = {
        .base = 0,
        .limit = 0xffffffff,
        .selector = selector,
        .type = code ? 0xb : 0x3, /* accessed; execute/read or read/write */
        .present = 1,
        .s = 1,
        .g = 1,
        .l = code,
        .db = !code,
    };

    return s;
}

static int cpu_set_sregs(int vcpu_fd, const struct cpu_entry *entry)
{
    struct kvm_sregs s;

    if (ioctl(vcpu_fd, KVM_GET_SREGS, &s) < 0)
        return neg_errno();
    s.gdt.base = entry->gdt_base;
    s.gdt.limit = entry->gdt_limit;
    s.idt.base = 0;
    s.idt.limit = 0;
    s.cs = cpu_flat_segment(entry->code_selector, true);
    s.ds = cpu_flat_segment(entry->data_selector, false);
    s.es = s.fs = s.gs = s.ss = s.ds;
    s.cr0 = CR0_PE | CR0_ET | CR0_PG;
    s.cr3 = entry->cr3;
    s.cr4 = CR4_PAE;
    s.efer = EFER_LME | EFER_LMA;
    return ioctl(vcpu_fd, KVM_SET_SREGS, &s) < 0 ? neg_errno() : 0;
}

int cpu_set_entry(int vcpu_fd, const struct cpu_entry *entry,
                  struct errmsg *err)
{
    struct kvm_regs r = {
        .rip = entry->rip,
        .rsi = entry->rsi,
        .rflags = 0x2, /* the bit that is always set */
    };
    int rc = cpu_set_sregs(vcpu_fd, entry);

    if (rc == 0 && ioctl(vcpu_fd, KVM_SET_REGS, &r) < 0)
        rc = neg_errno();
    if (rc)
        return err_set(err, rc, "vCPU: KVM refused the entry state: %s",
                       err_reason(rc));
    return 0;
}

static int cpu_set_fpu(int vcpu_fd)
{
    struct kvm_fpu f;

    memset(&f, 0, sizeof(f));
    f.fcw = 0x37f;
    f.mxcsr = 0x1f80;
    return ioctl(vcpu_fd, KVM_SET_FPU, &f) < 0 ? neg_errno() : 0;
}

/* Refused MSRs are no error: not every KVM has both of these. */
static int cpu_set_msrs(int vcpu_fd)
{
    static const struct kvm_msr_entry wanted[] = {
        {.index = MSR_MTRR_DEF_TYPE, .data = MTRR_ENABLE_WRITEBACK},
        {.index = MSR_MISC_ENABLE, .data = MISC_ENABLE_FASTSTR},
    };
    struct kvm_msrs *m = calloc(1, sizeof(*m) + sizeof(wanted));

    if (!m)
        return -ENOMEM;
    m->nmsrs = ARRAY_SIZE(wanted);
    memcpy(m->entries, wanted, sizeof(wanted));
    (void)ioctl(vcpu_fd, KVM_SET_MSRS, m);
    free(m);
    return 0;
}

static void cpu_set_lvt(struct kvm_lapic_state *l, size_t reg, uint32_t mode)
{
    uint32_t v = get_le32(&l->regs[reg]);

    v &= ~(APIC_MODE_MASK | APIC_LVT_MASKED);
    put_le32(&l->regs[reg], v | mode);
}

static int cpu_set_lapic(int vcpu_fd)
{
    struct kvm_lapic_state l;

    if (ioctl(vcpu_fd, KVM_GET_LAPIC, &l) < 0)
        return neg_errno();
    cpu_set_lvt(&l, APIC_LVT0, APIC_MODE_EXTINT);
    cpu_set_lvt(&l, APIC_LVT1, APIC_MODE_NMI);
    return ioctl(vcpu_fd, KVM_SET_LAPIC, &l) < 0 ? neg_errno() : 0;
}

int cpu_set_boot_state(int vcpu_fd, struct errmsg *err)
{
    int rc = cpu_set_fpu(vcpu_fd);

    if (rc == 0)
        rc = cpu_set_lapic(vcpu_fd);
    if (rc == 0)
        rc = cpu_set_msrs(vcpu_fd);
    if (rc)
        return err_set(err, rc, "vCPU: KVM refused FPU or APIC state: %s",
                       err_reason(rc));
    return 0;
}
