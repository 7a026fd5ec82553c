/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_PAYLOADS_TICKER_H
#define GUEST_PAYLOADS_TICKER_H

/*
 * A guest that goes on for ever: it wakes by a timer, checks something, and
 * says "tick N" on the serial port, N by one more each time. Whoever saves and
 * loads it sees by the numbers whether anything was lost or done twice.
 *
 * timer=lapic (default), timer=deadline or timer=pit say what wakes it;
 * period=N is in microseconds. A CPU has a local timer of its own; the PIT
 * wakes the first one.
 */

#include "guest/payloads/payload.h"

/* On each CPU that is to wake by its timer; interrupts stay off in between. */
void ticker_start(void);
/* Halts until the timer's next interrupt; all registers have to be the same
 * behind it. */
void ticker_wait(void);
/* "tick N". */
void ticker_say(uint64_t n);
void print_decimal(uint64_t v);

/* What tick `n` leaves in place `i`: another number for each pair. */
static inline uint64_t ticker_mix(uint64_t n, uint64_t i)
{
    return (n + 1) * 0x9e3779b97f4a7c15ull ^ i * 0xc2b2ae3d27d4eb4full;
}

#endif
