/* SPDX-License-Identifier: Apache-2.0 */
/* The MP table: the pointer at address 0, sums, cpus=N processors with their
 * APIC ids, and the I/O APIC. spec: MP 1.4, 4 */
#include "guest/payloads/payload.h"

#define MP_FLOATING   0x5f504d5fu /* "_MP_" */
#define MP_CONFIG     0x504d4350u /* "PCMP" */
#define MP_HEADER     44u
#define MP_CPU        0u
#define MP_CPU_BYTES  20u
#define MP_IOAPIC     2u
#define MP_ITEM_BYTES 8u

static void check_sum(uint64_t at, uint32_t len, const char *what)
{
    uint8_t sum = 0;

    for (uint32_t i = 0; i < len; i++)
        sum = (uint8_t)(sum + mmio_r8(at + i));
    check_eq(sum, 0, what);
}

static void check_entries(uint64_t at, uint32_t entries, uint64_t end)
{
    uint32_t cpus = 0;
    uint32_t ioapics = 0;

    for (; entries > 0; entries--) {
        uint8_t type = mmio_r8(at);

        if (type == MP_CPU) {
            check_eq(mmio_r8(at + 1), cpus, "APIC id of a processor");
            check_eq(mmio_r8(at + 3), cpus == 0 ? 3 : 1, "processor flags");
            cpus++;
            at += MP_CPU_BYTES;
            continue;
        }
        if (type == MP_IOAPIC) {
            check_eq(mmio_r32(at + 4), 0xfec00000, "address of the I/O APIC");
            ioapics++;
        }
        at += MP_ITEM_BYTES;
    }
    check_eq(at, end, "end of the MP table's entries");
    check_eq(cpus, payload_number("cpus=", 1), "processors");
    check_eq(ioapics, 1, "I/O APICs");
}

void payload_main(void)
{
    uint64_t table;
    uint32_t len;

    check_eq(mmio_r32(0), MP_FLOATING, "MP pointer at address 0");
    check_sum(0, 16, "sum of the MP pointer");
    table = mmio_r32(4);
    check_eq(mmio_r32(table), MP_CONFIG, "MP table");
    len = mmio_r16(table + 4);
    check_sum(table, len, "sum of the MP table");
    check_entries(table + MP_HEADER, mmio_r16(table + 34), table + len);
}
