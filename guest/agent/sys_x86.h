/* SPDX-License-Identifier: Apache-2.0 */
/* Bare system calls on x86-64: the result, or a negative errno. */
#ifndef GUEST_AGENT_SYS_X86_H
#define GUEST_AGENT_SYS_X86_H

#include <stddef.h>
#include <sys/syscall.h>

static inline long sys_call4(long number, long a, long b, long c, long d)
{
    long result;
    register long r10 __asm__("r10") = d;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

/*
 * clone3 whose child runs fn(arg), which must not return, on the stack that
 * args names. In the parent: the result of clone3.
 */
static inline long sys_clone3(void *args, size_t size, void (*fn)(void *),
                              void *arg)
{
    long result;
    register void (*r12)(void *) __asm__("r12") = fn;
    register void *r13 __asm__("r13") = arg;

    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %%r13, %%rdi\n\t"
                     "call *%%r12\n\t"
                     "ud2\n"
                     "1:"
                     : "=a"(result)
                     : "a"((long)SYS_clone3), "D"(args), "S"(size), "r"(r12),
                       "r"(r13)
                     : "rcx", "r11", "memory");
    return result;
}

#endif
