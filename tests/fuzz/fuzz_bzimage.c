/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as a kernel file: named if it is none, parsed if it has the
 * signature of a bzImage, its payload unpacked, and that taken as an ELF.
 */

#include "boot/bzimage.h"
#include "boot/elf_x86.h"
#include "boot/file_kind.h"
#include "boot/unpack.h"

#include <assert.h>

#define FUZZ_MAX_UNPACKED (1 * MIB)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t head = size < FILE_KIND_HEAD ? size : FILE_KIND_HEAD;
    const char *remedy = NULL;
    struct errmsg err;
    struct elf_source src = {.name = "fuzz", .fd = -1};
    struct unpacked u = {0};
    struct bzimage bz;
    struct elf_x86 elf;

    (void)file_kind_name(data, head, &remedy);
    if (!bzimage_is(data, head) ||
        bzimage_parse("fuzz", data, head, size, &bz, &err))
        return 0;
    assert(bz.payload_offset <= size);
    assert(bz.payload_bytes <= size - bz.payload_offset);
    if (unpack_payload("fuzz", data + bz.payload_offset, bz.payload_bytes,
                       min_u64(bz.max_bytes, FUZZ_MAX_UNPACKED), &u, &err))
        return 0;
    src.bytes = u.bytes;
    src.size_bytes = u.size_bytes;
    (void)!elf_x86_parse(&src, &elf, &err); /* either answer is fine */
    unpack_free(&u);
    return 0;
}
