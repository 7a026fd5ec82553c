/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_MMDS_TOKEN_H
#define VMM_MMDS_TOKEN_H

/*
 * Session tokens of the metadata service: random, each good until its time is
 * over. With all slots taken the one that ends first gives way.
 *
 * Ownership: plain data, of a size that no guest changes. Threads: io.
 */

#include "vmm/util.h"

#define MMDS_TOKEN_CHARS 64u /* of hexadecimal: 32 random bytes */
#define MMDS_MAX_TOKENS  128u
#define MMDS_MIN_TTL_S   1u
#define MMDS_MAX_TTL_S   21600u

struct mmds_tokens {
    struct {
        uint64_t ends_ns; /* CLOCK_MONOTONIC; 0: the slot is free */
        uint8_t secret[MMDS_TOKEN_CHARS / 2];
    } slots[MMDS_MAX_TOKENS];
};

/* A new one as text, with its NUL. -EIO: the host gave no random bytes. */
int mmds_token_new(struct mmds_tokens *t, uint32_t ttl_s, uint64_t now_ns,
                   char out[MMDS_TOKEN_CHARS + 1]) MUST_CHECK;
/* How long it takes tells nothing about the tokens that there are. */
bool mmds_token_ok(const struct mmds_tokens *t, const char *token,
                   uint64_t now_ns);

#endif
