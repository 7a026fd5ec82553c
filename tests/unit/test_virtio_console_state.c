/* SPDX-License-Identifier: Apache-2.0 */
/* A console whose machine pauses, is saved and loaded. */
#include "devices/virtio_console.h"

#include "tests/harness/console_guest.h"
#include "tests/harness/loop_run.h"
#include "tests/harness/state_box.h"
#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <linux/virtio_console.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void print(struct console_guest *f, uint16_t q, gpa_t gpa, uint32_t len)
{
    struct fdrv_seg seg = {gpa, len, false};

    (void)fdrv_add(&f->d, q, &seg, 1);
    fdrv_publish(&f->d, q);
}

static struct virtio_dev *new_device(struct console_guest *f, char tag,
                                     const char *name)
{
    struct vcon_args args = {.in_fd = -1, .out_fd = -1, .num_ports = 2};
    const struct vdev_env env = {f->d.mem, f->loop, &f->log};
    struct virtio_dev *dev = NULL;

    for (int i = 0; i < 2; i++)
        (void)snprintf(f->path[i], sizeof(f->path[i]), "%s/%d%c", f->dir, i + 1,
                       tag);
    args.ports[0] = (struct vcon_port_args){"one", f->path[0]};
    args.ports[1] = (struct vcon_port_args){name, f->path[1]};
    assert_int_equal(vcon_new(&env, &args, &dev, NULL), 0);
    return dev;
}

/* The guest goes on in another process, with sockets of its own; `tag` is a
 * letter of theirs. */
static void move(struct console_guest *f, char tag)
{
    struct virtio_dev *old = f->dev;

    sbox_rest(&f->d);
    f->dev = new_device(f, tag, "two");
    assert_int_equal(fdrv_move(&f->d, f->dev), 0);
    old->ops->free(old);
}

/* With a client on port 1. */
static void bring_up_with_client(struct console_guest *f)
{
    cg_bring_up(f);
    f->client = cg_dial(f, 0);
    assert_true(cg_wait_used(f, CG_CTL_RX, 10));
    cg_hears(f, 9, 1, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
}

/* --- rest ---------------------------------------------------------------- */

static void test_vcon_rest_reads_nothing_and_loses_nothing(void **state)
{
    struct console_guest *f = *state;

    bring_up_with_client(f);
    cg_offer(f, CG_RX1, f->buf, 100);
    sbox_rest(&f->d);
    assert_int_equal(write(f->client, "host", 4), 4);
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(fdrv_used_idx(&f->d, CG_RX1), 0);
    fdrv_wake(&f->d);
    assert_true(cg_wait_used(f, CG_RX1, 1));
    assert_memory_equal(fdrv_ptr(&f->d, f->buf, 4), "host", 4);
}

static void test_vcon_rest_in_the_middle_of_output(void **state)
{
    struct console_guest *f = *state;
    uint8_t *p = fdrv_ptr(&f->d, f->buf, 8 * MIB);

    for (size_t i = 0; i < 8 * MIB; i++)
        p[i] = (uint8_t)(i * 7 + (i >> 11));
    bring_up_with_client(f);
    print(f, CG_TX1, f->buf, 8 * MIB);
    fdrv_kick(&f->d, CG_TX1);
    for (int i = 1; i <= 8; i++) {
        assert_true(cg_client_gets(f, (size_t)i * 500000));
        sbox_rest(&f->d);
        loop_run_for(f->loop, 2);
        fdrv_wake(&f->d);
    }
    assert_true(cg_client_gets(f, 8 * MIB));
    assert_memory_equal(f->got, p, 8 * MIB);
    assert_true(cg_wait_used(f, CG_TX1, 1));
    print(f, CG_TX1, f->buf, 10); /* from its beginning */
    fdrv_kick(&f->d, CG_TX1);
    assert_true(cg_client_gets(f, 8 * MIB + 10));
    assert_int_equal(f->num_got, 8 * MIB + 10);
}

/* The guest may take a queue away while its output waits. */
static void test_vcon_rest_of_a_stopped_queue(void **state)
{
    struct console_guest *f = *state;

    bring_up_with_client(f);
    print(f, CG_TX1, f->buf, 8 * MIB);
    fdrv_kick(&f->d, CG_TX1);
    vq_stop(&f->dev->vq[CG_TX1]);
    sbox_rest(&f->d);
    fdrv_wake(&f->d);
    loop_run_for(f->loop, 5);
    assert_int_equal(fdrv_used_idx(&f->d, CG_TX1), 0);
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_vcon_rest_lets_clients_wait(void **state)
{
    struct console_guest *f = *state;

    cg_bring_up(f);
    sbox_rest(&f->d);
    f->client = cg_dial(f, 0);
    assert_true(loop_run_is_idle(f->loop));
    cg_hears_nothing(f);
    fdrv_wake(&f->d);
    assert_true(cg_wait_used(f, CG_CTL_RX, 10));
    cg_hears(f, 9, 1, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
}

static void test_vcon_client_that_leaves_at_rest_is_told_later(void **state)
{
    struct console_guest *f = *state;

    bring_up_with_client(f);
    sbox_rest(&f->d);
    drop_fd(&f->client);
    assert_true(loop_run_is_idle(f->loop));
    cg_hears_nothing(f);
    fdrv_wake(&f->d);
    assert_true(cg_wait_used(f, CG_CTL_RX, 11));
    cg_hears(f, 10, 1, VIRTIO_CONSOLE_PORT_OPEN, 0, "");
}

static void test_vcon_resize_at_rest_is_told_later(void **state)
{
    struct console_guest *f = *state;

    cg_bring_up(f);
    sbox_rest(&f->d);
    vcon_resize(f->dev, 0x3231, 0x3433);
    cg_hears_nothing(f);
    fdrv_wake(&f->d);
    cg_hears(f, 9, 0, VIRTIO_CONSOLE_RESIZE, 1, "1234");
}

static void test_vcon_reset_ends_the_rest(void **state)
{
    struct console_guest *f = *state;

    bring_up_with_client(f);
    sbox_rest(&f->d);
    f->dev->resting = false;
    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, CG_QSIZE, ~0ull), 0);
    cg_offer_ctl(f, CG_QSIZE, 128);
    cg_say(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1);
    cg_say(f, 1, VIRTIO_CONSOLE_PORT_READY, 1);
    cg_say(f, 1, VIRTIO_CONSOLE_PORT_OPEN, 1);
    print(f, CG_TX1, f->buf, 7);
    fdrv_kick(&f->d, CG_TX1);
    assert_true(cg_client_gets(f, 7));
}

/* --- load ---------------------------------------------------------------- */

static void test_vcon_load_tells_that_clients_are_gone(void **state)
{
    struct console_guest *f = *state;

    bring_up_with_client(f);
    move(f, 'b');
    assert_true(loop_run_until(f->loop, cg_client_is_closed, f));
    cg_hears_nothing(f);
    fdrv_wake(&f->d);
    cg_hears(f, 10, 1, VIRTIO_CONSOLE_PORT_OPEN, 0, "");
    cg_hears_nothing(f); /* the other port had none */
    drop_fd(&f->client);
    /* And all goes on, with nothing negotiated anew. */
    f->client = cg_dial(f, 0);
    assert_true(cg_wait_used(f, CG_CTL_RX, 12));
    cg_hears(f, 11, 1, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
    cg_offer(f, CG_RX1, f->buf, 100);
    assert_int_equal(write(f->client, "host", 4), 4);
    assert_true(cg_wait_used(f, CG_RX1, 1));
    assert_memory_equal(fdrv_ptr(&f->d, f->buf, 4), "host", 4);
    print(f, CG_TX1, f->buf, 4);
    fdrv_kick(&f->d, CG_TX1);
    assert_true(cg_client_gets(f, 4));
}

/* A new client waits before the copy even runs: it sees nothing of the old
 * one's stream, and the guest hears of the change. */
static void test_vcon_load_keeps_two_clients_apart(void **state)
{
    struct console_guest *f = *state;
    int old;

    bring_up_with_client(f);
    old = f->client;
    cg_offer(f, CG_RX1, f->buf + 9 * MIB, 100);
    print(f, CG_TX1, f->buf, 8 * MIB); /* half sent, and more behind it */
    fdrv_kick(&f->d, CG_TX1);
    print(f, CG_TX1, f->buf, 500);
    move(f, 'b');
    f->client = cg_dial(f, 0);
    assert_int_equal(write(f->client, "new", 3), 3);
    assert_true(loop_run_is_idle(f->loop));
    fdrv_wake(&f->d);
    assert_true(cg_wait_used(f, CG_CTL_RX, 12));
    cg_hears(f, 10, 1, VIRTIO_CONSOLE_PORT_OPEN, 0, "");
    cg_hears(f, 11, 1, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
    assert_true(cg_wait_used(f, CG_RX1, 1));
    assert_memory_equal(fdrv_ptr(&f->d, f->buf + 9 * MIB, 3), "new", 3);
    assert_int_equal(fdrv_used_idx(&f->d, CG_TX1), 2); /* dropped */
    (void)cg_client_reads(f);
    assert_int_equal(f->num_got, 0);
    (void)close(old);
}

/* Without a control buffer the guest cannot hear of it: till then a new client
 * waits, also in a copy of the copy. */
static void test_vcon_load_new_client_waits_for_the_guest_to_hear(void **state)
{
    struct console_guest *f = *state;
    uint16_t used;

    bring_up_with_client(f);
    drop_fd(&f->client);
    f->client = cg_dial(f, 1);
    while (f->dev->vq[CG_CTL_RX].next_used < CG_QSIZE) {
        int fd = cg_dial(f, 0); /* uses the control buffers up */

        loop_run_for(f->loop, 2);
        (void)close(fd);
        loop_run_for(f->loop, 2);
    }
    drop_fd(&f->client);
    f->client = cg_dial(f, 0);
    loop_run_for(f->loop, 5);
    used = fdrv_used_idx(&f->d, CG_CTL_RX);
    move(f, 'b');
    fdrv_wake(&f->d);
    move(f, 'c');
    fdrv_wake(&f->d);
    drop_fd(&f->client);
    f->client = cg_dial(f, 0);
    cg_offer(f, CG_RX1, f->buf, 100);
    assert_int_equal(write(f->client, "new", 3), 3);
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(fdrv_used_idx(&f->d, CG_RX1), 0);
    assert_int_equal(fdrv_used_idx(&f->d, CG_CTL_RX), used);
    print(f, CG_TX1, f->buf, 5); /* meant for the one of before */
    fdrv_kick(&f->d, CG_TX1);
    assert_int_equal(fdrv_used_idx(&f->d, CG_TX1), 1);
    (void)cg_client_reads(f);
    assert_int_equal(f->num_got, 0);
    for (uint32_t head = 0, len = 0; fdrv_used(&f->d, CG_CTL_RX, &head, &len);)
        ;
    cg_offer_ctl(f, 4, 128);
    assert_true(cg_wait_used(f, CG_RX1, 1));
    cg_hears(f, 0, 1, VIRTIO_CONSOLE_PORT_OPEN, 0, "");
    cg_hears(f, 1, 1, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
    cg_hears(f, 2, 2, VIRTIO_CONSOLE_PORT_OPEN, 0, "");
    cg_hears_nothing(f);
}

/* What the driver had not been told yet when it was saved. */
static void test_vcon_load_sends_messages_that_waited(void **state)
{
    struct console_guest *f = *state;

    cg_say(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1);
    cg_say(f, 1, VIRTIO_CONSOLE_PORT_READY, 1);
    vcon_resize(f->dev, 0x3231, 0x3433);
    move(f, 'b');
    fdrv_wake(&f->d);
    cg_say(f, 0, VIRTIO_CONSOLE_PORT_READY, 1);
    cg_offer_ctl(f, CG_QSIZE, 128);
    cg_hears(f, 0, 0, VIRTIO_CONSOLE_PORT_ADD, 1, "");
    cg_hears(f, 1, 0, VIRTIO_CONSOLE_CONSOLE_PORT, 1, "");
    cg_hears(f, 2, 0, VIRTIO_CONSOLE_RESIZE, 1, "1234");
    cg_hears(f, 3, 0, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
    cg_hears(f, 4, 1, VIRTIO_CONSOLE_PORT_ADD, 1, "");
    cg_hears(f, 5, 1, VIRTIO_CONSOLE_PORT_NAME, 1, "one");
    cg_hears(f, 6, 1, VIRTIO_CONSOLE_PORT_OPEN, 0, "");
    cg_hears(f, 7, 2, VIRTIO_CONSOLE_PORT_ADD, 1, "");
    cg_hears_nothing(f);
}

static void test_vcon_load_without_several_ports(void **state)
{
    struct console_guest *f = *state;

    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, CG_QSIZE,
                                 ~(1ull << VIRTIO_CONSOLE_F_MULTIPORT)),
                     0);
    print(f, 1, f->buf, 10);
    move(f, 'b');
    assert_int_equal(fdrv_used_idx(&f->d, 1), 0);
    fdrv_wake(&f->d);
    assert_int_equal(fdrv_used_idx(&f->d, 1), 1);
}

/* --- refusals ------------------------------------------------------------ */

/* Port 0 has no name; port 1 comes behind its 12 bytes. */
enum { AT_READY = 0, AT_PORTS = 1, AT_P0 = 2, AT_P0_PENDING = 9, AT_P1 = 14 };

static int load_bytes(struct console_guest *f, const char *name,
                      struct state_in in)
{
    struct virtio_dev *old = f->d.dev;
    struct virtio_dev *dev = new_device(f, 'b', name);
    int rc = sbox_load_in(&f->d, dev, &in);

    dev->ops->free(dev);
    f->d.dev = old;
    return rc;
}

static void test_vcon_load_refuses_impossible_values(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } bad[] = {
        {AT_READY, 2},         {AT_PORTS, 2},  {AT_PORTS, 8},
        {AT_PORTS, 0},         {AT_P0, 1},     {AT_P0, 64},
        {AT_P0 + 3, 0xff},     {AT_P0 + 4, 2}, {AT_P0 + 5, 2},
        {AT_P0 + 6, 2},        {AT_P1, 4},     {AT_P1 + 4, 'O'},
        {AT_P0_PENDING, 0x20}, {AT_P1 + 5, 0},
    };
    struct console_guest *f = *state;
    struct state_box box;

    cg_bring_up(f);
    sbox_rest(&f->d);
    sbox_save(&f->d, &box);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        uint8_t old = box.bytes[bad[i].at];

        box.bytes[bad[i].at] = bad[i].value;
        assert_int_equal(load_bytes(f, "two", sbox_in(&box)), -EBADMSG);
        box.bytes[bad[i].at] = old;
    }
    for (size_t len = 0; len < box.len; len++)
        assert_int_equal(load_bytes(f, "two", sbox_in_part(&box, len)),
                         -EBADMSG);
    assert_int_equal(load_bytes(f, "other", sbox_in(&box)), -EBADMSG);
    assert_int_equal(load_bytes(f, "two", sbox_in(&box)), 0);
    (void)snprintf(f->path[0], sizeof(f->path[0]), "%s/1", f->dir);
    sbox_free(&box);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, cg_setup, cg_teardown)
    const struct CMUnitTest tests[] = {
        T(test_vcon_rest_reads_nothing_and_loses_nothing),
        T(test_vcon_rest_in_the_middle_of_output),
        T(test_vcon_rest_of_a_stopped_queue),
        T(test_vcon_rest_lets_clients_wait),
        T(test_vcon_client_that_leaves_at_rest_is_told_later),
        T(test_vcon_resize_at_rest_is_told_later),
        T(test_vcon_reset_ends_the_rest),
        T(test_vcon_load_tells_that_clients_are_gone),
        T(test_vcon_load_keeps_two_clients_apart),
        T(test_vcon_load_new_client_waits_for_the_guest_to_hear),
        T(test_vcon_load_sends_messages_that_waited),
        T(test_vcon_load_without_several_ports),
        T(test_vcon_load_refuses_impossible_values),
    };

    return cmocka_run_group_tests_name("virtio_console_state", tests, NULL,
                                       NULL);
}
