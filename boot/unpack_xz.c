/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/unpack.h"

#ifdef HAVE_LZMA
#include <lzma.h>

/* Kernels are packed with a dictionary of 128 MiB (x86 filter, LZMA2). */
#define UNPACK_XZ_MEM (192 * MIB)

int unpack_xz(const uint8_t *src, size_t len, uint8_t *dst, size_t dst_len)
{
    uint64_t mem = UNPACK_XZ_MEM;
    size_t in = 0;
    size_t out = 0;
    lzma_ret rc = lzma_stream_buffer_decode(&mem, 0, NULL, src, &in, len, dst,
                                            &out, dst_len);

    if (rc == LZMA_MEM_ERROR)
        return -ENOMEM;
    return rc == LZMA_OK && out == dst_len ? 0 : -EILSEQ;
}
#endif
