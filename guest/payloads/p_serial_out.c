/* SPDX-License-Identifier: Apache-2.0 */
/* All byte values go out as they are, in order. */
#include "guest/payloads/payload.h"

void payload_main(void)
{
    for (uint32_t i = 0; i < 256; i++)
        outb(PORT_UART, (uint8_t)i);
}
