/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/http_reply.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

static void check(const struct http_out *o, const char *want)
{
    assert_int_equal(http_out_left(o), strlen(want));
    assert_memory_equal(o->data + o->sent, want, strlen(want));
}

static void test_reply_204_has_no_length_and_no_type(void **state)
{
    struct http_out o = {0};
    struct http_reply r = {.status = 204};

    (void)state;
    assert_int_equal(http_put_reply(&o, &r), 0);
    check(&o, "HTTP/1.1 204 \r\nServer: Firecracker API\r\n"
              "Connection: keep-alive\r\n\r\n");
    http_out_fini(&o);
    http_out_fini(&o); /* idempotent */
}

static void test_reply_with_body_close_and_deprecation(void **state)
{
    struct http_out o = {0};
    struct http_reply r = {
        .status = 200, .body = "{}", .close = true, .deprecated = true};

    (void)state;
    assert_int_equal(http_put_reply(&o, &r), 0);
    check(&o, "HTTP/1.1 200 \r\nServer: Firecracker API\r\n"
              "Connection: close\r\nContent-Type: application/json\r\n"
              "Content-Length: 2\r\nDeprecation: true\r\n\r\n{}");
    http_out_fini(&o);
}

static bool holds(const struct http_out *o, const char *text)
{
    return memmem(o->data, o->len, text, strlen(text)) != NULL;
}

static void test_reply_refusals_are_json(void **state)
{
    struct http_out o = {0};

    (void)state;
    assert_int_equal(http_put_refusal(&o, 400, "Bad \"x\"."), 0);
    assert_int_equal(strncmp(o.data, "HTTP/1.1 400 \r\n", 15), 0);
    assert_true(holds(&o, "{\"error\": \"Bad \\\"x\\\".\\nAll previous "
                          "unanswered requests will be dropped.\"}"));
    http_out_fini(&o);
    assert_int_equal(http_put_refusal(&o, 503, "Too many open connections"), 0);
    assert_true(holds(&o, "{\"error\": \"Too many open connections\"}"));
    assert_true(holds(&o, "Connection: close"));
    http_out_fini(&o);
}

static void test_reply_buffer_grows_and_begins_anew(void **state)
{
    struct http_reply r = {.status = 204};
    struct http_out o = {0};
    size_t one;

    (void)state;
    assert_int_equal(http_put_continue(&o), 0);
    http_out_sent(&o, o.len);
    assert_int_equal(o.len, 0);
    assert_int_equal(http_put_reply(&o, &r), 0);
    one = o.len;
    for (int i = 0; i < 99; i++)
        assert_int_equal(http_put_reply(&o, &r), 0);
    assert_int_equal(o.len, 100 * one);
    http_out_sent(&o, one);
    assert_int_equal(http_out_left(&o), 99 * one);
    http_out_sent(&o, 99 * one);
    assert_int_equal(http_out_left(&o), 0);
    assert_int_equal(o.sent, 0);
    http_out_fini(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reply_204_has_no_length_and_no_type),
        cmocka_unit_test(test_reply_with_body_close_and_deprecation),
        cmocka_unit_test(test_reply_refusals_are_json),
        cmocka_unit_test(test_reply_buffer_grows_and_begins_anew),
    };

    return cmocka_run_group_tests_name("http_reply", tests, NULL, NULL);
}
