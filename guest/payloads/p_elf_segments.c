/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the loader makes of the ELF file: bss is zero, large initialised data
 * is there (the monitor maps it), and writes to it stay in this VM, which
 * tests/kvm sees by the file's unchanged hash.
 */
#include "guest/payloads/payload.h"

#define PAGE_WORDS 512u
#define PAGES      64u

#define ROW4(x)   x, x + 1, x + 2, x + 3
#define PAGE(n)   [(n)*PAGE_WORDS] = ROW4(0x1000000ull * (n) + 7)
#define PAGE4(n)  PAGE(n), PAGE(n + 1), PAGE(n + 2), PAGE(n + 3)
#define PAGE16(n) PAGE4(n), PAGE4(n + 4), PAGE4(n + 8), PAGE4(n + 12)

static volatile uint64_t data[PAGES * PAGE_WORDS] = {PAGE16(0), PAGE16(16),
                                                     PAGE16(32), PAGE16(48)};
static volatile uint64_t zeroes[PAGES * PAGE_WORDS];

void payload_main(void)
{
    for (uint64_t n = 0; n < PAGES; n++) {
        volatile uint64_t *page = &data[n * PAGE_WORDS];

        check_eq(page[0], 0x1000000 * n + 7, "first word of a data page");
        check_eq(page[3], 0x1000000 * n + 10, "fourth word of a data page");
        check_eq(page[PAGE_WORDS - 1], 0, "last word of a data page");
        check_eq(zeroes[n * PAGE_WORDS], 0, "first word of a bss page");
        check_eq(zeroes[n * PAGE_WORDS + PAGE_WORDS - 1], 0,
                 "last word of a bss page");
    }
    for (uint64_t n = 0; n < PAGES; n++)
        data[n * PAGE_WORDS] = ~n;
    for (uint64_t n = 0; n < PAGES; n++)
        check_eq(data[n * PAGE_WORDS], ~n, "a data page after a write");
}
