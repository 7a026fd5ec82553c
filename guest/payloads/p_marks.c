/* SPDX-License-Identifier: Apache-2.0 */
/* The boot mark port: marks 1, 2, 3 and 255 get into the exit file. */
#include "guest/payloads/payload.h"

void payload_main(void)
{
    outb(PORT_BOOT_MARK, 1);
    outb(PORT_BOOT_MARK, 2);
    outb(PORT_BOOT_MARK, 3);
    outb(PORT_BOOT_MARK, 255);
}
