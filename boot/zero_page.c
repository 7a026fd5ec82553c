/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/zero_page.h"

#include "boot/e820.h"
#include "vmm/layout_x86.h"

#include <string.h>

#define ZP_BOOT_FLAG    0xaa55u
#define ZP_SIGNATURE    0x53726448u /* "HdrS" */
#define ZP_PROTOCOL     0x020fu     /* for a kernel that brings no header */
#define ZP_LOADER_OTHER 0xffu       /* a loader without a number of its own */

_Static_assert(sizeof(struct boot_params) == 4096, "the zero page is a page");

int zero_page_write(struct guest_mem *gm, const struct zero_page *in)
{
    struct boot_e820_entry map[E820_MAX_OURS];
    struct boot_params bp;
    size_t n;

    memset(&bp, 0, sizeof(bp));
    bp.hdr = *in->hdr;
    if (bp.hdr.version == 0)
        bp.hdr.version = ZP_PROTOCOL;
    bp.hdr.boot_flag = ZP_BOOT_FLAG;
    bp.hdr.header = ZP_SIGNATURE;
    bp.hdr.type_of_loader = ZP_LOADER_OTHER;
    bp.hdr.loadflags = LOADED_HIGH;
    bp.hdr.cmd_line_ptr = LAYOUT_CMDLINE;
    bp.hdr.cmdline_size = in->cmdline_len;
    bp.hdr.ramdisk_image = (uint32_t)in->initrd_base;
    bp.hdr.ramdisk_size = (uint32_t)in->initrd_bytes;
    bp.ext_ramdisk_image = (uint32_t)(in->initrd_base >> 32);
    bp.ext_ramdisk_size = (uint32_t)(in->initrd_bytes >> 32);
    bp.hdr.setup_data = in->setup_data;
    n = e820_build(gm, map);
    memcpy(bp.e820_table, map, n * sizeof(map[0]));
    bp.e820_entries = (uint8_t)n;
    return gm_write(gm, LAYOUT_BOOT_PARAMS, &bp, sizeof(bp));
}
