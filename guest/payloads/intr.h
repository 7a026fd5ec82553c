/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_PAYLOADS_INTR_H
#define GUEST_PAYLOADS_INTR_H

/*
 * Interrupts: the IDT, the local APIC and the I/O APIC. Exceptions are caught
 * from the start: one that nobody expects prints itself and fails the payload.
 */

#include "guest/payloads/payload.h"

#define INTR_VECTORS     64u /* exceptions, then 32 for interrupts */
#define INTR_FIRST       32u
#define INTR_SPURIOUS    63u
#define INTR_VECTOR(pin) (INTR_FIRST + (pin))

/* The stack as intr.S leaves it for C. */
struct intr_frame {
    uint64_t regs[15];
    uint64_t vector;
    uint64_t error;
    uint64_t rip;
    uint64_t cs;
    uint64_t rflags;
    uint64_t rsp;
    uint64_t ss;
};

/* How often each vector came. */
extern volatile uint32_t intr_count[INTR_VECTORS];
/* Called for each interrupt, if set. */
extern void (*volatile intr_hook)(uint64_t vector);
/* An exception that is expected; the handler returns behind it. */
extern volatile uint32_t intr_expected;
extern volatile uint64_t intr_last_rip;
/* Where the handler returns to instead, for a fault; 0: where it happened. */
extern volatile uint64_t intr_resume_rip;

void intr_init_exceptions(void);
/* On a further CPU, once the first has called the one above. */
void intr_load_here(void);
/* Points IDTR to nothing: the next exception is a triple fault. */
void intr_drop_idt(void);

/* Masks the old PICs, turns this CPU's local APIC on. Interrupts stay off. */
void intr_init_apics(void);
uint32_t lapic_id(void);
void lapic_eoi(void);
/* Fixed delivery, edge, to this CPU as vector INTR_VECTOR(pin). */
void ioapic_route(uint32_t pin);

static inline void intr_on(void)
{
    __asm__ volatile("sti" ::: "memory");
}

static inline void intr_off(void)
{
    __asm__ volatile("cli" ::: "memory");
}

#endif
