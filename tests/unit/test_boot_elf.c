/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/elf_x86.h"

#include "tests/harness/fake_kernel.h"
#include "vmm/cleanup.h"
#include "vmm/layout_x86.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define TEXT_GPA 0x1000000u
#define DATA_GPA 0x1200000u

static struct elf_source elf_in_memory(const struct fake_buf *b)
{
    return (struct elf_source){
        .name = "K", .fd = -1, .bytes = b->bytes, .size_bytes = b->len};
}

/* Parses, expects a refusal whose line names the file and `reason`. */
static void expect_refused(const struct fake_buf *b, const char *reason)
{
    struct elf_source src = elf_in_memory(b);
    struct elf_x86 elf;
    struct errmsg err = {{0}};

    assert_int_equal(elf_x86_parse(&src, &elf, &err), -ENOEXEC);
    assert_non_null(strstr(err.text, "kernel K: "));
    if (!strstr(err.text, reason))
        fail_msg("\"%s\" lacks \"%s\"", err.text, reason);
    assert_null(strchr(err.text, '\n'));
}

static Elf64_Ehdr *ehdr(struct fake_buf *b)
{
    return (Elf64_Ehdr *)(void *)b->bytes;
}

static Elf64_Phdr *phdr(struct fake_buf *b, size_t i)
{
    return (Elf64_Phdr *)(void *)(b->bytes + sizeof(Elf64_Ehdr)) + i;
}

static void test_elf_vmlinux_is_understood(void **state)
{
    struct fake_buf b;
    struct elf_source src;
    struct elf_x86 elf;

    (void)state;
    fake_vmlinux(true, &b);
    src = elf_in_memory(&b);
    assert_int_equal(elf_x86_parse(&src, &elf, NULL), 0);
    assert_int_equal(elf.entry, TEXT_GPA);
    assert_int_equal(elf.start, TEXT_GPA);
    assert_int_equal(elf.end, DATA_GPA + 0x9000);
    assert_int_equal(elf.num_segments, 2);
    assert_int_equal(elf.rodata_bytes, strlen("intel,ce4100-ioapic"));
    fake_buf_free(&b);
}

static void test_elf_virtual_entry_is_translated(void **state)
{
    struct fake_buf b;
    struct elf_source src;
    struct elf_x86 elf;

    (void)state;
    fake_vmlinux(true, &b);
    ehdr(&b)->e_entry = 0xffffffff81000123;
    src = elf_in_memory(&b);
    assert_int_equal(elf_x86_parse(&src, &elf, NULL), 0);
    assert_int_equal(elf.entry, TEXT_GPA + 0x123);
    fake_buf_free(&b);
}

static void test_elf_wrong_kinds_are_named(void **state)
{
    struct fake_buf b;

    (void)state;
    fake_vmlinux(true, &b);
    ehdr(&b)->e_type = ET_DYN;
    expect_refused(&b, "shared object");
    ehdr(&b)->e_type = ET_REL;
    expect_refused(&b, "relocatable");
    ehdr(&b)->e_type = ET_CORE;
    expect_refused(&b, "core dump");
    ehdr(&b)->e_type = ET_NONE;
    expect_refused(&b, "unknown type");
    ehdr(&b)->e_machine = EM_AARCH64;
    expect_refused(&b, "for arm64");
    ehdr(&b)->e_machine = 0x1234;
    expect_refused(&b, "another machine (machine 4660)");
    ehdr(&b)->e_ident[EI_DATA] = ELFDATA2MSB;
    expect_refused(&b, "big-endian");
    ehdr(&b)->e_ident[EI_CLASS] = ELFCLASS32;
    expect_refused(&b, "32-bit ELF");
    b.bytes[0] = 'x';
    expect_refused(&b, "not an ELF");
    b.len = 63;
    expect_refused(&b, "shorter than its header");
    fake_buf_free(&b);
}

static void test_elf_bad_program_headers_are_refused(void **state)
{
    struct fake_buf b;

    (void)state;
    fake_vmlinux(true, &b);
    ehdr(&b)->e_phentsize = 32;
    expect_refused(&b, "program headers");
    ehdr(&b)->e_phentsize = sizeof(Elf64_Phdr);
    ehdr(&b)->e_phnum = 0;
    expect_refused(&b, "program headers");
    ehdr(&b)->e_phnum = PN_XNUM;
    expect_refused(&b, "program headers");
    ehdr(&b)->e_phnum = 2;
    ehdr(&b)->e_phoff = b.len - 10;
    expect_refused(&b, "program headers past");
    ehdr(&b)->e_phoff = UINT64_MAX - 10;
    expect_refused(&b, "program headers past");
    ehdr(&b)->e_phoff = sizeof(Elf64_Ehdr);
    phdr(&b, 0)->p_type = PT_NULL;
    phdr(&b, 1)->p_type = PT_NULL;
    expect_refused(&b, "nothing to load");
    fake_buf_free(&b);
}

static void test_elf_bad_segments_are_refused(void **state)
{
    struct fake_buf b;

    (void)state;
    fake_vmlinux(true, &b);
    phdr(&b, 1)->p_filesz = 0xa000;
    expect_refused(&b, "larger in the file");
    phdr(&b, 1)->p_filesz = 0x1800;
    phdr(&b, 1)->p_offset = b.len - 0x1000;
    expect_refused(&b, "past the file's end");
    phdr(&b, 1)->p_offset = UINT64_MAX - 0x1000;
    expect_refused(&b, "past the file's end");
    phdr(&b, 1)->p_offset = 0x1000;
    phdr(&b, 1)->p_paddr = UINT64_MAX - 0x1000;
    expect_refused(&b, "wraps");
    phdr(&b, 1)->p_paddr = TEXT_GPA + 0x21233;
    expect_refused(&b, "overlap");
    phdr(&b, 1)->p_paddr = TEXT_GPA - 0x9000 + 1;
    expect_refused(&b, "overlap");
    phdr(&b, 1)->p_paddr = DATA_GPA;
    phdr(&b, 1)->p_vaddr = UINT64_MAX - 0x1000;
    expect_refused(&b, "wraps");
    fake_buf_free(&b);
}

static void test_elf_entry_outside_is_refused(void **state)
{
    struct fake_buf b;

    (void)state;
    fake_vmlinux(true, &b);
    ehdr(&b)->e_entry = TEXT_GPA - 1;
    expect_refused(&b, "entry point");
    ehdr(&b)->e_entry = DATA_GPA + 0x1800; /* bss: no code there */
    expect_refused(&b, "entry point");
    fake_buf_free(&b);
}

static void test_elf_too_many_segments_are_refused(void **state)
{
    struct fake_segment segments[ELF_X86_MAX_SEGMENTS + 1];
    struct fake_elf spec = {.entry = TEXT_GPA,
                            .segments = segments,
                            .num_segments = ARRAY_SIZE(segments)};
    struct fake_buf b;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(segments); i++)
        segments[i] = (struct fake_segment){.paddr = TEXT_GPA + i * 0x1000,
                                            .vaddr = TEXT_GPA + i * 0x1000,
                                            .file_bytes = 16,
                                            .mem_bytes = 16};
    fake_elf_build(&spec, &b);
    expect_refused(&b, "more than 32 segments");
    fake_buf_free(&b);
}

static void test_elf_pvh_only_is_refused(void **state)
{
    struct fake_segment text = {.paddr = TEXT_GPA,
                                .vaddr = TEXT_GPA,
                                .file_bytes = 64,
                                .mem_bytes = 64};
    struct fake_elf spec = {.entry = TEXT_GPA,
                            .segments = &text,
                            .num_segments = 1,
                            .note_pvh = true};
    struct elf_source src;
    struct elf_x86 elf;
    struct fake_buf b;

    (void)state;
    fake_elf_build(&spec, &b);
    expect_refused(&b, "PVH");
    fake_buf_free(&b);
    spec.note_pvh = false; /* no notes at all: taken at its word */
    fake_elf_build(&spec, &b);
    src = elf_in_memory(&b);
    assert_int_equal(elf_x86_parse(&src, &elf, NULL), 0);
    assert_int_equal(elf.rodata_bytes, 0);
    fake_buf_free(&b);
}

static void test_elf_odd_section_table_is_no_error(void **state)
{
    struct fake_buf b;
    struct elf_source src;
    struct elf_x86 elf;

    (void)state;
    fake_vmlinux(true, &b);
    src = elf_in_memory(&b);
    ehdr(&b)->e_shoff = UINT64_MAX - 7;
    assert_int_equal(elf_x86_parse(&src, &elf, NULL), 0);
    assert_int_equal(elf.rodata_bytes, 0);
    ehdr(&b)->e_shoff = b.len - 8;
    assert_int_equal(elf_x86_parse(&src, &elf, NULL), 0);
    ehdr(&b)->e_shstrndx = 99;
    assert_int_equal(elf_x86_parse(&src, &elf, NULL), 0);
    assert_int_equal(elf.rodata_bytes, 0);
    fake_buf_free(&b);
}

static void expect_no_fit(uint64_t start, uint64_t end, uint64_t ram,
                          const char *reason)
{
    struct elf_x86 elf = {.start = start, .end = end};
    struct guest_mem *gm = NULL;
    struct errmsg err = {{0}};

    assert_int_equal(gm_new(ram, &gm), 0);
    assert_true(elf_x86_check_fit(&elf, gm, "K", &err) < 0);
    if (!strstr(err.text, reason))
        fail_msg("\"%s\" lacks \"%s\"", err.text, reason);
    gm_free(gm);
}

static void test_elf_fit_names_what_is_missing(void **state)
{
    struct elf_x86 elf = {.start = MIB, .end = 32 * MIB};
    struct guest_mem *gm = NULL;

    (void)state;
    assert_int_equal(gm_new(32 * MIB, &gm), 0);
    assert_int_equal(elf_x86_check_fit(&elf, gm, "K", NULL), 0);
    gm_free(gm);
    expect_no_fit(MIB - 1, 2 * MIB, 32 * MIB, "below 1 MiB");
    expect_no_fit(0, 2 * MIB, 32 * MIB, "below 1 MiB");
    expect_no_fit(MIB, 32 * MIB + 1, 32 * MIB,
                  "needs 33 MiB of guest memory to be loaded and the VM has "
                  "32 MiB");
    expect_no_fit(MIB, LAYOUT_HOLE_START + 1, 32 * MIB, "link it lower");
}

static void assert_bytes(const struct guest_mem *gm, gpa_t gpa, uint64_t len,
                         uint8_t value)
{
    const void *host = NULL;
    const uint8_t *p;

    assert_int_equal(gm_rptr(gm, gpa, len, &host), 0);
    p = host;
    for (uint64_t i = 0; i < len; i++)
        assert_int_equal(p[i], value);
}

/* Fills memory first unless it is to be fresh, so that stale bytes show. */
static void check_loaded(bool from_file, bool fresh)
{
    struct guest_mem *gm = NULL;
    struct elf_source src;
    struct elf_x86 elf;
    struct fake_buf b;
    char path[64];
    int fd;

    fake_vmlinux(false, &b);
    fd = fake_file(&b, path);
    src = elf_in_memory(&b);
    if (from_file)
        src = (struct elf_source){.name = "K", .fd = fd, .size_bytes = b.len};
    assert_int_equal(gm_new(32 * MIB, &gm), 0);
    if (!fresh) {
        void *host = NULL;

        assert_int_equal(gm_wptr(gm, DATA_GPA - 0x1000, 0x10000, &host), 0);
        memset(host, 0x55, 0x10000);
    }
    assert_int_equal(elf_x86_parse(&src, &elf, NULL), 0);
    assert_int_equal(elf_x86_load(&src, &elf, gm, fresh, NULL), 0);
    drop_fd(&fd);
    assert_bytes(gm, TEXT_GPA, 0x21000, 0x90);
    assert_bytes(gm, DATA_GPA, 0x1800, 0xda);
    assert_bytes(gm, DATA_GPA + 0x1800, 0x7800, 0);
    if (!fresh)
        assert_bytes(gm, DATA_GPA + 0x9000, 0x1000, 0x55);
    assert_true(elf_x86_has_text(&elf, gm, "no such support"));
    assert_false(elf_x86_has_text(&elf, gm, "intel,ce4100-ioapic"));
    elf.rodata_bytes = 0; /* as for a kernel without section table */
    assert_true(elf_x86_has_text(&elf, gm, "no such support"));
    assert_false(elf_x86_has_text(&elf, gm, "intel,ce4100-ioapic"));
    gm_free(gm);
    fake_buf_free(&b);
}

static void test_elf_loads_from_memory_and_file(void **state)
{
    (void)state;
    check_loaded(false, true);
    check_loaded(false, false);
    check_loaded(true, true);
    check_loaded(true, false);
}

/* The tail of the text segment shares its last page with other bytes. */
static void test_elf_ragged_tail_is_not_mapped(void **state)
{
    struct guest_mem *gm = NULL;
    struct elf_source src;
    struct elf_x86 elf;
    struct fake_buf b;
    char path[64];
    int fd;

    (void)state;
    fake_vmlinux(false, &b);
    fd = fake_file(&b, path);
    src = (struct elf_source){.name = "K", .fd = fd, .size_bytes = b.len};
    assert_int_equal(gm_new(32 * MIB, &gm), 0);
    assert_int_equal(elf_x86_parse(&src, &elf, NULL), 0);
    assert_int_equal(elf_x86_load(&src, &elf, gm, true, NULL), 0);
    assert_bytes(gm, TEXT_GPA + 0x21234, 0x1000 - 0x234, 0);
    drop_fd(&fd);
    gm_free(gm);
    fake_buf_free(&b);
}

static void test_elf_guest_writes_stay_out_of_the_file(void **state)
{
    static const uint8_t scribble[4096] = {1};
    struct guest_mem *gm = NULL;
    struct elf_source src;
    struct elf_x86 elf;
    struct fake_buf b;
    uint8_t *again;
    char path[64];
    int fd;

    (void)state;
    fake_vmlinux(false, &b);
    fd = fake_file(&b, path);
    src = (struct elf_source){.name = "K", .fd = fd, .size_bytes = b.len};
    assert_int_equal(gm_new(32 * MIB, &gm), 0);
    assert_int_equal(elf_x86_parse(&src, &elf, NULL), 0);
    assert_int_equal(elf_x86_load(&src, &elf, gm, true, NULL), 0);
    assert_int_equal(gm_write(gm, TEXT_GPA, scribble, sizeof(scribble)), 0);
    again = malloc(b.len);
    assert_non_null(again);
    assert_int_equal(util_pread_full(fd, again, b.len, 0), 0);
    assert_memory_equal(again, b.bytes, b.len);
    free(again);
    drop_fd(&fd);
    gm_free(gm);
    fake_buf_free(&b);
}

static void test_elf_file_that_shrinks_is_an_error(void **state)
{
    struct guest_mem *gm = NULL;
    struct errmsg err = {{0}};
    struct elf_source src;
    struct elf_x86 elf;
    struct fake_buf b;
    char path[64];
    int fd;

    (void)state;
    fake_vmlinux(false, &b);
    fd = fake_file(&b, path);
    src = (struct elf_source){.name = "K", .fd = fd, .size_bytes = b.len};
    assert_int_equal(gm_new(32 * MIB, &gm), 0);
    assert_int_equal(elf_x86_parse(&src, &elf, NULL), 0);
    assert_int_equal(ftruncate(fd, 0x2000), 0);
    assert_int_equal(elf_x86_load(&src, &elf, gm, true, &err), -ENODATA);
    assert_non_null(strstr(err.text, "got shorter"));
    drop_fd(&fd);
    gm_free(gm);
    fake_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elf_vmlinux_is_understood),
        cmocka_unit_test(test_elf_virtual_entry_is_translated),
        cmocka_unit_test(test_elf_wrong_kinds_are_named),
        cmocka_unit_test(test_elf_bad_program_headers_are_refused),
        cmocka_unit_test(test_elf_bad_segments_are_refused),
        cmocka_unit_test(test_elf_entry_outside_is_refused),
        cmocka_unit_test(test_elf_too_many_segments_are_refused),
        cmocka_unit_test(test_elf_pvh_only_is_refused),
        cmocka_unit_test(test_elf_odd_section_table_is_no_error),
        cmocka_unit_test(test_elf_fit_names_what_is_missing),
        cmocka_unit_test(test_elf_loads_from_memory_and_file),
        cmocka_unit_test(test_elf_ragged_tail_is_not_mapped),
        cmocka_unit_test(test_elf_guest_writes_stay_out_of_the_file),
        cmocka_unit_test(test_elf_file_that_shrinks_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
