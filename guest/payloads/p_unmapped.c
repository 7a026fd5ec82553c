/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where nothing is, reads give all ones and writes are dropped, as on an
 * empty bus: ports and memory, all widths, also across a device's edge.
 */
#include "guest/payloads/payload.h"

#include <linux/serial_reg.h>

#define FREE_PORT 0x2f8u
#define FREE_AT   0xe0000000ull
#define WINDOWS   0xd0000000ull /* of virtio; this VM has no device */

static void check_port(uint16_t port)
{
    check_eq(inb(port), 0xff, "inb of an unmapped port");
    check_eq(inw(port), 0xffff, "inw of an unmapped port");
    check_eq(inl(port), 0xffffffff, "inl of an unmapped port");
    outb(port, 0x12);
    outw(port, 0x1234);
    outl(port, 0x12345678);
    check_eq(inl(port), 0xffffffff, "inl after writes");
}

static void check_memory(uint64_t at)
{
    check_eq(mmio_r8(at), 0xff, "1-byte read of unmapped memory");
    check_eq(mmio_r16(at), 0xffff, "2-byte read of unmapped memory");
    check_eq(mmio_r32(at), 0xffffffff, "4-byte read of unmapped memory");
    check_eq(mmio_r64(at), UINT64_MAX, "8-byte read of unmapped memory");
    mmio_w8(at, 0x12);
    mmio_w16(at, 0x1234);
    mmio_w32(at, 0x12345678);
    mmio_w64(at, 0x123456789abcdef0);
    check_eq(mmio_r64(at), UINT64_MAX, "8-byte read after writes");
}

void payload_main(void)
{
    uint64_t ram_end = payload_number("mem=", 128) << 20;

    check_port(FREE_PORT);
    check_port(0x80);
    check_port(0xffe0);
    /* Wider than the UART's last register, so nobody's. */
    outb(PORT_UART + UART_SCR, 0x5a);
    check_eq(inl(PORT_UART + UART_SCR), 0xffffffff, "inl across an edge");
    outl(PORT_UART + UART_SCR, 0);
    check_eq(inb(PORT_UART + UART_SCR), 0x5a, "SCR after a write across it");
    check_memory(FREE_AT);
    check_memory(FREE_AT + 0xffd); /* across pages, not aligned */
    check_memory(WINDOWS);
    check_memory(ram_end);
}
