/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/file_kind.h"

#include "vmm/util.h"

#include <ctype.h>
#include <string.h>

struct file_kind {
    const char *name;
    const char *remedy; /* NULL: the list of accepted formats says it all */
    uint16_t offset;
    uint8_t len;
    uint8_t magic[8];
};

/* The first match wins: an arm64 Image can start with MZ as well. */
static const struct file_kind file_kinds[] = {
    {"an arm64 Image", "build the kernel for x86-64", 0x38, 4, "ARM\x64"},
    {"a RISC-V Image", "build the kernel for x86-64", 0x38, 4, "RSC\x05"},
    {"a 32-bit ARM zImage", "build the kernel for x86-64", 0x24, 4,
     "\x18\x28\x6f\x01"},
    {"an EFI zboot image", "give the vmlinux of the same build", 4, 4, "zimg"},
    {"an EFI program", "give the vmlinux or bzImage of the same build", 0, 2,
     "MZ"},
    {"a gzip-compressed file", "unpack it with gunzip", 0, 2, "\x1f\x8b"},
    {"an xz-compressed file", "unpack it with unxz", 0, 6,
     "\xfd"
     "7zXZ\0"},
    {"a zstd-compressed file", "unpack it with unzstd", 0, 4,
     "\x28\xb5\x2f\xfd"},
    {"an lz4-compressed file", "unpack it with unlz4", 0, 4,
     "\x02\x21\x4c\x18"},
    {"an lz4-compressed file", "unpack it with unlz4", 0, 4,
     "\x04\x22\x4d\x18"},
    {"a bzip2-compressed file", "unpack it with bunzip2", 0, 3, "BZh"},
    {"an lzop-compressed file", "unpack it with lzop -d", 0, 5,
     "\x89"
     "LZO\0"},
    {"an lzma-compressed file", "unpack it with unlzma", 0, 3, "\x5d\0\0"},
    {"a U-Boot uImage", "give the vmlinux it was made from", 0, 4,
     "\x27\x05\x19\x56"},
    {"a device tree or FIT image", "give the kernel alone", 0, 4,
     "\xd0\x0d\xfe\xed"},
    {"a cpio archive", "an initial ramdisk is given as the initrd", 0, 5,
     "07070"},
    {"a Debian package or ar archive", "take the kernel out of it", 0, 7,
     "!<arch>"},
    {"an RPM package", "take the kernel out of it", 0, 4, "\xed\xab\xee\xdb"},
    {"a zip archive", "take the kernel out of it", 0, 4, "PK\x03\x04"},
    {"a tar archive", "take the kernel out of it", 257, 5, "ustar"},
    {"a qcow2 disk image", "a disk is given as a drive", 0, 4, "QFI\xfb"},
    {"a squashfs image", "a disk is given as a drive", 0, 4, "hsqs"},
    {"an erofs image", "a disk is given as a drive", 1024, 4,
     "\xe2\xe1\xf5\xe0"},
    {"an ext2/3/4 image", "a disk is given as a drive", 1080, 2, "\x53\xef"},
    {"a script", NULL, 0, 2, "#!"},
    {"a boot sector or disk image", NULL, 510, 2, "\x55\xaa"},
};

static bool file_kind_is_text(const uint8_t *head, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (!isprint(head[i]) && !isspace(head[i]) && head[i] < 0x80)
            return false;
    }
    return len > 0;
}

const char *file_kind_name(const uint8_t *head, size_t len,
                           const char **out_remedy)
{
    *out_remedy = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(file_kinds); i++) {
        const struct file_kind *k = &file_kinds[i];

        if (len < (size_t)k->offset + k->len ||
            memcmp(head + k->offset, k->magic, k->len))
            continue;
        *out_remedy = k->remedy;
        return k->name;
    }
    if (file_kind_is_text(head, len))
        return "a text file";
    return NULL;
}
