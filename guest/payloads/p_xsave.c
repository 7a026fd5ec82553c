/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XSAVE64 and XRSTOR64 carry every part of the extended state that the
 * processor has, and fault as they should: where KVM cannot emulate them the
 * monitor completes them. The area lies across two pages.
 * spec: AMD64 APM 2 11.5
 */
#include "guest/payloads/intr.h"

#define CPUID1_XSAVE  (1u << 26)
#define CR4_OSFXSR    0x200ull
#define CR4_OSXSAVE   0x40000ull
#define KNOWN_PARTS   0xe7u /* x87, SSE, AVX, AVX-512 */
#define PARTS         8u
#define PART_SSE      2u
#define MXCSR         24u
#define XMM           160u
#define HEADER        512u
#define PAGE          4096u
#define AREA_AT       (PAGE - 640u) /* goes on in the next page */
#define NOT_MAPPED    0x4000000000ull
#define MXCSR_DEFAULT 0x1f80u
#define VECTOR_GP     13u
#define VECTOR_PF     14u

static uint8_t pages[2][3 * PAGE] __attribute__((aligned(4096)));
static uint8_t *const in = pages[0] + AREA_AT;
static uint8_t *const out = pages[1] + AREA_AT;
static uint32_t part_at[PARTS];
static uint32_t part_bytes[PARTS];
static uint32_t xcr0;

static uint32_t cpuid(uint32_t leaf, uint32_t sub, uint32_t *b, uint32_t *c)
{
    uint32_t a;
    uint32_t d;

    __asm__ volatile("cpuid"
                     : "=a"(a), "=b"(*b), "=c"(*c), "=d"(d)
                     : "a"(leaf), "c"(sub));
    return a;
}

/* Both resume behind the instruction if it raises what is expected. */
static void xsave(uint64_t area, uint32_t mask)
{
    __asm__ volatile("leaq 1f(%%rip), %%rcx\n\t"
                     "movq %%rcx, intr_resume_rip(%%rip)\n\t"
                     "xsave64 (%%rdi)\n"
                     "1:"
                     :
                     : "D"(area), "a"(mask), "d"(0)
                     : "rcx", "memory");
}

static void xrstor(uint64_t area, uint32_t mask)
{
    __asm__ volatile("leaq 1f(%%rip), %%rcx\n\t"
                     "movq %%rcx, intr_resume_rip(%%rip)\n\t"
                     "xrstor64 (%%rdi)\n"
                     "1:"
                     :
                     : "D"(area), "a"(mask), "d"(0)
                     : "rcx", "memory");
}

static void put64(uint8_t *at, uint64_t v)
{
    *(volatile uint64_t *)(void *)at = v;
}

static uint64_t get64(const uint8_t *at)
{
    return *(const volatile uint64_t *)(const void *)at;
}

static void fill(uint8_t *at, uint32_t bytes, uint64_t v)
{
    for (uint32_t i = 0; i < bytes; i += 8)
        put64(at + i, v ? v + i : 0);
}

static void check_part(const uint8_t *at, uint32_t bytes, uint64_t v,
                       const char *what)
{
    for (uint32_t i = 0; i < bytes; i += 8)
        check_eq(get64(at + i), v ? v + i : 0, what);
}

/* QEMU's own SVM tells no hypervisor of XSETBV, so that the next exit undoes
 * it: then what is left is tested. XGETBV is not emulated elsewhere. */
static uint32_t parts_that_stay(void)
{
    uint32_t lo;
    uint32_t hi;

    if (payload_ring0_emulated())
        return ~0u;
    (void)inb(PORT_UART + 5);
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

static void set_up(void)
{
    uint32_t b = 0;
    uint32_t c = 0;
    uint64_t cr4;

    (void)cpuid(1, 0, &b, &c);
    if (!(c & CPUID1_XSAVE))
        payload_skip("no XSAVE");
    __asm__ volatile("mov %%cr4, %0" : "=r"(cr4));
    cr4 |= CR4_OSFXSR | CR4_OSXSAVE;
    __asm__ volatile("mov %0, %%cr4" : : "r"(cr4) : "memory");
    xcr0 = cpuid(0xd, 0, &b, &c) & KNOWN_PARTS;
    __asm__ volatile("xsetbv" : : "a"(xcr0), "d"(0), "c"(0) : "memory");
    xcr0 &= parts_that_stay();
    for (uint32_t i = 2; i < PARTS; i++) {
        if (xcr0 >> i & 1)
            part_bytes[i] = cpuid(0xd, i, &part_at[i], &c);
    }
}

static uint64_t pattern(uint32_t part)
{
    return 0x0102030405060708ull * (part + 1);
}

static void every_part_comes_back(void)
{
    fill(in, XMM, 0);
    put64(in + MXCSR, MXCSR_DEFAULT);
    fill(in + XMM, 256, pattern(1));
    fill(in + HEADER, 64, 0);
    for (uint32_t i = 2; i < PARTS; i++)
        fill(in + part_at[i], part_bytes[i], pattern(i));
    put64(in + HEADER, xcr0 & ~1u); /* x87: its default */
    xrstor((uintptr_t)in, ~0u);
    xsave((uintptr_t)out, ~0u);
    if (xcr0 & PART_SSE) {
        check_part(out + XMM, 256, pattern(1), "SSE");
        check_eq(get64(out + MXCSR) & 0xffffffff, MXCSR_DEFAULT, "MXCSR");
    }
    for (uint32_t i = 2; i < PARTS; i++)
        check_part(out + part_at[i], part_bytes[i], pattern(i), "a part");
    check_eq(get64(out + HEADER) & ~1ull, xcr0 & ~1u, "XSTATE_BV");
    /* FCW, FSW, FTW as after FNINIT */
    check_eq(get64(out) & 0xffffffff, 0x37f, "x87");
}

static void masks_hold(void)
{
    fill(out + XMM, 256, 0);
    xsave((uintptr_t)out, xcr0 & ~PART_SSE);
    check_part(out + XMM, 256, 0, "SSE that nobody asked for");
    /* An empty area resets what is in the mask: all but SSE. */
    put64(in + HEADER, 0);
    xrstor((uintptr_t)in, xcr0 & ~PART_SSE);
    xsave((uintptr_t)out, ~0u);
    if (xcr0 & PART_SSE)
        check_part(out + XMM, 256, pattern(1), "SSE behind a reset");
    for (uint32_t i = 2; i < PARTS; i++)
        check_part(out + part_at[i], part_bytes[i], 0, "a part that was reset");
}

static void faults_come(void)
{
    intr_expected = VECTOR_GP;
    xsave((uintptr_t)out + 8, ~0u);
    check_eq(intr_count[VECTOR_GP], 1, "#GP: area is not aligned");
    put64(in + HEADER, 1ull << 62);
    xrstor((uintptr_t)in, ~0u);
    check_eq(intr_count[VECTOR_GP], 2, "#GP: a part that is not there");
    intr_expected = VECTOR_PF;
    xsave(NOT_MAPPED, ~0u);
    check_eq(intr_count[VECTOR_PF], 1, "#PF of XSAVE");
    xrstor(NOT_MAPPED, ~0u);
    check_eq(intr_count[VECTOR_PF], 2, "#PF of XRSTOR");
}

void payload_main(void)
{
    set_up();
    every_part_comes_back();
    masks_hold();
    faults_come();
}
