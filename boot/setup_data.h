/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_SETUP_DATA_H
#define BOOT_SETUP_DATA_H

/*
 * The chain of setup_data entries that boot_params points to. Each is linked
 * to the one before when it is added. spec: x86-boot 2.15, setup_data.
 *
 * Ownership: borrows the guest memory. Threads: any. Errors: -ENOSPC when the
 * room below LAYOUT_LOW_RAM_END is used up, -EFAULT.
 */

#include "vmm/guest_mem.h"

struct setup_chain {
    struct guest_mem *gm;
    gpa_t first; /* 0 while the chain is empty */
    gpa_t last;
    gpa_t free; /* where the next entry goes */
};

void setup_chain_init(struct setup_chain *chain, struct guest_mem *gm);

/* `type` is one of SETUP_* in <asm/bootparam.h>. */
int setup_chain_add(struct setup_chain *chain, uint32_t type, const void *data,
                    uint32_t len_bytes) MUST_CHECK;

#endif
