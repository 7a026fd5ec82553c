/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes as the payload of a bzImage, for each of the decoders. */

#include "boot/unpack.h"

#include <assert.h>

#define FUZZ_MAX_UNPACKED (1 * MIB)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct unpacked u = {0};
    struct errmsg err;

    if (unpack_payload("fuzz", data, size, FUZZ_MAX_UNPACKED, &u, &err))
        return 0;
    assert(u.size_bytes > 0 && u.size_bytes <= FUZZ_MAX_UNPACKED);
    unpack_free(&u);
    return 0;
}
