/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/bzimage.h"

#include "boot/file_kind.h"
#include "vmm/le.h"

#include <string.h>

#define BZ_HDR_OFFSET  0x1f1u /* of the setup header in file and zero page */
#define BZ_BOOT_FLAG   0x1feu
#define BZ_JUMP_LENGTH 0x201u
#define BZ_SIGNATURE   0x202u
#define BZ_SECTOR      512u
/* A file that says 0 setup sectors means 4. spec: x86-boot 2.15 */
#define BZ_DEFAULT_SECTS 4u
#define BZ_VER_PAYLOAD   0x0208u /* has payload_offset and payload_length */
#define BZ_VER_INIT_SIZE 0x020au /* has init_size */
#define BZ_VER_64BIT     0x020cu /* has xloadflags */

_Static_assert(offsetof(struct boot_params, hdr) == BZ_HDR_OFFSET,
               "setup header offset");

bool bzimage_is(const uint8_t *head, size_t len)
{
    return len >= BZ_SIGNATURE + 4 && get_le16(head + BZ_BOOT_FLAG) == 0xaa55 &&
           memcmp(head + BZ_SIGNATURE, "HdrS", 4) == 0;
}

static int bz_damaged(const char *name, const char *what, struct errmsg *err)
{
    return err_set(err, -ENOEXEC,
                   "kernel %.256s: damaged bzImage: %s; build or copy it again",
                   name, what);
}

/*
 * The header ends where the jump over it lands; fields past that belong to
 * code and are read as zero.
 */
static void bz_copy_header(const uint8_t *head, size_t len,
                           struct setup_header *out)
{
    size_t end = BZ_SIGNATURE + (size_t)head[BZ_JUMP_LENGTH];
    size_t n;

    end = end < len ? end : len;
    n = end - BZ_HDR_OFFSET;
    memset(out, 0, sizeof(*out));
    memcpy(out, head + BZ_HDR_OFFSET, n < sizeof(*out) ? n : sizeof(*out));
}

int bzimage_parse(const char *name, const uint8_t *head, size_t len,
                  uint64_t file_bytes, struct bzimage *out, struct errmsg *err)
{
    struct bzimage bz = {.max_bytes = BZIMAGE_MAX_BYTES};
    uint64_t sects;

    if (!bzimage_is(head, len))
        return err_set(err, -ENOEXEC, "kernel %.256s: is not a bzImage; %s",
                       name, FILE_KIND_ACCEPTED);
    bz_copy_header(head, len, &bz.hdr);
    if (bz.hdr.version < BZ_VER_PAYLOAD)
        return err_set(err, -ENOEXEC,
                       "kernel %.256s: bzImage of boot protocol %u.%02u; 2.08 "
                       "or later (Linux 2.6.26) is needed",
                       name, bz.hdr.version >> 8, bz.hdr.version & 0xffu);
    if (bz.hdr.version >= BZ_VER_64BIT && !(bz.hdr.xloadflags & XLF_KERNEL_64))
        return err_set(err, -ENOEXEC,
                       "kernel %.256s: is a 32-bit x86 bzImage; %s", name,
                       FILE_KIND_ACCEPTED);
    sects = bz.hdr.setup_sects ? bz.hdr.setup_sects : BZ_DEFAULT_SECTS;
    bz.payload_offset = (sects + 1) * BZ_SECTOR + bz.hdr.payload_offset;
    bz.payload_bytes = bz.hdr.payload_length;
    if (bz.hdr.payload_offset == 0 || bz.payload_bytes < 8)
        return bz_damaged(name, "it names no payload", err);
    if (bz.payload_offset > file_bytes ||
        bz.payload_bytes > file_bytes - bz.payload_offset)
        return bz_damaged(name, "its payload ends past the file's end", err);
    if (bz.hdr.version >= BZ_VER_INIT_SIZE)
        bz.max_bytes = min_u64(bz.hdr.init_size, BZIMAGE_MAX_BYTES);
    *out = bz;
    return 0;
}
