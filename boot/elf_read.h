/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_ELF_READ_H
#define BOOT_ELF_READ_H

/*
 * Bounded reads from an ELF, whether it lies in a file or in memory, and the
 * search for a section by name. Pure apart from pread64; threads: any.
 */

#include "boot/elf_x86.h"

#include <elf.h>

/* Exactly `len` bytes at `off`; -ENODATA past the end, or -errno. */
int elf_read(const struct elf_source *src, uint64_t off, void *buf,
             uint64_t len) MUST_CHECK;

/* Entry `index` of a table of `size`-byte entries that starts at `table`. */
int elf_read_entry(const struct elf_source *src, uint64_t table, uint64_t index,
                   void *buf, uint64_t size) MUST_CHECK;

/* False when there is no usable section table or no such section. */
bool elf_find_section(const struct elf_source *src, const Elf64_Ehdr *eh,
                      const char *name, Elf64_Shdr *out);

#endif
