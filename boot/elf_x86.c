/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/elf_x86.h"

#include "boot/elf_notes.h"
#include "boot/elf_read.h"
#include "boot/file_kind.h"
#include "vmm/layout_x86.h"

#include <elf.h>
#include <string.h>

#define ELF_PAGE 4096u
/*
 * Smaller pieces are copied: a mapping of its own costs more than it saves,
 * and they are data that the guest writes to anyway (per-CPU area).
 */
#define ELF_MAP_MIN (64 * KIB)

static const struct {
    uint16_t machine;
    const char *name;
} elf_machines[] = {
    {EM_386, "32-bit x86"},      {EM_AARCH64, "arm64"}, {EM_ARM, "32-bit ARM"},
    {EM_RISCV, "RISC-V"},        {EM_PPC64, "ppc64"},   {EM_PPC, "ppc"},
    {EM_S390, "s390"},           {EM_MIPS, "MIPS"},     {EM_SPARCV9, "SPARC64"},
    {EM_LOONGARCH, "LoongArch"},
};

static const char *elf_machine_name(uint16_t machine)
{
    for (size_t i = 0; i < ARRAY_SIZE(elf_machines); i++) {
        if (elf_machines[i].machine == machine)
            return elf_machines[i].name;
    }
    return "another machine";
}

static const char *elf_type_name(uint16_t type)
{
    if (type == ET_REL)
        return "a relocatable object file (.o or module)";
    if (type == ET_DYN)
        return "a shared object or position-independent program";
    if (type == ET_CORE)
        return "a core dump";
    return "of an unknown type";
}

static int elf_check_ident(const char *name, const Elf64_Ehdr *eh,
                           struct errmsg *err)
{
    if (memcmp(eh->e_ident, ELFMAG, SELFMAG))
        return err_set(err, -ENOEXEC, "kernel %.256s: is not an ELF file; %s",
                       name, FILE_KIND_ACCEPTED);
    if (eh->e_ident[EI_CLASS] != ELFCLASS64)
        return err_set(err, -ENOEXEC, "kernel %.256s: is a 32-bit ELF file; %s",
                       name, FILE_KIND_ACCEPTED);
    if (eh->e_ident[EI_DATA] != ELFDATA2LSB)
        return err_set(err, -ENOEXEC,
                       "kernel %.256s: is a big-endian ELF file; %s", name,
                       FILE_KIND_ACCEPTED);
    if (eh->e_machine != EM_X86_64)
        return err_set(err, -ENOEXEC,
                       "kernel %.256s: is an ELF file for %s (machine %u); %s",
                       name, elf_machine_name(eh->e_machine), eh->e_machine,
                       FILE_KIND_ACCEPTED);
    if (eh->e_type != ET_EXEC)
        return err_set(err, -ENOEXEC, "kernel %.256s: is %s; %s", name,
                       elf_type_name(eh->e_type), FILE_KIND_ACCEPTED);
    return 0;
}

static int elf_damaged(const char *name, const char *what, struct errmsg *err)
{
    return err_set(err, -ENOEXEC,
                   "kernel %.256s: damaged ELF file: %s; build or copy it "
                   "again",
                   name, what);
}

/* One PT_LOAD header; those without memory are left out. */
static int elf_add_segment(const struct elf_source *src, const Elf64_Phdr *ph,
                           struct elf_x86 *elf, struct errmsg *err)
{
    struct elf_x86_segment *seg = &elf->segments[elf->num_segments];
    uint64_t file_end;
    uint64_t mem_end;
    uint64_t vaddr_end;

    if (ph->p_memsz == 0)
        return 0;
    if (elf->num_segments == ELF_X86_MAX_SEGMENTS)
        return elf_damaged(src->name, "more than 32 segments", err);
    if (ph->p_filesz > ph->p_memsz)
        return elf_damaged(src->name, "a segment is larger in the file", err);
    if (__builtin_add_overflow(ph->p_offset, ph->p_filesz, &file_end) ||
        file_end > src->size_bytes)
        return elf_damaged(src->name, "a segment ends past the file's end",
                           err);
    if (__builtin_add_overflow(ph->p_paddr, ph->p_memsz, &mem_end) ||
        __builtin_add_overflow(ph->p_vaddr, ph->p_memsz - 1, &vaddr_end))
        return elf_damaged(src->name, "a segment wraps the address space", err);
    for (size_t i = 0; i < elf->num_segments; i++) {
        const struct elf_x86_segment *o = &elf->segments[i];

        if (ph->p_paddr < o->gpa + o->mem_bytes && o->gpa < mem_end)
            return elf_damaged(src->name, "segments overlap", err);
    }
    *seg = (struct elf_x86_segment){.gpa = ph->p_paddr,
                                    .mem_bytes = ph->p_memsz,
                                    .file_bytes = ph->p_filesz,
                                    .offset = ph->p_offset,
                                    .vaddr = ph->p_vaddr};
    if (elf->num_segments == 0 || seg->gpa < elf->start)
        elf->start = seg->gpa;
    if (mem_end > elf->end)
        elf->end = mem_end;
    elf->num_segments++;
    return 0;
}

/* Physical address of a loaded virtual range, as the segments place it. */
static bool elf_vaddr_to_gpa(const struct elf_x86 *elf, uint64_t vaddr,
                             uint64_t len_bytes, gpa_t *out_gpa)
{
    for (size_t i = 0; i < elf->num_segments; i++) {
        const struct elf_x86_segment *s = &elf->segments[i];

        if (vaddr < s->vaddr || vaddr - s->vaddr >= s->file_bytes)
            continue;
        if (len_bytes > s->file_bytes - (vaddr - s->vaddr))
            continue;
        *out_gpa = s->gpa + (vaddr - s->vaddr);
        return true;
    }
    return false;
}

/*
 * vmlinux names its entry by physical address (phys_startup_64); other ELF
 * kernels may name it by the virtual address of the same byte.
 */
static int elf_find_entry(const char *name, uint64_t entry, struct elf_x86 *elf,
                          struct errmsg *err)
{
    for (size_t i = 0; i < elf->num_segments; i++) {
        const struct elf_x86_segment *s = &elf->segments[i];

        if (entry >= s->gpa && entry - s->gpa < s->file_bytes) {
            elf->entry = entry;
            return 0;
        }
    }
    if (elf_vaddr_to_gpa(elf, entry, 1, &elf->entry))
        return 0;
    return elf_damaged(name, "the entry point is in no segment", err);
}

static int elf_read_segments(const struct elf_source *src, const Elf64_Ehdr *eh,
                             struct elf_x86 *elf, struct errmsg *err)
{
    Elf64_Phdr ph;
    int rc;

    if (eh->e_phentsize != sizeof(ph) || eh->e_phnum == 0 ||
        eh->e_phnum == PN_XNUM)
        return elf_damaged(src->name, "no usable program headers", err);
    for (uint64_t i = 0; i < eh->e_phnum; i++) {
        rc = elf_read_entry(src, eh->e_phoff, i, &ph, sizeof(ph));
        if (rc)
            return elf_damaged(src->name, "program headers past its end", err);
        if (ph.p_type != PT_LOAD)
            continue;
        rc = elf_add_segment(src, &ph, elf, err);
        if (rc)
            return rc;
    }
    if (elf->num_segments == 0)
        return elf_damaged(src->name, "nothing to load", err);
    return 0;
}

/* Only speeds a search up, so anything odd here is no error. */
static void elf_find_rodata(const struct elf_source *src, const Elf64_Ehdr *eh,
                            struct elf_x86 *elf)
{
    Elf64_Shdr sh;
    gpa_t gpa = 0;

    if (!elf_find_section(src, eh, ".rodata", &sh) || sh.sh_type == SHT_NOBITS)
        return;
    if (!elf_vaddr_to_gpa(elf, sh.sh_addr, sh.sh_size, &gpa))
        return;
    elf->rodata = gpa;
    elf->rodata_bytes = sh.sh_size;
}

int elf_x86_parse(const struct elf_source *src, struct elf_x86 *out,
                  struct errmsg *err)
{
    struct elf_x86 elf = {0};
    Elf64_Ehdr eh;
    int rc;

    rc = elf_read(src, 0, &eh, sizeof(eh));
    if (rc)
        return elf_damaged(src->name, "shorter than its header", err);
    rc = elf_check_ident(src->name, &eh, err);
    if (!rc)
        rc = elf_read_segments(src, &eh, &elf, err);
    if (rc)
        return rc;
    if (elf_is_pvh_only(src, &eh))
        return err_set(err, -ENOEXEC,
                       "kernel %.256s: can only be entered by the PVH "
                       "protocol; build it with a 64-bit Linux boot entry",
                       src->name);
    rc = elf_find_entry(src->name, eh.e_entry, &elf, err);
    if (rc)
        return rc;
    elf_find_rodata(src, &eh, &elf);
    *out = elf;
    return 0;
}

int elf_x86_check_fit(const struct elf_x86 *elf, const struct guest_mem *gm,
                      const char *name, struct errmsg *err)
{
    uint64_t low_bytes = gm_region(gm, 0)->len_bytes;

    if (elf->start < LAYOUT_KERNEL_MIN)
        return err_set(err, -ENOEXEC,
                       "kernel %.256s: wants to be loaded at 0x%llx; below "
                       "1 MiB is kept for boot data: link it higher",
                       name, (unsigned long long)elf->start);
    if (elf->end > LAYOUT_HOLE_START)
        return err_set(err, -ENOEXEC,
                       "kernel %.256s: wants memory up to 0x%llx; at most "
                       "0x%llx is possible: link it lower",
                       name, (unsigned long long)elf->end,
                       (unsigned long long)LAYOUT_HOLE_START);
    if (elf->end > low_bytes)
        return err_set(err, -ENOMEM,
                       "kernel %.256s: needs %llu MiB of guest memory to be "
                       "loaded and the VM has %llu MiB; give it more memory",
                       name,
                       (unsigned long long)(align_up(elf->end, MIB) / MIB),
                       (unsigned long long)(gm_ram_bytes(gm) / MIB));
    return 0;
}

/* Copies a piece of one segment's file part; small or at ragged ends. */
static int elf_copy(const struct elf_source *src,
                    const struct elf_x86_segment *seg, uint64_t from,
                    uint64_t to, struct guest_mem *gm)
{
    void *host = NULL;
    int rc;

    if (from == to)
        return 0;
    rc = gm_wptr(gm, seg->gpa + from, to - from, &host);
    if (rc)
        return rc;
    return elf_read(src, seg->offset + from, host, to - from);
}

static int elf_zero(struct guest_mem *gm, gpa_t gpa, uint64_t len_bytes)
{
    void *host = NULL;
    int rc = gm_wptr(gm, gpa, len_bytes, &host);

    if (rc)
        return rc;
    memset(host, 0, len_bytes);
    return 0;
}

static int elf_load_segment(const struct elf_source *src,
                            const struct elf_x86_segment *seg,
                            struct guest_mem *gm)
{
    uint64_t map_from = align_up(seg->gpa, ELF_PAGE) - seg->gpa;
    uint64_t map_to = 0;
    int rc;

    if (!src->bytes && (seg->gpa - seg->offset) % ELF_PAGE == 0 &&
        seg->file_bytes > map_from) {
        map_to = map_from + (seg->file_bytes - map_from) / ELF_PAGE * ELF_PAGE;
    }
    if (map_to < map_from + ELF_MAP_MIN)
        return elf_copy(src, seg, 0, seg->file_bytes, gm);
    rc = gm_map_file(gm, seg->gpa + map_from, map_to - map_from, src->fd,
                     seg->offset + map_from);
    if (rc == -ENODEV) /* a file system without mmap */
        return elf_copy(src, seg, 0, seg->file_bytes, gm);
    if (!rc)
        rc = elf_copy(src, seg, 0, map_from, gm);
    if (!rc)
        rc = elf_copy(src, seg, map_to, seg->file_bytes, gm);
    return rc;
}

int elf_x86_load(const struct elf_source *src, const struct elf_x86 *elf,
                 struct guest_mem *gm, bool ram_is_fresh, struct errmsg *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < elf->num_segments; i++) {
        const struct elf_x86_segment *s = &elf->segments[i];

        rc = elf_load_segment(src, s, gm);
        if (rc == 0 && !ram_is_fresh)
            rc = elf_zero(gm, s->gpa + s->file_bytes,
                          s->mem_bytes - s->file_bytes);
    }
    if (rc == -ENODATA)
        return err_set(err, rc,
                       "kernel %.256s: got shorter while it was read; wait "
                       "until it is written completely",
                       src->name);
    if (rc)
        return err_set(err, rc,
                       "kernel %.256s: cannot be loaded: %s; check the file "
                       "and the VM's memory size",
                       src->name, err_reason(rc));
    return 0;
}

static bool elf_range_has(const struct guest_mem *gm, gpa_t gpa,
                          uint64_t len_bytes, const char *text)
{
    const void *host = NULL;

    if (gm_rptr(gm, gpa, len_bytes, &host))
        return false;
    return memmem(host, len_bytes, text, strlen(text)) != NULL;
}

bool elf_x86_has_text(const struct elf_x86 *elf, const struct guest_mem *gm,
                      const char *text)
{
    if (elf->rodata_bytes > 0)
        return elf_range_has(gm, elf->rodata, elf->rodata_bytes, text);
    for (size_t i = 0; i < elf->num_segments; i++) {
        const struct elf_x86_segment *s = &elf->segments[i];

        if (elf_range_has(gm, s->gpa, s->file_bytes, text))
            return true;
    }
    return false;
}
