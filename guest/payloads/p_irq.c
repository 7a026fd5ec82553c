/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every attached device and the UART raise their own line: one request of
 * each arrives as its interrupt through the I/O APIC and the local APIC, and
 * no other does (BL-009). devices=N is how many to expect.
 */
#include "guest/payloads/intr.h"
#include "guest/payloads/virtio.h"

#include <linux/serial_reg.h>

#define UART_PIN 4u

static void wait_for(uint32_t pin)
{
    uint64_t deadline = patience();

    while (intr_count[INTR_VECTOR(pin)] == 0) {
        if (!over(deadline))
            continue;
        print("FAIL: no interrupt on line ");
        print_hex(pin);
        print("\n");
        payload_result(PAYLOAD_FAIL);
    }
}

/* The lines that may have come so far are `pins`; count and clear them. */
static void check_only(uint32_t pin)
{
    for (uint32_t i = INTR_FIRST; i < INTR_VECTORS; i++) {
        if (i != INTR_VECTOR(pin))
            check_eq(intr_count[i], 0, "interrupts of other lines");
    }
    check_eq(intr_count[INTR_VECTOR(pin)], 1, "interrupts of the line");
    intr_count[INTR_VECTOR(pin)] = 0;
}

static void check_uart(void)
{
    outb(PORT_UART + UART_IER, UART_IER_THRI);
    wait_for(UART_PIN);
    check_eq(inb(PORT_UART + UART_IIR), UART_IIR_THRI, "IIR");
    outb(PORT_UART + UART_IER, 0);
    check_only(UART_PIN);
}

static void check_device(struct vdev *d)
{
    uint32_t may_stay = (uint32_t)payload_number("may_stay=", 1);

    vd_start(d, 0, vd_poke_queue(d));
    check_eq(vd_read(d, VIRTIO_MMIO_INTERRUPT_STATUS), 0, "status at start");
    vd_poke(d);
    wait_for(d->gsi);
    check_eq(vd_read(d, VIRTIO_MMIO_INTERRUPT_STATUS), VIRTIO_MMIO_INT_VRING,
             "interrupt status");
    vd_write(d, VIRTIO_MMIO_INTERRUPT_ACK, VIRTIO_MMIO_INT_VRING);
    /* The bit of used buffers may stay: devices/README.md says when. */
    check_eq(vd_read(d, VIRTIO_MMIO_INTERRUPT_STATUS) & ~may_stay, 0,
             "status after ack");
    check_only(d->gsi);
}

void payload_main(void)
{
    uint32_t n = vd_find_all();

    check_eq(n, payload_number("devices=", 0), "devices");
    intr_init_apics();
    ioapic_route(UART_PIN);
    for (uint32_t i = 0; i < n; i++)
        ioapic_route(vd_list[i].gsi);
    intr_on();
    check_uart();
    for (uint32_t i = 0; i < n; i++)
        check_device(&vd_list[i]);
}
