/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the metadata service answers to a guest: the words of an instance
 * metadata service, with session tokens. The guest is hostile: requests are
 * bounded by the connection's buffer, and parsed strictly.
 */
#include "vmm/http_parse.h"
#include "vmm/mmds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Of a request; nothing is made of it. */
#define MHTTP_MAX_BODY 1024u
#define MHTTP_TOKEN    "/latest/api/token"

/* The header lines that mean something. */
struct mhttp_headers {
    char token[MMDS_TOKEN_CHARS + 1];
    char ttl[16];
    const char *ttl_name; /* the form in which it was asked */
    bool has_token;
    bool twice;     /* a line that may come once came again */
    bool forwarded; /* the request comes from behind a proxy */
    bool json;      /* the client takes that */
};

struct mhttp_answer {
    int status;
    bool json;
    const char *extra; /* header lines */
    const char *text;
};

/* --- headers -------------------------------------------------------------- */

/* Whether one of the types in the list is JSON; parameters do not matter. */
static bool mhttp_takes_json(const char *list)
{
    static const char json[] = "application/json";

    while (*list) {
        size_t n;

        list += strspn(list, " \t,");
        n = strcspn(list, " \t,;");
        if (n == sizeof(json) - 1 && !strncasecmp(list, json, n))
            return true;
        list += strcspn(list, ",");
    }
    return false;
}

/* A value that does not fit is a wrong one, as an empty one is. */
static void mhttp_keep(char *out, size_t size, const char *value)
{
    size_t n = strlen(value);

    if (n >= size)
        n = 0;
    memcpy(out, value, n);
    out[n] = '\0';
}

static void mhttp_on_header(void *arg, const char *name, const char *value)
{
    static const char *const ttls[] = {"X-metadata-token-ttl-seconds",
                                       "X-aws-ec2-metadata-token-ttl-seconds"};
    struct mhttp_headers *h = arg;

    if (!strcasecmp(name, "x-metadata-token") ||
        !strcasecmp(name, "x-aws-ec2-metadata-token")) {
        h->twice |= h->has_token;
        h->has_token = true;
        mhttp_keep(h->token, sizeof(h->token), value);
    } else if (!strcasecmp(name, "x-forwarded-for")) {
        h->forwarded = true;
    } else if (!strcasecmp(name, "accept")) {
        h->json |= mhttp_takes_json(value);
    }
    for (size_t i = 0; i < ARRAY_SIZE(ttls); i++) {
        if (strcasecmp(name, ttls[i]))
            continue;
        h->twice |= h->ttl_name != NULL;
        h->ttl_name = ttls[i];
        mhttp_keep(h->ttl, sizeof(h->ttl), value);
    }
}

/* --- answers -------------------------------------------------------------- */

static const char *mhttp_reason(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 501:
        return "Not Implemented";
    default:
        return "Internal Server Error";
    }
}

/* 0 or -ENOMEM. `bodiless`: the client must not get one. */
static int mhttp_put(struct mmds_response *out, const struct mhttp_answer *a,
                     bool bodiless)
{
    size_t body = bodiless ? 0 : strlen(a->text);
    char head[320];
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 %d %s\r\nServer: mote\r\nConnection: %s\r\n"
                     "Content-Type: %s\r\nContent-Length: %zu\r\n%s\r\n",
                     a->status, mhttp_reason(a->status),
                     out->close ? "close" : "keep-alive",
                     a->json ? "application/json" : "text/plain", body,
                     a->extra ? a->extra : "");

    if (n < 0 || (size_t)n >= sizeof(head))
        return -EINVAL; /* cannot be: all parts are bounded */
    out->data = malloc((size_t)n + body);
    if (!out->data)
        return -ENOMEM;
    memcpy(out->data, head, (size_t)n);
    memcpy(out->data + n, a->text, body);
    out->len = (size_t)n + body;
    return 0;
}

static int mhttp_put_text(struct mmds_response *out, int status,
                          const char *text)
{
    const struct mhttp_answer a = {.status = status, .text = text};

    return mhttp_put(out, &a, false);
}

/* --- requests ------------------------------------------------------------- */

static int mhttp_get_token(struct mmds *m, const struct mhttp_headers *h,
                           struct mmds_response *out)
{
    char token[MMDS_TOKEN_CHARS + 1];
    char extra[80];
    const struct mhttp_answer a = {
        .status = 200, .text = token, .extra = extra};
    uint64_t ttl = 0;

    if (h->forwarded)
        return mhttp_put_text(out, 400,
                              "X-Forwarded-For: no token goes through a proxy");
    if (!h->ttl_name)
        return mhttp_put_text(out, 400,
                              "X-metadata-token-ttl-seconds is missing");
    if (util_parse_u64(h->ttl, MMDS_MIN_TTL_S, MMDS_MAX_TTL_S, &ttl))
        return mhttp_put_text(out, 400,
                              "the token's time must be 1 to 21600 seconds");
    if (mmds_token_new(&m->tokens, (uint32_t)ttl, util_now_ns(), token))
        return mhttp_put_text(out, 500, "no random bytes");
    (void)snprintf(extra, sizeof(extra), "%s: %u\r\n", h->ttl_name,
                   (unsigned)ttl);
    return mhttp_put(out, &a, false);
}

/* False: the request is answered. */
static bool mhttp_allowed(struct mmds *m, const struct mhttp_headers *h,
                          struct mmds_response *out, int *rc)
{
    if (!m->v2)
        return true;
    if (!h->has_token) {
        m->counts.no_token++;
        *rc = mhttp_put_text(out, 401,
                             "no token: PUT " MHTTP_TOKEN
                             " gives one for X-metadata-token");
        return false;
    }
    if (mmds_token_ok(&m->tokens, h->token, util_now_ns()))
        return true;
    m->counts.bad_token++;
    *rc = mhttp_put_text(out, 401, "the token is not or no longer valid");
    return false;
}

static int mhttp_get(struct mmds *m, const char *path,
                     const struct mhttp_headers *h, struct mmds_response *out)
{
    struct mhttp_answer a = {.status = 200, .json = h->json && !m->imds_compat};
    char *text = NULL;
    int rc = 0;

    if (!mhttp_allowed(m, h, out, &rc))
        return rc;
    rc = mmds_store_text(&m->store, path, a.json, &text);
    if (rc == -ENOENT)
        return mhttp_put_text(out, 404, "there is no such value");
    if (rc == -ENOTSUP)
        return mhttp_put_text(out, 501,
                              "only strings and objects can be shown as text");
    if (rc)
        return rc;
    a.text = text;
    rc = mhttp_put(out, &a, false);
    free(text);
    return rc;
}

static int mhttp_answer(struct mmds *m, const struct http_request *req,
                        const struct mhttp_headers *h,
                        struct mmds_response *out)
{
    static const struct mhttp_answer no_method = {
        .status = 405, .extra = "Allow: GET, PUT\r\n", .text = "GET or PUT"};

    out->close = !req->keep_alive;
    if (h->twice)
        return mhttp_put_text(out, 400, "a header line is given twice");
    if (!strcmp(req->method, "GET"))
        return mhttp_get(m, req->path, h, out);
    if (strcmp(req->method, "PUT") != 0)
        return mhttp_put(out, &no_method, !strcmp(req->method, "HEAD"));
    if (strcmp(req->path, MHTTP_TOKEN) != 0)
        return mhttp_put_text(out, 404, "PUT is for " MHTTP_TOKEN);
    return mhttp_get_token(m, h, out);
}

static int mhttp_refuse(struct mmds_response *out, const char *why)
{
    out->close = true; /* nobody knows where the next request begins */
    return mhttp_put_text(out, 400, why);
}

int32_t mmds_respond(void *arg, const char *data, size_t len, bool full,
                     struct mmds_response *out)
{
    struct mhttp_headers h = {.ttl_name = NULL};
    enum http_event ev = HTTP_CONTINUE;
    struct http_parser p;
    size_t at = 0;
    int rc = 0;

    http_parser_init(&p, MHTTP_MAX_BODY);
    p.on_header = mhttp_on_header;
    p.on_header_arg = &h;
    /* A client that waits to be told to go on does so by itself in the end. */
    while (ev == HTTP_CONTINUE) {
        size_t used = 0;

        ev = http_feed(&p, data + at, len - at, &used);
        at += used;
    }
    if (ev == HTTP_READY)
        rc = mhttp_answer(arg, &p.req, &h, out);
    else if (ev == HTTP_BAD)
        rc = mhttp_refuse(out, p.error);
    else if (full)
        rc = mhttp_refuse(out, "the request is too long");
    else
        at = 0;
    if (ev != HTTP_READY && at > 0)
        at = len;
    http_parser_fini(&p);
    return rc ? rc : (int32_t)at;
}
