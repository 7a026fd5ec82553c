/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata itself: written, merged, bounded, shown. */
#include "vmm/mmds_store.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static json_t *json(const char *text)
{
    json_t *v = json_loads(text, 0, NULL);

    assert_non_null(v);
    return v;
}

static int put(struct mmds_store *s, const char *text)
{
    json_t *v = json(text);
    int rc = mmds_store_put(s, v);

    json_decref(v);
    return rc;
}

static int patch(struct mmds_store *s, const char *text)
{
    json_t *v = json(text);
    int rc = mmds_store_patch(s, v);

    json_decref(v);
    return rc;
}

static void expect(const struct mmds_store *s, const char *text)
{
    json_t *want = json(text);
    json_t *have = mmds_store_get(s);

    assert_true(json_equal(want, have));
    json_decref(want);
    json_decref(have);
}

static void test_an_empty_store_is_an_empty_object(void **state)
{
    struct mmds_store s = {.limit = 100};

    (void)state;
    expect(&s, "{}");
    assert_int_equal(patch(&s, "{}"), -ENOENT);
    assert_int_equal(put(&s, "{}"), 0);
    assert_int_equal(patch(&s, "{\"a\":1}"), 0);
    expect(&s, "{\"a\":1}");
    mmds_store_fini(&s);
    mmds_store_fini(&s);
}

/* The table of rfc7396, appendix A, as far as documents are objects. */
static void test_merge_as_in_the_rfc(void **state)
{
    static const struct {
        const char *before;
        const char *patch;
        const char *after;
    } rows[] = {
        {"{\"a\":\"b\"}", "{\"a\":\"c\"}", "{\"a\":\"c\"}"},
        {"{\"a\":\"b\"}", "{\"b\":\"c\"}", "{\"a\":\"b\",\"b\":\"c\"}"},
        {"{\"a\":\"b\"}", "{\"a\":null}", "{}"},
        {"{\"a\":\"b\",\"b\":\"c\"}", "{\"a\":null}", "{\"b\":\"c\"}"},
        {"{\"a\":[\"b\"]}", "{\"a\":\"c\"}", "{\"a\":\"c\"}"},
        {"{\"a\":\"c\"}", "{\"a\":[\"b\"]}", "{\"a\":[\"b\"]}"},
        {"{\"a\":{\"b\":\"c\"}}", "{\"a\":{\"b\":\"d\",\"c\":null}}",
         "{\"a\":{\"b\":\"d\"}}"},
        {"{\"a\":[{\"b\":\"c\"}]}", "{\"a\":[1]}", "{\"a\":[1]}"},
        {"{\"e\":null}", "{\"a\":1}", "{\"e\":null,\"a\":1}"},
        {"{\"a\":\"foo\"}", "{\"a\":{\"b\":{\"c\":null}}}",
         "{\"a\":{\"b\":{}}}"},
        {"{}", "{\"a\":{\"bb\":{\"ccc\":null}}}", "{\"a\":{\"bb\":{}}}"},
        {"{\"a\":{\"b\":1}}", "{\"a\":{}}", "{\"a\":{\"b\":1}}"},
        {"{\"a\":{\"b\":{\"x\":1}}}", "{\"a\":{\"b\":{\"y\":[null]}}}",
         "{\"a\":{\"b\":{\"x\":1,\"y\":[null]}}}"},
    };
    struct mmds_store s = {.limit = 1000};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(put(&s, rows[i].before), 0);
        assert_int_equal(patch(&s, rows[i].patch), 0);
        expect(&s, rows[i].after);
    }
    mmds_store_fini(&s);
}

static void test_a_document_above_the_limit_changes_nothing(void **state)
{
    struct mmds_store s = {.limit = 20};

    (void)state;
    /* Counted as compact text: 20 and 21 bytes. */
    assert_int_equal(put(&s, "{ \"a\" : \"123456789012\" }"), 0);
    assert_int_equal(put(&s, "{\"a\":\"1234567890123\"}"), -EFBIG);
    expect(&s, "{\"a\":\"123456789012\"}");
    assert_int_equal(patch(&s, "{\"b\":1}"), -EFBIG);
    expect(&s, "{\"a\":\"123456789012\"}");
    assert_int_equal(patch(&s, "{\"a\":\"1\",\"b\":1}"), 0);
    expect(&s, "{\"a\":\"1\",\"b\":1}");
    mmds_store_fini(&s);
}

static void test_the_callers_document_stays_its_own(void **state)
{
    struct mmds_store s = {.limit = 100};
    json_t *v = json("{\"a\":{\"b\":1}}");

    (void)state;
    assert_int_equal(mmds_store_put(&s, v), 0);
    assert_int_equal(patch(&s, "{\"a\":{\"b\":2}}"), 0);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(v, "a"), "b")), 1);
    json_decref(v);
    mmds_store_fini(&s);
}

static void test_values_by_path(void **state)
{
    static const char doc[] =
        "{\"z\":\"last\",\"meta\":{\"id\":\"i-1\",\"net\":{\"mac\":\"m\"},"
        "\"n\":5,\"t\":true,\"none\":null,\"e\":{}},\"list\":[\"x\",[7]],"
        "\"a/b\":{\"~\":\"tilde\"},\"\":\"empty\",\"utf\":\"\xc3\xa4\"}";
    static const struct {
        const char *path;
        bool json;
        int rc;
        const char *text;
    } rows[] = {
        {"/", false, 0, "\na/b/\nlist\nmeta/\nutf\nz"},
        {"/meta", false, 0, "e/\nid\nn\nnet/\nnone\nt"},
        {"/meta/", false, 0, "e/\nid\nn\nnet/\nnone\nt"},
        {"//meta///id//", false, 0, "i-1"},
        {"/meta/id", true, 0, "\"i-1\""},
        {"/meta/e", false, 0, ""},
        {"/meta/net", true, 0, "{\"mac\":\"m\"}"},
        {"/meta/n", false, -ENOTSUP, NULL},
        {"/meta/n", true, 0, "5"},
        {"/meta/t", false, -ENOTSUP, NULL},
        {"/meta/none", false, -ENOTSUP, NULL},
        {"/meta/none", true, 0, "null"},
        {"/list", false, -ENOTSUP, NULL},
        {"/list/0", false, 0, "x"},
        {"/list/1/0", true, 0, "7"},
        {"/list/2", false, -ENOENT, NULL},
        {"/list/00", false, -ENOENT, NULL},
        {"/list/-", false, -ENOENT, NULL},
        {"/list/99999999999999999999", false, -ENOENT, NULL},
        {"/a~1b/~0", false, 0, "tilde"},
        {"/a~1b/~", false, -ENOENT, NULL},
        {"/a~1b/~2", false, -ENOENT, NULL},
        {"/utf", false, 0, "\xc3\xa4"},
        {"/meta/id/x", false, -ENOENT, NULL},
        {"/META", false, -ENOENT, NULL},
        {"/nope", true, -ENOENT, NULL},
    };
    struct mmds_store s = {.limit = 1000};
    char *text;

    (void)state;
    assert_int_equal(mmds_store_text(&s, "/", false, &text), 0);
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(mmds_store_text(&s, "/a", false, &text), -ENOENT);
    assert_int_equal(put(&s, doc), 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        text = NULL;
        assert_int_equal(mmds_store_text(&s, rows[i].path, rows[i].json, &text),
                         rows[i].rc);
        if (rows[i].rc == 0)
            assert_string_equal(text, rows[i].text);
        free(text);
    }
    mmds_store_fini(&s);
}

static void test_a_very_long_key_names_nothing(void **state)
{
    struct mmds_store s = {.limit = 10000};
    char path[3002];
    char *text = NULL;

    (void)state;
    memset(path, 'k', sizeof(path) - 1);
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(put(&s, "{\"k\":1}"), 0);
    assert_int_equal(mmds_store_text(&s, path, true, &text), -ENOENT);
    mmds_store_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_empty_store_is_an_empty_object),
        cmocka_unit_test(test_merge_as_in_the_rfc),
        cmocka_unit_test(test_a_document_above_the_limit_changes_nothing),
        cmocka_unit_test(test_the_callers_document_stays_its_own),
        cmocka_unit_test(test_values_by_path),
        cmocka_unit_test(test_a_very_long_key_names_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
