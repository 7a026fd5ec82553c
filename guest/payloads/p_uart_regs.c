/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The 16550A as drivers see it: the transmitter's interrupt cause comes and
 * goes, loop-back, FIFO bits, latches. spec: PC16550D data sheet
 */
#include "guest/payloads/payload.h"

#include <linux/serial_reg.h>

static uint8_t uart_in(uint16_t reg)
{
    return inb((uint16_t)(PORT_UART + reg));
}

static void uart_out(uint16_t reg, uint8_t v)
{
    outb((uint16_t)(PORT_UART + reg), v);
}

static void check_cause(uint8_t want, const char *what)
{
    check_eq(uart_in(UART_IIR), want, what);
}

static void check_transmitter(void)
{
    check_cause(UART_IIR_NO_INT, "IIR at start");
    uart_out(UART_IER, UART_IER_THRI);
    check_eq(uart_in(UART_IER), UART_IER_THRI, "IER reads back");
    check_cause(UART_IIR_THRI, "IIR once THRI is enabled");
    check_cause(UART_IIR_NO_INT, "IIR after its read cleared the cause");
    uart_out(UART_TX, 'a');
    check_cause(UART_IIR_THRI, "IIR after a byte went out");
    check_cause(UART_IIR_NO_INT, "IIR, read a second time");
    uart_out(UART_TX, 'b');
    uart_out(UART_IER, 0);
    check_cause(UART_IIR_NO_INT, "IIR with everything disabled");
    uart_out(UART_IER, UART_IER_THRI);
    check_cause(UART_IIR_THRI, "IIR after THRI was enabled again");
    uart_out(UART_IER, 0);
}

static void check_loopback(void)
{
    uart_out(UART_IER, UART_IER_RDI);
    uart_out(UART_MCR, UART_MCR_LOOP | UART_MCR_RTS);
    check_eq(uart_in(UART_MSR), UART_MSR_CTS, "MSR in loop-back");
    uart_out(UART_TX, 'x');
    check_cause(UART_IIR_RDI, "IIR with a byte received");
    check(uart_in(UART_LSR) & UART_LSR_DR, "LSR.DR is missing");
    check_eq(uart_in(UART_RX), 'x', "the byte from loop-back");
    check_cause(UART_IIR_NO_INT, "IIR after the byte was read");
    uart_out(UART_MCR, 0);
    uart_out(UART_IER, 0);
}

static void check_latches(void)
{
    uart_out(UART_FCR, UART_FCR_ENABLE_FIFO);
    check_eq(uart_in(UART_IIR) & 0xc0, 0xc0, "FIFO bits of IIR");
    uart_out(UART_FCR, 0);
    check_eq(uart_in(UART_IIR) & 0xc0, 0, "FIFO bits of IIR, switched off");
    uart_out(UART_SCR, 0x5a);
    check_eq(uart_in(UART_SCR), 0x5a, "SCR");
    uart_out(UART_LCR, UART_LCR_DLAB | UART_LCR_WLEN8);
    uart_out(UART_DLL, 0x34);
    uart_out(UART_DLM, 0x12);
    check_eq(uart_in(UART_DLL), 0x34, "divisor, low byte");
    check_eq(uart_in(UART_DLM), 0x12, "divisor, high byte");
    uart_out(UART_LCR, UART_LCR_WLEN8);
    check_eq(uart_in(UART_IER), 0, "IER behind the divisor latch");
    check_eq(uart_in(UART_LSR), UART_LSR_TEMT | UART_LSR_THRE, "LSR at rest");
}

void payload_main(void)
{
    check_transmitter();
    check_loopback();
    check_latches();
}
