/* SPDX-License-Identifier: Apache-2.0 */
/* An exception without any IDT: no clean stop, whoever sees it (BL-012). */
#include "guest/payloads/intr.h"

void payload_main(void)
{
    intr_drop_idt();
    __asm__ volatile("ud2");
    payload_fail("ud2 without an IDT went on");
}
