/* SPDX-License-Identifier: Apache-2.0 */
/* The section network-interfaces. */
#include "vmm/config.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <linux/virtio_net.h>
#include <stdio.h>
#include <string.h>

static int load(const char *interfaces, struct vm_config *c, struct errmsg *err)
{
    char text[4096];

    (void)snprintf(text, sizeof(text),
                   "{\"boot-source\":{\"kernel_image_path\":\"/k\"},"
                   "\"network-interfaces\":[%s]}",
                   interfaces);
    config_init(c);
    return config_load_text(c, text, strlen(text), "f.json", err);
}

static void test_net_firecracker_fields_are_read(void **state)
{
    static const char text[] =
        "{\"iface_id\":\"eth0\",\"host_dev_name\":\"tap0\","
        "\"guest_mac\":\"06:00:AC:10:00:02\",\"mtu\":1400,"
        "\"rx_rate_limiter\":{\"bandwidth\":{\"size\":1000,"
        "\"refill_time\":100}},"
        "\"tx_rate_limiter\":{\"ops\":{\"size\":5,\"refill_time\":7}}},"
        "{\"iface_id\":\"eth1\",\"host_dev_name\":\"tap1\","
        "\"guest_mac\":null,\"mtu\":null,\"rx_rate_limiter\":null}";
    const uint8_t mac[6] = {6, 0, 0xac, 0x10, 0, 2};
    struct errmsg err = {""};
    struct vm_config c;

    (void)state;
    assert_int_equal(load(text, &c, &err), 0);
    assert_int_equal(c.num_nets, 2);
    assert_string_equal(c.nets[0].id, "eth0");
    assert_string_equal(c.nets[0].tap, "tap0");
    assert_true(c.nets[0].has_mac);
    assert_memory_equal(c.nets[0].mac, mac, 6);
    assert_int_equal(c.nets[0].mtu, 1400);
    assert_int_equal(c.nets[0].rx.bandwidth.size, 1000);
    assert_int_equal(c.nets[0].tx.ops.refill_ms, 7);
    assert_int_equal(c.nets[0].queue_pairs, 1);
    assert_int_equal(c.nets[0].fd, -1);
    assert_false(c.nets[1].has_mac);
    assert_int_equal(c.nets[1].mtu, 0);
    config_fini(&c);
    config_fini(&c); /* idempotent */
}

static void test_net_motes_own_fields_are_read(void **state)
{
    static const char text[] =
        "{\"iface_id\":\"a\",\"host_dev_name\":\"t\",\"mote\":{"
        "\"queue_pairs\":4,\"create\":true,"
        "\"without\":[\"mrg_rxbuf\",\"guest_tso4\"]}},"
        "{\"iface_id\":\"b\",\"mote\":{\"socket\":\"/s\"}},"
        "{\"iface_id\":\"c\",\"mote\":{\"fd\":4}},"
        "{\"iface_id\":\"d\",\"mote\":null,\"host_dev_name\":\"u\"}";
    struct errmsg err = {""};
    struct vm_config c;

    (void)state;
    assert_int_equal(load(text, &c, &err), 0);
    assert_int_equal(c.nets[0].queue_pairs, 4);
    assert_true(c.nets[0].create);
    assert_true(c.nets[0].without == (1ull << VIRTIO_NET_F_MRG_RXBUF |
                                      1ull << VIRTIO_NET_F_GUEST_TSO4));
    assert_string_equal(c.nets[1].socket, "/s");
    assert_int_equal(c.nets[2].fd, 4);
    assert_int_equal(c.num_nets, 4);
    config_fini(&c);
}

#define TAP(more) "{\"iface_id\":\"a\",\"host_dev_name\":\"t\"" more "}"

static void test_net_refusals_name_the_field(void **state)
{
    static const struct {
        const char *text;
        const char *names; /* what the message has to name */
    } rows[] = {
        {"{\"host_dev_name\":\"t\"}", "iface_id"},
        {"{\"iface_id\":\"a\"}", "host_dev_name"},
        {"{\"iface_id\":\"a b\",\"host_dev_name\":\"t\"}", "iface_id"},
        {"{\"iface_id\":\"\",\"host_dev_name\":\"t\"}", "iface_id"},
        {"{\"iface_id\":1,\"host_dev_name\":\"t\"}", "iface_id"},
        {"3", "objects"},
        {TAP(",\"vhost\":true"), "vhost"},
        {TAP(",\"mtu\":67"), "mtu"},
        {TAP(",\"mtu\":65536"), "mtu"},
        {TAP(",\"mtu\":\"1500\""), "mtu"},
        {TAP(",\"guest_mac\":\"06:00:ac:10:00\""), "guest_mac"},
        {TAP(",\"guest_mac\":\"06:00:ac:10:00:0g\""), "guest_mac"},
        {TAP(",\"guest_mac\":\"06-00-ac-10-00-02\""), "guest_mac"},
        {TAP(",\"guest_mac\":\"06:00:ac:10:00:+2\""), "guest_mac"},
        {TAP(",\"guest_mac\":\"01:00:ac:10:00:02\""), "guest_mac"},
        {TAP(",\"guest_mac\":\"00:00:00:00:00:00\""), "guest_mac"},
        {TAP(",\"guest_mac\":7"), "guest_mac"},
        {TAP(",\"rx_rate_limiter\":3"), "rx_rate_limiter"},
        {TAP(",\"tx_rate_limiter\":{\"x\":1}"), "x"},
        {TAP(",\"mote\":3"), "mote"},
        {TAP(",\"mote\":{\"x\":1}"), "mote.x"},
        {TAP(",\"mote\":{\"queue_pairs\":0}"), "queue_pairs"},
        {TAP(",\"mote\":{\"queue_pairs\":5}"), "queue_pairs"},
        {TAP(",\"mote\":{\"create\":1}"), "create"},
        {TAP(",\"mote\":{\"without\":\"mq\"}"), "without"},
        {TAP(",\"mote\":{\"without\":[\"mac\"]}"), "without"},
        {TAP(",\"mote\":{\"without\":[1]}"), "without"},
        {TAP(",\"mote\":{\"socket\":\"/s\"}"), "one of"},
        {TAP(",\"mote\":{\"fd\":2}"), "fd"},
        {TAP(",\"mote\":{\"fd\":5}"), "one of"},
        {"{\"iface_id\":\"a\",\"mote\":{\"fd\":5,\"create\":true}}", "create"},
        {"{\"iface_id\":\"a\",\"mote\":{\"fd\":5,\"queue_pairs\":2}}",
         "queue_pairs"},
        {TAP("") ",{\"iface_id\":\"a\",\"host_dev_name\":\"u\"}", "iface_id"},
        {TAP("") ",{\"iface_id\":\"b\",\"host_dev_name\":\"t\"}",
         "host_dev_name"},
        {"{\"iface_id\":\"a\",\"mote\":{\"fd\":5}},"
         "{\"iface_id\":\"b\",\"mote\":{\"fd\":5}}",
         "fd"},
        {TAP(",\"guest_mac\":\"06:00:ac:10:00:02\"") ",{\"iface_id\":\"b\","
                                                     "\"host_dev_name\":\"u\","
                                                     "\"guest_mac\":\"06:00:AC:"
                                                     "10:00:02\"}",
         "guest_mac"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct errmsg err = {""};
        struct vm_config c;

        assert_int_equal(load(rows[i].text, &c, &err), -EINVAL);
        if (!strstr(err.text, rows[i].names))
            fail_msg("row %zu: '%s' does not name %s", i, err.text,
                     rows[i].names);
        assert_null(strchr(err.text, '\n'));
        config_fini(&c);
    }
}

static void test_net_one_interface_too_many_is_refused(void **state)
{
    char text[2048] = "";
    struct errmsg err = {""};
    struct vm_config c;

    (void)state;
    for (unsigned i = 0; i <= CONFIG_MAX_NETS; i++) {
        size_t n = strlen(text);

        (void)snprintf(text + n, sizeof(text) - n,
                       "%s{\"iface_id\":\"e%u\",\"host_dev_name\":\"t%u\"}",
                       i ? "," : "", i, i);
    }
    assert_int_equal(load(text, &c, &err), -EINVAL);
    assert_non_null(strstr(err.text, "8 at most"));
    config_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_net_firecracker_fields_are_read),
        cmocka_unit_test(test_net_motes_own_fields_are_read),
        cmocka_unit_test(test_net_refusals_name_the_field),
        cmocka_unit_test(test_net_one_interface_too_many_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
