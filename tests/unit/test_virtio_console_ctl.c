/* SPDX-License-Identifier: Apache-2.0 */
/* Several ports: control messages, and ends of all kinds. */
#include "devices/virtio_console.h"

#include "tests/harness/console_guest.h"
#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <linux/virtio_console.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* --- control messages ---------------------------------------------------- */

static void test_vcon_ports_are_offered(void **state)
{
    struct console_guest *f = *state;
    uint8_t c[12];

    assert_true(f->dev->offered & (1ull << VIRTIO_CONSOLE_F_MULTIPORT));
    assert_int_equal(f->dev->num_queues, 8);
    f->dev->ops->config_read(f->dev, 0, c, 12);
    assert_int_equal(get_le32(c + 4), CG_PORTS);
}

static void test_vcon_ports_are_added_and_named(void **state)
{
    struct console_guest *f = *state;

    cg_offer_ctl(f, CG_QSIZE, 128);
    cg_hears_nothing(f);
    cg_say(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1);
    for (uint16_t i = 0; i < CG_PORTS; i++)
        cg_hears(f, i, i, VIRTIO_CONSOLE_PORT_ADD, 1, "");
    cg_hears_nothing(f);
    cg_say(f, 0, VIRTIO_CONSOLE_PORT_READY, 1);
    cg_hears(f, 3, 0, VIRTIO_CONSOLE_CONSOLE_PORT, 1, "");
    cg_hears(f, 4, 0, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
    cg_say(f, 2, VIRTIO_CONSOLE_PORT_READY, 1);
    cg_hears(f, 5, 2, VIRTIO_CONSOLE_PORT_NAME, 1, "two");
    cg_hears(f, 6, 2, VIRTIO_CONSOLE_PORT_OPEN, 0, "");
    cg_hears_nothing(f);
    assert_true(f->d.signals[CG_CTL_RX] > 0);
}

static void test_vcon_resize_is_a_message(void **state)
{
    struct console_guest *f = *state;

    cg_offer_ctl(f, CG_QSIZE, 128);
    vcon_resize(f->dev, 100, 50); /* no driver is ready: told later */
    cg_hears_nothing(f);
    cg_say(f, 0, VIRTIO_CONSOLE_PORT_READY, 1);
    cg_hears(f, 0, 0, VIRTIO_CONSOLE_CONSOLE_PORT, 1, "");
    {
        uint32_t head;
        uint32_t len;
        const uint8_t *m = fdrv_ptr(&f->d, f->msgs + 128, 12);

        assert_true(fdrv_used(&f->d, CG_CTL_RX, &head, &len));
        assert_int_equal(len, 12);
        assert_int_equal(get_le16(m + 4), VIRTIO_CONSOLE_RESIZE);
        assert_int_equal(get_le16(m + 8), 100);
        assert_int_equal(get_le16(m + 10), 50);
    }
    cg_hears(f, 2, 0, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
    vcon_resize(f->dev, 80, 25);
    assert_int_equal(fdrv_used_idx(&f->d, CG_CTL_RX), 4);
}

/* However often it asks: a few bits for each port, told once there is room. */
static void test_vcon_messages_wait_for_buffers_and_do_not_pile_up(void **state)
{
    struct console_guest *f = *state;

    for (int i = 0; i < 1000; i++) {
        cg_say(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1);
        cg_say(f, 1, VIRTIO_CONSOLE_PORT_READY, 1);
    }
    cg_hears_nothing(f);
    cg_offer_ctl(f, 1, 128);
    cg_hears(f, 0, 0, VIRTIO_CONSOLE_PORT_ADD, 1, "");
    cg_hears_nothing(f);
    cg_offer_ctl(f, 15, 128);
    cg_hears(f, 0, 1, VIRTIO_CONSOLE_PORT_ADD, 1, "");
    cg_hears(f, 1, 1, VIRTIO_CONSOLE_PORT_NAME, 1, "one");
    cg_hears(f, 2, 1, VIRTIO_CONSOLE_PORT_OPEN, 0, "");
    cg_hears(f, 3, 2, VIRTIO_CONSOLE_PORT_ADD, 1, "");
    cg_hears_nothing(f);
}

static void test_vcon_bad_control_messages_do_nothing(void **state)
{
    struct console_guest *f = *state;
    static const struct {
        uint32_t id;
        uint16_t event;
        uint16_t value;
        uint32_t len;
    } bad[] = {
        {0, VIRTIO_CONSOLE_DEVICE_READY, 0, 8},
        {0, VIRTIO_CONSOLE_DEVICE_READY, 1, 7},
        {0, VIRTIO_CONSOLE_DEVICE_READY, 1, 0},
        {CG_PORTS, VIRTIO_CONSOLE_PORT_READY, 1, 8},
        {UINT32_MAX, VIRTIO_CONSOLE_PORT_READY, 1, 8},
        {UINT32_MAX, VIRTIO_CONSOLE_PORT_OPEN, 1, 8},
        {1, VIRTIO_CONSOLE_PORT_READY, 0, 8},
        {1, VIRTIO_CONSOLE_PORT_ADD, 1, 8},
        {1, VIRTIO_CONSOLE_PORT_REMOVE, 1, 8},
        {1, VIRTIO_CONSOLE_RESIZE, 1, 8},
        {1, 0xffff, 1, 8},
    };

    cg_offer_ctl(f, CG_QSIZE, 128);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cg_say_raw(f, bad[i].id, bad[i].event, bad[i].value, bad[i].len);
        cg_hears_nothing(f);
    }
    assert_int_equal(f->d.needs_resets, 0);
    cg_say_raw(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1, 60); /* with a tail */
    cg_hears(f, 0, 0, VIRTIO_CONSOLE_PORT_ADD, 1, "");
}

static void test_vcon_control_buffers_too_small_go_back_empty(void **state)
{
    struct console_guest *f = *state;
    uint32_t head;
    uint32_t len;

    cg_offer_ctl(f, CG_QSIZE, 7);
    cg_say(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1);
    loop_run_for(f->loop, 5);
    for (uint16_t i = 0; i < CG_QSIZE; i++) {
        assert_true(fdrv_used(&f->d, CG_CTL_RX, &head, &len));
        assert_int_equal(len, 0);
    }
    assert_true(loop_run_is_idle(f->loop));
    cg_offer_ctl(f, 1, 8);
    assert_true(fdrv_used(&f->d, CG_CTL_RX, &head, &len));
    assert_int_equal(len, 8); /* not lost */
}

/* --- ends ---------------------------------------------------------------- */

static void test_vcon_reset_keeps_the_client_for_the_next_driver(void **state)
{
    struct console_guest *f = *state;
    struct fdrv_seg seg = {f->buf, 8 * MIB, false};

    cg_bring_up(f);
    f->client = cg_dial(f, 0);
    loop_run_for(f->loop, 5);
    (void)fdrv_add(&f->d, CG_TX1, &seg, 1);
    fdrv_kick(&f->d, CG_TX1); /* in the middle of it */
    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(fdrv_attach(&f->d, f->dev, CG_QSIZE, ~0ull), 0);
    cg_offer_ctl(f, CG_QSIZE, 128);
    cg_hears_nothing(f); /* it has not said that it is ready */
    cg_say(f, 1, VIRTIO_CONSOLE_PORT_READY, 1);
    cg_hears(f, 0, 1, VIRTIO_CONSOLE_PORT_NAME, 1, "one");
    cg_hears(f, 1, 1, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
}

static void test_vcon_client_that_leaves_between_drivers(void **state)
{
    struct console_guest *f = *state;

    cg_bring_up(f);
    f->client = cg_dial(f, 0);
    loop_run_for(f->loop, 5);
    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_int_equal(write(f->client, "x", 1), 1);
    drop_fd(&f->client);
    assert_true(loop_run_is_idle(f->loop));
    f->client = cg_dial(f, 0);
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(fdrv_attach(&f->d, f->dev, CG_QSIZE, ~0ull), 0);
    cg_bring_up(f);
}

static void test_vcon_free_closes_the_client(void **state)
{
    struct console_guest *f = *state;
    struct vcon_args args = {.in_fd = -1, .out_fd = -1, .num_ports = 1};
    char path[64];
    struct virtio_dev *dev = NULL;
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    (void)snprintf(path, sizeof(path), "%s/x", f->dir);
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    args.ports[0] = (struct vcon_port_args){"x", path};
    assert_int_equal(vcon_new(&f->dev->env, &args, &dev, NULL), 0);
    f->client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(connect(f->client, (struct sockaddr *)&a, sizeof(a)), 0);
    loop_run_for(f->loop, 5);
    dev->ops->free(dev);
    assert_true(loop_run_until(f->loop, cg_client_is_closed, f));
}

static void test_vcon_broken_queues_need_reset(void **state)
{
    struct console_guest *f = *state;
    struct fdrv_seg seg = {CG_RAM, 16, false};
    static const uint16_t queues[] = {1, CG_CTL_TX, CG_TX1, 7};

    for (size_t i = 0; i < ARRAY_SIZE(queues); i++) {
        (void)fdrv_add(&f->d, queues[i], &seg, 1);
        fdrv_kick(&f->d, queues[i]);
        assert_int_equal(f->d.needs_resets, i + 1);
        assert_int_equal(fdrv_reset(&f->d), 0);
        assert_int_equal(fdrv_attach(&f->d, f->dev, CG_QSIZE, ~0ull), 0);
    }
    seg.writable = true;
    (void)fdrv_add(&f->d, CG_CTL_RX, &seg, 1);
    fdrv_kick(&f->d, CG_CTL_RX);
    cg_say(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1);
    assert_int_equal(f->d.needs_resets, ARRAY_SIZE(queues) + 1);
}

/* A driver that declined the ports has no such queues. */
static void test_vcon_ports_declined(void **state)
{
    struct console_guest *f = *state;
    struct fdrv_seg seg = {f->ctl, 8, false};

    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, CG_QSIZE, 0), 0);
    for (uint16_t q = 2; q < 8; q++) {
        (void)fdrv_add(&f->d, q, &seg, 1);
        fdrv_kick(&f->d, q);
        assert_int_equal(fdrv_used_idx(&f->d, q), 0);
    }
    f->client = cg_dial(f, 0);
    assert_true(loop_run_is_idle(f->loop));
}

static void test_vcon_new_refuses_bad_ports(void **state)
{
    struct console_guest *f = *state;
    struct vcon_args args = {.in_fd = -1, .out_fd = -1, .num_ports = 7};
    struct virtio_dev *dev = NULL;
    struct errmsg err = {""};
    char name[65];

    assert_int_equal(vcon_new(&f->dev->env, &args, &dev, &err), -EINVAL);
    assert_non_null(strstr(err.text, "6 at most"));
    args.num_ports = 1;
    memset(name, 'n', 64);
    name[64] = 0;
    args.ports[0] = (struct vcon_port_args){name, "/tmp/never"};
    assert_int_equal(vcon_new(&f->dev->env, &args, &dev, &err), -EINVAL);
    assert_non_null(strstr(err.text, "63 bytes"));
    args.ports[0] = (struct vcon_port_args){"x", f->path[0]};
    assert_int_equal(vcon_new(&f->dev->env, &args, &dev, &err), -EADDRINUSE);
    assert_non_null(strstr(err.text, f->path[0]));
    assert_null(dev);
}

#define T(t) cmocka_unit_test_setup_teardown(t, cg_setup, cg_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_vcon_ports_are_offered),
        T(test_vcon_ports_are_added_and_named),
        T(test_vcon_resize_is_a_message),
        T(test_vcon_messages_wait_for_buffers_and_do_not_pile_up),
        T(test_vcon_bad_control_messages_do_nothing),
        T(test_vcon_control_buffers_too_small_go_back_empty),
        T(test_vcon_reset_keeps_the_client_for_the_next_driver),
        T(test_vcon_client_that_leaves_between_drivers),
        T(test_vcon_free_closes_the_client),
        T(test_vcon_broken_queues_need_reset),
        T(test_vcon_ports_declined),
        T(test_vcon_new_refuses_bad_ports),
    };

    return cmocka_run_group_tests_name("virtio_console_ctl", tests, NULL, NULL);
}
