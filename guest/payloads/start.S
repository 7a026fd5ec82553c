/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry of a payload by the 64-bit Linux boot protocol: RSI points to
 * boot_params. Sets a stack and clears nothing: zeroed bss is the loader's
 * duty, and p_elf_segments.c tests it. spec: x86-boot 1.16 (64-bit protocol)
 */
    .section .text.start, "ax"
    .globl _start
_start:
    lea payload_stack_top(%rip), %rsp
    xor %ebp, %ebp
    mov %rsi, %rdi
    call payload_start

    .section .bss
    .balign 16
    .skip 16384
payload_stack_top:

    .section .note.GNU-stack, "", @progbits
