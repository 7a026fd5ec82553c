/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel finds at entry: boot_params, the state of the CPU, and a
 * memory map that is sorted, adds up, and names only RAM that is there
 * (BL-008). mem=MIB is the VM's size. spec: x86-boot 1.16, zero-page
 */
#include "guest/payloads/payload.h"

#include <asm/bootparam.h>
#include <asm/e820.h>

#define E820_TYPE_RAM 1u
#define MAPPED        (4ull << 30) /* by the monitor, one to one */
#define LOW_END       0x9fc00u
#define KERNEL        0x100000u
#define PTE_TABLE     0x3ull
#define PTE_2M        0x83ull

static uint64_t page_directory[512] __attribute__((aligned(4096)));

/* Maps the 1 GiB that begins at 4 GiB as well. */
static void map_fifth_gib(void)
{
    uint64_t *pml4;
    uint64_t *pdpt;

    __asm__ volatile("mov %%cr3, %0" : "=r"(pml4));
    pdpt = (uint64_t *)(pml4[0] & ~0xfffull);
    for (uint64_t i = 0; i < 512; i++)
        page_directory[i] = (MAPPED + (i << 21)) | PTE_2M;
    pdpt[4] = (uintptr_t)page_directory | PTE_TABLE;
    __asm__ volatile("mov %0, %%cr3" : : "r"(pml4) : "memory");
}

static void touch(uint64_t at)
{
    uint8_t was = mmio_r8(at);

    mmio_w8(at, (uint8_t)~was);
    check_eq(mmio_r8(at), (uint8_t)~was, "a byte of RAM after a write");
    mmio_w8(at, was);
}

static void check_map(const struct boot_params *bp)
{
    uint64_t ram = 0;
    uint64_t end = 0;

    check(bp->e820_entries > 0, "the memory map is empty");
    for (uint32_t i = 0; i < bp->e820_entries; i++) {
        struct boot_e820_entry e = bp->e820_table[i];

        check(e.size > 0, "an empty range in the memory map");
        check(e.addr >= end, "the memory map is not sorted, or overlaps");
        end = e.addr + e.size;
        check(end > e.addr, "a range of the memory map wraps");
        if (e.type != E820_TYPE_RAM)
            continue;
        ram += e.size;
        if (end > MAPPED)
            map_fifth_gib();
        check(end <= MAPPED + (1ull << 30), "more RAM than this test maps");
        touch(e.addr);
        touch(end - 1);
    }
    /* What a BIOS would have is the only RAM that the map leaves out. */
    check_eq(ram + KERNEL - LOW_END, payload_number("mem=", 128) << 20,
             "RAM in the memory map");
}

static void check_cpu(void)
{
    uint16_t cs;
    uint16_t ds;
    uint16_t ss;
    uint64_t flags;

    __asm__ volatile("mov %%cs, %0" : "=r"(cs));
    __asm__ volatile("mov %%ds, %0" : "=r"(ds));
    __asm__ volatile("mov %%ss, %0" : "=r"(ss));
    __asm__ volatile("pushfq; popq %0" : "=r"(flags));
    check_eq(cs, 0x10, "CS (__BOOT_CS)");
    check_eq(ds, 0x18, "DS (__BOOT_DS)");
    check_eq(ss, 0x18, "SS (__BOOT_DS)");
    check_eq(flags & 0x200, 0, "RFLAGS.IF");
}

void payload_main(void)
{
    const struct boot_params *bp = payload_boot_params;

    check_cpu();
    check_eq(bp->hdr.boot_flag, 0xaa55, "boot_flag");
    check_eq(bp->hdr.header, 0x53726448, "header magic HdrS");
    check(bp->hdr.version >= 0x20c, "boot protocol below 2.12");
    check_eq(bp->hdr.type_of_loader, 0xff, "type_of_loader");
    check_eq(bp->hdr.loadflags & LOADED_HIGH, LOADED_HIGH, "LOADED_HIGH");
    check_eq(bp->hdr.ramdisk_size, 0, "ramdisk_size without an initrd");
    check_map(bp);
}
