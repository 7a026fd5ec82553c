/* SPDX-License-Identifier: Apache-2.0 */
/* The exit port: writes reason=N there; then=reset asks for a reset as well,
 * as a kernel does after its panic notifier. */
#include "guest/payloads/payload.h"

void payload_main(void)
{
    outb(PORT_EXIT_REASON, (uint8_t)payload_number("reason=", 0));
    if (payload_is("then=", "reset"))
        outb(PORT_KBC_COMMAND, 0xfe);
    payload_park();
}
