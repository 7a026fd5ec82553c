/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every processor is told the same topology by all leaves: one package of
 * cpus=N cores with one thread each, and its own APIC id (BL-006).
 * part=leaf1 checks leaf 1 alone, which some hosts keep for themselves.
 * spec: AMD64 APM 3 E, Intel SDM 2A CPUID
 */
#include "guest/payloads/intr.h"
#include "guest/payloads/smp.h"

struct regs {
    uint32_t a, b, c, d;
};

static uint32_t cpus;
static struct regs leaf1[SMP_MAX_CPUS];
static struct regs leaf_b[SMP_MAX_CPUS][3];
static struct regs leaf_4[SMP_MAX_CPUS];
static struct regs ext_8[SMP_MAX_CPUS];
static struct regs ext_1e[SMP_MAX_CPUS];
static struct regs kvm_leaf;

static struct regs cpuid(uint32_t leaf, uint32_t sub)
{
    struct regs r;

    __asm__ volatile("cpuid"
                     : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d)
                     : "a"(leaf), "c"(sub));
    return r;
}

static void gather(uint32_t id)
{
    if (id >= SMP_MAX_CPUS)
        return; /* then this processor is missed below */
    leaf1[id] = cpuid(1, 0);
    leaf_4[id] = cpuid(4, 0);
    for (uint32_t i = 0; i < 3; i++)
        leaf_b[id][i] = cpuid(0xb, i);
    ext_8[id] = cpuid(0x80000008, 0);
    ext_1e[id] = cpuid(0x8000001e, 0);
}

static bool is_amd(void)
{
    uint32_t b = cpuid(0, 0).b;

    return b == 0x68747541 || b == 0x6f677948; /* Auth, Hygo */
}

static uint32_t width(uint32_t n)
{
    uint32_t w = 0;

    while ((1u << w) < n)
        w++;
    return w;
}

static void check_leaf1(uint32_t id)
{
    bool htt = leaf1[id].d >> 28 & 1;
    bool same = leaf1[id].b >> 24 == id && htt == (cpus > 1) &&
                (!htt || (leaf1[id].b >> 16 & 0xff) == cpus);

    if (!same && payload_ring0_emulated())
        payload_skip("this KVM puts the host's own leaf 1 back");
    check_eq(leaf1[id].b >> 24, id, "leaf 1: APIC id");
    check_eq(htt, cpus > 1, "leaf 1: HTT");
    if (htt)
        check_eq(leaf1[id].b >> 16 & 0xff, cpus, "leaf 1: logical processors");
}

static void check_leaf_b(uint32_t id)
{
    const struct regs *l = leaf_b[id];

    check_eq(l[0].c, 0x100, "leaf 0xb.0: level and type (thread)");
    check_eq(l[0].a, 0, "leaf 0xb.0: shift to the next level");
    check_eq(l[0].b, 1, "leaf 0xb.0: threads of a core");
    check_eq(l[1].c, 0x201, "leaf 0xb.1: level and type (core)");
    check_eq(l[1].a, width(cpus), "leaf 0xb.1: shift to the next level");
    check_eq(l[1].b, cpus, "leaf 0xb.1: processors of the package");
    check_eq(l[2].c >> 8 & 0xff, 0, "leaf 0xb.2: type (none)");
    for (uint32_t i = 0; i < 3; i++)
        check_eq(l[i].d, id, "leaf 0xb: x2APIC id");
}

static void check_amd(uint32_t id, uint32_t max_ext)
{
    if (max_ext >= 0x80000008)
        check_eq(ext_8[id].c & 0xff, cpus - 1, "leaf 0x80000008: processors");
    if (max_ext < 0x8000001e || !(cpuid(0x80000001, 0).c >> 22 & 1))
        return; /* no topology extensions */
    check_eq(ext_1e[id].a, id, "leaf 0x8000001e: extended APIC id");
    check_eq(ext_1e[id].b & 0xff, id, "leaf 0x8000001e: core");
    check_eq(ext_1e[id].b >> 8 & 0xff, 0, "leaf 0x8000001e: threads less 1");
}

static void check_topology(uint32_t id)
{
    uint32_t max = cpuid(0, 0).a;

    if (max >= 0xb)
        check_leaf_b(id);
    if (is_amd())
        check_amd(id, cpuid(0x80000000, 0).a);
    else if (max >= 4 && (leaf_4[id].a & 0x1f) != 0)
        check_eq(leaf_4[id].a >> 26, cpus - 1, "leaf 4: cores less 1");
}

void payload_main(void)
{
    cpus = (uint32_t)payload_number("cpus=", 1);
    intr_init_apics();
    gather(0);
    check_eq(smp_start(cpus, gather), cpus - 1, "processors started");
    kvm_leaf = cpuid(0x40000000, 0);
    check_eq(kvm_leaf.b, 0x4b4d564b, "leaf 0x40000000: KVMK");
    for (uint32_t id = 0; id < cpus; id++) {
        if (payload_is("part=", "leaf1"))
            check_leaf1(id);
        else
            check_topology(id);
    }
}
