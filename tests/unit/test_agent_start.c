/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/start.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

static uint8_t message[4096];

static void begin(struct codec_writer *w)
{
    codec_writer_init(w, message, sizeof(message));
    codec_put_text(w, MOTE_ATTR_ARG, "prog");
}

static uint32_t refused(const struct codec_writer *w)
{
    struct start start;
    struct refusal why;

    assert_false(w->overflow);
    assert_int_equal(start_parse(w->data, w->length, &start, &why), -1);
    assert_true(why.text.length > 0);
    return why.error;
}

static void test_start_whole_is_read(void **state)
{
    static const uint8_t limit[24] = {7};
    static const uint8_t size[8] = {24, 0, 80, 0};
    struct codec_writer w;
    struct start start;
    struct refusal why;

    (void)state;
    begin(&w);
    codec_put_text(&w, MOTE_ATTR_ARG, "-x");
    codec_put_text(&w, MOTE_ATTR_ENV, "A=b");
    codec_put_text(&w, MOTE_ATTR_CWD, "/tmp");
    codec_put_text(&w, MOTE_ATTR_USER, "me");
    codec_put_text(&w, MOTE_ATTR_PROGRAM, "/bin/prog");
    codec_put_text(&w, MOTE_ATTR_TAG, "t");
    codec_put_u32(&w, MOTE_ATTR_GROUP, 5);
    codec_put_u32(&w, MOTE_ATTR_GROUP, 6);
    codec_put_bytes(&w, MOTE_ATTR_RLIMIT, limit, sizeof(limit));
    codec_put_u8(&w, MOTE_ATTR_STDIN, 1);
    codec_put_u8(&w, MOTE_ATTR_ENV_BARE, 1);
    codec_put_bytes(&w, MOTE_ATTR_PTY, size, sizeof(size));
    codec_put_u64(&w, MOTE_ATTR_TIME_LIMIT_MS, 1500);
    codec_put_u32(&w, MOTE_ATTR_GRACE_MS, 20);
    codec_put_u8(&w, MOTE_ATTR_DETACHED, 1);
    codec_put_u32(&w, MOTE_ATTR_UMASK, 077);
    codec_put_text(&w, 0x7fff, "from a later host");
    assert_int_equal(start_parse(w.data, w.length, &start, &why), 0);
    assert_int_equal(start.arg_count, 2);
    assert_int_equal(start.env_count, 1);
    assert_int_equal(start.text_bytes, 5 + 3 + 4);
    assert_memory_equal(start.cwd.value, "/tmp", 4);
    assert_memory_equal(start.program.value, "/bin/prog", 9);
    assert_int_equal(start.group_count, 2);
    assert_int_equal(start.groups[1], 6);
    assert_int_equal(start.limits[0].resource, 7);
    assert_true(start.want_stdin && start.want_pty && start.env_bare);
    assert_true(start.detached && start.has_umask);
    assert_int_equal(start.pty.columns, 80);
    assert_int_equal(start.time_limit_ms, 1500);
    assert_int_equal(start.grace_ms, 20);
    assert_int_equal(start.umask, 077);
}

static void test_start_alone_has_the_defaults(void **state)
{
    struct codec_writer w;
    struct start start;
    struct refusal why;

    (void)state;
    begin(&w);
    assert_int_equal(start_parse(w.data, w.length, &start, &why), 0);
    assert_null(start.cwd.value);
    assert_null(start.user.value);
    assert_false(start.want_stdin || start.want_pty || start.detached);
    assert_int_equal(start.time_limit_ms, 0);
}

static void test_start_empty_is_refused(void **state)
{
    struct codec_writer w;

    (void)state;
    codec_writer_init(&w, message, sizeof(message));
    assert_int_equal(refused(&w), MOTE_ERR_BAD_REQUEST);
}

static void test_start_attribute_twice_is_refused(void **state)
{
    struct codec_writer w;

    (void)state;
    begin(&w);
    codec_put_u8(&w, MOTE_ATTR_STDIN, 1);
    codec_put_u8(&w, MOTE_ATTR_STDIN, 1);
    assert_int_equal(refused(&w), MOTE_ERR_BAD_REQUEST);
}

static void test_start_unknown_required_is_refused(void **state)
{
    struct codec_writer w;

    (void)state;
    begin(&w);
    codec_put_text(&w, 0x7fff, "x");
    message[w.length - 7] = MOTE_ATTR_REQUIRED; /* its flags */
    assert_int_equal(refused(&w), MOTE_ERR_UNSUPPORTED);
}

static void test_start_cut_off_is_refused_at_every_length(void **state)
{
    struct codec_writer w;
    size_t whole, first;

    (void)state;
    begin(&w);
    first = w.length;
    codec_put_text(&w, MOTE_ATTR_CWD, "/tmp");
    whole = w.length;
    for (w.length = first + 1; w.length < whole; w.length++)
        assert_int_equal(refused(&w), MOTE_ERR_PROTOCOL);
}

static void test_start_bad_values_are_refused(void **state)
{
    struct codec_writer w;

    (void)state;
    begin(&w);
    codec_put_text(&w, MOTE_ATTR_ENV, "nothing");
    assert_int_equal(refused(&w), MOTE_ERR_BAD_REQUEST);
    begin(&w);
    codec_put_text(&w, MOTE_ATTR_CWD, "tmp");
    assert_int_equal(refused(&w), MOTE_ERR_BAD_REQUEST);
    begin(&w);
    codec_put_u32(&w, MOTE_ATTR_UMASK, 01000);
    assert_int_equal(refused(&w), MOTE_ERR_BAD_REQUEST);
    begin(&w);
    codec_put_bytes(&w, MOTE_ATTR_ARG, "a\0b", 3);
    assert_int_equal(refused(&w), MOTE_ERR_PROTOCOL);
    begin(&w);
    for (unsigned int i = 0; i <= START_GROUPS_MAX; i++)
        codec_put_u32(&w, MOTE_ATTR_GROUP, i);
    assert_int_equal(refused(&w), MOTE_ERR_BAD_REQUEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_whole_is_read),
        cmocka_unit_test(test_start_alone_has_the_defaults),
        cmocka_unit_test(test_start_empty_is_refused),
        cmocka_unit_test(test_start_attribute_twice_is_refused),
        cmocka_unit_test(test_start_unknown_required_is_refused),
        cmocka_unit_test(test_start_cut_off_is_refused_at_every_length),
        cmocka_unit_test(test_start_bad_values_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
