/* SPDX-License-Identifier: Apache-2.0 */
/* INT3 gives exception 3 with the return address behind it, and FWAIT does
 * nothing: where KVM cannot emulate them the monitor completes them. */
#include "guest/payloads/intr.h"

void payload_main(void)
{
    uint64_t behind;

    intr_expected = 3;
    __asm__ volatile("leaq 1f(%%rip), %0\n\t"
                     "int3\n"
                     "1:"
                     : "=r"(behind)
                     :
                     : "memory");
    check_eq(intr_count[3], 1, "exceptions 3");
    check_eq(intr_last_rip, behind, "return address of INT3");
    __asm__ volatile("fwait" ::: "memory");
    __asm__ volatile("int3\n\tfwait\n\tint3" ::: "memory");
    check_eq(intr_count[3], 3, "exceptions 3 in the end");
}
