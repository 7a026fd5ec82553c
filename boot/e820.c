/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/e820.h"

#include "vmm/layout_x86.h"

#include <assert.h>

#define E820_PAGE 4096u

struct e820_map {
    struct boot_e820_entry *entries;
    size_t count;
};

/* Callers go upwards, so the result is sorted. */
static void e820_add(struct e820_map *map, gpa_t from, gpa_t to, uint32_t type)
{
    if (from >= to)
        return;
    assert(map->count < E820_MAX_OURS);
    map->entries[map->count].addr = from;
    map->entries[map->count].size = to - from;
    map->entries[map->count].type = type;
    map->count++;
}

size_t e820_build(const struct guest_mem *gm,
                  struct boot_e820_entry out[E820_MAX_OURS])
{
    const struct gm_region *low = gm_region(gm, 0);
    const struct gm_region *high = gm_region(gm, 1);
    struct e820_map map = {out, 0};

    e820_add(&map, 0, LAYOUT_LOW_RAM_END, E820_RAM);
    /*
     * Where a BIOS would be. The vmgenid page is left out: Linux marks what
     * is reserved below 1 MiB as busy, and no driver could claim the page.
     */
    e820_add(&map, LAYOUT_LOW_RAM_END, LAYOUT_VMGENID, E820_RESERVED);
    e820_add(&map, LAYOUT_VMGENID + E820_PAGE, LAYOUT_KERNEL_MIN,
             E820_RESERVED);
    e820_add(&map, LAYOUT_KERNEL_MIN, low->len_bytes, E820_RAM);
    /* KVM's own pages on Intel hosts: one identity map page, three of TSS. */
    e820_add(&map, LAYOUT_IDENTITY_MAP, LAYOUT_TSS + 3 * E820_PAGE,
             E820_RESERVED);
    if (high)
        e820_add(&map, high->gpa, high->gpa + high->len_bytes, E820_RAM);
    return map.count;
}
