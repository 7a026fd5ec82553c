/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_MPTABLE_H
#define BOOT_MPTABLE_H

/*
 * The MP table: CPUs, I/O APIC and interrupt lines for kernels that have
 * neither device tree nor ACPI. The pointer to it stands at guest physical 0,
 * the first place where Linux looks. spec: MP 1.4.
 *
 * Threads: any, before the first vCPU runs. Errors: -EFAULT, -ENOSPC.
 */

#include "boot/boot_machine.h"

/* Pointer and table. Every pin is an ISA interrupt of the same number. */
int mptable_write(struct guest_mem *gm,
                  const struct boot_machine *m) MUST_CHECK;

#endif
