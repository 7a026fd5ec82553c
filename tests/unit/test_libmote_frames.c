/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/frame.h"

#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* What a guest sends, and the reader that takes it. */
struct fixture {
    struct lm_buf wire;
    struct lm_reader r;
};

static int setup(void **state)
{
    *state = calloc(1, sizeof(struct fixture));
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    lm_buf_fini(&f->wire);
    lm_reader_fini(&f->r);
    free(f);
    return 0;
}

static void put_hello(struct fixture *f, uint16_t lowest, uint16_t highest)
{
    uint8_t h[8];

    put_le32(h, MOTE_MAGIC);
    put_le16(h + 4, lowest);
    put_le16(h + 6, highest);
    assert_int_equal(lm_buf_append(&f->wire, h, sizeof(h)), 0);
}

static void put_header(struct fixture *f, uint32_t len, uint8_t type,
                       uint8_t flags, uint16_t zero)
{
    uint8_t h[8];

    put_le32(h, len);
    h[4] = type;
    h[5] = flags;
    put_le16(h + 6, zero);
    assert_int_equal(lm_buf_append(&f->wire, h, sizeof(h)), 0);
}

static void put_bytes(struct fixture *f, const char *text)
{
    assert_int_equal(lm_buf_append(&f->wire, text, strlen(text)), 0);
}

/* Gives the reader `n` bytes of the wire. */
static void feed(struct fixture *f, size_t n)
{
    while (n > 0) {
        size_t room = 0;
        uint8_t *p = lm_reader_room(&f->r, &room);
        size_t take = n < room ? n : room;

        assert_non_null(p);
        assert_true(take > 0 && take <= f->wire.len);
        memcpy(p, f->wire.data, take);
        lm_reader_put(&f->r, take);
        lm_buf_consume(&f->wire, take);
        n -= take;
    }
}

static void feed_all(struct fixture *f)
{
    feed(f, f->wire.len);
}

static void expect(struct fixture *f, uint8_t type, const char *text)
{
    struct lm_msg m;

    assert_int_equal(lm_reader_next(&f->r, &m), 1);
    assert_int_equal(m.type, type);
    assert_int_equal(m.len, strlen(text));
    assert_memory_equal(m.data, text, m.len);
}

static int next_rc(struct fixture *f)
{
    struct lm_msg m;

    return lm_reader_next(&f->r, &m);
}

/* --- decoding --------------------------------------------------------------
 */

static void test_reader_frames_after_hello(void **state)
{
    struct fixture *f = *state;

    put_hello(f, 1, 1);
    put_header(f, 3, MOTE_T_STDOUT, 0, 0);
    put_bytes(f, "abc");
    put_header(f, 0, MOTE_T_OK, 0, 0);
    feed_all(f);
    expect(f, MOTE_T_STDOUT, "abc");
    expect(f, MOTE_T_OK, "");
    assert_int_equal(next_rc(f), 0);
}

static void test_reader_one_byte_at_a_time(void **state)
{
    struct fixture *f = *state;

    put_hello(f, 1, 1);
    put_header(f, 2, MOTE_T_STDERR, 0, 0);
    put_bytes(f, "x");
    while (f->wire.len > 0) {
        assert_int_equal(next_rc(f), 0);
        feed(f, 1);
    }
    assert_int_equal(next_rc(f), 0);
    put_bytes(f, "y");
    feed(f, 1);
    expect(f, MOTE_T_STDERR, "xy");
}

static void test_reader_newer_peer_speaks_our_version(void **state)
{
    struct fixture *f = *state;

    put_hello(f, 1, 9);
    put_header(f, 0, MOTE_T_OK, 0, 0);
    feed_all(f);
    expect(f, MOTE_T_OK, "");
    assert_int_equal(f->r.version, MOTE_VERSION_HIGHEST);
}

static void test_reader_refuses_bad_hello(void **state)
{
    static const struct {
        uint16_t lowest, highest;
        int rc;
    } cases[] = {{0, 1, -EBADMSG}, {2, 1, -EBADMSG}, {2, 3, -EPROTONOSUPPORT}};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        put_hello(f, cases[i].lowest, cases[i].highest);
        feed_all(f);
        assert_int_equal(next_rc(f), cases[i].rc);
        lm_reader_fini(&f->r);
    }
    put_bytes(f, "GET / HTTP/1.1");
    feed_all(f);
    assert_int_equal(next_rc(f), -EBADMSG);
}

/* The length is refused by its header alone: nothing is waited for. */
static void test_reader_refuses_length_above_limit(void **state)
{
    struct fixture *f = *state;

    put_hello(f, 1, 1);
    put_header(f, MOTE_FRAME_MAX + 1, MOTE_T_STDOUT, 0, 0);
    feed_all(f);
    assert_int_equal(next_rc(f), -EBADMSG);
}

static void test_reader_takes_frame_of_maximal_length(void **state)
{
    struct fixture *f = *state;
    struct lm_msg m;
    char *big = malloc(MOTE_FRAME_MAX);

    assert_non_null(big);
    memset(big, 'z', MOTE_FRAME_MAX);
    put_hello(f, 1, 1);
    put_header(f, MOTE_FRAME_MAX, MOTE_T_STDOUT, 0, 0);
    assert_int_equal(lm_buf_append(&f->wire, big, MOTE_FRAME_MAX), 0);
    free(big);
    while (f->wire.len > 0) {
        assert_int_equal(next_rc(f), 0);
        feed(f, (size_t)min_u64(f->wire.len, 5000));
    }
    assert_int_equal(lm_reader_next(&f->r, &m), 1);
    assert_int_equal(m.len, MOTE_FRAME_MAX);
    assert_true(f->r.in.cap <= 4u * MOTE_FRAME_MAX);
}

static void test_reader_refuses_bad_flags_and_padding(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 2; i++) {
        put_hello(f, 1, 1);
        put_header(f, 0, MOTE_T_OK, i ? 0x80 : 0, i ? 0 : 1);
        feed_all(f);
        assert_int_equal(next_rc(f), -EBADMSG);
        lm_reader_fini(&f->r);
    }
}

static void test_reader_skips_unknown_type_unless_required(void **state)
{
    struct fixture *f = *state;

    put_hello(f, 1, 1);
    put_header(f, 3, 0xee, 0, 0);
    put_bytes(f, "???");
    put_header(f, 0, MOTE_T_OK, 0, 0);
    put_header(f, 100, 0xee, MOTE_FRAME_REQUIRED, 0);
    feed_all(f);
    expect(f, MOTE_T_OK, "");
    assert_int_equal(next_rc(f), -EBADMSG);
}

static void test_reader_joins_split_message_around_data(void **state)
{
    struct fixture *f = *state;

    put_hello(f, 1, 1);
    put_header(f, 2, MOTE_T_EXIT, MOTE_FRAME_MORE, 0);
    put_bytes(f, "ab");
    put_header(f, 1, MOTE_T_STDOUT, 0, 0);
    put_bytes(f, "-");
    put_header(f, 0, MOTE_T_EXIT, MOTE_FRAME_MORE, 0);
    put_header(f, 2, MOTE_T_EXIT, 0, 0);
    put_bytes(f, "cd");
    put_header(f, 1, MOTE_T_EXIT, 0, 0);
    put_bytes(f, "e");
    feed_all(f);
    expect(f, MOTE_T_STDOUT, "-");
    expect(f, MOTE_T_EXIT, "abcd");
    expect(f, MOTE_T_EXIT, "e");
}

static void test_reader_refuses_other_message_inside_split_one(void **state)
{
    struct fixture *f = *state;

    put_hello(f, 1, 1);
    put_header(f, 0, MOTE_T_EXIT, MOTE_FRAME_MORE, 0);
    put_header(f, 0, MOTE_T_ERROR, 0, 0);
    feed_all(f);
    assert_int_equal(next_rc(f), -EBADMSG);
}

static void test_reader_bounds_joined_message(void **state)
{
    struct fixture *f = *state;
    char *big = calloc(1, MOTE_FRAME_MAX);
    int rc = 0;

    assert_non_null(big);
    put_hello(f, 1, 1);
    for (int i = 0; i < 8 && rc == 0; i++) {
        put_header(f, MOTE_FRAME_MAX, MOTE_T_READY, MOTE_FRAME_MORE, 0);
        assert_int_equal(lm_buf_append(&f->wire, big, MOTE_FRAME_MAX), 0);
        feed_all(f);
        rc = next_rc(f);
    }
    free(big);
    assert_int_equal(rc, -EMSGSIZE);
    assert_true(f->r.joined.cap <= 2u * MOTE_MESSAGE_MAX);
}

/* --- attributes -------------------------------------------------------------
 */

static void test_attr_walk_and_values(void **state)
{
    struct fixture *f = *state;
    struct lm_buf *b = &f->wire;
    struct lm_attr_iter it;
    struct lm_attr a;
    struct lm_msg m;
    uint32_t v = 0;
    char text[8];

    assert_int_equal(lm_put_u32(b, MOTE_ATTR_PID, 77), 0);
    assert_int_equal(lm_put_text(b, MOTE_ATTR_TEXT, "no \x1b[2J\xc2\x9b good"),
                     0);
    assert_int_equal(lm_put_u8(b, 0x7777, 1), 0);
    m = (struct lm_msg){MOTE_T_STARTED, b->data, b->len};
    lm_attr_begin(&it, &m);
    assert_int_equal(lm_attr_next(&it, &a), 1);
    assert_int_equal(a.type, MOTE_ATTR_PID);
    assert_int_equal(lm_attr_u32(&a, &v), 0);
    assert_int_equal(v, 77);
    assert_int_equal(lm_attr_next(&it, &a), 1);
    assert_int_equal(lm_attr_u32(&a, &v), -EBADMSG);
    lm_attr_text(&a, text, sizeof(text));
    assert_string_equal(text, "no ?[2J");
    assert_int_equal(lm_attr_next(&it, &a), 1);
    assert_int_equal(a.type, 0x7777);
    assert_int_equal(lm_attr_next(&it, &a), 0);
}

static void test_attr_text_has_no_control_characters(void **state)
{
    static const uint8_t raw[] = {'a',  0x1b, 0xc2, 0x9b, 0xc3,
                                  0xa9, 0x7f, '\n', 'b'};
    struct lm_attr a = {MOTE_ATTR_TEXT, raw, sizeof(raw)};
    char text[32];

    (void)state;
    lm_attr_text(&a, text, sizeof(text));
    assert_string_equal(text, "a?\xc2?\xc3\xa9??b");
}

static void test_attr_refuses_cut_and_unknown_required(void **state)
{
    struct fixture *f = *state;
    struct lm_attr_iter it;
    struct lm_attr a;
    struct lm_msg m;

    assert_int_equal(lm_put_u64(&f->wire, MOTE_ATTR_TIME_NS, 1), 0);
    for (size_t cut = 1; cut < f->wire.len; cut++) {
        m = (struct lm_msg){MOTE_T_OK, f->wire.data, f->wire.len - cut};
        lm_attr_begin(&it, &m);
        assert_int_equal(lm_attr_next(&it, &a), -EBADMSG);
    }
    f->wire.len = 0;
    assert_int_equal(lm_put_attr(&f->wire, 0x7777, MOTE_ATTR_REQUIRED, NULL, 0),
                     0);
    m = (struct lm_msg){MOTE_T_OK, f->wire.data, f->wire.len};
    lm_attr_begin(&it, &m);
    assert_int_equal(lm_attr_next(&it, &a), -EBADMSG);
}

/* --- building ----------------------------------------------------------------
 */

static void test_put_hello_has_the_wire_form(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(lm_put_hello(&f->wire), 0);
    assert_int_equal(f->wire.len, 8);
    assert_memory_equal(f->wire.data, "MOTE", 4);
    assert_int_equal(get_le16(f->wire.data + 4), MOTE_VERSION_LOWEST);
    assert_int_equal(get_le16(f->wire.data + 6), MOTE_VERSION_HIGHEST);
}

static void test_put_message_splits_and_bounds(void **state)
{
    struct fixture *f = *state;
    struct lm_buf attrs = {0};
    char *big = calloc(1, MOTE_MESSAGE_MAX);
    size_t at = 0;
    size_t frames = 0;

    assert_non_null(big);
    assert_int_equal(
        lm_put_attr(&attrs, MOTE_ATTR_ARG, 0, big, 2 * MOTE_FRAME_MAX + 5), 0);
    assert_int_equal(lm_put_message(&f->wire, MOTE_T_START, &attrs), 0);
    while (at < f->wire.len) {
        uint32_t len = get_le32(f->wire.data + at);
        bool last = at + 8 + len == f->wire.len;

        assert_true(len <= MOTE_FRAME_MAX);
        assert_int_equal(f->wire.data[at + 4], MOTE_T_START);
        assert_int_equal(f->wire.data[at + 5], last ? 0 : MOTE_FRAME_MORE);
        at += 8 + len;
        frames++;
    }
    assert_int_equal(frames, 3);
    f->wire.len = 0;
    assert_int_equal(
        lm_put_attr(&attrs, MOTE_ATTR_ARG, 0, big, MOTE_MESSAGE_MAX), 0);
    assert_int_equal(lm_put_message(&f->wire, MOTE_T_START, &attrs), -EMSGSIZE);
    assert_int_equal(f->wire.len, 0);
    assert_int_equal(
        lm_put_attr(&attrs, MOTE_ATTR_ARG, 0, big, MOTE_MESSAGE_MAX + 1ull),
        -EMSGSIZE);
    lm_buf_fini(&attrs);
    free(big);
}

static void test_put_message_without_attributes_is_one_frame(void **state)
{
    struct fixture *f = *state;
    struct lm_buf none = {0};

    assert_int_equal(lm_put_message(&f->wire, MOTE_T_LIST, &none), 0);
    assert_int_equal(f->wire.len, 8);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_reader_frames_after_hello),
        T(test_reader_one_byte_at_a_time),
        T(test_reader_newer_peer_speaks_our_version),
        T(test_reader_refuses_bad_hello),
        T(test_reader_refuses_length_above_limit),
        T(test_reader_takes_frame_of_maximal_length),
        T(test_reader_refuses_bad_flags_and_padding),
        T(test_reader_skips_unknown_type_unless_required),
        T(test_reader_joins_split_message_around_data),
        T(test_reader_refuses_other_message_inside_split_one),
        T(test_reader_bounds_joined_message),
        T(test_attr_walk_and_values),
        T(test_attr_text_has_no_control_characters),
        T(test_attr_refuses_cut_and_unknown_required),
        T(test_put_hello_has_the_wire_form),
        T(test_put_message_splits_and_bounds),
        T(test_put_message_without_attributes_is_one_frame),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
