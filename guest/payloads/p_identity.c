/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the seed and the VM generation id: no two VMs have the same. */
#include "guest/payloads/payload.h"

#include <asm/bootparam.h>

#define VMGENID_AT 0xe0000ull

void payload_main(void)
{
    uint64_t at = payload_boot_params->hdr.setup_data;

    while (at != 0 && mmio_r32(at + 8) != SETUP_RNG_SEED)
        at = mmio_r64(at);
    check(at != 0, "no random seed");
    print("seed ");
    print_hex(mmio_r64(at + 16));
    print("\nvmgenid ");
    print_hex(mmio_r64(VMGENID_AT));
    print(" ");
    print_hex(mmio_r64(VMGENID_AT + 8));
    print("\n");
}
