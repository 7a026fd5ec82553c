/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_BOOT_MACHINE_H
#define BOOT_BOOT_MACHINE_H

/*
 * What a guest kernel has to be told about the machine, as plain data: the
 * input of the device tree, of the MP table and of the command line words.
 *
 * Ownership: arrays are borrowed for the duration of the call. Threads: any.
 */

#include "vmm/guest_mem.h"
#include "vmm/layout_x86.h"
#include "vmm/util.h"

/* One virtio-mmio window. */
struct boot_mmio_dev {
    gpa_t base;          /* page aligned */
    uint64_t size_bytes; /* of the register window */
    uint32_t gsi;        /* I/O APIC pin, edge triggered, active high */
};

struct boot_machine {
    unsigned ncpus; /* 1..LAYOUT_MAX_VCPUS; APIC ids are 0..ncpus-1 */
    const struct boot_mmio_dev *devs;
    size_t ndevs;         /* at most LAYOUT_MAX_DEVICES */
    bool vmgenid;         /* a generation id page at LAYOUT_VMGENID */
    uint32_t vmgenid_gsi; /* pulsed when that page changes */
};

#endif
