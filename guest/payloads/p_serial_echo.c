/* SPDX-License-Identifier: Apache-2.0 */
/* Echoes bytes from the serial port until count=N of them have come. */
#include "guest/payloads/payload.h"

#include <linux/serial_reg.h>

void payload_main(void)
{
    uint64_t left = payload_number("count=", 1);

    print("ready\n");
    while (left > 0) {
        uint64_t deadline = patience();

        while (!(inb(PORT_UART + UART_LSR) & UART_LSR_DR))
            check(!over(deadline), "input does not come");
        outb(PORT_UART, inb(PORT_UART + UART_RX));
        left--;
    }
    check_eq(inb(PORT_UART + UART_LSR), UART_LSR_TEMT | UART_LSR_THRE,
             "LSR after the last byte");
}
