/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/unpack.h"

#ifdef HAVE_ZSTD
#include <zstd.h>

/* In one call the output is the window: its size needs no limit of ours. */
int unpack_zstd(const uint8_t *src, size_t len, uint8_t *dst, size_t dst_len)
{
    size_t n = ZSTD_decompress(dst, dst_len, src, len);

    return !ZSTD_isError(n) && n == dst_len ? 0 : -EILSEQ;
}
#endif
