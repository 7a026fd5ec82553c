/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as an ELF kernel: parsed, checked against a VM of 32 MiB and, if
 * that passes, loaded from memory and from a file.
 */

#include "boot/elf_x86.h"

#include "vmm/cleanup.h"

#include <assert.h>
#include <sys/mman.h>

#define FUZZ_RAM (32 * MIB)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_load(const struct elf_source *src, const struct elf_x86 *elf)
{
    struct guest_mem *gm = NULL;
    struct errmsg err;

    assert(gm_new(FUZZ_RAM, &gm) == 0);
    if (elf_x86_check_fit(elf, gm, src->name, &err) == 0) {
        assert(elf_x86_load(src, elf, gm, false, &err) == 0);
        (void)elf_x86_has_text(elf, gm, "intel,ce4100-ioapic");
    }
    gm_free(gm);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct elf_source src = {
        .name = "fuzz", .fd = -1, .bytes = data, .size_bytes = size};
    CLEANUP_FD int fd = -1;
    struct errmsg err;
    struct elf_x86 elf;

    if (elf_x86_parse(&src, &elf, &err))
        return 0;
    assert(elf.num_segments > 0 && elf.num_segments <= ELF_X86_MAX_SEGMENTS);
    assert(elf.entry >= elf.start && elf.entry < elf.end);
    fuzz_load(&src, &elf);

    fd = memfd_create("fuzz", MFD_CLOEXEC);
    assert(fd >= 0 && util_write_full(fd, data, size) == 0);
    src.bytes = NULL;
    src.fd = fd;
    fuzz_load(&src, &elf);
    return 0;
}
