/* SPDX-License-Identifier: Apache-2.0 */
/* The keyboard controller's reset line ends the VM as a reboot. */
#include "guest/payloads/payload.h"

void payload_main(void)
{
    outb(PORT_KBC_COMMAND, 0xfe);
    payload_park();
}
