/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/bus.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

struct seen {
    int reads;
    int writes;
    uint64_t off;
    uint32_t len;
    uint8_t data[8];
};

static void seen_read(void *dev, uint64_t off, void *data, uint32_t len)
{
    struct seen *s = dev;

    s->reads++;
    s->off = off;
    s->len = len;
    *(uint8_t *)data = 0x42;
}

static void seen_write(void *dev, uint64_t off, const void *data, uint32_t len)
{
    struct seen *s = dev;

    s->writes++;
    s->off = off;
    s->len = len;
    memcpy(s->data, data, len);
}

static const struct bus_ops seen_ops = {.read = seen_read, .write = seen_write};

static void test_add_refuses_empty_wrapping_and_overlapping(void **state)
{
    struct bus *bus = NULL;
    struct seen s = {0};

    (void)state;
    assert_int_equal(bus_new(&bus), 0);
    assert_int_equal(bus_add(bus, 0x100, 0, &seen_ops, &s), -EINVAL);
    assert_int_equal(bus_add(bus, UINT64_MAX, 2, &seen_ops, &s), -EINVAL);
    assert_int_equal(bus_add(bus, 0x100, 0x10, &seen_ops, &s), 0);
    assert_int_equal(bus_add(bus, 0x10f, 1, &seen_ops, &s), -EEXIST);
    assert_int_equal(bus_add(bus, 0xf8, 9, &seen_ops, &s), -EEXIST);
    assert_int_equal(bus_add(bus, 0x80, 0x200, &seen_ops, &s), -EEXIST);
    assert_int_equal(bus_add(bus, 0xf8, 8, &seen_ops, &s), 0);
    assert_int_equal(bus_add(bus, 0x110, 1, &seen_ops, &s), 0);
    bus_free(bus);
}

static void test_access_reaches_the_right_device_at_its_offset(void **state)
{
    struct bus *bus = NULL;
    struct seen s[3];
    uint8_t b[8] = {9, 8, 7, 6};

    (void)state;
    memset(s, 0, sizeof(s));
    assert_int_equal(bus_new(&bus), 0);
    assert_int_equal(bus_add(bus, 0x300, 0x10, &seen_ops, &s[2]), 0);
    assert_int_equal(bus_add(bus, 0x100, 0x10, &seen_ops, &s[0]), 0);
    assert_int_equal(bus_add(bus, 0x200, 0x10, &seen_ops, &s[1]), 0);
    assert_int_equal(bus_write(bus, 0x20c, b, 4), 0);
    assert_int_equal(s[1].off, 0xc);
    assert_memory_equal(s[1].data, b, 4);
    memset(b, 0xee, sizeof(b));
    assert_int_equal(bus_read(bus, 0x30f, b, 1), 0);
    assert_int_equal(b[0], 0x42);
    assert_int_equal(s[0].reads + s[0].writes, 0);
    assert_int_equal(bus_read(bus, 0x100, b, 4), 0);
    assert_int_equal(b[1], 0); /* what the device leaves alone reads 0 */
    bus_free(bus);
}

static void test_access_across_an_edge_or_nowhere_is_all_ones(void **state)
{
    struct bus *bus = NULL;
    struct seen s = {0};
    uint8_t b[4] = {0};

    (void)state;
    assert_int_equal(bus_new(&bus), 0);
    assert_int_equal(bus_add(bus, 0x100, 0x10, &seen_ops, &s), 0);
    assert_int_equal(bus_read(bus, 0x10e, b, 4), -ENXIO);
    assert_memory_equal(b, "\xff\xff\xff\xff", 4);
    assert_int_equal(bus_write(bus, 0x10e, b, 4), -ENXIO);
    assert_int_equal(bus_write(bus, UINT64_MAX, b, 4), -ENXIO);
    assert_int_equal(bus_read(bus, 0xff, b, 1), -ENXIO);
    assert_int_equal(s.reads + s.writes, 0);
    bus_free(bus);
}

static void test_who_names_the_device_and_its_base(void **state)
{
    struct bus *bus = NULL;
    struct bus_ops named = seen_ops;
    struct seen s = {0};
    uint64_t base = 1;

    (void)state;
    named.name = "thing";
    assert_int_equal(bus_new(&bus), 0);
    assert_int_equal(bus_add(bus, 0x100, 0x10, &named, &s), 0);
    assert_int_equal(bus_add(bus, 0x200, 0x10, &seen_ops, &s), 0);
    assert_null(bus_who(bus, 0x110, &base));
    assert_int_equal(base, 1);
    assert_string_equal(bus_who(bus, 0x10f, &base), "thing");
    assert_int_equal(base, 0x100);
    assert_string_equal(bus_who(bus, 0x200, &base), "device");
    bus_free(bus);
}

static void test_add_refuses_more_ranges_than_fit(void **state)
{
    struct bus *bus = NULL;
    struct seen s = {0};
    int rc = 0;

    (void)state;
    assert_int_equal(bus_new(&bus), 0);
    for (uint64_t i = 0; i < 1000 && rc == 0; i++)
        rc = bus_add(bus, i * 16, 16, &seen_ops, &s);
    assert_int_equal(rc, -ENOSPC);
    bus_free(bus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_names_the_device_and_its_base),
        cmocka_unit_test(test_add_refuses_empty_wrapping_and_overlapping),
        cmocka_unit_test(test_access_reaches_the_right_device_at_its_offset),
        cmocka_unit_test(test_access_across_an_edge_or_nowhere_is_all_ones),
        cmocka_unit_test(test_add_refuses_more_ranges_than_fit),
    };

    return cmocka_run_group_tests_name("bus", tests, NULL, NULL);
}
