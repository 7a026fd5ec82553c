/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_ELF_X86_H
#define BOOT_ELF_X86_H

/*
 * ELF64 x86-64 executables as Linux's vmlinux is one: checked in full first,
 * then put at the physical addresses (p_paddr) that they ask for. Whole pages
 * of a plain file are mapped privately, so that many VMs share them; the rest
 * is copied.
 *
 * Ownership: the source's fd and bytes are borrowed for each call; mapped
 * pages outlive the fd. Threads: any, before the first vCPU runs.
 * Errors: -errno with a line for the user. syscalls: pread64, mmap.
 */

#include "vmm/errmsg.h"
#include "vmm/guest_mem.h"

/* Where the bytes of the ELF are: a file, or memory when `bytes` is set. */
struct elf_source {
    const char *name; /* of the file, for error lines */
    int fd;
    const uint8_t *bytes;
    uint64_t size_bytes;
};

/* vmlinux has 4 or 5; unikernels a few more. */
#define ELF_X86_MAX_SEGMENTS 32u

struct elf_x86_segment {
    gpa_t gpa;
    uint64_t mem_bytes;  /* > 0; the part past the file's is zero */
    uint64_t file_bytes; /* <= mem_bytes */
    uint64_t offset;     /* in the file */
    uint64_t vaddr;
};

struct elf_x86 {
    gpa_t entry; /* physical, inside a segment */
    gpa_t start; /* lowest byte of all segments */
    gpa_t end;   /* one past the highest */
    size_t num_segments;
    struct elf_x86_segment segments[ELF_X86_MAX_SEGMENTS];
    gpa_t rodata; /* constants, if the section table tells; else len 0 */
    uint64_t rodata_bytes;
};

/*
 * Reads and checks the headers; nothing is loaded. Everything in `out` is
 * consistent with the source's size and free of overflow and overlap.
 */
int elf_x86_parse(const struct elf_source *src, struct elf_x86 *out,
                  struct errmsg *err) MUST_CHECK;

/* Does all of it lie between 1 MiB and the end of low RAM? */
int elf_x86_check_fit(const struct elf_x86 *elf, const struct guest_mem *gm,
                      const char *name, struct errmsg *err) MUST_CHECK;

/*
 * Loads what elf_x86_check_fit() passed. `ram_is_fresh`: memory is known to
 * be zero, so that the bss need not be touched.
 */
int elf_x86_load(const struct elf_source *src, const struct elf_x86 *elf,
                 struct guest_mem *gm, bool ram_is_fresh,
                 struct errmsg *err) MUST_CHECK;

/*
 * Is `text` among the constants of a loaded kernel? Looks at .rodata, or at
 * all that came from the file when there is no section table.
 */
bool elf_x86_has_text(const struct elf_x86 *elf, const struct guest_mem *gm,
                      const char *text);

#endif
