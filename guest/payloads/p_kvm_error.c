/* SPDX-License-Identifier: Apache-2.0 */
/* Runs code where nothing is: KVM can neither fetch nor emulate it. */
#include "guest/payloads/payload.h"

void payload_main(void)
{
    void (*nowhere)(void) = (void (*)(void))0xe0000000ul;

    nowhere();
    payload_fail("a jump to nowhere came back");
}
