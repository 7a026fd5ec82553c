/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says so, halts with interrupts off, and is no end of the VM (BL-012). With
 * test_port=N it first writes N to the test port, which may be switched off.
 */
#include "guest/payloads/payload.h"

void payload_main(void)
{
    if (payload_word("test_port="))
        outb(PORT_EXIT_TEST, (uint8_t)payload_number("test_port=", 0));
    print("parked\n");
    payload_park();
}
