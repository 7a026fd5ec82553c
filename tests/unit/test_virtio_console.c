/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_console.h"

#include "tests/harness/fake_driver.h"
#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <linux/virtio_console.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define RAM   (32 * MIB)
#define RX    0u
#define TX    1u
#define QSIZE 8u

struct fixture {
    struct fdrv d;
    struct evloop *loop;
    struct virtio_dev *dev;
    gpa_t buf;
    int in[2];
    int out[2];
    uint8_t got[262144];
    size_t num_got;
    size_t want;
    uint16_t want_used;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct vcon_args args = {.cols = 80, .rows = 25};
    struct vdev_env env;

    assert_non_null(f);
    (void)signal(SIGPIPE, SIG_IGN);
    fdrv_init(&f->d, RAM);
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    assert_int_equal(pipe2(f->in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(f->out, O_CLOEXEC), 0);
    assert_int_equal(fcntl(f->in[1], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fcntl(f->out[0], F_SETFL, O_NONBLOCK), 0);
    args.in_fd = f->in[0];
    args.out_fd = f->out[1];
    env = (struct vdev_env){f->d.mem, f->loop, NULL};
    assert_int_equal(vcon_new(&env, &args, &f->dev, NULL), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, ~0ull), 0);
    f->buf = fdrv_alloc(&f->d, 16 * MIB, 4096);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fdrv_reset(&f->d), 0);
    f->dev->ops->free(f->dev);
    evloop_free(f->loop);
    for (int i = 0; i < 2; i++) {
        drop_fd(&f->in[i]);
        drop_fd(&f->out[i]);
    }
    fdrv_fini(&f->d);
    free(f);
    return 0;
}

static bool take_output(void *arg)
{
    struct fixture *f = arg;
    ssize_t n =
        read(f->out[0], f->got + f->num_got, sizeof(f->got) - f->num_got);

    if (n > 0)
        f->num_got += (size_t)n;
    return f->num_got >= f->want;
}

static bool output_reaches(struct fixture *f, size_t want)
{
    f->want = want;
    return loop_run_until(f->loop, take_output, f);
}

static void send(struct fixture *f, const struct fdrv_seg *segs, uint16_t n)
{
    uint16_t h = fdrv_add(&f->d, TX, segs, n);
    uint32_t head;
    uint32_t len;

    fdrv_kick(&f->d, TX);
    assert_true(fdrv_used(&f->d, TX, &head, &len));
    assert_int_equal(head, h);
    assert_int_equal(len, 0);
}

static bool rx_used(void *arg)
{
    struct fixture *f = arg;

    return fdrv_used_idx(&f->d, RX) == f->want_used;
}

/* Waits until the device has given back `n` receive buffers in all. */
static void expect_received(struct fixture *f, uint16_t n)
{
    f->want_used = n;
    assert_true(loop_run_until(f->loop, rx_used, f));
}

static void offer(struct fixture *f, gpa_t gpa, uint32_t len)
{
    struct fdrv_seg seg = {gpa, len, true};

    (void)fdrv_add(&f->d, RX, &seg, 1);
    fdrv_kick(&f->d, RX);
}

static size_t waiting_in(int fd)
{
    int n = -1;

    assert_int_equal(ioctl(fd, FIONREAD, &n), 0);
    return (size_t)n;
}

/* --- configuration ------------------------------------------------------- */

static void test_vcon_size_is_told_and_changes(void **state)
{
    struct fixture *f = *state;
    uint8_t c[4];

    assert_true(f->dev->offered & (1ull << VIRTIO_CONSOLE_F_SIZE));
    assert_false(f->dev->offered & (1ull << VIRTIO_CONSOLE_F_MULTIPORT));
    f->dev->ops->config_read(f->dev, 0, c, 4);
    assert_int_equal(get_le16(c), 80);
    assert_int_equal(get_le16(c + 2), 25);
    vcon_resize(f->dev, 132, 43);
    assert_int_equal(f->d.config_changes, 1);
    f->dev->ops->config_read(f->dev, 2, c, 2);
    assert_int_equal(get_le16(c), 43);
}

static void test_vcon_without_a_size_offers_none(void **state)
{
    struct fixture *f = *state;
    struct vcon_args args = {.in_fd = -1, .out_fd = -1};
    struct virtio_dev *dev = NULL;

    assert_int_equal(vcon_new(&f->dev->env, &args, &dev, NULL), 0);
    assert_int_equal(dev->offered, 1ull << VIRTIO_CONSOLE_F_EMERG_WRITE);
    dev->ops->config_write(dev, 8, "x\0\0", 4); /* nowhere to go */
    vcon_resize(dev, 1, 2);                     /* tells nobody */
    vcon_flush(dev);
    dev->ops->free(dev);
}

/* Without a queue, before there is a driver; and no other field is writable. */
static void test_vcon_emergency_write_prints_a_byte(void **state)
{
    struct fixture *f = *state;
    uint8_t before[12];
    uint8_t after[12];

    f->dev->ops->config_read(f->dev, 0, before, 12);
    f->dev->ops->config_write(f->dev, 8, "!abc", 4);
    f->dev->ops->config_write(f->dev, 8, "1", 1);
    f->dev->ops->config_write(f->dev, 8, "2a", 2);
    f->dev->ops->config_write(f->dev, 4, "3333", 4);
    f->dev->ops->config_write(f->dev, 0, "4444", 4);
    f->dev->ops->config_write(f->dev, 4, "55555555", 8);
    f->dev->ops->config_write(f->dev, 8, "?\0\0", 4);
    assert_true(output_reaches(f, 2));
    assert_memory_equal(f->got, "!?", 2);
    assert_int_equal(f->num_got, 2);
    f->dev->ops->config_read(f->dev, 0, after, 12);
    assert_memory_equal(before, after, 12);
    assert_int_equal(get_le32(after + 4), 1); /* max_nr_ports */
    assert_int_equal(get_le32(after + 8), 0);
}

/* --- output -------------------------------------------------------------- */

static void test_vcon_output_reaches_the_descriptor(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {{f->buf, 3, false}, {f->buf + 100, 4, false}};

    fdrv_write(&f->d, f->buf, "abc", 3);
    fdrv_write(&f->d, f->buf + 100, "defg", 4);
    send(f, segs, 2);
    assert_true(output_reaches(f, 7));
    assert_memory_equal(f->got, "abcdefg", 7);
    assert_int_equal(f->d.signals[TX], 1);
}

static void test_vcon_huge_output_is_bounded(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 16 * MIB, false};

    send(f, &seg, 1);
    assert_true(output_reaches(f, 65536));
    loop_run_for(f->loop, 10);
    (void)take_output(f);
    assert_int_equal(f->num_got, 65536);
}

static void test_vcon_stuck_reader_never_holds_the_guest(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 4096, false};

    for (int i = 0; i < 200; i++) {
        send(f, &seg, 1);
        if (i % 20 == 0)
            loop_run_for(f->loop, 2);
    }
    assert_int_equal(fdrv_used_idx(&f->d, TX), 200);
}

static void test_vcon_flush_writes_the_rest(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 3, false};

    fdrv_write(&f->d, f->buf, "end", 3);
    send(f, &seg, 1);
    vcon_flush(f->dev);
    f->want = 3;
    assert_true(take_output(f));
    assert_memory_equal(f->got, "end", 3);
}

static void test_vcon_output_without_data_completes(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {{f->buf, 0, false}, {f->buf, 16, true}};

    send(f, segs, 1);
    send(f, segs, 2);
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_vcon_broken_output_ring_needs_reset(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {RAM, 16, false};

    (void)fdrv_add(&f->d, TX, &seg, 1);
    fdrv_kick(&f->d, TX);
    assert_int_equal(f->d.needs_resets, 1);
}

/* --- input --------------------------------------------------------------- */

static void test_vcon_input_waits_for_buffers(void **state)
{
    struct fixture *f = *state;
    uint32_t head;
    uint32_t len;

    assert_int_equal(write(f->in[1], "hello", 5), 5);
    loop_run_for(f->loop, 20);
    assert_int_equal(waiting_in(f->in[0]), 5); /* nothing is taken */
    offer(f, f->buf, 3);
    expect_received(f, 1);
    assert_true(fdrv_used(&f->d, RX, &head, &len));
    assert_int_equal(len, 3);
    loop_run_for(f->loop, 20);
    assert_int_equal(waiting_in(f->in[0]), 2);
    offer(f, f->buf + 3, 100);
    expect_received(f, 2);
    assert_true(fdrv_used(&f->d, RX, &head, &len));
    assert_int_equal(len, 2);
    assert_memory_equal(fdrv_ptr(&f->d, f->buf, 5), "hello", 5);
    assert_true(f->d.signals[RX] > 0);
}

static void test_vcon_input_fills_a_chain_of_small_buffers(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {
        {f->buf, 2, true}, {f->buf + 10, 2, true}, {f->buf + 20, 2, true}};
    uint32_t head;
    uint32_t len;

    assert_int_equal(write(f->in[1], "abcde", 5), 5);
    (void)fdrv_add(&f->d, RX, segs, 3);
    fdrv_kick(&f->d, RX);
    expect_received(f, 1);
    assert_true(fdrv_used(&f->d, RX, &head, &len));
    assert_int_equal(len, 5);
    assert_memory_equal(fdrv_ptr(&f->d, f->buf + 10, 2), "cd", 2);
}

/* More pieces than are read into at a time, and one with no room at all. */
static void test_vcon_input_into_odd_buffers(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[100];
    struct fdrv_seg none = {f->buf, 16, false};
    struct vq_setup_args a;
    uint32_t head;
    uint32_t len;

    for (uint16_t i = 0; i < 100; i++)
        segs[i] = (struct fdrv_seg){f->buf + i, 1, true};
    a = fdrv_setup_args(&f->d, RX, true);
    assert_int_equal(vq_setup(&f->dev->vq[RX], f->d.mem, &a), 0);
    assert_int_equal(write(f->in[1], "0123456789abcdefghij", 20), 20);
    (void)fdrv_add(&f->d, RX, &none, 1);
    (void)fdrv_add_indirect(&f->d, RX, segs, 100);
    fdrv_kick(&f->d, RX);
    expect_received(f, 2);
    assert_true(fdrv_used(&f->d, RX, &head, &len));
    assert_int_equal(len, 0);
    assert_true(fdrv_used(&f->d, RX, &head, &len));
    assert_int_equal(len, 16);
    assert_memory_equal(fdrv_ptr(&f->d, f->buf, 16), "0123456789abcdef", 16);
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_BL_017_vcon_hang_up_does_not_spin(void **state)
{
    struct fixture *f = *state;

    offer(f, f->buf, 16);
    drop_fd(&f->in[1]);
    assert_true(loop_run_is_idle(f->loop));
    offer(f, f->buf, 16);
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(fdrv_used_idx(&f->d, RX), 0);
    /* the buffers are still there for a reset to take back */
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_BL_018_vcon_fast_input_without_buffers_waits(void **state)
{
    static const char zeroes[65536];
    struct fixture *f = *state;
    ssize_t n = write(f->in[1], zeroes, sizeof(zeroes));

    assert_true(n > 0);
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(waiting_in(f->in[0]), n);
}

static void test_vcon_broken_input_ring_needs_reset(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(write(f->in[1], "x", 1), 1);
    offer(f, RAM, 16);
    loop_run_for(f->loop, 20);
    assert_int_equal(f->d.needs_resets, 1);
    assert_int_equal(waiting_in(f->in[0]), 1);
    assert_true(loop_run_is_idle(f->loop));
}

static void test_vcon_reset_stops_reading(void **state)
{
    struct fixture *f = *state;

    offer(f, f->buf, 16);
    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_int_equal(write(f->in[1], "x", 1), 1);
    loop_run_for(f->loop, 20);
    assert_int_equal(waiting_in(f->in[0]), 1);
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, 0), 0);
    offer(f, f->buf, 16);
    expect_received(f, 1);
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_vcon_size_is_told_and_changes),
        T(test_vcon_without_a_size_offers_none),
        T(test_vcon_emergency_write_prints_a_byte),
        T(test_vcon_output_reaches_the_descriptor),
        T(test_vcon_huge_output_is_bounded),
        T(test_vcon_stuck_reader_never_holds_the_guest),
        T(test_vcon_flush_writes_the_rest),
        T(test_vcon_output_without_data_completes),
        T(test_vcon_broken_output_ring_needs_reset),
        T(test_vcon_input_waits_for_buffers),
        T(test_vcon_input_fills_a_chain_of_small_buffers),
        T(test_vcon_input_into_odd_buffers),
        T(test_BL_017_vcon_hang_up_does_not_spin),
        T(test_BL_018_vcon_fast_input_without_buffers_waits),
        T(test_vcon_broken_input_ring_needs_reset),
        T(test_vcon_reset_stops_reading),
    };

    return cmocka_run_group_tests_name("virtio_console", tests, NULL, NULL);
}
