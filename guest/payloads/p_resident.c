/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has mib=N MiB of memory in use and then ticks without writing much: each of
 * its pages has a number of its own, of which a few are looked at with each
 * tick. What a fork of a large guest that rests costs shows with it.
 */
#include "guest/payloads/ticker.h"

#define PAGE     4096ull
#define FIRST    (32ull << 20) /* above the program and what boot/ left */
#define MAX_MIB  2048u
#define PER_TICK 64u

void payload_main(void)
{
    uint64_t mib = payload_number("mib=", 64);
    uint64_t num = (mib << 20) / PAGE;

    check(mib > 0 && mib <= MAX_MIB, "mib= is out of range");
    for (uint64_t i = 0; i < num; i++)
        mmio_w64(FIRST + i * PAGE, ticker_mix(1, i));
    ticker_start();
    for (uint64_t n = 0;; n++) {
        for (uint64_t k = 0; k < PER_TICK; k++) {
            uint64_t i = (n * PER_TICK + k) % num;

            check_eq(mmio_r64(FIRST + i * PAGE), ticker_mix(1, i),
                     "the number in a page");
        }
        ticker_say(n);
        ticker_wait();
    }
}
