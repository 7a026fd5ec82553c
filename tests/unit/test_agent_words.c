/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/words.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

#include "guest/agent/text.h"

static void parse(struct words *words, const char *line)
{
    memset(words, 0, sizeof(*words));
    memcpy(words->line, line, strlen(line) + 1);
    words_parse(words);
}

static void test_words_of_ours_are_found_among_others(void **state)
{
    struct words w;

    (void)state;
    parse(&w, "console=ttyS0 root=/dev/vda ro  mote.overlay=tmpfs quiet "
              "rootfstype=ext4 mote.hostname=box mote.marks\n");
    assert_string_equal(w.root, "/dev/vda");
    assert_string_equal(w.overlay, "tmpfs");
    assert_string_equal(w.root_type, "ext4");
    assert_string_equal(w.hostname, "box");
    assert_true(w.marks);
    assert_false(w.writable);
}

static void test_words_last_wins_and_init_words_are_not_ours(void **state)
{
    struct words w;

    (void)state;
    parse(&w, "ro root=/dev/vda rw root=/dev/vdb -- root=/dev/vdc ro");
    assert_string_equal(w.root, "/dev/vdb");
    assert_true(w.writable);
}

static void test_words_none(void **state)
{
    struct words w;

    (void)state;
    parse(&w, "");
    assert_null(w.root);
    assert_null(w.overlay);
    parse(&w, "xroot=/dev/vda rootx mote.markss");
    assert_null(w.root);
    assert_false(w.marks);
}

static void test_disk_type_by_its_mark(void **state)
{
    uint8_t bytes[WORDS_DISK_BYTES] = {0};

    (void)state;
    assert_null(words_disk_type(bytes, sizeof(bytes)));
    memcpy(bytes, "hsqs", 4);
    assert_string_equal(words_disk_type(bytes, sizeof(bytes)), "squashfs");
    memcpy(bytes, "XFSB", 4);
    assert_string_equal(words_disk_type(bytes, sizeof(bytes)), "xfs");
    memcpy(bytes + 1024 + 56, "\x53\xef", 2);
    assert_string_equal(words_disk_type(bytes, sizeof(bytes)), "ext4");
    memcpy(bytes + 1024, "\xe2\xe1\xf5\xe0", 4);
    assert_string_equal(words_disk_type(bytes, sizeof(bytes)), "erofs");
    assert_null(words_disk_type(bytes, sizeof(bytes) - 1));
}

static void test_text_is_cut_where_it_is_full(void **state)
{
    struct text t;

    (void)state;
    text_init(&t);
    for (int i = 0; i < 1000; i++)
        text_add(&t, "abc");
    assert_int_equal(t.length, sizeof(t.line) - 1);
    assert_int_equal(t.line[t.length], 0);
    text_init(&t);
    text_add_number(&t, 0);
    text_add(&t, " ");
    text_add_number(&t, UINT64_MAX);
    assert_string_equal(t.line, "0 18446744073709551615");
}

static void test_numbers_are_whole_and_in_range(void **state)
{
    (void)state;
    assert_int_equal(text_number("0", 1, 10), 0);
    assert_int_equal(text_number("0010", 4, 10), 10);
    assert_int_equal(text_number("11", 2, 10), -1);
    assert_int_equal(text_number("", 0, 10), -1);
    assert_int_equal(text_number("1x", 2, 100), -1);
    assert_int_equal(text_number("-1", 2, 100), -1);
    assert_int_equal(text_number("9999999999999999999", 19, UINT64_MAX), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_of_ours_are_found_among_others),
        cmocka_unit_test(test_words_last_wins_and_init_words_are_not_ours),
        cmocka_unit_test(test_words_none),
        cmocka_unit_test(test_disk_type_by_its_mark),
        cmocka_unit_test(test_text_is_cut_where_it_is_full),
        cmocka_unit_test(test_numbers_are_whole_and_in_range),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
