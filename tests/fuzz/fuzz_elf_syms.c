/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes as a program with symbols: parsed, then asked for addresses. */

#include "tools/mote/elf_syms.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct elf_syms s;

    if (elf_syms_parse(data, size, &s, NULL)) {
        assert(!s.list && s.count == 0);
        return 0;
    }
    assert(s.count > 0);
    for (size_t i = 0; i < s.count; i++) {
        const struct elf_sym *y = elf_syms_find(&s, s.list[i].addr);

        assert(i == 0 || s.list[i - 1].addr <= s.list[i].addr);
        assert(strlen(s.list[i].name) > 0);
        assert(!y || y->addr <= s.list[i].addr);
    }
    (void)elf_syms_find(&s, 0);
    (void)elf_syms_find(&s, UINT64_MAX);
    elf_syms_fini(&s);
    return 0;
}
