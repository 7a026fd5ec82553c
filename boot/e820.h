/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_E820_H
#define BOOT_E820_H

/*
 * The memory map that the kernel is told: sorted, without overlaps, with all
 * of guest RAM as usable but for the legacy range below 1 MiB. Pure; threads:
 * any.
 */

#include "vmm/guest_mem.h"

#include <asm/bootparam.h>

/* Types of the BIOS call; no uapi header carries them. spec: ACPI 6.5 15.4 */
#define E820_RAM      1u
#define E820_RESERVED 2u

#define E820_MAX_OURS 6u

/* Returns the number of entries written to `out`. */
size_t e820_build(const struct guest_mem *gm,
                  struct boot_e820_entry out[E820_MAX_OURS]);

#endif
