/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_ZERO_PAGE_H
#define BOOT_ZERO_PAGE_H

/*
 * struct boot_params for an entry by the 64-bit boot protocol. Pure but for
 * the write to guest memory; threads: any. spec: x86-boot 2.15.
 */

#include "vmm/guest_mem.h"

#include <asm/bootparam.h>

struct zero_page {
    const struct setup_header *hdr; /* of a bzImage, all zero for an ELF */
    uint32_t cmdline_len;           /* at LAYOUT_CMDLINE, without the NUL */
    gpa_t initrd_base;              /* below 4 GiB */
    uint64_t initrd_bytes;          /* 0: none */
    gpa_t setup_data;               /* first entry, or 0 */
};

/* Writes the page to LAYOUT_BOOT_PARAMS. 0 or -EFAULT. */
int zero_page_write(struct guest_mem *gm,
                    const struct zero_page *in) MUST_CHECK;

#endif
