/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/unpack.h"

#ifdef HAVE_LZ4
#include "vmm/le.h"

#include <lz4.h>

#define UNPACK_LZ4_MAGIC 0x184c2102u
#define UNPACK_LZ4_BLOCK ((size_t)8 << 20) /* of the legacy frame, unpacked */

/*
 * The legacy frame: a magic, then blocks of `le32 packed length, data`, each
 * of which unpacks to 8 MiB but for the last. The magic may come again, where
 * two frames were joined.
 */
int unpack_lz4(const uint8_t *src, size_t len, uint8_t *dst, size_t dst_len)
{
    size_t done = 0;
    size_t pos = 0;

    while (pos < len) {
        uint32_t packed;
        size_t room = dst_len - done;
        int n;

        if (len - pos < 4)
            return -EILSEQ;
        packed = get_le32(src + pos);
        pos += 4;
        if (packed == UNPACK_LZ4_MAGIC)
            continue;
        if (packed == 0 || packed > len - pos ||
            packed > (uint32_t)LZ4_COMPRESSBOUND(UNPACK_LZ4_BLOCK))
            return -EILSEQ;
        if (room > UNPACK_LZ4_BLOCK)
            room = UNPACK_LZ4_BLOCK;
        n = LZ4_decompress_safe((const char *)src + pos, (char *)dst + done,
                                (int)packed, (int)room);
        if (n < 0)
            return -EILSEQ;
        done += (size_t)n;
        pos += packed;
    }
    return done == dst_len ? 0 : -EILSEQ;
}
#endif
