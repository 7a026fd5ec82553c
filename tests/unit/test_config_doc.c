/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/config_doc.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static json_t *parse(const char *text)
{
    json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

    assert_non_null(doc);
    return doc;
}

/* Takes `got` over. */
static void check(json_t *got, const char *want)
{
    json_t *w = parse(want);

    if (!json_equal(got, w)) {
        char *text = json_dumps(got, 0);

        print_error("got %s\nwant %s\n", text, want);
        free(text);
        fail();
    }
    json_decref(w);
    json_decref(got);
}

static void test_doc_section_is_replaced_in_a_copy(void **state)
{
    json_t *doc = parse("{\"a\":{\"x\":1},\"b\":{\"y\":2}}");
    json_t *value = parse("{\"z\":3}");

    (void)state;
    check(config_doc_with(doc, "a", value),
          "{\"a\":{\"z\":3},\"b\":{\"y\":2}}");
    check(config_doc_with(doc, "c", value),
          "{\"a\":{\"x\":1},\"b\":{\"y\":2},\"c\":{\"z\":3}}");
    check(config_doc_with(doc, "a", NULL), "{\"b\":{\"y\":2}}");
    check(config_doc_with(doc, "none", NULL),
          "{\"a\":{\"x\":1},\"b\":{\"y\":2}}");
    json_decref(value);
    check(doc, "{\"a\":{\"x\":1},\"b\":{\"y\":2}}"); /* as it was */
}

static void test_doc_item_goes_in_by_its_id(void **state)
{
    json_t *doc = parse("{\"l\":[{\"id\":\"a\",\"v\":1},{\"id\":\"b\"}]}");
    json_t *item = parse("{\"id\":\"a\",\"v\":2}");
    json_t *other = parse("{\"id\":\"c\"}");
    json_t *empty = json_object();
    json_t *odd = parse("{\"id\":7}");

    (void)state;
    check(config_doc_with_item(doc, "l", "id", item),
          "{\"l\":[{\"id\":\"a\",\"v\":2},{\"id\":\"b\"}]}");
    check(config_doc_with_item(doc, "l", "id", other),
          "{\"l\":[{\"id\":\"a\",\"v\":1},{\"id\":\"b\"},{\"id\":\"c\"}]}");
    check(config_doc_with_item(empty, "l", "id", other),
          "{\"l\":[{\"id\":\"c\"}]}");
    /* What the parser will refuse goes in as well. */
    check(config_doc_with_item(empty, "l", "id", odd), "{\"l\":[{\"id\":7}]}");
    assert_int_equal(json_integer_value(json_object_get(
                         config_doc_item(doc, "l", "id", "a"), "v")),
                     1);
    assert_null(config_doc_item(doc, "l", "id", "x"));
    assert_null(config_doc_item(doc, "none", "id", "a"));
    json_decref(item);
    json_decref(other);
    json_decref(empty);
    json_decref(odd);
    check(doc, "{\"l\":[{\"id\":\"a\",\"v\":1},{\"id\":\"b\"}]}");
}

static void test_doc_patch_goes_one_level_deep(void **state)
{
    static const char before[] =
        "{\"p\":\"/a\",\"lim\":{\"b\":{\"size\":1,\"burst\":2},\"o\":{}}}";
    json_t *old = parse(before);
    json_t *patch = parse("{\"p\":null,\"q\":1,"
                          "\"lim\":{\"b\":{\"size\":3},\"o\":null}}");
    json_t *word = parse("{\"lim\":7}");

    (void)state;
    /* A bucket is replaced whole; null is as if left out. */
    check(config_doc_patched(old, patch),
          "{\"p\":\"/a\",\"q\":1,\"lim\":{\"b\":{\"size\":3},\"o\":{}}}");
    check(config_doc_patched(NULL, word), "{\"lim\":7}");
    check(config_doc_patched(old, word), "{\"p\":\"/a\",\"lim\":7}");
    check(config_doc_patched(old, NULL), before);
    json_decref(patch);
    json_decref(word);
    check(old, before);
}

static void test_doc_view_is_read_back_as_a_file(void **state)
{
    json_t *doc =
        parse("{\"boot-source\":{\"kernel_image_path\":\"/k\"},"
              "\"machine-config\":{\"vcpu_count\":3,\"smt\":null},"
              "\"entropy\":{},\"drives\":[{\"drive_id\":\"a\","
              "\"path_on_host\":\"/d\",\"cache_type\":\"Writeback\"}]}");
    struct errmsg err = {""};
    struct vm_config c;
    json_t *view;

    (void)state;
    config_init(&c);
    assert_int_equal(config_apply(&c, doc, "doc", &err), 0);
    view = config_doc_view(doc, &c);
    config_fini(&c);
    config_init(&c);
    assert_int_equal(config_apply(&c, view, "view", &err), 0);
    assert_int_equal(config_validate(&c, &err), 0);
    assert_int_equal(c.num_vcpus, 3);
    assert_int_equal(c.num_drives, 1);
    assert_true(c.entropy);
    assert_null(c.vsock_path);
    assert_true(json_is_null(json_object_get(view, "vsock")));
    check(json_incref(json_object_get(view, "machine-config")),
          "{\"vcpu_count\":3,\"mem_size_mib\":128,\"smt\":false,"
          "\"track_dirty_pages\":false,\"huge_pages\":\"None\"}");
    config_fini(&c);
    json_decref(view);
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doc_section_is_replaced_in_a_copy),
        cmocka_unit_test(test_doc_item_goes_in_by_its_id),
        cmocka_unit_test(test_doc_patch_goes_one_level_deep),
        cmocka_unit_test(test_doc_view_is_read_back_as_a_file),
    };

    return cmocka_run_group_tests_name("config_doc", tests, NULL, NULL);
}
