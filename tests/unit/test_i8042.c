/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/i8042.h"

#include "tests/harness/state_box.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fixture {
    struct i8042 *k;
    int stops;
    enum stop_reason reason;
};

static void on_stop(void *arg, enum stop_reason reason, uint32_t detail)
{
    struct fixture *f = arg;

    assert_int_equal(detail, 0);
    f->stops++;
    f->reason = reason;
}

static int setup(void **state)
{
    static struct fixture f;
    struct stop_hook hook = {on_stop, &f};

    memset(&f, 0, sizeof(f));
    assert_int_equal(i8042_new(&hook, &f.k), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    i8042_free(((struct fixture *)*state)->k);
    return 0;
}

static uint8_t in(struct fixture *f, uint64_t off)
{
    uint8_t v = 0;

    i8042_bus_ops.read(f->k, off, &v, 1);
    return v;
}

static void out(struct fixture *f, uint64_t off, uint8_t v)
{
    i8042_bus_ops.write(f->k, off, &v, 1);
}

static void test_i8042_reset_command_reboots(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(in(f, 4) & 0x02, 0); /* what a kernel waits for first */
    out(f, 4, 0xfe);
    assert_int_equal(f->stops, 1);
    assert_int_equal(f->reason, STOP_REBOOT);
}

static void test_i8042_reset_by_the_output_port(void **state)
{
    struct fixture *f = *state;

    out(f, 4, 0xd1);
    out(f, 0, 0xff); /* the reset line stays high */
    assert_int_equal(f->stops, 0);
    out(f, 0, 0x00); /* a byte for nobody */
    assert_int_equal(f->stops, 0);
    out(f, 4, 0xd1);
    out(f, 0, 0xfe);
    assert_int_equal(f->stops, 1);
}

static void test_i8042_self_test_answers(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(in(f, 4) & 0x01, 0);
    out(f, 4, 0xaa);
    assert_int_equal(in(f, 4) & 0x01, 1);
    assert_int_equal(in(f, 0), 0x55);
    assert_int_equal(in(f, 4) & 0x01, 0);
}

static void test_i8042_configuration_reads_back(void **state)
{
    struct fixture *f = *state;

    out(f, 4, 0x60);
    out(f, 0, 0x12);
    out(f, 4, 0x20);
    assert_int_equal(in(f, 0), 0x12);
    assert_int_equal(f->stops, 0);
}

/* No command, byte or read leaves a status that a driver polls for ever. */
static void test_i8042_nothing_gets_stuck(void **state)
{
    struct fixture *f = *state;

    for (unsigned cmd = 0; cmd < 256; cmd++) {
        if (cmd == 0xfe)
            continue;
        out(f, 4, (uint8_t)cmd);
        (void)in(f, 0);
        assert_int_equal(in(f, 4) & 0x03, 0);
        out(f, 0, 0xff);
        assert_int_equal(in(f, 4) & 0x02, 0);
    }
    assert_int_equal(f->stops, 0);
}

static void test_i8042_other_ports_and_widths_are_an_empty_bus(void **state)
{
    static const uint8_t reset[8] = {0xfe, 0xfe, 0xfe, 0xfe};
    struct fixture *f = *state;
    uint8_t b[4] = {0};

    for (uint64_t off = 1; off < 4; off++) {
        assert_int_equal(in(f, off), 0xff);
        out(f, off, 0xfe);
    }
    i8042_bus_ops.write(f->k, 4, reset, 2);
    i8042_bus_ops.write(f->k, 1, reset, 4);
    i8042_bus_ops.read(f->k, 0, b, 4);
    assert_memory_equal(b, "\xff\xff\xff\xff", 4);
    assert_int_equal(f->stops, 0);
}

static void test_i8042_counts_what_the_guest_does(void **state)
{
    struct fixture *f = *state;
    struct i8042_stats s;
    uint16_t wide = 0;

    (void)in(f, 0);
    (void)in(f, 4);
    (void)in(f, 2); /* nobody's */
    i8042_bus_ops.read(f->k, 0, &wide, 2);
    out(f, 4, 0xaa);
    out(f, 3, 0xaa);
    i8042_bus_ops.write(f->k, 4, &wide, 2);
    i8042_get_stats(f->k, &s);
    assert_int_equal(s.reads, 2);
    assert_int_equal(s.missed_reads, 2);
    assert_int_equal(s.writes, 1);
    assert_int_equal(s.missed_writes, 2);
    assert_int_equal(s.resets, 0);
    out(f, 4, 0xfe);
    i8042_get_stats(f->k, &s);
    assert_int_equal(s.resets, 1);
}

static uint64_t edges(int fd)
{
    uint64_t n = 0;

    return read(fd, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

/* The bytes of the keys, as a driver reads them: one for each edge. */
static size_t read_keys(struct fixture *f, uint8_t *out, size_t max)
{
    size_t n = 0;

    while (n < max && (in(f, 4) & 0x01))
        out[n++] = in(f, 0);
    return n;
}

static void test_i8042_ctrl_alt_del_translated_and_not(void **state)
{
    static const uint8_t set1[] = {0x1d, 0x38, 0xe0, 0x53,
                                   0xe0, 0xd3, 0xb8, 0x9d};
    struct fixture *f = *state;
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    uint8_t got[32];

    i8042_set_irq(f->k, fd);
    out(f, 4, 0x60);
    out(f, 0, 0x45); /* translated, interrupt on */
    assert_int_equal(edges(fd), 0);
    assert_true(i8042_press_ctrl_alt_del(f->k));
    assert_int_equal(edges(fd), 1);
    assert_false(i8042_press_ctrl_alt_del(f->k)); /* not read yet */
    assert_int_equal(read_keys(f, got, sizeof(got)), sizeof(set1));
    assert_memory_equal(got, set1, sizeof(set1));
    assert_int_equal(edges(fd), sizeof(set1) - 1);
    out(f, 4, 0x60);
    out(f, 0, 0x05); /* not translated */
    assert_true(i8042_press_ctrl_alt_del(f->k));
    assert_int_equal(read_keys(f, got, sizeof(got)), 11);
    assert_int_equal(got[0], 0x14);
    assert_int_equal(got[10], 0x14);
    (void)close(fd);
}

static void test_i8042_keys_wait_until_the_driver_wants_them(void **state)
{
    struct fixture *f = *state;
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    assert_false(i8042_press_ctrl_alt_del(f->k)); /* no line, no keys */
    i8042_set_irq(f->k, fd);
    assert_true(i8042_press_ctrl_alt_del(f->k)); /* both ports are off */
    assert_int_equal(in(f, 4) & 0x01, 0);
    assert_int_equal(edges(fd), 0);
    out(f, 4, 0x20); /* what a command answers comes first */
    assert_int_equal(in(f, 0), 0x74);
    out(f, 4, 0x60);
    out(f, 0, 0x65); /* on */
    assert_int_equal(edges(fd), 1);
    assert_int_equal(in(f, 0), 0x1d);
    (void)close(fd);
}

/* --- saved machines ------------------------------------------------------ */

static void save(struct fixture *f, struct state_box *box)
{
    i8042_save(f->k, sbox_begin(box, I8042_STATE_VERSION));
    sbox_end(box);
}

static void test_i8042_load_goes_on_in_the_middle_of_keys(void **state)
{
    struct fixture *f = *state;
    struct i8042 *source = f->k;
    struct stop_hook hook = {on_stop, f};
    int fd = eventfd(0, EFD_NONBLOCK);
    struct state_box box;
    struct state_in s;

    i8042_set_irq(f->k, fd);
    out(f, 4, 0x60);
    out(f, 0, 0x65);
    assert_true(i8042_press_ctrl_alt_del(f->k));
    assert_int_equal(in(f, 0), 0x1d);
    out(f, 4, 0x60); /* a command that waits for its byte */
    save(f, &box);
    i8042_free(source);
    assert_int_equal(i8042_new(&hook, &f->k), 0);
    i8042_set_irq(f->k, fd);
    (void)edges(fd);
    s = sbox_in(&box);
    assert_int_equal(i8042_load(f->k, &s), 0);
    assert_int_equal(edges(fd), 1); /* the last one may have been lost */
    assert_int_equal(in(f, 0), 0x38);
    out(f, 0, 0x75); /* taken for the configuration */
    assert_int_equal(in(f, 4) & 0x01, 0);
    out(f, 4, 0x20);
    assert_int_equal(in(f, 0), 0x75);
    sbox_free(&box);
    (void)close(fd);
}

static void test_i8042_load_keeps_an_answer(void **state)
{
    struct fixture *f = *state;
    struct state_box box;
    struct state_in s;

    out(f, 4, 0xaa);
    save(f, &box);
    assert_int_equal(in(f, 0), 0x55);
    assert_int_equal(in(f, 4) & 0x01, 0);
    s = sbox_in(&box);
    assert_int_equal(i8042_load(f->k, &s), 0);
    assert_int_equal(in(f, 4) & 0x01, 1);
    assert_int_equal(in(f, 0), 0x55);
    sbox_free(&box);
}

static void test_i8042_load_refuses_impossible_values(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } bad[] = {{2, 2}, {3, 0xfe}, {4, 17}, {4, 1}, {5, 1}, {4, 255}};
    struct fixture *f = *state;
    struct state_box box;

    out(f, 4, 0xaa);
    save(f, &box);
    (void)in(f, 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        uint8_t old = box.bytes[bad[i].at];
        struct state_in s = sbox_in(&box);

        box.bytes[bad[i].at] = bad[i].value;
        assert_int_equal(i8042_load(f->k, &s), -EBADMSG);
        box.bytes[bad[i].at] = old;
    }
    for (size_t len = 0; len < box.len; len++) {
        struct state_in s = sbox_in_part(&box, len);

        assert_int_equal(i8042_load(f->k, &s), -EBADMSG);
    }
    assert_int_equal(in(f, 4) & 0x01, 0); /* as if nothing had been */
    sbox_free(&box);
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_i8042_reset_command_reboots),
        T(test_i8042_reset_by_the_output_port),
        T(test_i8042_self_test_answers),
        T(test_i8042_configuration_reads_back),
        T(test_i8042_nothing_gets_stuck),
        T(test_i8042_ctrl_alt_del_translated_and_not),
        T(test_i8042_keys_wait_until_the_driver_wants_them),
        T(test_i8042_load_goes_on_in_the_middle_of_keys),
        T(test_i8042_load_keeps_an_answer),
        T(test_i8042_load_refuses_impossible_values),
        T(test_i8042_other_ports_and_widths_are_an_empty_bus),
        T(test_i8042_counts_what_the_guest_does),
    };

    return cmocka_run_group_tests_name("i8042", tests, NULL, NULL);
}
