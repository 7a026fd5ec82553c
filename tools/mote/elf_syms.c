/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/elf_syms.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define ELF_MAX_SYMBOLS (1u << 22)
#define ELF_LABELS      64u /* at most so many in a function are passed over */

struct elf_bytes {
    const unsigned char *p;
    size_t len;
};

/* `n` records of `size` bytes at `off`, or NULL if they are not all there. */
static const unsigned char *elf_at(const struct elf_bytes *b, uint64_t off,
                                   uint64_t n, uint64_t size)
{
    uint64_t bytes;
    uint64_t end;

    if (__builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(off, bytes, &end) || end > b->len)
        return NULL;
    return b->p + off;
}

static int elf_damaged(struct mote_err *err)
{
    return lm_err(err, -ENOEXEC, "symbols: the file is cut or damaged");
}

static int elf_compare(const void *a, const void *b)
{
    const struct elf_sym *x = a;
    const struct elf_sym *y = b;

    if (x->addr != y->addr)
        return x->addr < y->addr ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;
}

/* Functions, and what assembler code gives no type: code all the same. */
static bool elf_is_code(const Elf64_Sym *s)
{
    unsigned type = ELF64_ST_TYPE(s->st_info);

    return s->st_shndx != SHN_UNDEF && s->st_shndx != SHN_ABS &&
           s->st_value != 0 &&
           (type == STT_FUNC || type == STT_NOTYPE || type == STT_GNU_IFUNC);
}

static int elf_take(const struct elf_bytes *b, const Elf64_Shdr *table,
                    const Elf64_Shdr *names, struct elf_syms *out,
                    struct mote_err *err)
{
    uint64_t n = table->sh_size / sizeof(Elf64_Sym);
    const unsigned char *at = elf_at(b, table->sh_offset, n, sizeof(Elf64_Sym));
    const char *text =
        (const char *)elf_at(b, names->sh_offset, names->sh_size, 1);

    if (!at || !text || n > ELF_MAX_SYMBOLS || names->sh_size == 0 ||
        text[names->sh_size - 1] != '\0')
        return elf_damaged(err);
    out->list = calloc(n + 1, sizeof(*out->list));
    if (!out->list)
        return lm_err_nomem(err);
    for (uint64_t i = 0; i < n; i++) {
        Elf64_Sym s;

        memcpy(&s, at + i * sizeof(s), sizeof(s)); /* it may be unaligned */
        if (!elf_is_code(&s))
            continue;
        if (s.st_name >= names->sh_size) {
            elf_syms_fini(out);
            return elf_damaged(err);
        }
        if (text[s.st_name] != '\0')
            out->list[out->count++] =
                (struct elf_sym){s.st_value, s.st_size, text + s.st_name};
    }
    qsort(out->list, out->count, sizeof(*out->list), elf_compare);
    return 0;
}

int elf_syms_parse(const void *bytes, size_t len, struct elf_syms *out,
                   struct mote_err *err)
{
    const struct elf_bytes b = {bytes, len};
    const unsigned char *at;
    Elf64_Ehdr h;

    *out = (struct elf_syms){NULL, 0};
    if (len < sizeof(h) || memcmp(bytes, ELFMAG, SELFMAG) != 0)
        return lm_err(err, -ENOEXEC,
                      "symbols: no ELF file; give the vmlinux "
                      "that the kernel's build leaves");
    memcpy(&h, bytes, sizeof(h));
    if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB)
        return lm_err(err, -ENOEXEC, "symbols: no 64-bit x86 file");
    if (h.e_shoff == 0 || h.e_shnum == 0)
        return lm_err(err, -ENODATA,
                      "symbols: there are none; give the unstripped file");
    at = elf_at(&b, h.e_shoff, h.e_shnum, sizeof(Elf64_Shdr));
    if (!at || h.e_shentsize != sizeof(Elf64_Shdr))
        return elf_damaged(err);
    for (size_t i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr table;
        Elf64_Shdr names;
        int rc;

        memcpy(&table, at + i * sizeof(table), sizeof(table));
        if (table.sh_type != SHT_SYMTAB)
            continue;
        if (table.sh_link >= h.e_shnum)
            return elf_damaged(err);
        memcpy(&names, at + table.sh_link * sizeof(names), sizeof(names));
        rc = elf_take(&b, &table, &names, out, err);
        if (rc || out->count > 0)
            return rc;
        elf_syms_fini(out); /* a table without code; there is one at most */
        break;
    }
    return lm_err(err, -ENODATA,
                  "symbols: there are none; give the unstripped file");
}

void elf_syms_fini(struct elf_syms *s)
{
    free(s->list);
    *s = (struct elf_syms){NULL, 0};
}

/* The symbol before index `lo`, if its end is not told. */
static const struct elf_sym *elf_label(const struct elf_syms *s, size_t lo)
{
    return lo > 0 && s->list[lo - 1].size == 0 ? &s->list[lo - 1] : NULL;
}

const struct elf_sym *elf_syms_find(const struct elf_syms *s, uint64_t addr)
{
    size_t lo = 0;
    size_t hi = s->count;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (s->list[mid].addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    /* A label without a size may lie in a function that has one. */
    for (size_t i = lo; i > 0 && lo - i < ELF_LABELS; i--) {
        const struct elf_sym *y = &s->list[i - 1];

        if (y->size > 0)
            return addr - y->addr < y->size ? y : elf_label(s, lo);
    }
    return elf_label(s, lo);
}
