/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes take turns, each with its own values in the AVX registers:
 * avx TURNS. 0: both kept them, 1: one found others, 77: no AVX here.
 */
#include <cpuid.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGS      3
#define REG_BYTES 32

#define CPUID1_OSXSAVE (1u << 27)
#define CPUID1_AVX     (1u << 28)
#define XCR0_SSE_AVX   6u

static int avx_usable(void)
{
    unsigned int a = 0;
    unsigned int b = 0;
    unsigned int c = 0;
    unsigned int d = 0;
    uint32_t lo;
    uint32_t hi;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & CPUID1_OSXSAVE) ||
        !(c & CPUID1_AVX))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (lo & XCR0_SSE_AVX) == XCR0_SSE_AVX;
}

/* Loads the registers, lets the other process run, stores them. */
static void avx_turn(const uint8_t *in, uint8_t *out)
{
    long nr = SYS_sched_yield;

    __asm__ volatile("vmovdqu (%1), %%ymm0\n\t"
                     "vmovdqu 32(%1), %%ymm7\n\t"
                     "vmovdqu 64(%1), %%ymm15\n\t"
                     "syscall\n\t"
                     "vmovdqu %%ymm0, (%2)\n\t"
                     "vmovdqu %%ymm7, 32(%2)\n\t"
                     "vmovdqu %%ymm15, 64(%2)\n\t"
                     "vzeroupper"
                     : "+a"(nr)
                     : "r"(in), "r"(out)
                     : "rcx", "r11", "xmm0", "xmm7", "xmm15", "memory");
}

static int avx_keeps(unsigned int seed, int turns)
{
    uint8_t in[REGS * REG_BYTES];
    uint8_t out[REGS * REG_BYTES];

    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (uint8_t)(7 * i + 13 * seed + 1);
    for (int i = 0; i < turns; i++) {
        avx_turn(in, out);
        if (memcmp(in, out, sizeof(in)) != 0) {
            (void)printf("process %u, turn %d: registers changed\n", seed, i);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    int turns = argc > 1 ? atoi(argv[1]) : 100;
    int status = 0;
    int bad;
    pid_t child;

    if (!avx_usable())
        return 77;
    child = fork();
    if (child < 0)
        return 2;
    if (child == 0)
        return avx_keeps(1, turns);
    bad = avx_keeps(2, turns);
    if (waitpid(child, &status, 0) != child)
        return 2;
    return bad || status != 0;
}
