/* SPDX-License-Identifier: Apache-2.0 */
/* The initrd lies whole in RAM above the kernel, page aligned, and holds what
 * its file holds: bytes=N bytes, the k-th 8-byte word being k. */
#include "guest/payloads/payload.h"

#include <asm/bootparam.h>

extern const char payload_end[];

void payload_main(void)
{
    const struct boot_params *bp = payload_boot_params;
    uint64_t at = bp->hdr.ramdisk_image | (uint64_t)bp->ext_ramdisk_image << 32;
    uint64_t size = bp->hdr.ramdisk_size | (uint64_t)bp->ext_ramdisk_size << 32;
    uint64_t bytes = payload_number("bytes=", 0);

    check_eq(size, bytes, "size of the initrd");
    check_eq(at & 0xfff, 0, "page offset of the initrd");
    check(at >= (uintptr_t)payload_end, "the initrd overlaps the kernel");
    check(at + size <= payload_number("mem=", 128) << 20,
          "the initrd ends behind RAM");
    for (uint64_t k = 0; k < bytes / 8; k += 61)
        check_eq(mmio_r64(at + 8 * k), k, "a word of the initrd");
    check_eq(mmio_r64(at + bytes - 8), bytes / 8 - 1, "the last word");
}
