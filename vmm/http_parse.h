/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_HTTP_PARSE_H
#define VMM_HTTP_PARSE_H

/*
 * Requests of HTTP/1.0 and 1.1 out of a stream of bytes, cut anywhere. Pure:
 * no descriptor, clock or thread; what it holds is bounded by HTTP_HEAD_MAX
 * and `max_body`.
 *
 * Strict where readings differ between implementations: CR LF ends each line,
 * no folded header lines, one Content-Length of digits alone, no
 * Transfer-Encoding. What is refused cannot be resynchronised: after HTTP_BAD
 * the connection has to be closed.
 * spec: rfc9112 2 to 7
 *
 * Ownership: the parser owns the request that it shows.
 */

#include "vmm/util.h"

#define HTTP_HEAD_MAX     8192u
#define HTTP_METHOD_MAX   15u
#define HTTP_DEFAULT_BODY 51200u

struct http_request {
    char method[HTTP_METHOD_MAX + 1]; /* as sent: any token */
    const char *path;                 /* begins with '/', printable ASCII */
    const char *body;                 /* NULL when body_len is 0 */
    size_t body_len;
    bool keep_alive; /* the client wants the connection to go on */
};

enum http_event {
    HTTP_MORE,     /* all bytes are taken, the request is not whole */
    HTTP_CONTINUE, /* the client waits for "100 Continue"; feed on */
    HTTP_READY,    /* `req` holds until http_next() */
    HTTP_BAD,      /* `error` says why */
};

/* For each header line: both are gone after the call. */
typedef void (*http_header_fn)(void *arg, const char *name, const char *value);

struct http_parser {
    struct http_request req;
    http_header_fn on_header; /* the user's, after the init; NULL: none */
    void *on_header_arg;
    char error[160];
    /* private */
    size_t max_body;
    int state;
    bool expect_continue;
    bool has_length;
    size_t want_body;
    char *body;
    size_t head_len;
    char head[HTTP_HEAD_MAX];
};

void http_parser_init(struct http_parser *p, size_t max_body);
void http_parser_fini(struct http_parser *p); /* idempotent */

/*
 * Takes bytes up to the end of one request; *out_used of `len` were taken,
 * the rest belongs to what follows.
 */
enum http_event http_feed(struct http_parser *p, const char *data, size_t len,
                          size_t *out_used);
/* Forgets the request that is READY, for the next one. */
void http_next(struct http_parser *p);

/* Bytes of an unfinished request are held. */
bool http_in_request(const struct http_parser *p);

#endif
