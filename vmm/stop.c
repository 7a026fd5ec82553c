/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/stop.h"

#include "vmm/util.h"

const char *stop_reason_name(enum stop_reason reason)
{
    static const char *const names[] = {
        [STOP_NONE] = "none",           [STOP_POWEROFF] = "poweroff",
        [STOP_REBOOT] = "reboot",       [STOP_HALT] = "halt",
        [STOP_PANIC] = "panic",         [STOP_TRIPLE_FAULT] = "triple_fault",
        [STOP_KVM_ERROR] = "kvm_error", [STOP_TEST] = "test",
        [STOP_REQUEST] = "request",     [STOP_INTERNAL] = "internal",
    };

    return (size_t)reason < ARRAY_SIZE(names) ? names[reason] : "unknown";
}
