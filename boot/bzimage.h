/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_BZIMAGE_H
#define BOOT_BZIMAGE_H

/*
 * The header of an x86 bzImage: where its payload, a compressed ELF, lies.
 * Pure: works on a copy of the file's first bytes. spec: x86-boot 2.15.
 */

#include "vmm/errmsg.h"

#include <asm/bootparam.h>

/* Enough of a file's start for the whole setup header. */
#define BZIMAGE_HEAD 1024u

/* Linux maps at most this much of itself without KASLR. */
#define BZIMAGE_MAX_BYTES (512 * MIB)

struct bzimage {
    struct setup_header hdr;
    uint64_t payload_offset; /* in the file */
    uint64_t payload_bytes;  /* all of it inside the file */
    uint64_t max_bytes;      /* that the payload may unpack to */
};

/* Has it the signature? The rest may still be wrong. */
bool bzimage_is(const uint8_t *head, size_t len);

int bzimage_parse(const char *name, const uint8_t *head, size_t len,
                  uint64_t file_bytes, struct bzimage *out,
                  struct errmsg *err) MUST_CHECK;

#endif
