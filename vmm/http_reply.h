/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_HTTP_REPLY_H
#define VMM_HTTP_REPLY_H

/*
 * Writes HTTP responses in the form that Firecracker's clients know: empty
 * reason, 204 without length and type, errors as JSON.
 *
 * Ownership: the buffer is the caller's to fini. Threads: any, one at a time.
 * Errors: -ENOMEM, and then the buffer is as before.
 */

#include "vmm/util.h"

struct http_out {
    char *data;
    size_t len;  /* filled */
    size_t sent; /* of them; the caller counts it up */
    size_t cap;
};

void http_out_fini(struct http_out *o); /* idempotent */
static inline size_t http_out_left(const struct http_out *o)
{
    return o->len - o->sent;
}
/* `n` bytes more are sent; an empty buffer begins anew. */
void http_out_sent(struct http_out *o, size_t n);

struct http_reply {
    int status;
    const char *body; /* JSON text; NULL with status 204 */
    bool close;       /* this is the connection's last response */
    bool deprecated;  /* a deprecated field was used */
};

int http_put_reply(struct http_out *o, const struct http_reply *r) MUST_CHECK;
int http_put_continue(struct http_out *o) MUST_CHECK;
/* 400 for what is no HTTP that we take, 503 for one client too many; both
 * close the connection. */
int http_put_refusal(struct http_out *o, int status,
                     const char *text) MUST_CHECK;

#endif
