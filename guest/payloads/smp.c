/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/payloads/smp.h"

#include "guest/payloads/intr.h"

/* Behind the monitor's page tables and before the command line. */
#define SMP_TRAMPOLINE 0x10000u

/* spec: AMD64 APM 2 16.5 (interrupt command register) */
#define LAPIC_ICR_LOW  0xfee00300ull
#define LAPIC_ICR_HIGH 0xfee00310ull
#define ICR_INIT       0x4500u /* asserted, edge */
#define ICR_SIPI       0x4600u

extern const char smp_trampoline[];
extern const char smp_trampoline_end[];
extern const char smp_trampoline_cr3[];

static volatile uint32_t smp_done;
static smp_fn smp_function;

/* Called by smp.S. */
_Noreturn void smp_main(void);

_Noreturn void smp_main(void)
{
    smp_function(lapic_id());
    __atomic_fetch_add(&smp_done, 1, __ATOMIC_SEQ_CST);
    payload_park();
}

static void smp_copy_trampoline(void)
{
    uint64_t len = (uint64_t)(smp_trampoline_end - smp_trampoline);
    uint64_t cr3;

    for (uint64_t i = 0; i < len; i++)
        mmio_w8(SMP_TRAMPOLINE + i, (uint8_t)smp_trampoline[i]);
    __asm__ volatile("mov %%cr3, %0" : "=r"(cr3));
    mmio_w32(SMP_TRAMPOLINE + (uint64_t)(smp_trampoline_cr3 - smp_trampoline),
             (uint32_t)cr3);
}

static void smp_send(uint32_t apic_id, uint32_t command)
{
    mmio_w32(LAPIC_ICR_HIGH, apic_id << 24);
    mmio_w32(LAPIC_ICR_LOW, command);
}

void smp_launch(uint32_t ncpus, smp_fn fn)
{
    smp_function = fn;
    smp_copy_trampoline();
    for (uint32_t id = 1; id < ncpus; id++) {
        smp_send(id, ICR_INIT);
        smp_send(id, ICR_SIPI | SMP_TRAMPOLINE >> 12);
    }
}

uint32_t smp_start(uint32_t ncpus, smp_fn fn)
{
    uint64_t deadline = patience();

    smp_launch(ncpus, fn);
    while (smp_done < ncpus - 1 && !over(deadline))
        ;
    return smp_done;
}
