/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/payloads/cpu_marks.h"

#define LAPIC_TPR       0xfee00080ull
#define LAPIC_LVT_LINT0 0xfee00350ull
#define LVT_MARK        0x10000u /* masked, with a vector of the CPU's */
#define CR4_SSE         0x600u
#define CR0_TS_EM       0xcull

/* spec: AMD64 APM 2 appendix A; KVM: Documentation/virt/kvm/x86/msr.rst */
#define MSR_KVM_CLOCK       0x4b564d01u
#define CPUID_KVM           0x40000001u
#define CPUID_KVM_CLOCKSRC2 (1u << 3)

struct msr_mark {
    uint32_t index;
    uint64_t value;
    uint64_t per_cpu;
    const char *name;
};

static const struct msr_mark msr_marks[] = {
    {0x174, 0x10, 8, "MSR SYSENTER_CS"},
    /* KVM on AMD keeps half of these for CPUs of AMD. */
    {0x175, 0x23456000, 0x1000, "MSR SYSENTER_ESP"},
    {0x176, 0x71001000, 0x1000, "MSR SYSENTER_EIP"},
    {0x277, 0x0007010600070106, 0, "MSR PAT"},
    {0x200, 0x80000006, 0, "MSR MTRRphysBase0"},
    {0x201, 0xff80000800, 0, "MSR MTRRphysMask0"},
    {0x250, 0x0606060606060606, 0, "MSR MTRRfix64K"},
    {0x26f, 0x0505050505050505, 0, "MSR MTRRfix4K_F8000"},
    {0x2ff, 0xc06, 0, "MSR MTRRdefType"},
    {0xc0000081, 0x0023001000000000, 0, "MSR STAR"},
    {0xc0000082, 0xffffffff82001000, 0x100, "MSR LSTAR"},
    {0xc0000083, 0xffffffff83001000, 0x100, "MSR CSTAR"},
    {0xc0000084, 0x47700, 0, "MSR SFMASK"},
    {0xc0000100, 0x7f0012340000, 0x1000, "MSR FS_BASE"},
    {0xc0000101, 0xffff888000001000, 0x1000, "MSR GS_BASE"},
    {0xc0000102, 0xffff888000101000, 0x1000, "MSR KERNEL_GS_BASE"},
};
#define NUM_MSRS (sizeof(msr_marks) / sizeof(msr_marks[0]))

/* KVM's page of time: pvclock_vcpu_time_info. */
struct clock_page {
    volatile uint32_t version;
    uint32_t pad;
    volatile uint64_t tsc_timestamp;
    volatile uint64_t system_time;
    volatile uint32_t mul;
    volatile int8_t shift;
    volatile uint8_t flags;
    uint8_t pad2[2];
} __attribute__((aligned(64)));

struct cpu_marks {
    uint32_t kept_msrs; /* a bit each */
    bool has_clock;
    uint64_t cr0;
    uint64_t cr4;
    uint64_t last_tsc;
    uint64_t last_ns;
};

static struct cpu_marks marks[MARKS_MAX_CPUS];
static struct clock_page clocks[MARKS_MAX_CPUS];

static uint64_t read_msr(uint32_t index)
{
    uint32_t lo;
    uint32_t hi;

    __asm__ volatile("rdmsr" : "=a"(lo), "=d"(hi) : "c"(index));
    return (uint64_t)hi << 32 | lo;
}

static void write_msr(uint32_t index, uint64_t v)
{
    __asm__ volatile("wrmsr"
                     :
                     : "c"(index), "a"((uint32_t)v), "d"((uint32_t)(v >> 32))
                     : "memory");
}

/* Below the timer's class of vectors; SVM keeps the upper half alone. */
static uint32_t task_priority(uint32_t cpu)
{
    return cpu & 1 ? 0x20 : 0x10;
}

static uint64_t msr_value(const struct msr_mark *m, uint32_t cpu)
{
    return m->value + cpu * m->per_cpu;
}

/* --- XMM: the moves are all that every host can do ------------------------ */

#define XMM_EACH(op)                                                           \
    op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11)  \
        op(12) op(13) op(14) op(15)
#define XMM_LOAD(i)  "movups 16*" #i "(%0), %%xmm" #i "\n\t"
#define XMM_STORE(i) "movups %%xmm" #i ", 16*" #i "(%0)\n\t"

static uint64_t xmm_value(uint32_t cpu, uint32_t i)
{
    return 0x1111111111111111ull * (i % 16) + ((uint64_t)cpu << 32) + i;
}

static void xmm_set(uint32_t cpu)
{
    uint64_t v[32];

    for (uint32_t i = 0; i < 32; i++)
        v[i] = xmm_value(cpu, i);
    __asm__ volatile(XMM_EACH(XMM_LOAD) : : "r"(v) : "memory");
}

static void xmm_check(uint32_t cpu)
{
    uint64_t v[32];

    __asm__ volatile(XMM_EACH(XMM_STORE) : : "r"(v) : "memory");
    for (uint32_t i = 0; i < 32; i++)
        check_eq(v[i], xmm_value(cpu, i), "half of an XMM register");
}

/* --- debug and control registers ----------------------------------------- */

static uint64_t debug_value(uint32_t cpu, uint32_t i)
{
    return 0x200000000ull + cpu * 0x100000ull + i * 0x1000ull;
}

static void debug_set(uint32_t cpu)
{
    __asm__ volatile("mov %0, %%db0" : : "r"(debug_value(cpu, 0)));
    __asm__ volatile("mov %0, %%db1" : : "r"(debug_value(cpu, 1)));
    __asm__ volatile("mov %0, %%db2" : : "r"(debug_value(cpu, 2)));
    __asm__ volatile("mov %0, %%db3" : : "r"(debug_value(cpu, 3)));
    __asm__ volatile("mov %0, %%cr2" : : "r"(debug_value(cpu, 4)));
}

static void debug_check(uint32_t cpu)
{
    uint64_t v;

    __asm__ volatile("mov %%db0, %0" : "=r"(v));
    check_eq(v, debug_value(cpu, 0), "DR0");
    __asm__ volatile("mov %%db1, %0" : "=r"(v));
    check_eq(v, debug_value(cpu, 1), "DR1");
    __asm__ volatile("mov %%db2, %0" : "=r"(v));
    check_eq(v, debug_value(cpu, 2), "DR2");
    __asm__ volatile("mov %%db3, %0" : "=r"(v));
    check_eq(v, debug_value(cpu, 3), "DR3");
    __asm__ volatile("mov %%db7, %0" : "=r"(v));
    check_eq(v, 0x400, "DR7");
    __asm__ volatile("mov %%cr2, %0" : "=r"(v));
    check_eq(v, debug_value(cpu, 4), "CR2");
    __asm__ volatile("mov %%cr0, %0" : "=r"(v));
    check_eq(v, marks[cpu].cr0, "CR0");
    __asm__ volatile("mov %%cr4, %0" : "=r"(v));
    check_eq(v, marks[cpu].cr4, "CR4");
}

/* --- clocks -------------------------------------------------------------- */

static bool clock_is_there(void)
{
    uint32_t eax = CPUID_KVM;
    uint32_t ebx;
    uint32_t ecx = 0;
    uint32_t edx;

    __asm__ volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
    return eax & CPUID_KVM_CLOCKSRC2;
}

static uint64_t clock_ns(const struct clock_page *c)
{
    uint32_t version;
    uint64_t ns;

    do {
        uint64_t ticks;

        version = c->version;
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        ticks = rdtsc() - c->tsc_timestamp;
        ticks = c->shift < 0 ? ticks >> -c->shift : ticks << c->shift;
        ns = (uint64_t)((unsigned __int128)ticks * c->mul >> 32) +
             c->system_time;
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    } while (version & 1 || version != c->version);
    return ns;
}

static void clocks_check(uint32_t cpu)
{
    struct cpu_marks *m = &marks[cpu];
    uint64_t tsc = rdtsc();
    uint64_t ns;

    check(tsc > m->last_tsc, "the time stamp counter went back");
    m->last_tsc = tsc;
    if (!m->has_clock)
        return;
    check_eq(read_msr(MSR_KVM_CLOCK), (uintptr_t)&clocks[cpu] | 1,
             "MSR of KVM's clock");
    ns = clock_ns(&clocks[cpu]);
    check(ns >= m->last_ns, "KVM's clock went back");
    m->last_ns = ns;
}

/* --- all ----------------------------------------------------------------- */

void cpu_marks_set(uint32_t cpu)
{
    struct cpu_marks *m = &marks[cpu];

    __asm__ volatile("mov %%cr0, %0" : "=r"(m->cr0));
    m->cr0 &= ~CR0_TS_EM;
    __asm__ volatile("mov %0, %%cr0" : : "r"(m->cr0) : "memory");
    __asm__ volatile("mov %%cr4, %0" : "=r"(m->cr4));
    m->cr4 |= CR4_SSE;
    __asm__ volatile("mov %0, %%cr4" : : "r"(m->cr4) : "memory");
    for (uint32_t i = 0; i < NUM_MSRS; i++) {
        write_msr(msr_marks[i].index, msr_value(&msr_marks[i], cpu));
        if (read_msr(msr_marks[i].index) == msr_value(&msr_marks[i], cpu))
            m->kept_msrs |= 1u << i;
    }
    m->has_clock = clock_is_there();
    if (m->has_clock)
        write_msr(MSR_KVM_CLOCK, (uintptr_t)&clocks[cpu] | 1);
    mmio_w32(LAPIC_TPR, task_priority(cpu));
    mmio_w32(LAPIC_LVT_LINT0, LVT_MARK | (0x40 + cpu));
    debug_set(cpu);
    xmm_set(cpu);
}

void cpu_marks_check(uint32_t cpu)
{
    const struct cpu_marks *m = &marks[cpu];

    xmm_check(cpu);
    for (uint32_t i = 0; i < NUM_MSRS; i++) {
        if (m->kept_msrs & 1u << i)
            check_eq(read_msr(msr_marks[i].index),
                     msr_value(&msr_marks[i], cpu), msr_marks[i].name);
    }
    check_eq(mmio_r32(LAPIC_TPR), task_priority(cpu), "task priority");
    check_eq(mmio_r32(LAPIC_LVT_LINT0), LVT_MARK | (0x40 + cpu), "LVT LINT0");
    debug_check(cpu);
    clocks_check(cpu);
}
