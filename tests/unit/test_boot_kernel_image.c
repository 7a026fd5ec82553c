/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/kernel_image.h"

#include "tests/harness/fake_kernel.h"
#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cmocka.h>

#define HDR(b)    ((b)->bytes + 0x1f1)
#define AT(field) offsetof(struct setup_header, field)

static void assert_says(const struct errmsg *err, const char *reason)
{
    if (!strstr(err->text, reason))
        fail_msg("\"%s\" lacks \"%s\"", err->text, reason);
    assert_null(strchr(err->text, '\n'));
}

static void expect_path_refused(const char *path, const char *reason)
{
    struct kernel_image img;
    struct errmsg err = {{0}};

    assert_true(kernel_image_open(path, &img, &err) < 0);
    assert_says(&err, "kernel ");
    assert_says(&err, path);
    assert_says(&err, reason);
}

static void expect_refused(const struct fake_buf *b, const char *reason)
{
    char path[64];
    int fd = fake_file(b, path);

    expect_path_refused(path, reason);
    drop_fd(&fd);
}

/* A bare file of `len` zeroes with `magic` somewhere in it. */
static void expect_magic_refused(size_t at, const char *magic, size_t magic_len,
                                 const char *reason)
{
    uint8_t bytes[2048] = {0};
    struct fake_buf b = {bytes, sizeof(bytes)};

    memcpy(bytes + at, magic, magic_len);
    expect_refused(&b, reason);
}

static void test_image_elf_is_taken_by_content(void **state)
{
    struct kernel_image img;
    struct fake_buf b;
    char path[64];
    int fd;

    (void)state;
    fake_vmlinux(true, &b);
    fd = fake_file(&b, path);
    assert_int_equal(kernel_image_open(path, &img, NULL), 0);
    assert_null(img.elf.bytes);
    assert_true(img.elf.fd >= 0);
    assert_int_equal(img.elf.size_bytes, b.len);
    assert_int_equal(img.hdr.version, 0);
    kernel_image_close(&img);
    kernel_image_close(&img);
    assert_int_equal(kernel_image_check(path, NULL), 0);
    drop_fd(&fd);
    fake_buf_free(&b);
}

static void check_bzimage(enum fake_pack how, const char *format)
{
    struct fake_buf elf;
    struct fake_buf payload;
    struct fake_buf bz;
    struct kernel_image img;
    char path[64];
    int fd;

    fake_vmlinux(true, &elf);
    if (!fake_payload(how, &elf, &payload)) {
        print_message("%s: library not built in\n", format);
        fake_buf_free(&elf);
        return;
    }
    fake_bzimage(&payload, &bz);
    fd = fake_file(&bz, path);
    assert_int_equal(kernel_image_check(path, NULL), 0);
    assert_int_equal(kernel_image_open(path, &img, NULL), 0);
    assert_string_equal(img.bytes.format, format);
    assert_int_equal(img.elf.size_bytes, elf.len);
    assert_memory_equal(img.elf.bytes, elf.bytes, elf.len);
    assert_int_equal(img.hdr.version, 0x020f);
    kernel_image_close(&img);
    drop_fd(&fd);

    /* Damage in the middle is found by the format's own checks or our size. */
    bz.bytes[0xa00 + 0x200 + payload.len / 2] ^= 0x5a;
    fd = fake_file(&bz, path);
    if (how != FAKE_LZ4 && how != FAKE_ZSTD) /* these carry no checksum */
        expect_path_refused(path, "cannot be unpacked: damaged data");
    drop_fd(&fd);
    fake_buf_free(&bz);
    fake_buf_free(&payload);
    fake_buf_free(&elf);
}

static void test_image_bzimage_is_unpacked(void **state)
{
    (void)state;
    check_bzimage(FAKE_GZIP, "gzip");
    check_bzimage(FAKE_ZSTD, "zstd");
    check_bzimage(FAKE_LZ4, "lz4");
    check_bzimage(FAKE_XZ, "xz");
}

/* The lz4 legacy frame is made of blocks of 8 MiB. */
static void test_image_lz4_of_several_blocks(void **state)
{
    struct fake_buf big = {calloc(1, 20 * MIB), 20 * MIB};
    struct fake_buf payload;
    struct unpacked u;

    (void)state;
    assert_non_null(big.bytes);
    for (size_t i = 0; i < big.len; i += 4093)
        big.bytes[i] = (uint8_t)(i * 7);
    if (fake_payload(FAKE_LZ4, &big, &payload)) {
        assert_int_equal(
            unpack_payload("K", payload.bytes, payload.len, 32 * MIB, &u, NULL),
            0);
        assert_int_equal(u.size_bytes, big.len);
        assert_memory_equal(u.bytes, big.bytes, big.len);
        unpack_free(&u);
        fake_buf_free(&payload);
    }
    fake_buf_free(&big);
}

static void check_wrong_size(enum fake_pack how, int delta)
{
    struct errmsg err = {{0}};
    struct fake_buf payload;
    struct fake_buf elf;
    struct unpacked u;

    fake_vmlinux(true, &elf);
    if (fake_payload(how, &elf, &payload)) {
        put_le32(payload.bytes + payload.len - 4,
                 (uint32_t)((int)elf.len + delta));
        assert_int_equal(
            unpack_payload("K", payload.bytes, payload.len, 32 * MIB, &u, &err),
            -EILSEQ);
        assert_says(&err, "damaged data");
        fake_buf_free(&payload);
    }
    fake_buf_free(&elf);
}

static void test_image_size_word_must_be_right(void **state)
{
    (void)state;
    for (int how = FAKE_GZIP; how <= FAKE_XZ; how++) {
        check_wrong_size((enum fake_pack)how, -1);
        check_wrong_size((enum fake_pack)how, 1);
        check_wrong_size((enum fake_pack)how, 100000);
    }
}

static void test_image_unpacked_size_is_bounded(void **state)
{
    struct errmsg err = {{0}};
    struct fake_buf payload;
    struct fake_buf elf;
    struct unpacked u;

    (void)state;
    fake_vmlinux(true, &elf);
    assert_true(fake_payload(FAKE_GZIP, &elf, &payload));
    assert_true(unpack_payload("K", payload.bytes, payload.len, elf.len - 1, &u,
                               &err) < 0);
    assert_says(&err, "claims to unpack to");
    assert_int_equal(
        unpack_payload("K", payload.bytes, payload.len, elf.len, &u, &err), 0);
    unpack_free(&u);
    put_le32(payload.bytes + payload.len - 4, 0);
    assert_true(unpack_payload("K", payload.bytes, payload.len, MIB, &u, &err) <
                0);
    fake_buf_free(&payload);
    fake_buf_free(&elf);
}

static void expect_payload_refused(const char *magic, size_t magic_len,
                                   const char *reason)
{
    uint8_t bytes[256] = {0};
    struct fake_buf payload = {bytes, sizeof(bytes)};
    struct fake_buf bz;

    memcpy(bytes, magic, magic_len);
    put_le32(bytes + sizeof(bytes) - 4, 4096);
    fake_bzimage(&payload, &bz);
    expect_refused(&bz, reason);
    fake_buf_free(&bz);
}

static void test_image_other_payloads_are_named(void **state)
{
    (void)state;
    expect_payload_refused("BZh9", 4, "packed by bzip2, which is not");
    expect_payload_refused("\x5d\0\0\x80", 4, "packed by lzma, which is not");
    expect_payload_refused("\x89LZO", 4, "packed by lzo, which is not");
    expect_payload_refused("????", 4, "payload of unknown format");
}

static void test_image_bad_bzimage_headers_are_refused(void **state)
{
    uint8_t bytes[256] = {0x1f, 0x8b};
    struct fake_buf payload = {bytes, sizeof(bytes)};
    struct fake_buf bz;

    (void)state;
    fake_bzimage(&payload, &bz);
    put_le32(HDR(&bz) + AT(payload_length), 0);
    expect_refused(&bz, "names no payload");
    put_le32(HDR(&bz) + AT(payload_length), 0xffffffff);
    expect_refused(&bz, "past the file's end");
    put_le32(HDR(&bz) + AT(payload_length), 256);
    put_le32(HDR(&bz) + AT(payload_offset), 0xffffff00);
    expect_refused(&bz, "past the file's end");
    put_le32(HDR(&bz) + AT(payload_offset), 0);
    expect_refused(&bz, "names no payload");
    put_le16(HDR(&bz) + AT(xloadflags), 0);
    expect_refused(&bz, "32-bit x86 bzImage");
    put_le16(HDR(&bz) + AT(version), 0x0206);
    expect_refused(&bz, "boot protocol 2.06");
    fake_buf_free(&bz);
}

/* A jump that ends early makes later header fields part of the code. */
static void test_image_short_header_reads_as_zero(void **state)
{
    uint8_t bytes[256] = {0x1f, 0x8b};
    struct fake_buf payload = {bytes, sizeof(bytes)};
    struct bzimage parsed;
    struct fake_buf bz;

    (void)state;
    fake_bzimage(&payload, &bz);
    assert_int_equal(bzimage_parse("K", bz.bytes, 1024, bz.len, &parsed, NULL),
                     0);
    assert_int_equal(parsed.max_bytes, 0x1000000);
    bz.bytes[0x201] = 0x0260 - 0x0202; /* before init_size */
    assert_int_equal(bzimage_parse("K", bz.bytes, 1024, bz.len, &parsed, NULL),
                     0);
    assert_int_equal(parsed.hdr.init_size, 0);
    assert_int_equal(parsed.max_bytes, 0);
    bz.bytes[0x201] = 0;
    assert_true(bzimage_parse("K", bz.bytes, 1024, bz.len, &parsed, NULL) < 0);
    fake_buf_free(&bz);
}

static void test_image_truncated_bzimage_is_refused(void **state)
{
    uint8_t bytes[256] = {0x1f, 0x8b};
    struct fake_buf payload = {bytes, sizeof(bytes)};
    struct fake_buf bz;
    size_t whole;

    (void)state;
    fake_bzimage(&payload, &bz);
    whole = bz.len;
    bz.len = whole - 101;
    expect_refused(&bz, "past the file's end");
    bz.len = 0x206;
    expect_refused(&bz, "boot protocol 0.00");
    bz.len = 0x205; /* the signature itself is cut: some boot sector */
    expect_refused(&bz, "boot sector");
    fake_buf_free(&bz);
}

static void test_image_wrong_files_are_named(void **state)
{
    (void)state;
    expect_magic_refused(0, "\x1f\x8b\x08", 3, "is a gzip-compressed file");
    expect_magic_refused(0, "\x1f\x8b\x08", 3, "gunzip");
    expect_magic_refused(0x38, "ARM\x64", 4, "is an arm64 Image");
    expect_magic_refused(0x30, "RISCV\0\0\0RSC\x05", 12, "RISC-V Image");
    expect_magic_refused(0x24, "\x18\x28\x6f\x01", 4, "32-bit ARM zImage");
    expect_magic_refused(0, "MZ", 2, "EFI program");
    expect_magic_refused(0, "MZ\0\0zimg", 8, "EFI zboot");
    expect_magic_refused(0,
                         "\xfd"
                         "7zXZ\0",
                         6, "xz-compressed");
    expect_magic_refused(0, "\x28\xb5\x2f\xfd", 4, "zstd-compressed");
    expect_magic_refused(0, "\x04\x22\x4d\x18", 4, "lz4-compressed");
    expect_magic_refused(0, "BZh9", 4, "bzip2-compressed");
    expect_magic_refused(0, "\x27\x05\x19\x56", 4, "uImage");
    expect_magic_refused(0, "\xd0\x0d\xfe\xed", 4, "device tree");
    expect_magic_refused(0, "070701", 6, "cpio archive");
    expect_magic_refused(0, "!<arch>\n", 8, "Debian package");
    expect_magic_refused(257, "ustar", 5, "tar archive");
    expect_magic_refused(0, "QFI\xfb", 4, "qcow2");
    expect_magic_refused(1080, "\x53\xef", 2, "ext2/3/4");
    expect_magic_refused(0, "#!/bin/sh\n", 10, "a script");
    expect_magic_refused(510, "\x55\xaa", 2, "boot sector");
    expect_magic_refused(0, "\x01\x02\x03\x04", 4,
                         "no known format (it starts with 01 02 03 04)");
}

static void test_image_short_and_text_files(void **state)
{
    uint8_t text[] = "version https://example.invalid/spec\n";
    uint8_t one = 7;
    struct fake_buf b = {text, sizeof(text) - 1};

    (void)state;
    expect_refused(&b, "is a text file; accepted are an x86-64 ELF vmlinux");
    b = (struct fake_buf){&one, 1};
    expect_refused(&b, "no known format (it starts with 07 00 00 00)");
    b = (struct fake_buf){&one, 0};
    expect_refused(&b, "is empty (0 bytes)");
}

/* The check that needs no unpacking reads ELF headers as well. */
static void test_image_check_refuses_bad_elf(void **state)
{
    struct errmsg err = {{0}};
    struct fake_buf b;
    char path[64];
    int fd;

    (void)state;
    fake_vmlinux(true, &b);
    b.bytes[EI_CLASS] = ELFCLASS32;
    fd = fake_file(&b, path);
    assert_int_equal(kernel_image_check(path, &err), -ENOEXEC);
    assert_says(&err, "32-bit ELF");
    drop_fd(&fd);
    fake_buf_free(&b);
}

/* A directory of its own for files that are none; removed at the end. */
struct scratch {
    char dir[32];
    char path[64];
};

static void scratch_make(struct scratch *s)
{
    (void)snprintf(s->dir, sizeof(s->dir), "/tmp/boot-test.XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    assert_int_equal(chmod(s->dir, 0755), 0);
    (void)snprintf(s->path, sizeof(s->path), "%s/kernel", s->dir);
}

static void scratch_remove(struct scratch *s)
{
    (void)unlink(s->path); /* may never have been made */
    assert_int_equal(rmdir(s->dir), 0);
}

static void test_image_what_is_no_file_is_named(void **state)
{
    struct scratch s;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd;

    (void)state;
    scratch_make(&s);
    expect_path_refused(s.dir, "is a directory; give a regular file");
    expect_path_refused(s.path, "no such file");
    assert_int_equal(mkfifo(s.path, 0600), 0);
    expect_path_refused(s.path, "is a FIFO"); /* and does not wait */
    assert_int_equal(unlink(s.path), 0);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    memcpy(addr.sun_path, s.path, strlen(s.path) + 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    expect_path_refused(s.path, "is a socket");
    drop_fd(&fd);
    expect_path_refused("/dev/null", "is a character device");
    expect_path_refused("/dev/null/vmlinux", "no such file");
    scratch_remove(&s);
}

static void test_image_unreadable_file_is_named(void **state)
{
    bool root = geteuid() == 0;
    struct scratch s;
    int fd;

    (void)state;
    scratch_make(&s);
    fd = open(s.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0);
    assert_true(fd >= 0);
    drop_fd(&fd);
    if (root)
        assert_int_equal(seteuid(65534), 0);
    expect_path_refused(s.path, "permission denied for uid");
    if (root)
        assert_int_equal(seteuid(0), 0);
    scratch_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_image_elf_is_taken_by_content),
        cmocka_unit_test(test_image_bzimage_is_unpacked),
        cmocka_unit_test(test_image_lz4_of_several_blocks),
        cmocka_unit_test(test_image_size_word_must_be_right),
        cmocka_unit_test(test_image_unpacked_size_is_bounded),
        cmocka_unit_test(test_image_other_payloads_are_named),
        cmocka_unit_test(test_image_bad_bzimage_headers_are_refused),
        cmocka_unit_test(test_image_short_header_reads_as_zero),
        cmocka_unit_test(test_image_truncated_bzimage_is_refused),
        cmocka_unit_test(test_image_wrong_files_are_named),
        cmocka_unit_test(test_image_short_and_text_files),
        cmocka_unit_test(test_image_check_refuses_bad_elf),
        cmocka_unit_test(test_image_what_is_no_file_is_named),
        cmocka_unit_test(test_image_unreadable_file_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
