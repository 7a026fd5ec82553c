/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_FDT_X86_H
#define BOOT_FDT_X86_H

/*
 * The device tree that describes the machine to x86 Linux: CPUs, the two
 * APICs, virtio-mmio windows, vmgenid. Memory, command line, initrd and seed
 * stay in boot_params: x86 does not look for them here. Pure; threads: any.
 */

#include "boot/boot_machine.h"

/* More than the largest tree needs: 32 CPUs and 18 devices take 5 KiB. */
#define FDT_X86_MAX_BYTES 16384u

/* Writes the blob to `buf`, which is 8-byte aligned. 0, -ENOSPC, -EINVAL. */
int fdt_x86_build(const struct boot_machine *m, void *buf, size_t buf_bytes,
                  uint32_t *out_len_bytes) MUST_CHECK;

#endif
