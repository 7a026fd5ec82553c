/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a CPU begins after SIPI: real mode, CS = page number << 8, IP = 0.
 * The code is copied to SMP_TRAMPOLINE, below 1 MiB, and goes from there to
 * long mode in one step with the first CPU's page tables.
 * spec: AMD64 APM 2 15.27.8 (SIPI), 14.6 (enabling long mode)
 */
    .section .rodata
    .code16
    .globl smp_trampoline, smp_trampoline_cr3, smp_trampoline_end
smp_trampoline:
    cli
    movw %cs, %ax
    movw %ax, %ds
    lgdtl smp_gdt_pointer - smp_trampoline
    movl $0x20, %eax                    /* CR4.PAE */
    movl %eax, %cr4
    movl smp_trampoline_cr3 - smp_trampoline, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx              /* EFER */
    rdmsr
    orl $0x100, %eax                    /* LME */
    wrmsr
    movl $0x80000011, %eax              /* CR0: PG, ET, PE; caches on */
    movl %eax, %cr0
    ljmpl $0x10, $smp_entry
    .balign 8
smp_trampoline_cr3:
    .long 0
smp_gdt_pointer:
    .word smp_gdt_end - smp_gdt - 1
    .long smp_gdt
smp_trampoline_end:

    /* The selectors of the boot protocol, which the IDT uses as well. */
    .balign 8
smp_gdt:
    .quad 0, 0, 0x00af9b000000ffff, 0x00cf93000000ffff
smp_gdt_end:

    .text
    .code64
smp_entry:
    movw $0x18, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl $1, %eax
    lock xaddl %eax, smp_ticket(%rip)
    /* Stack number `ticket`, counted from 0; all of its bytes below. */
    incl %eax
    shll $12, %eax
    leaq smp_stacks(%rip), %rsp
    addq %rax, %rsp
    xorl %ebp, %ebp
    call smp_main

    .section .bss
    .balign 4096
smp_stacks:
    .skip 32 * 4096
    .balign 4
smp_ticket:
    .skip 4

    .section .note.GNU-stack, "", @progbits
