/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_ELF_SYMS_H
#define TOOLS_MOTE_ELF_SYMS_H

/*
 * The functions of an ELF program by address, from its .symtab.
 *
 * A reader of our own, because one section of one kind of file is needed:
 * libelf would be a dependency of every installation, for a bench. The file
 * may be anything: all offsets are checked, fuzzed by
 * tests/fuzz/fuzz_elf_syms.c.
 *
 * Ownership: symbols point into the caller's bytes, which outlive them.
 * Threads: any. Errors: -errno with a line.
 */

#include "tools/libmote/err.h"

struct elf_sym {
    uint64_t addr;
    uint64_t size; /* bytes; 0 where the file does not say */
    const char *name;
};

struct elf_syms {
    struct elf_sym *list; /* sorted by address */
    size_t count;
};

/* 64 bits, little-endian. -ENOEXEC: not such a file or damaged; -ENODATA: it
 * has no symbols. */
int elf_syms_parse(const void *bytes, size_t len, struct elf_syms *out,
                   struct mote_err *err) MUST_CHECK;
void elf_syms_fini(struct elf_syms *s); /* idempotent */

/*
 * The symbol that holds `addr`: within its size, or else the label before it
 * that has no size. NULL: none does.
 */
const struct elf_sym *elf_syms_find(const struct elf_syms *s, uint64_t addr);

#endif
