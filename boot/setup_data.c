/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/setup_data.h"

#include "vmm/layout_x86.h"

#include <asm/bootparam.h>

#define SETUP_ALIGN 16u /* the header is 16 bytes: a device tree needs 8 */

_Static_assert(sizeof(struct setup_data) % 8 == 0, "payload stays aligned");

void setup_chain_init(struct setup_chain *chain, struct guest_mem *gm)
{
    *chain = (struct setup_chain){.gm = gm, .free = LAYOUT_SETUP_DATA};
}

int setup_chain_add(struct setup_chain *chain, uint32_t type, const void *data,
                    uint32_t len_bytes)
{
    struct setup_data head = {.type = type, .len = len_bytes};
    gpa_t at = chain->free;
    uint64_t link = at;
    int rc;

    if (at + sizeof(head) + len_bytes > LAYOUT_LOW_RAM_END)
        return -ENOSPC;
    rc = gm_write(chain->gm, at, &head, sizeof(head));
    if (rc == 0)
        rc = gm_write(chain->gm, at + sizeof(head), data, len_bytes);
    if (rc == 0 && chain->first != 0)
        rc =
            gm_write(chain->gm, chain->last + offsetof(struct setup_data, next),
                     &link, sizeof(link));
    if (rc)
        return rc;
    if (chain->first == 0)
        chain->first = at;
    chain->last = at;
    chain->free = align_up(at + sizeof(head) + len_bytes, SETUP_ALIGN);
    return 0;
}
