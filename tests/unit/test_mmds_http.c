/* SPDX-License-Identifier: Apache-2.0 */
/* What the metadata service answers to which request; tokens. */
#include "vmm/mmds.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

struct answer {
    int status;
    bool close;
    char text[4096]; /* all of it */
    char body[4096];
};

static struct mmds *make(bool v2)
{
    struct mmds *m = mmds_new(51200);
    json_t *doc = json_loads("{\"a\":{\"b\":\"value\"},\"n\":5}", 0, NULL);

    assert_non_null(m);
    m->v2 = v2;
    assert_int_equal(mmds_store_put(&m->store, doc), 0);
    json_decref(doc);
    return m;
}

static struct answer ask(struct mmds *m, const char *request)
{
    struct mmds_response r = {NULL, 0, false};
    struct answer a = {0};
    int32_t used =
        m->service.respond(m->service.arg, request, strlen(request), false, &r);
    const char *body;
    char want[40];

    assert_int_equal(used, strlen(request));
    assert_true(r.len < sizeof(a.text));
    memcpy(a.text, r.data, r.len);
    free(r.data);
    a.close = r.close;
    assert_int_equal(sscanf(a.text, "HTTP/1.1 %d ", &a.status), 1);
    body = strstr(a.text, "\r\n\r\n");
    assert_non_null(body);
    memcpy(a.body, body + 4, strlen(body + 4) + 1);
    (void)snprintf(want, sizeof(want), "\r\nContent-Length: %zu\r\n",
                   strlen(a.body));
    assert_non_null(strstr(a.text, want));
    assert_non_null(strstr(a.text, a.close ? "\r\nConnection: close\r\n"
                                           : "\r\nConnection: keep-alive\r\n"));
    return a;
}

static struct answer get(struct mmds *m, const char *path, const char *headers)
{
    char text[2048];

    (void)snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\n%s\r\n", path,
                   headers);
    return ask(m, text);
}

static struct answer token(struct mmds *m, const char *headers)
{
    char text[2048];

    (void)snprintf(text, sizeof(text),
                   "PUT /latest/api/token HTTP/1.1\r\n%s\r\n", headers);
    return ask(m, text);
}

static void expect(const struct answer *a, int status, const char *body)
{
    assert_int_equal(a->status, status);
    if (body)
        assert_string_equal(a->body, body);
}

static void test_text_or_json_as_the_client_takes_it(void **state)
{
    static const struct {
        const char *headers;
        bool json;
    } rows[] = {
        {"", false},
        {"Accept: */*\r\n", false},
        {"Accept: text/plain\r\n", false},
        {"Accept: application/json\r\n", true},
        {"accept: text/html;q=1, APPLICATION/JSON;q=0.5\r\n", true},
        {"Accept: application/jsonp\r\n", false},
        {"Accept: ,,;,\r\n", false},
    };
    struct mmds *m = make(false);
    struct answer a;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        a = get(m, "/a", rows[i].headers);
        expect(&a, 200, rows[i].json ? "{\"b\":\"value\"}" : "b");
        assert_non_null(strstr(a.text, rows[i].json
                                           ? "Content-Type: application/json"
                                           : "Content-Type: text/plain"));
    }
    m->imds_compat = true;
    a = get(m, "/a", "Accept: application/json\r\n");
    expect(&a, 200, "b");
    assert_non_null(strstr(a.text, "Content-Type: text/plain"));
    mmds_free(m);
}

static void test_what_is_not_there_or_cannot_be_shown(void **state)
{
    struct mmds *m = make(false);
    struct answer a = get(m, "/x", "");

    (void)state;
    expect(&a, 404, NULL);
    a = get(m, "/n", "");
    expect(&a, 501, NULL);
    a = get(m, "/n", "Accept: application/json\r\n");
    expect(&a, 200, "5");
    a = get(m, "/a/b", "");
    expect(&a, 200, "value");
    assert_false(a.close);
    a = ask(m, "GET /a/b HTTP/1.0\r\n\r\n");
    expect(&a, 200, "value");
    assert_true(a.close);
    a = get(m, "http://169.254.169.254/a/b", "Connection: close\r\n");
    expect(&a, 200, "value");
    assert_true(a.close);
    mmds_free(m);
}

static void test_other_methods_are_told_which_there_are(void **state)
{
    static const char *const methods[] = {"POST", "DELETE", "PATCH", "HEAD",
                                          "get"};
    struct mmds *m = make(false);
    struct answer a;
    char text[100];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        (void)snprintf(text, sizeof(text), "%s /a HTTP/1.1\r\n\r\n",
                       methods[i]);
        a = ask(m, text);
        expect(&a, 405, NULL);
        assert_non_null(strstr(a.text, "\r\nAllow: GET, PUT\r\n"));
        assert_int_equal(a.body[0] == '\0', !strcmp(methods[i], "HEAD"));
    }
    a = ask(m, "PUT /a HTTP/1.1\r\n\r\n");
    expect(&a, 404, NULL);
    mmds_free(m);
}

static void test_malformed_requests_end_the_connection(void **state)
{
    static const char *const bad[] = {
        "\r\n\r\n",
        "GET /\r\n\r\n",
        "GET a HTTP/1.1\r\n\r\n",
        "GET / HTTP/2.0\r\n\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 99999\r\n\r\n",
        "GET / HTTP/1.1\n\n",
    };
    struct mmds *m = make(false);
    struct answer a;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        a = ask(m, bad[i]);
        expect(&a, 400, NULL);
        assert_true(a.close);
    }
    mmds_free(m);
}

static void test_a_request_that_is_not_whole_waits_or_is_too_long(void **state)
{
    static const char text[] =
        "PUT /latest/api/token HTTP/1.1\r\nContent-Length: 4\r\n"
        "Expect: 100-continue\r\nX-metadata-token-ttl-seconds: 1\r\n\r\nabcd";
    struct mmds *m = make(false);
    struct mmds_response r = {NULL, 0, false};

    (void)state;
    for (size_t n = 1; n < sizeof(text) - 1; n++)
        assert_int_equal(mmds_respond(m, text, n, false, &r), 0);
    assert_null(r.data);
    assert_int_equal(mmds_respond(m, text, sizeof(text) - 1, false, &r),
                     sizeof(text) - 1);
    assert_memory_equal(r.data, "HTTP/1.1 200", 12);
    free(r.data);
    assert_int_equal(mmds_respond(m, text, 50, true, &r), 50);
    assert_memory_equal(r.data, "HTTP/1.1 400", 12);
    assert_true(r.close);
    free(r.data);
    mmds_free(m);
}

static void test_two_requests_are_taken_one_by_one(void **state)
{
    static const char text[] =
        "GET /a/b HTTP/1.1\r\n\r\nGET /n HTTP/1.1\r\n\r\n";
    struct mmds *m = make(false);
    struct mmds_response r = {NULL, 0, false};

    (void)state;
    assert_int_equal(mmds_respond(m, text, sizeof(text) - 1, false, &r), 21);
    free(r.data);
    mmds_free(m);
}

/* --- tokens ----------------------------------------------------------------
 */

static void test_v2_wants_a_token(void **state)
{
    static const char *const names[] = {
        "X-metadata-token", "X-aws-ec2-metadata-token", "x-METADATA-token"};
    struct mmds *m = make(true);
    struct answer t = token(m, "X-metadata-token-ttl-seconds: 60\r\n");
    struct answer a = get(m, "/a/b", "");
    char line[300];

    (void)state;
    expect(&t, 200, NULL);
    assert_int_equal(strlen(t.body), MMDS_TOKEN_CHARS);
    assert_non_null(strstr(t.text, "\r\nX-metadata-token-ttl-seconds: 60\r\n"));
    assert_non_null(strstr(t.text, "Content-Type: text/plain"));
    expect(&a, 401, NULL);
    assert_int_equal(m->counts.no_token, 1);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(line, sizeof(line), "%s: %.64s\r\n", names[i], t.body);
        a = get(m, "/a/b", line);
        expect(&a, 200, "value");
    }
    a = get(m, "/nope", line);
    expect(&a, 404, NULL);
    a = get(m, "/nope", ""); /* tells nothing about what there is */
    expect(&a, 401, NULL);
    (void)snprintf(line, sizeof(line),
                   "X-metadata-token: %.64s\r\nX-metadata-token: %.64s\r\n",
                   t.body, t.body);
    a = get(m, "/a/b", line);
    expect(&a, 400, NULL);
    mmds_free(m);
}

static void test_wrong_tokens_are_refused(void **state)
{
    struct mmds *m = make(true);
    struct answer t =
        token(m, "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n");
    struct answer a;
    char line[300];

    (void)state;
    assert_non_null(
        strstr(t.text, "\r\nX-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"));
    for (size_t i = 0; i < MMDS_TOKEN_CHARS; i++) {
        char wrong[MMDS_TOKEN_CHARS + 1];

        memcpy(wrong, t.body, sizeof(wrong));
        wrong[i] = wrong[i] == '0' ? '1' : '0';
        (void)snprintf(line, sizeof(line), "X-metadata-token: %.64s\r\n",
                       wrong);
        a = get(m, "/a/b", line);
        expect(&a, 401, NULL);
    }
    (void)snprintf(line, sizeof(line), "X-metadata-token: %.64s0\r\n", t.body);
    a = get(m, "/a/b", line);
    expect(&a, 401, NULL);
    (void)snprintf(line, sizeof(line), "X-metadata-token: %.63s\r\n", t.body);
    a = get(m, "/a/b", line);
    expect(&a, 401, NULL);
    a = get(m, "/a/b", "X-metadata-token:\r\n");
    expect(&a, 401, NULL);
    /* What a slot that was never used holds. */
    (void)snprintf(line, sizeof(line), "X-metadata-token: %064d\r\n", 0);
    a = get(m, "/a/b", line);
    expect(&a, 401, NULL);
    assert_int_equal(m->counts.bad_token, MMDS_TOKEN_CHARS + 4);
    mmds_free(m);
}

static void test_requests_for_a_token_that_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "X-metadata-token-ttl-seconds: 0\r\n",
        "X-metadata-token-ttl-seconds: 21601\r\n",
        "X-metadata-token-ttl-seconds: -1\r\n",
        "X-metadata-token-ttl-seconds: +1\r\n",
        "X-metadata-token-ttl-seconds: 1.5\r\n",
        "X-metadata-token-ttl-seconds:\r\n",
        "X-metadata-token-ttl-seconds: 99999999999999999999\r\n",
        "X-metadata-token-ttl-seconds: 60\r\nX-Forwarded-For: 1.2.3.4\r\n",
        "x-forwarded-for:\r\nX-metadata-token-ttl-seconds: 60\r\n",
        ("X-metadata-token-ttl-seconds: 60\r\n"
         "X-aws-ec2-metadata-token-ttl-seconds: 60\r\n"),
    };
    struct mmds *m = make(true);

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct answer a = token(m, bad[i]);

        expect(&a, 400, NULL);
    }
    assert_int_equal(m->tokens.slots[0].ends_ns, 0);
    mmds_free(m);
}

static void test_v1_does_without_and_gives_tokens_as_well(void **state)
{
    struct mmds *m = make(false);
    struct answer a = token(m, "X-metadata-token-ttl-seconds: 60\r\n");

    (void)state;
    expect(&a, 200, NULL);
    a = get(m, "/a/b", "");
    expect(&a, 200, "value");
    a = get(m, "/a/b", "X-metadata-token: whatever\r\n");
    expect(&a, 200, "value");
    mmds_free(m);
}

static void test_tokens_end_and_are_bounded(void **state)
{
    static struct mmds_tokens t;
    char text[MMDS_MAX_TOKENS + 1][MMDS_TOKEN_CHARS + 1];
    uint64_t now = 5 * SECOND;

    (void)state;
    for (uint32_t i = 0; i < MMDS_MAX_TOKENS; i++)
        assert_int_equal(mmds_token_new(&t, 10 + i, now, text[i]), 0);
    for (uint32_t i = 0; i < MMDS_MAX_TOKENS; i++) {
        assert_true(mmds_token_ok(&t, text[i], now));
        assert_true(mmds_token_ok(&t, text[i], now + (10 + i) * SECOND - 1));
        assert_false(mmds_token_ok(&t, text[i], now + (10 + i) * SECOND));
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(text[i], text[k]);
    }
    /* One more: that which would end first gives way. */
    assert_int_equal(mmds_token_new(&t, 1, now, text[MMDS_MAX_TOKENS]), 0);
    assert_true(mmds_token_ok(&t, text[MMDS_MAX_TOKENS], now));
    assert_false(mmds_token_ok(&t, text[0], now));
    assert_true(mmds_token_ok(&t, text[1], now));
}

static void test_metrics_say_what_is_new(void **state)
{
    struct mmds *m = make(true);
    json_t *line = json_object();
    json_t *group;

    (void)state;
    (void)get(m, "/a", "");
    m->counts.net.tx_frames = 7;
    mmds_gather(m, line);
    group = json_object_get(line, "mmds");
    assert_int_equal(json_object_size(group), 12);
    assert_int_equal(json_integer_value(json_object_get(group, "tx_frames")),
                     7);
    assert_int_equal(json_integer_value(json_object_get(group, "rx_no_token")),
                     1);
    m->counts.net.tx_frames = 9;
    json_decref(line);
    line = json_object();
    mmds_gather(m, line);
    group = json_object_get(line, "mmds");
    assert_int_equal(json_integer_value(json_object_get(group, "tx_frames")),
                     2);
    assert_int_equal(json_integer_value(json_object_get(group, "rx_no_token")),
                     0);
    json_decref(line);
    mmds_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_or_json_as_the_client_takes_it),
        cmocka_unit_test(test_what_is_not_there_or_cannot_be_shown),
        cmocka_unit_test(test_other_methods_are_told_which_there_are),
        cmocka_unit_test(test_malformed_requests_end_the_connection),
        cmocka_unit_test(test_a_request_that_is_not_whole_waits_or_is_too_long),
        cmocka_unit_test(test_two_requests_are_taken_one_by_one),
        cmocka_unit_test(test_v2_wants_a_token),
        cmocka_unit_test(test_wrong_tokens_are_refused),
        cmocka_unit_test(test_requests_for_a_token_that_are_refused),
        cmocka_unit_test(test_v1_does_without_and_gives_tokens_as_well),
        cmocka_unit_test(test_tokens_end_and_are_bounded),
        cmocka_unit_test(test_metrics_say_what_is_new),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
