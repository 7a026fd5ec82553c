/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/elf_read.h"

#include <string.h>

/* Enough for any kernel (vmlinux has about 40); bounds the reads. */
#define ELF_MAX_SECTIONS 256u
#define ELF_MAX_NAME     32u

int elf_read(const struct elf_source *src, uint64_t off, void *buf,
             uint64_t len)
{
    if (off > src->size_bytes || len > src->size_bytes - off)
        return -ENODATA;
    if (!src->bytes)
        return util_pread_full(src->fd, buf, len, (off_t)off);
    memcpy(buf, src->bytes + off, len);
    return 0;
}

int elf_read_entry(const struct elf_source *src, uint64_t table, uint64_t index,
                   void *buf, uint64_t size)
{
    uint64_t off;

    if (__builtin_mul_overflow(index, size, &off) ||
        __builtin_add_overflow(table, off, &off))
        return -ENODATA;
    return elf_read(src, off, buf, size);
}

static bool elf_section_is(const struct elf_source *src, const Elf64_Shdr *strs,
                           const Elf64_Shdr *sh, const char *name)
{
    char buf[ELF_MAX_NAME];
    uint64_t len = strlen(name) + 1;
    uint64_t off;

    if (sh->sh_name >= strs->sh_size || len > strs->sh_size - sh->sh_name ||
        len > sizeof(buf))
        return false;
    if (__builtin_add_overflow(strs->sh_offset, sh->sh_name, &off) ||
        elf_read(src, off, buf, len))
        return false;
    return memcmp(buf, name, len) == 0;
}

bool elf_find_section(const struct elf_source *src, const Elf64_Ehdr *eh,
                      const char *name, Elf64_Shdr *out)
{
    Elf64_Shdr strs;
    Elf64_Shdr sh;

    if (eh->e_shentsize != sizeof(sh) || eh->e_shnum > ELF_MAX_SECTIONS ||
        eh->e_shstrndx >= eh->e_shnum)
        return false;
    if (elf_read_entry(src, eh->e_shoff, eh->e_shstrndx, &strs, sizeof(strs)))
        return false;
    for (uint64_t i = 0; i < eh->e_shnum; i++) {
        if (elf_read_entry(src, eh->e_shoff, i, &sh, sizeof(sh)))
            return false;
        if (elf_section_is(src, &strs, &sh, name)) {
            *out = sh;
            return true;
        }
    }
    return false;
}
