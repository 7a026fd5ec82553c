/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One stub a vector, 16 bytes apart, and the way to intr_dispatch() and back.
 * spec: AMD64 APM 2 8.9 (long-mode interrupt stack frame)
 */
    .text
    .balign 16
    .globl intr_stubs
intr_stubs:
    .set vector, 0
    .rept 64
    .balign 16
    /* These push an error code of their own. */
    .if vector != 8 && (vector < 10 || vector > 14) && vector != 17 && vector != 21
    pushq $0
    .endif
    pushq $vector
    jmp intr_common
    .set vector, vector + 1
    .endr

intr_common:
    push %rax
    push %rbx
    push %rcx
    push %rdx
    push %rsi
    push %rdi
    push %rbp
    push %r8
    push %r9
    push %r10
    push %r11
    push %r12
    push %r13
    push %r14
    push %r15
    cld
    mov %rsp, %rdi
    mov %rsp, %rbp
    and $-16, %rsp
    call intr_dispatch
    mov %rbp, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rbp
    pop %rdi
    pop %rsi
    pop %rdx
    pop %rcx
    pop %rbx
    pop %rax
    add $16, %rsp
    iretq

    .section .note.GNU-stack, "", @progbits
