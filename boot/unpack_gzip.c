/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/unpack.h"

#define ZLIB_CONST
#include <limits.h>
#include <zlib.h>

#define UNPACK_WBITS_GZIP (16 + MAX_WBITS) /* a gzip header, no other */

int unpack_gzip(const uint8_t *src, size_t len, uint8_t *dst, size_t dst_len)
{
    z_stream z = {0};
    int rc;

    if (len > UINT_MAX || dst_len > UINT_MAX)
        return -EILSEQ;
    if (inflateInit2(&z, UNPACK_WBITS_GZIP) != Z_OK)
        return -ENOMEM;
    z.next_in = src;
    z.avail_in = (uInt)len;
    z.next_out = dst;
    z.avail_out = (uInt)dst_len;
    rc = inflate(&z, Z_FINISH);
    (void)inflateEnd(&z); /* only fails on a broken state of ours */
    if (rc == Z_MEM_ERROR)
        return -ENOMEM;
    return rc == Z_STREAM_END && z.avail_out == 0 ? 0 : -EILSEQ;
}
