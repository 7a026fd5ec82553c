/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_LAYOUT_X86_H
#define VMM_LAYOUT_X86_H

/*
 * The guest physical address map, all in one place.
 *
 *   0x00000000  MP floating pointer (16 bytes: the kernel looks here first)
 *   0x00000500  GDT
 *   0x00001000  MP table
 *   0x00007000  boot_params ("zero page")
 *   0x00009000  page tables for the entry into long mode
 *   0x00020000  kernel command line
 *   0x00030000  setup_data entries: random seed, device tree
 *   0x0009fc00  end of low RAM
 *   0x000e0000  vmgenid page (in no memory map, backed by RAM of ours)
 *   0x00100000  kernel, then the initrd as high as fits below the hole
 *   0xc0000000  a second place of the boot timer, unless it is RAM
 *   0xd0000000  end of low memory at most. The boot timer, if asked for, and
 *               virtio-mmio windows from here: a page with registers at its
 *               end, a page of configuration
 *   0xfec00000  I/O APIC    0xfee00000  local APIC
 *   0xfeffd000  KVM's TSS and identity map (Intel hosts)
 *  0x100000000  the rest of RAM
 */

#include <stdint.h>

#define LAYOUT_MP_FLOATING 0x00000000u
#define LAYOUT_GDT         0x00000500u
#define LAYOUT_MP_TABLE    0x00001000u
#define LAYOUT_BOOT_PARAMS 0x00007000u
#define LAYOUT_PAGE_TABLES 0x00009000u
#define LAYOUT_CMDLINE     0x00020000u
#define LAYOUT_CMDLINE_MAX 2048u /* COMMAND_LINE_SIZE of x86, with the NUL */
#define LAYOUT_SETUP_DATA  0x00030000u
#define LAYOUT_LOW_RAM_END 0x0009fc00u
#define LAYOUT_VMGENID     0x000e0000u
#define LAYOUT_KERNEL_MIN  0x00100000u
#define LAYOUT_HOLE_START  0xd0000000ull
#define LAYOUT_HOLE_END    0x100000000ull
/*
 * The registers of a window are the last 256 bytes of a page and its
 * configuration is the next page: so the first can be memory that the guest
 * reads without leaving KVM_RUN, while reads of the second are answered.
 */
#define LAYOUT_VIRTIO_REGS   0x100ull
#define LAYOUT_VIRTIO_BASE   (LAYOUT_HOLE_START + 0x1000ull - LAYOUT_VIRTIO_REGS)
#define LAYOUT_VIRTIO_SIZE   (LAYOUT_VIRTIO_REGS + 0x1000ull)
#define LAYOUT_VIRTIO_STRIDE 0x2000ull
#define LAYOUT_IOAPIC        0xfec00000ull
#define LAYOUT_LAPIC         0xfee00000ull
#define LAYOUT_IDENTITY_MAP  0xfeffc000ull
#define LAYOUT_TSS           0xfeffd000ull

/*
 * Where guests made for Firecracker write when they have booted: first the
 * place that its test programs use, then that of its newer versions.
 */
#define LAYOUT_BOOT_TIMER     LAYOUT_HOLE_START
#define LAYOUT_BOOT_TIMER_NEW 0xc0000000ull

#define LAYOUT_UART_PORT    0x3f8u
#define LAYOUT_UART_GSI     4u
#define LAYOUT_KEYBOARD_GSI 1u
#define LAYOUT_I8042        0x60u
#define LAYOUT_IOAPIC_PINS  24u
#define LAYOUT_MAX_VCPUS    32u

/* Memory sizes that mote accepts, in bytes. */
#define LAYOUT_MIN_RAM (16ull << 20)
#define LAYOUT_MAX_RAM (1ull << 40)

/*
 * GSIs for devices: the pins that nothing else on a PC claims. One per device,
 * edge triggered.
 */
#define LAYOUT_DEVICE_GSIS                                                     \
    {                                                                          \
        5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23     \
    }
#define LAYOUT_MAX_DEVICES 18u
/* vmgenid takes the last of them when it is on. */

#endif
