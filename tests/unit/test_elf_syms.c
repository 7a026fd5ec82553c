/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/elf_syms.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <elf.h>
#include <string.h>

/* A file with five symbols; the order is that of a linker, not of addresses. */
struct image {
    Elf64_Ehdr h;
    Elf64_Shdr s[3]; /* none, .symtab, .strtab */
    Elf64_Sym y[6];
    char names[40];
};

#define NAME_INIT  1
#define NAME_LABEL 6
#define NAME_IDLE  12
#define NAME_DATA  17
#define NAME_ABS   22

static void image_symbol(struct image *m, size_t i, uint32_t name, int type,
                         uint64_t addr, uint64_t size)
{
    m->y[i] = (Elf64_Sym){.st_name = name,
                          .st_info = (unsigned char)type,
                          .st_shndx = 1,
                          .st_value = addr,
                          .st_size = size};
}

static void image_make(struct image *m)
{
    memset(m, 0, sizeof(*m));
    memcpy(m->h.e_ident, ELFMAG, SELFMAG);
    m->h.e_ident[EI_CLASS] = ELFCLASS64;
    m->h.e_ident[EI_DATA] = ELFDATA2LSB;
    m->h.e_shoff = offsetof(struct image, s);
    m->h.e_shentsize = sizeof(Elf64_Shdr);
    m->h.e_shnum = 3;
    m->s[1] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                           .sh_offset = offsetof(struct image, y),
                           .sh_size = sizeof(m->y),
                           .sh_link = 2};
    m->s[2] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
                           .sh_offset = offsetof(struct image, names),
                           .sh_size = sizeof(m->names)};
    memcpy(m->names, "\0init\0label\0idle\0data\0abs", 25);
    image_symbol(m, 1, NAME_IDLE, STT_FUNC, 0x2000, 0x100);
    image_symbol(m, 2, NAME_INIT, STT_FUNC, 0x1000, 0x80);
    image_symbol(m, 3, NAME_LABEL, STT_NOTYPE, 0x1010, 0);
    image_symbol(m, 4, NAME_DATA, STT_OBJECT, 0x1800, 0x100);
    image_symbol(m, 5, NAME_ABS, STT_NOTYPE, 0x1900, 0);
    m->y[5].st_shndx = SHN_ABS;
}

static const char *at(const struct elf_syms *s, uint64_t addr)
{
    const struct elf_sym *y = elf_syms_find(s, addr);

    return y ? y->name : "-";
}

static void test_elf_syms_find_the_function_around_an_address(void **state)
{
    struct elf_syms s;
    struct image m;

    (void)state;
    image_make(&m);
    assert_int_equal(elf_syms_parse(&m, sizeof(m), &s, NULL), 0);
    assert_int_equal(s.count, 3); /* code alone */
    assert_string_equal(at(&s, 0xfff), "-");
    assert_string_equal(at(&s, 0x1000), "init");
    assert_string_equal(at(&s, 0x1020), "init"); /* not its label */
    assert_string_equal(at(&s, 0x107f), "init");
    assert_string_equal(at(&s, 0x1080), "label"); /* no end is told */
    assert_string_equal(at(&s, 0x20ff), "idle");
    assert_string_equal(at(&s, 0x2100), "-");
    assert_string_equal(at(&s, UINT64_MAX), "-");
    elf_syms_fini(&s);
    elf_syms_fini(&s);
    assert_null(elf_syms_find(&s, 0x1000));
}

static void refused(const struct image *m, size_t len, int rc, const char *word)
{
    struct mote_err err = {0};
    struct elf_syms s;

    assert_int_equal(elf_syms_parse(m, len, &s, &err), rc);
    assert_non_null(strstr(err.text, word));
    assert_null(s.list);
}

static void test_elf_syms_refuse_what_is_no_such_file(void **state)
{
    struct image m;

    (void)state;
    image_make(&m);
    refused(&m, sizeof(m.h) - 1, -ENOEXEC, "no ELF file");
    m.h.e_ident[0] = 'M';
    refused(&m, sizeof(m), -ENOEXEC, "no ELF file");
    image_make(&m);
    m.h.e_ident[EI_CLASS] = ELFCLASS32;
    refused(&m, sizeof(m), -ENOEXEC, "64-bit");
    image_make(&m);
    m.h.e_shnum = 0;
    refused(&m, sizeof(m), -ENODATA, "unstripped");
    image_make(&m);
    m.s[1].sh_type = SHT_PROGBITS;
    refused(&m, sizeof(m), -ENODATA, "unstripped");
    image_make(&m);
    for (size_t i = 0; i < ARRAY_SIZE(m.y); i++)
        m.y[i].st_shndx = SHN_UNDEF;
    refused(&m, sizeof(m), -ENODATA, "unstripped");
}

static void test_elf_syms_refuse_what_lies_outside(void **state)
{
    struct image m;

    (void)state;
    image_make(&m);
    m.h.e_shoff = UINT64_MAX - 8;
    refused(&m, sizeof(m), -ENOEXEC, "damaged");
    image_make(&m);
    m.h.e_shentsize = 8;
    refused(&m, sizeof(m), -ENOEXEC, "damaged");
    image_make(&m);
    m.s[1].sh_link = 3;
    refused(&m, sizeof(m), -ENOEXEC, "damaged");
    image_make(&m);
    m.s[1].sh_size = sizeof(m) * 4;
    refused(&m, sizeof(m), -ENOEXEC, "damaged");
    image_make(&m);
    m.s[1].sh_offset = UINT64_MAX;
    refused(&m, sizeof(m), -ENOEXEC, "damaged");
    image_make(&m);
    m.s[2].sh_size = sizeof(m.names) + 1;
    refused(&m, sizeof(m), -ENOEXEC, "damaged");
    image_make(&m);
    m.s[2].sh_size = 0;
    refused(&m, sizeof(m), -ENOEXEC, "damaged");
    image_make(&m);
    m.names[sizeof(m.names) - 1] = 'x'; /* the last name has no end */
    refused(&m, sizeof(m), -ENOEXEC, "damaged");
    image_make(&m);
    m.y[2].st_name = sizeof(m.names);
    refused(&m, sizeof(m), -ENOEXEC, "damaged");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elf_syms_find_the_function_around_an_address),
        cmocka_unit_test(test_elf_syms_refuse_what_is_no_such_file),
        cmocka_unit_test(test_elf_syms_refuse_what_lies_outside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
