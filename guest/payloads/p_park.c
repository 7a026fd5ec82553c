/* SPDX-License-Identifier: Apache-2.0 */
/* Says so, halts with interrupts off, and is no end of the VM (BL-012). */
#include "payload.h"

void payload_main(void)
{
    print("parked\n");
    payload_park();
}
