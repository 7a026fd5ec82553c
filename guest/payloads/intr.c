/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/payloads/intr.h"

#define PIC_MASTER_DATA 0x21u
#define PIC_SLAVE_DATA  0xa1u

/* spec: AMD64 APM 2 16.3 (local APIC), Intel 82093AA (I/O APIC) */
#define LAPIC           0xfee00000ull
#define LAPIC_ID        0x20u
#define LAPIC_TPR       0x80u
#define LAPIC_EOI       0xb0u
#define LAPIC_SPURIOUS  0xf0u
#define LAPIC_ENABLE    0x100u
#define IOAPIC          0xfec00000ull
#define IOAPIC_SELECT   0x00u
#define IOAPIC_WINDOW   0x10u
#define IOAPIC_REDIRECT 0x10u /* two registers for each pin */

#define GATE_PRESENT_INTERRUPT 0x8eu
#define STUB_BYTES             16u

struct idt_gate {
    uint16_t offset_low;
    uint16_t selector;
    uint8_t ist;
    uint8_t type;
    uint16_t offset_mid;
    uint32_t offset_high;
    uint32_t reserved;
};

struct idt_pointer {
    uint16_t limit;
    uint64_t base;
} __attribute__((packed));

_Static_assert(sizeof(struct idt_gate) == 16, "AMD64 APM 2 4.8.4");

extern const char intr_stubs[];

volatile uint32_t intr_count[INTR_VECTORS];
volatile uint32_t intr_expected = INTR_VECTORS;
volatile uint64_t intr_last_rip;
void (*volatile intr_hook)(uint64_t vector);
volatile uint64_t intr_resume_rip;

static struct idt_gate intr_idt[INTR_VECTORS];

static void intr_load(const struct idt_gate *idt, uint16_t limit)
{
    struct idt_pointer p = {limit, (uintptr_t)idt};

    __asm__ volatile("lidt %0" : : "m"(p) : "memory");
}

void intr_init_exceptions(void)
{
    uint16_t cs;

    __asm__ volatile("mov %%cs, %0" : "=r"(cs));
    for (uint32_t i = 0; i < INTR_VECTORS; i++) {
        uint64_t at = (uintptr_t)intr_stubs + i * STUB_BYTES;

        intr_idt[i].offset_low = (uint16_t)at;
        intr_idt[i].offset_mid = (uint16_t)(at >> 16);
        intr_idt[i].offset_high = (uint32_t)(at >> 32);
        intr_idt[i].selector = cs;
        intr_idt[i].type = GATE_PRESENT_INTERRUPT;
    }
    intr_load_here();
}

void intr_load_here(void)
{
    intr_load(intr_idt, sizeof(intr_idt) - 1);
}

void intr_drop_idt(void)
{
    intr_load(NULL, 0);
}

/* Called by intr.S. */
void intr_dispatch(struct intr_frame *f);

void intr_dispatch(struct intr_frame *f)
{
    intr_last_rip = f->rip;
    intr_count[f->vector]++;
    if (f->vector >= INTR_FIRST) {
        if (intr_hook)
            intr_hook(f->vector);
        if (f->vector != INTR_SPURIOUS)
            lapic_eoi();
        return;
    }
    if (f->vector == intr_expected) {
        if (intr_resume_rip)
            f->rip = intr_resume_rip;
        return;
    }
    print("FAIL: exception ");
    print_hex(f->vector);
    print(" error ");
    print_hex(f->error);
    print(" at ");
    print_hex(f->rip);
    print("\n");
    payload_result(PAYLOAD_FAIL);
}

void intr_init_apics(void)
{
    /* Unmasked they would deliver the same lines by virtual wire. */
    outb(PIC_MASTER_DATA, 0xff);
    outb(PIC_SLAVE_DATA, 0xff);
    mmio_w32(LAPIC + LAPIC_TPR, 0);
    mmio_w32(LAPIC + LAPIC_SPURIOUS, LAPIC_ENABLE | INTR_SPURIOUS);
}

uint32_t lapic_id(void)
{
    return mmio_r32(LAPIC + LAPIC_ID) >> 24;
}

void lapic_eoi(void)
{
    mmio_w32(LAPIC + LAPIC_EOI, 0);
}

static void ioapic_write(uint32_t reg, uint32_t v)
{
    mmio_w32(IOAPIC + IOAPIC_SELECT, reg);
    mmio_w32(IOAPIC + IOAPIC_WINDOW, v);
}

void ioapic_route(uint32_t pin)
{
    ioapic_write(IOAPIC_REDIRECT + 2 * pin + 1, lapic_id() << 24);
    ioapic_write(IOAPIC_REDIRECT + 2 * pin, INTR_VECTOR(pin));
}
