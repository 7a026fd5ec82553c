/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/restore_parse.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

static uint8_t bytes[2048];
static struct codec_writer w;
static struct restore_request req;

static int setup(void **state)
{
    (void)state;
    codec_writer_init(&w, bytes, sizeof(bytes));
    memset(&req, 0xaa, sizeof(req));
    return 0;
}

static int parse(void)
{
    assert_false(w.overflow);
    return restore_parse(w.data, w.length, &req);
}

static void test_restore_parse_gives_what_was_put(void **state)
{
    (void)state;
    codec_put_text(&w, MOTE_ATTR_HOSTNAME, "clone-7");
    codec_put_bytes(&w, MOTE_ATTR_SEED, "0123456789abcdef", 16);
    codec_put_bytes(&w, MOTE_ATTR_INTERFACE, "one", 3);
    codec_put_u64(&w, MOTE_ATTR_TIME_NS, 1796132555000000001u);
    codec_put_bytes(&w, MOTE_ATTR_INTERFACE, "", 0);
    codec_put_bytes(&w, 0x7777, "later", 5); /* may be skipped */
    assert_int_equal(parse(), 0);
    assert_int_equal(req.time_ns, 1796132555000000001u);
    assert_int_equal(req.hostname.length, 7);
    assert_memory_equal(req.hostname.value, "clone-7", 7);
    assert_int_equal(req.seed.length, 16);
    assert_int_equal(req.interface_count, 2);
    assert_memory_equal(req.interfaces[0].value, "one", 3);
    assert_int_equal(req.interfaces[1].length, 0);
}

static void test_restore_parse_of_the_least_has_no_values(void **state)
{
    (void)state;
    codec_put_u64(&w, MOTE_ATTR_TIME_NS, 0);
    assert_int_equal(parse(), 0);
    assert_int_equal(req.time_ns, 0);
    assert_null(req.hostname.value);
    assert_null(req.seed.value);
    assert_int_equal(req.interface_count, 0);
}

static void test_restore_parse_without_a_time_is_refused(void **state)
{
    (void)state;
    assert_int_equal(parse(), -EINVAL);
    codec_put_text(&w, MOTE_ATTR_HOSTNAME, "x");
    assert_int_equal(parse(), -EINVAL);
}

static void test_restore_parse_bad_values_are_refused(void **state)
{
    static const char long_text[80] = "";
    char name[RESTORE_HOSTNAME_MAX + 1];

    memset(name, 'x', sizeof(name));
    codec_put_u32(&w, MOTE_ATTR_TIME_NS, 1); /* not 8 bytes */
    assert_int_equal(parse(), -EPROTO);
    setup(state);
    codec_put_bytes(&w, MOTE_ATTR_HOSTNAME, name, sizeof(name));
    assert_int_equal(parse(), -EMSGSIZE);
    setup(state);
    codec_put_bytes(&w, MOTE_ATTR_HOSTNAME, "a\0b", 3);
    assert_int_equal(parse(), -EPROTO);
    setup(state);
    codec_put_bytes(&w, MOTE_ATTR_SEED, long_text, MOTE_SEED_MAX + 1);
    assert_int_equal(parse(), -EMSGSIZE);
    setup(state);
    for (size_t i = 0; i <= RESTORE_INTERFACES_MAX; i++)
        codec_put_bytes(&w, MOTE_ATTR_INTERFACE, "", 0);
    assert_int_equal(parse(), -EMSGSIZE);
}

static void test_restore_parse_unknown_required_is_refused(void **state)
{
    (void)state;
    codec_put_u64(&w, MOTE_ATTR_TIME_NS, 1);
    codec_put_bytes(&w, 0x7777, "", 0);
    bytes[w.length - CODEC_HEADER + 2] = MOTE_ATTR_REQUIRED;
    assert_int_equal(parse(), -ENOENT);
}

static void test_restore_parse_cut_anywhere_is_refused(void **state)
{
    (void)state;
    codec_put_u64(&w, MOTE_ATTR_TIME_NS, 1);
    codec_put_text(&w, MOTE_ATTR_HOSTNAME, "clone");
    for (size_t n = 0; n < w.length; n++) {
        int rc = restore_parse(w.data, n, &req);

        assert_int_equal(rc, n == 0 ? -EINVAL : n == 16 ? 0 : -EPROTO);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_restore_parse_gives_what_was_put, setup),
        cmocka_unit_test_setup(test_restore_parse_of_the_least_has_no_values,
                               setup),
        cmocka_unit_test_setup(test_restore_parse_without_a_time_is_refused,
                               setup),
        cmocka_unit_test_setup(test_restore_parse_bad_values_are_refused,
                               setup),
        cmocka_unit_test_setup(test_restore_parse_unknown_required_is_refused,
                               setup),
        cmocka_unit_test_setup(test_restore_parse_cut_anywhere_is_refused,
                               setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
