/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ctrl, Alt and Delete pressed by the host come through the keyboard
 * controller, an interrupt and a byte at a time.
 */
#include "guest/payloads/intr.h"

#define KEYS_PIN    1u
#define KEYS_DATA   0x60u
#define KEYS_STATUS 0x64u
#define KEYS_CONFIG 0x45u /* interrupt, self-test passed, translation */

/* As a driver does: a byte is read when its interrupt has come. */
static void keys_want(uint32_t i, uint8_t want)
{
    uint64_t deadline = patience();

    while (intr_count[INTR_VECTOR(KEYS_PIN)] <= i) {
        if (over(deadline))
            payload_fail("no interrupt for a key");
    }
    check_eq(inb(KEYS_STATUS) & 0x01, 0x01, "a byte is there");
    check_eq(inb(KEYS_DATA), want, "byte of a key");
}

void payload_main(void)
{
    static const uint8_t keys[] = {0x1d, 0x38, 0xe0, 0x53,
                                   0xe0, 0xd3, 0xb8, 0x9d};

    intr_init_apics();
    ioapic_route(KEYS_PIN);
    intr_on();
    outb(KEYS_STATUS, 0x60);
    outb(KEYS_DATA, KEYS_CONFIG);
    print("ready\n");
    for (uint32_t i = 0; i < sizeof(keys); i++)
        keys_want(i, keys[i]);
    check_eq(intr_count[INTR_VECTOR(KEYS_PIN)], sizeof(keys), "interrupts");
    check_eq(inb(KEYS_STATUS) & 0x01, 0, "a byte is there after the last");
}
