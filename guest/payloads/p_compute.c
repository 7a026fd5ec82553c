/* SPDX-License-Identifier: Apache-2.0 */
/* A long loop without any exit of its own does not end early: loops=N rounds
 * of a generator whose last value is known for N a power of two. */
#include "guest/payloads/payload.h"

void payload_main(void)
{
    uint64_t loops = payload_number("loops=", 1);
    uint64_t x = 1;
    uint64_t left = loops;

    while (left-- > 0) {
        x = x * 5 + 1;
        __asm__ volatile("" : "+r"(x));
    }
    /*
     * After n rounds x = 5^n + (5^n - 1) / 4, so 4x + 1 = 5 * 5^n. For n a
     * power of two, 5^n comes by squaring.
     */
    uint64_t power = 5;

    for (uint64_t n = 1; n < loops; n *= 2)
        power *= power;
    check_eq(4 * x + 1, 5 * power, "value after the loop");
}
