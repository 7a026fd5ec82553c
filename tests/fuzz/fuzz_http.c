/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as what an API client sends, cut into pieces whose size is the
 * first byte of the input: parsed request by request. Cut at other places,
 * the same bytes must give the same requests.
 */

#include "vmm/http_parse.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_MAX_BODY 300u

/* A fingerprint of all requests, so that two runs can be compared. */
static uint64_t fuzz_mix(uint64_t h, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)data[i]) * 0x100000001b3ull;
    return h + 1;
}

static uint64_t fuzz_take(uint64_t h, const struct http_request *r)
{
    assert(r->path[0] == '/');
    assert(r->body_len <= FUZZ_MAX_BODY);
    assert(!r->body == (r->body_len == 0));
    h = fuzz_mix(h, r->method, strlen(r->method));
    h = fuzz_mix(h, r->path, strlen(r->path));
    h = fuzz_mix(h, r->body, r->body_len);
    return fuzz_mix(h, (const char *)&r->keep_alive, 1);
}

static uint64_t fuzz_run(const char *data, size_t len, size_t piece)
{
    struct http_parser *p = malloc(sizeof(*p));
    enum http_event ev = HTTP_MORE;
    uint64_t h = 0;
    size_t at = 0;

    assert(p);
    http_parser_init(p, FUZZ_MAX_BODY);
    while (at < len && ev != HTTP_BAD) {
        size_t n = (size_t)min_u64(piece, len - at);
        char *copy = malloc(n); /* so that a read past the end is seen */
        size_t used = 0;

        assert(copy);
        memcpy(copy, data + at, n);
        ev = http_feed(p, copy, n, &used);
        free(copy);
        assert(used <= n);
        assert(ev != HTTP_MORE || used == n);
        at += used;
        if (ev == HTTP_READY) {
            h = fuzz_take(h, &p->req);
            http_next(p);
        }
    }
    if (ev == HTTP_BAD)
        h = fuzz_mix(h, p->error, strlen(p->error));
    http_parser_fini(p);
    free(p);
    return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 1;

    if (size < 2)
        return 0;
    assert(fuzz_run(text, size - 1, (size_t)data[0] + 1) ==
           fuzz_run(text, size - 1, size - 1));
    return 0;
}
