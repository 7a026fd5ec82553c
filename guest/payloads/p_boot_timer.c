/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the boot timer at at=ADDRESS that the boot is over: one write of
 * width=1, 2, 4 or 8 bytes, after others that mean nothing. */
#include "guest/payloads/payload.h"

#define BOOT_OVER 123u

void payload_main(void)
{
    uint64_t at = payload_number("at=", 0xd0000000);

    mmio_w8(at, BOOT_OVER - 1);
    mmio_w8(at + 1, BOOT_OVER);
    mmio_w32(at, BOOT_OVER << 8);
    (void)mmio_r8(at);
    switch (payload_number("width=", 1)) {
    case 8:
        mmio_w64(at, BOOT_OVER);
        break;
    case 4:
        mmio_w32(at, BOOT_OVER);
        break;
    case 2:
        mmio_w16(at, BOOT_OVER);
        break;
    default:
        mmio_w8(at, BOOT_OVER);
        break;
    }
}
