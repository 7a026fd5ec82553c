/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes one number after the other to pages=N pages, in order and without a
 * rest, and finds in each the number before. A copy whose memory is not of one
 * instant, that of its registers, finds another one. Says "tick N" each time
 * that it has been at all pages.
 */
#include "guest/payloads/ticker.h"

#define MAX_PAGES 4096u

static volatile uint64_t pages[MAX_PAGES][512] __attribute__((aligned(4096)));

void payload_main(void)
{
    uint64_t num = payload_number("pages=", 1000);

    check(num <= MAX_PAGES, "too many pages");
    for (uint64_t n = 0;; n++) {
        for (uint64_t i = 0; i < num; i++) {
            check_eq(pages[i][i % 512], n, "the number in a page");
            pages[i][i % 512] = n + 1;
        }
        ticker_say(n);
    }
}
