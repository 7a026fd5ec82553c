/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/mmds_token.h"

#include <string.h>
#include <sys/random.h>

#define TOKEN_BYTES (MMDS_TOKEN_CHARS / 2)

/* A free slot, one that is over, or the one that is over first. */
static size_t token_slot(const struct mmds_tokens *t)
{
    size_t first = 0;

    for (size_t i = 1; i < MMDS_MAX_TOKENS; i++) {
        if (t->slots[i].ends_ns < t->slots[first].ends_ns)
            first = i;
    }
    return first;
}

int mmds_token_new(struct mmds_tokens *t, uint32_t ttl_s, uint64_t now_ns,
                   char out[MMDS_TOKEN_CHARS + 1])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t secret[TOKEN_BYTES];
    size_t slot = token_slot(t);

    if (getrandom(secret, sizeof(secret), 0) != (ssize_t)sizeof(secret))
        return -EIO;
    memcpy(t->slots[slot].secret, secret, sizeof(secret));
    t->slots[slot].ends_ns = now_ns + ttl_s * UINT64_C(1000000000);
    for (size_t i = 0; i < TOKEN_BYTES; i++) {
        out[2 * i] = digits[secret[i] >> 4];
        out[2 * i + 1] = digits[secret[i] & 15];
    }
    out[MMDS_TOKEN_CHARS] = '\0';
    return 0;
}

/* Its bytes; false: it is none of ours. */
static bool token_parse(const char *token, uint8_t *out)
{
    if (strlen(token) != MMDS_TOKEN_CHARS)
        return false;
    memset(out, 0, TOKEN_BYTES);
    for (size_t i = 0; i < MMDS_TOKEN_CHARS; i++) {
        char c = token[i];
        uint8_t v;

        if (c >= '0' && c <= '9')
            v = (uint8_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            v = (uint8_t)(c - 'a' + 10);
        else
            return false;
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | v);
    }
    return true;
}

bool mmds_token_ok(const struct mmds_tokens *t, const char *token,
                   uint64_t now_ns)
{
    uint8_t secret[TOKEN_BYTES];
    bool found = false;

    if (!token_parse(token, secret))
        return false;
    for (size_t i = 0; i < MMDS_MAX_TOKENS; i++) {
        uint8_t differs = 0;

        for (size_t b = 0; b < TOKEN_BYTES; b++)
            differs |= (uint8_t)(secret[b] ^ t->slots[i].secret[b]);
        /* A free slot is over. */
        found |= (differs == 0) & (t->slots[i].ends_ns > now_ns);
    }
    return found;
}
