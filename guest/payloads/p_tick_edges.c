/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ticks for ever and finds a number in the first, the last and some other
 * pages of each range of RAM that the memory map has, also above 4 GiB.
 */
#include "guest/payloads/ticker.h"

#include <asm/bootparam.h>

#define PAGE        4096ull
#define LARGE       (2ull << 20)
#define MAX_EDGES   64u
#define MAX_TABLES  8u
#define ENTRY_TABLE 0x3ull  /* present, writable */
#define ENTRY_LARGE 0x83ull /* and 2 MiB */
#define ADDRESS     0x000ffffffffff000ull
#define ABOVE       (1ull << 32) /* what the monitor's page tables end at */

extern const char payload_end[];

static uint64_t edges[MAX_EDGES];
static uint32_t num_edges;
static uint64_t tables[MAX_TABLES][512] __attribute__((aligned(4096)));
static uint32_t num_tables;

/* Maps the 2 MiB around `at`, one to one, below 512 GiB. */
static void map(uint64_t at)
{
    uint64_t cr3;
    uint64_t *pdpt;
    uint64_t *pd;

    if (at < ABOVE)
        return;
    __asm__ volatile("mov %%cr3, %0" : "=r"(cr3));
    pdpt = (uint64_t *)(((uint64_t *)(cr3 & ADDRESS))[0] & ADDRESS);
    if (!(pdpt[at >> 30] & 1)) {
        check(num_tables < MAX_TABLES, "too many page tables");
        pdpt[at >> 30] = (uintptr_t)tables[num_tables++] | ENTRY_TABLE;
    }
    pd = (uint64_t *)(pdpt[at >> 30] & ADDRESS);
    pd[at >> 21 & 511] = (at & ~(LARGE - 1)) | ENTRY_LARGE;
}

static void add(uint64_t at)
{
    check(num_edges < MAX_EDGES, "too many ranges of memory");
    map(at);
    edges[num_edges++] = at;
}

static void add_range(uint64_t from, uint64_t to)
{
    uint64_t floor = ((uintptr_t)payload_end + PAGE - 1) & ~(PAGE - 1);

    if (from < floor)
        from = floor;
    if (to < from + 4 * PAGE)
        return;
    add(from);
    add(from + PAGE);
    add((from + (to - from) / 2) & ~(PAGE - 1));
    add(to - 2 * PAGE);
    add(to - PAGE);
}

void payload_main(void)
{
    const struct boot_params *bp = payload_boot_params;

    for (uint32_t i = 0; i < bp->e820_entries; i++) {
        const struct boot_e820_entry *e = &bp->e820_table[i];

        if (e->type == 1)
            add_range((e->addr + PAGE - 1) & ~(PAGE - 1),
                      (e->addr + e->size) & ~(PAGE - 1));
    }
    check(num_edges > 0, "the memory map has no RAM");
    for (uint32_t i = 0; i < num_edges; i++) {
        mmio_w64(edges[i], ticker_mix(edges[i], 0));
        mmio_w64(edges[i] + PAGE - 8, ticker_mix(edges[i], 1));
    }
    ticker_start();
    for (uint64_t n = 0;; n++) {
        ticker_wait();
        for (uint32_t i = 0; i < num_edges; i++) {
            check_eq(mmio_r64(edges[i]), ticker_mix(edges[i], 0),
                     "the first word of a page at an edge");
            check_eq(mmio_r64(edges[i] + PAGE - 8), ticker_mix(edges[i], 1),
                     "the last word of a page at an edge");
        }
        ticker_say(n);
    }
}
