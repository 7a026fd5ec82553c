/* SPDX-License-Identifier: Apache-2.0 */
/* The section mmds-config. */
#include "vmm/config.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static int load(const char *section, struct vm_config *c, struct errmsg *err)
{
    char text[2048];
    int rc;

    /* It stands before what it is about. */
    (void)snprintf(text, sizeof(text),
                   "{\"mmds-config\":%s,"
                   "\"boot-source\":{\"kernel_image_path\":\"/k\"},"
                   "\"network-interfaces\":["
                   "{\"iface_id\":\"a\",\"host_dev_name\":\"t\"},"
                   "{\"iface_id\":\"b\",\"host_dev_name\":\"u\"}]}",
                   section);
    config_init(c);
    rc = config_load_text(c, text, strlen(text), "f.json", err);
    return rc ? rc : config_validate(c, err);
}

static void test_mmds_fields_are_read(void **state)
{
    struct errmsg err = {""};
    struct vm_config c;

    (void)state;
    assert_int_equal(load("null", &c, &err), 0);
    assert_false(c.mmds.present);
    assert_false(config_mmds_serves(&c, "a"));
    config_fini(&c);
    assert_int_equal(load("{\"network_interfaces\":[\"b\"]}", &c, &err), 0);
    assert_true(c.mmds.present);
    assert_false(c.mmds.v2);
    assert_false(c.mmds.imds_compat);
    assert_int_equal(c.mmds.ip, 0xa9fea9fe);
    assert_true(config_mmds_serves(&c, "b"));
    assert_false(config_mmds_serves(&c, "a"));
    config_fini(&c);
    assert_int_equal(load("{\"network_interfaces\":[\"a\",\"b\"],"
                          "\"version\":\"V2\",\"imds_compat\":true,"
                          "\"ipv4_address\":\"169.254.1.0\"}",
                          &c, &err),
                     0);
    assert_true(c.mmds.v2);
    assert_true(c.mmds.imds_compat);
    assert_int_equal(c.mmds.ip, 0xa9fe0100);
    assert_true(config_mmds_serves(&c, "a"));
    config_fini(&c);
    config_fini(&c);
}

static void test_mmds_refusals(void **state)
{
    static const struct {
        const char *section;
        const char *word;
    } rows[] = {
        {"{}", "network_interfaces is missing"},
        {"[]", "must be an object"},
        {"{\"network_interfaces\":[]}", "network_interfaces"},
        {"{\"network_interfaces\":\"a\"}", "network_interfaces"},
        {"{\"network_interfaces\":[7]}", "network_interfaces"},
        {"{\"network_interfaces\":[\"a\",\"c\"]}", "no interface c"},
        {"{\"network_interfaces\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\","
         "\"a\",\"a\"]}",
         "network_interfaces"},
        {"{\"network_interfaces\":[\"a\"],\"version\":\"V3\"}", "V1 or V2"},
        {"{\"network_interfaces\":[\"a\"],\"version\":2}", "V1 or V2"},
        {"{\"network_interfaces\":[\"a\"],\"imds_compat\":1}", "imds_compat"},
        {"{\"network_interfaces\":[\"a\"],\"ipv4_address\":7}", "ipv4_address"},
        {"{\"network_interfaces\":[\"a\"],\"ipv4_address\":\"::1\"}",
         "IPv4 address"},
        {"{\"network_interfaces\":[\"a\"],\"ipv4_address\":\"169.254.0.255\"}",
         "link-local"},
        {"{\"network_interfaces\":[\"a\"],\"ipv4_address\":\"169.254.255.0\"}",
         "link-local"},
        {"{\"network_interfaces\":[\"a\"],\"ipv4_address\":\"10.0.0.1\"}",
         "link-local"},
        {"{\"network_interfaces\":[\"a\"],\"x\":1}", "x: unknown field"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct errmsg err = {""};
        struct vm_config c;

        assert_int_equal(load(rows[i].section, &c, &err), -EINVAL);
        assert_non_null(strstr(err.text, rows[i].word));
        config_fini(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mmds_fields_are_read),
        cmocka_unit_test(test_mmds_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
