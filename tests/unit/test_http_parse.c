/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/http_parse.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GET "GET /a HTTP/1.1\r\n"
#define PUT "PUT /a HTTP/1.1\r\n"

/* Feeds in pieces of `piece` bytes until something other than MORE. */
static enum http_event feed(struct http_parser *p, const char *text, size_t len,
                            size_t piece, size_t *out_at)
{
    enum http_event ev = HTTP_MORE;
    size_t at = 0;

    while (at < len && ev == HTTP_MORE) {
        size_t n = len - at < piece ? len - at : piece;
        size_t used = 0;

        ev = http_feed(p, text + at, n, &used);
        assert_true(used <= n);
        if (ev == HTTP_MORE)
            assert_int_equal(used, n);
        at += used;
    }
    if (out_at)
        *out_at = at;
    return ev;
}

static enum http_event parse(struct http_parser *p, const char *text)
{
    http_parser_init(p, HTTP_DEFAULT_BODY);
    return feed(p, text, strlen(text), strlen(text), NULL);
}

static void test_http_request_split_at_every_byte(void **state)
{
    static const char text[] = "PUT /drives/a HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Length: 5\r\n\r\n{\"a\"}"
                               "GET / HTTP/1.1\r\n\r\n";
    static struct http_parser p;

    (void)state;
    for (size_t piece = 1; piece < sizeof(text); piece++) {
        size_t at = 0;
        size_t more = 0;

        http_parser_init(&p, 100);
        assert_false(http_in_request(&p));
        assert_int_equal(feed(&p, text, sizeof(text) - 1, piece, &at),
                         HTTP_READY);
        assert_true(http_in_request(&p));
        assert_string_equal(p.req.method, "PUT");
        assert_string_equal(p.req.path, "/drives/a");
        assert_int_equal(p.req.body_len, 5);
        assert_memory_equal(p.req.body, "{\"a\"}", 5);
        assert_true(p.req.keep_alive);
        http_next(&p);
        assert_int_equal(
            feed(&p, text + at, sizeof(text) - 1 - at, piece, &more),
            HTTP_READY);
        assert_string_equal(p.req.method, "GET");
        assert_string_equal(p.req.path, "/");
        assert_int_equal(p.req.body_len, 0);
        assert_null(p.req.body);
        assert_int_equal(at + more, sizeof(text) - 1);
        http_parser_fini(&p);
        http_parser_fini(&p); /* idempotent */
    }
}

static void test_http_ready_request_waits_for_next(void **state)
{
    static struct http_parser p;
    size_t used = 7;

    (void)state;
    assert_int_equal(parse(&p, GET "\r\n"), HTTP_READY);
    assert_int_equal(http_feed(&p, "GET", 3, &used), HTTP_READY);
    assert_int_equal(used, 0);
    http_parser_fini(&p);
}

static void test_http_keep_alive_by_version_and_header(void **state)
{
    static const struct {
        const char *text;
        bool keep;
    } cases[] = {
        {GET "\r\n", true},
        {"GET / HTTP/1.0\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true},
        {GET "connection: close\r\n\r\n", false},
        {GET "Connection: foo, CLOSE\r\n\r\n", false},
        {GET "Connection: upgrade\r\n\r\n", true},
    };
    static struct http_parser p;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(parse(&p, cases[i].text), HTTP_READY);
        assert_int_equal(p.req.keep_alive, cases[i].keep);
        http_parser_fini(&p);
    }
}

static void test_http_absolute_form_is_a_path(void **state)
{
    static struct http_parser p;

    (void)state;
    assert_int_equal(parse(&p, "GET http://localhost/vm/config HTTP/1.1\r\n"
                               "\r\n"),
                     HTTP_READY);
    assert_string_equal(p.req.path, "/vm/config");
    http_parser_fini(&p);
}

static void test_http_expect_continue_is_told_once(void **state)
{
    static const char head[] =
        PUT "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n";
    static struct http_parser p;
    size_t used = 0;

    (void)state;
    assert_int_equal(parse(&p, head), HTTP_CONTINUE);
    assert_int_equal(http_feed(&p, "{", 1, &used), HTTP_MORE);
    assert_int_equal(http_feed(&p, "}", 1, &used), HTTP_READY);
    assert_memory_equal(p.req.body, "{}", 2);
    http_parser_fini(&p);
    /* Without a body there is nothing to wait for. */
    assert_int_equal(parse(&p, GET "Expect: 100-continue\r\n\r\n"), HTTP_READY);
    http_parser_fini(&p);
}

static void test_http_body_up_to_the_limit(void **state)
{
    char text[128];
    static struct http_parser p;

    (void)state;
    for (unsigned n = HTTP_DEFAULT_BODY; n <= HTTP_DEFAULT_BODY + 1; n++) {
        (void)snprintf(text, sizeof(text), PUT "Content-Length: %u\r\n\r\n", n);
        assert_int_equal(parse(&p, text),
                         n == HTTP_DEFAULT_BODY ? HTTP_MORE : HTTP_BAD);
        if (n > HTTP_DEFAULT_BODY)
            assert_non_null(strstr(p.error, "51201"));
        http_parser_fini(&p);
    }
}

static void test_http_long_head_is_refused(void **state)
{
    static struct http_parser p;
    static char text[HTTP_HEAD_MAX + 64];
    size_t at = 0;

    (void)state;
    memset(text, 'a', sizeof(text));
    memcpy(text, "GET /", 5);
    http_parser_init(&p, 10);
    assert_int_equal(feed(&p, text, sizeof(text), 100, &at), HTTP_BAD);
    assert_in_range(at, HTTP_HEAD_MAX, HTTP_HEAD_MAX + 1);
    assert_non_null(strstr(p.error, "too long"));
    http_parser_fini(&p);
}

static void test_http_refusals(void **state)
{
    static const struct {
        const char *text;
        const char *said;
    } bad[] = {
        {"\r\n", "empty"},
        {"GET /\r\n\r\n", "request line"},
        {"GET\r\n\r\n", "request line"},
        {" / HTTP/1.1\r\n\r\n", "method"},
        {"G(T / HTTP/1.1\r\n\r\n", "method"},
        {"ABCDEFGHIJKLMNOP / HTTP/1.1\r\n\r\n", "method"},
        {"GET / HTTP/2.0\r\n\r\n", "version"},
        {"GET / http/1.1\r\n\r\n", "version"},
        {"GET  / HTTP/1.1\r\n\r\n", "version"},
        {"GET / HTTP/1.1 \r\n\r\n", "version"},
        {"GET a HTTP/1.1\r\n\r\n", "URI"},
        {"GET * HTTP/1.1\r\n\r\n", "URI"},
        {"GET http://host HTTP/1.1\r\n\r\n", "URI"},
        {"GET https://host/ HTTP/1.1\r\n\r\n", "URI"},
        {"GET /\t HTTP/1.1\r\n\r\n", "URI"},
        {"GET /\xc3\xa4 HTTP/1.1\r\n\r\n", "URI"},
        {"GET / HTTP/1.1\n\n", "CR LF"},
        {GET "a: b\n\r\n", "CR LF"},
        {GET "no colon\r\n\r\n", "header line"},
        {GET ": v\r\n\r\n", "header line"},
        {GET "a : v\r\n\r\n", "header line"},
        {GET "a: 1\r\n folded\r\n\r\n", "header line"},
        {GET "a: \x01\r\n\r\n", "control"},
        {GET "a: b\rc\r\n\r\n", "control"},
        {PUT "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", "twice"},
        {PUT "Content-Length: -1\r\n\r\n", "Content-Length"},
        {PUT "Content-Length: +1\r\n\r\n", "Content-Length"},
        {PUT "Content-Length: 1,1\r\n\r\n", "Content-Length"},
        {PUT "Content-Length: 0x1\r\n\r\n", "Content-Length"},
        {PUT "Content-Length:\r\n\r\n", "Content-Length"},
        {PUT "Content-Length: 99999999999999999999\r\n\r\n", "Content-Length"},
        {PUT "Content-Length: 51201\r\n\r\n", "larger"},
        {PUT "Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding"},
        {PUT "Expect: 200-ok\r\n\r\n", "100-continue"},
    };
    static struct http_parser p;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        size_t used = 9;

        if (parse(&p, bad[i].text) != HTTP_BAD || !strstr(p.error, bad[i].said))
            fail_msg("%s\n  said: %s", bad[i].text, p.error);
        /* And stays so. */
        assert_int_equal(http_feed(&p, GET, 4, &used), HTTP_BAD);
        assert_int_equal(used, 0);
        http_parser_fini(&p);
    }
}

static void test_http_nul_in_head_is_refused(void **state)
{
    static const char text[] = "GET / HTTP/1.1\r\na: b\0c\r\n\r\n";
    static struct http_parser p;

    (void)state;
    http_parser_init(&p, 10);
    assert_int_equal(feed(&p, text, sizeof(text) - 1, 5, NULL), HTTP_BAD);
    http_parser_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http_request_split_at_every_byte),
        cmocka_unit_test(test_http_ready_request_waits_for_next),
        cmocka_unit_test(test_http_keep_alive_by_version_and_header),
        cmocka_unit_test(test_http_absolute_form_is_a_path),
        cmocka_unit_test(test_http_expect_continue_is_told_once),
        cmocka_unit_test(test_http_body_up_to_the_limit),
        cmocka_unit_test(test_http_long_head_is_refused),
        cmocka_unit_test(test_http_refusals),
        cmocka_unit_test(test_http_nul_in_head_is_refused),
    };

    return cmocka_run_group_tests_name("http_parse", tests, NULL, NULL);
}
