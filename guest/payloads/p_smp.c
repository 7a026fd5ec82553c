/* SPDX-License-Identifier: Apache-2.0 */
/* INIT and SIPI start all of cpus=N processors, each with an id of its own. */
#include "guest/payloads/intr.h"
#include "guest/payloads/smp.h"

static uint32_t seen; /* one bit an APIC id */

static void on_cpu(uint32_t apic_id)
{
    __atomic_fetch_or(&seen, 1u << (apic_id & 31), __ATOMIC_SEQ_CST);
}

void payload_main(void)
{
    uint32_t cpus = (uint32_t)payload_number("cpus=", 1);

    intr_init_apics();
    check_eq(lapic_id(), 0, "APIC id of the first processor");
    check_eq(smp_start(cpus, on_cpu), cpus - 1, "processors started");
    check_eq(seen | 1, UINT32_MAX >> (32 - cpus), "APIC ids that came");
}
