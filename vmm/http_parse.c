/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/http_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HTTP_IN_HEAD, HTTP_IN_BODY, HTTP_IS_READY, HTTP_IS_BAD };

void http_parser_init(struct http_parser *p, size_t max_body)
{
    memset(p, 0, sizeof(*p));
    p->max_body = max_body;
}

void http_parser_fini(struct http_parser *p)
{
    free(p->body);
    p->body = NULL;
    p->state = HTTP_IS_BAD;
}

void http_next(struct http_parser *p)
{
    free(p->body);
    p->body = NULL;
    memset(&p->req, 0, sizeof(p->req));
    p->state = HTTP_IN_HEAD;
    p->expect_continue = false;
    p->has_length = false;
    p->want_body = 0;
    p->head_len = 0;
}

bool http_in_request(const struct http_parser *p)
{
    return p->state == HTTP_IN_BODY || p->head_len > 0;
}

static int http_bad(struct http_parser *p, const char *why)
{
    (void)snprintf(p->error, sizeof(p->error), "%s", why);
    p->state = HTTP_IS_BAD;
    return -EINVAL;
}

/* spec: rfc9110 5.6.2 */
static bool http_is_token(const char *s, size_t len)
{
    static const char others[] = "!#$%&'*+-.^_`|~";

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                     (c >= 'A' && c <= 'Z');

        if (!alnum && (c == '\0' || !strchr(others, c)))
            return false;
    }
    return len > 0;
}

/* --- the first line -------------------------------------------------------
 */

/* Absolute form ("http://host/path") is reduced to its path. */
static char *http_strip_authority(char *target)
{
    static const char scheme[] = "http://";

    if (strncasecmp(target, scheme, sizeof(scheme) - 1))
        return target;
    return strchr(target + sizeof(scheme) - 1, '/');
}

static int http_target(struct http_parser *p, char *target)
{
    char *path = http_strip_authority(target);

    if (!path || *path != '/')
        return http_bad(p, "Invalid URI: it has to begin with /.");
    for (const char *c = path; *c; c++) {
        if (*c <= ' ' || *c >= 0x7f)
            return http_bad(p, "Invalid URI: only printable ASCII is allowed.");
    }
    p->req.path = path;
    return 0;
}

static int http_first_line(struct http_parser *p, char *line)
{
    char *target = strchr(line, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;
    size_t n;

    if (!version)
        return http_bad(p, "Invalid request line: want METHOD PATH VERSION.");
    n = (size_t)(target - line);
    *target++ = '\0';
    *version++ = '\0';
    if (!http_is_token(line, n) || n > HTTP_METHOD_MAX)
        return http_bad(p, "Invalid HTTP method.");
    memcpy(p->req.method, line, n + 1);
    if (!strcmp(version, "HTTP/1.1"))
        p->req.keep_alive = true;
    else if (strcmp(version, "HTTP/1.0") != 0)
        return http_bad(p, "Unsupported HTTP version: want 1.0 or 1.1.");
    return http_target(p, target);
}

/* --- the other lines ------------------------------------------------------
 */

static int http_content_length(struct http_parser *p, const char *value)
{
    uint64_t n = 0;

    if (p->has_length)
        return http_bad(p, "Content-Length is given twice.");
    /* util_parse_u64() takes digits alone. */
    if (util_parse_u64(value, 0, UINT32_MAX, &n))
        return http_bad(p, "Content-Length is no number of bytes.");
    if (n > p->max_body) {
        (void)snprintf(p->error, sizeof(p->error),
                       "Request payload with size %llu is larger than the "
                       "limit of %zu bytes.",
                       (unsigned long long)n, p->max_body);
        p->state = HTTP_IS_BAD;
        return -EMSGSIZE;
    }
    p->has_length = true;
    p->want_body = (size_t)n;
    return 0;
}

/* A list of words; those that mean nothing to us are let through. */
static void http_connection(struct http_parser *p, char *value)
{
    char *save = NULL;

    for (char *w = strtok_r(value, ", \t", &save); w;
         w = strtok_r(NULL, ", \t", &save)) {
        if (!strcasecmp(w, "close"))
            p->req.keep_alive = false;
        else if (!strcasecmp(w, "keep-alive"))
            p->req.keep_alive = true;
    }
}

static int http_known_header(struct http_parser *p, const char *name,
                             char *value)
{
    if (p->on_header)
        p->on_header(p->on_header_arg, name, value);
    if (!strcasecmp(name, "content-length"))
        return http_content_length(p, value);
    if (!strcasecmp(name, "transfer-encoding"))
        return http_bad(p, "Transfer-Encoding is not supported; send a "
                           "Content-Length.");
    if (!strcasecmp(name, "expect")) {
        if (strcasecmp(value, "100-continue") != 0)
            return http_bad(p, "Expect: only 100-continue is supported.");
        p->expect_continue = true;
    } else if (!strcasecmp(name, "connection")) {
        http_connection(p, value);
    }
    return 0;
}

static int http_header_line(struct http_parser *p, char *line)
{
    char *colon = strchr(line, ':');
    char *value;
    size_t n;

    if (!colon || !http_is_token(line, (size_t)(colon - line)))
        return http_bad(p, "Invalid header line: want NAME: VALUE.");
    *colon = '\0';
    value = colon + 1;
    value += strspn(value, " \t");
    n = strlen(value);
    while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'))
        value[--n] = '\0';
    for (const char *c = value; *c; c++) {
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7f)
            return http_bad(p, "Invalid header: control character.");
    }
    return http_known_header(p, line, value);
}

/* The head is whole, and ends in an empty line. */
static int http_parse_head(struct http_parser *p)
{
    char *line = p->head;
    char *end = p->head + p->head_len;
    bool first = true;

    if (memchr(p->head, '\0', p->head_len))
        return http_bad(p, "Invalid character in the head of the request.");
    while (line < end) {
        /* http_take_head() saw to it that each LF follows a CR. */
        char *lf = memchr(line, '\n', (size_t)(end - line));
        int rc = 0;

        lf[-1] = '\0';
        if (first)
            rc = http_first_line(p, line);
        else if (*line)
            rc = http_header_line(p, line);
        if (rc)
            return rc;
        first = false;
        line = lf + 1;
    }
    return 0;
}

/* --- the stream ----------------------------------------------------------- */

/* Takes bytes up to the empty line. 1: the head is whole. 0: not yet. */
static int http_take_head(struct http_parser *p, const char *data, size_t len,
                          size_t *used)
{
    while (*used < len) {
        char c = data[(*used)++];

        if (p->head_len == sizeof(p->head))
            return http_bad(p, "The head of the request is too long.");
        if (c == '\n' && (p->head_len == 0 || p->head[p->head_len - 1] != '\r'))
            return http_bad(p, "Invalid line end: want CR LF.");
        p->head[p->head_len++] = c;
        if (c != '\n')
            continue;
        if (p->head_len == 2)
            return http_bad(p, "Invalid request line: it is empty.");
        if (p->head_len >= 4 && p->head[p->head_len - 3] == '\n')
            return 1;
    }
    return 0;
}

static enum http_event http_body_begins(struct http_parser *p)
{
    if (p->want_body == 0) {
        p->state = HTTP_IS_READY;
        return HTTP_READY;
    }
    p->body = malloc(p->want_body);
    if (!p->body) {
        (void)http_bad(p, "Out of memory.");
        return HTTP_BAD;
    }
    p->req.body = p->body;
    p->state = HTTP_IN_BODY;
    return p->expect_continue ? HTTP_CONTINUE : HTTP_MORE;
}

static enum http_event http_take_body(struct http_parser *p, const char *data,
                                      size_t len, size_t *used)
{
    size_t n = (size_t)min_u64(p->want_body - p->req.body_len,
                               (uint64_t)(len - *used));

    if (n > 0)
        memcpy(p->body + p->req.body_len, data + *used, n);
    *used += n;
    p->req.body_len += n;
    if (p->req.body_len < p->want_body)
        return HTTP_MORE;
    p->state = HTTP_IS_READY;
    return HTTP_READY;
}

enum http_event http_feed(struct http_parser *p, const char *data, size_t len,
                          size_t *out_used)
{
    enum http_event ev = HTTP_MORE;
    int rc;

    *out_used = 0;
    if (p->state == HTTP_IN_HEAD) {
        rc = http_take_head(p, data, len, out_used);
        if (rc > 0)
            rc = http_parse_head(p) ? -EINVAL : 1;
        if (rc <= 0)
            return rc ? HTTP_BAD : HTTP_MORE;
        ev = http_body_begins(p);
        if (ev != HTTP_MORE)
            return ev;
    }
    if (p->state == HTTP_IN_BODY)
        return http_take_body(p, data, len, out_used);
    return p->state == HTTP_IS_READY ? HTTP_READY : HTTP_BAD;
}
