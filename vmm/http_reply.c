/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/http_reply.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HTTP_SERVER "Server: Firecracker API\r\n"

void http_out_fini(struct http_out *o)
{
    free(o->data);
    memset(o, 0, sizeof(*o));
}

void http_out_sent(struct http_out *o, size_t n)
{
    o->sent += n;
    if (o->sent == o->len) {
        o->sent = 0;
        o->len = 0;
    }
}

static int http_reserve(struct http_out *o, size_t more)
{
    size_t cap = o->cap ? o->cap : 512;
    char *data;

    while (cap - o->len < more)
        cap *= 2;
    if (cap == o->cap)
        return 0;
    data = realloc(o->data, cap);
    if (!data)
        return -ENOMEM;
    o->data = data;
    o->cap = cap;
    return 0;
}

static void http_append(struct http_out *o, const char *text, size_t n)
{
    memcpy(o->data + o->len, text, n);
    o->len += n;
}

int http_put_reply(struct http_out *o, const struct http_reply *r)
{
    char head[256];
    char type[80] = "";
    size_t body_len = r->body ? strlen(r->body) : 0;
    int n;
    int rc;

    if (r->status != 204)
        (void)snprintf(type, sizeof(type),
                       "Content-Type: application/json\r\n"
                       "Content-Length: %zu\r\n",
                       body_len);
    n = snprintf(head, sizeof(head),
                 "HTTP/1.1 %d \r\n" HTTP_SERVER "Connection: %s\r\n%s%s\r\n",
                 r->status, r->close ? "close" : "keep-alive", type,
                 r->deprecated ? "Deprecation: true\r\n" : "");
    if (n < 0 || (size_t)n >= sizeof(head))
        return -EINVAL; /* cannot be: all parts are bounded */
    rc = http_reserve(o, (size_t)n + body_len);
    if (rc)
        return rc;
    http_append(o, head, (size_t)n);
    if (r->body && r->status != 204)
        http_append(o, r->body, body_len);
    return 0;
}

int http_put_continue(struct http_out *o)
{
    static const char text[] =
        "HTTP/1.1 100 \r\n" HTTP_SERVER "Connection: keep-alive\r\n\r\n";
    int rc = http_reserve(o, sizeof(text) - 1);

    if (rc == 0)
        http_append(o, text, sizeof(text) - 1);
    return rc;
}

int http_put_refusal(struct http_out *o, int status, const char *text)
{
    struct http_reply r = {.status = status, .close = true};
    char full[320];
    json_t *doc;
    char *body;
    int rc;

    (void)snprintf(full, sizeof(full), "%s%s", text,
                   status == 400
                       ? "\nAll previous unanswered requests will be dropped."
                       : "");
    doc = json_pack("{s:s}", "error", full);
    body = doc ? json_dumps(doc, 0) : NULL;
    json_decref(doc);
    r.body = body;
    rc = body ? http_put_reply(o, &r) : -ENOMEM;
    free(body);
    return rc;
}
