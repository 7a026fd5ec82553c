/* SPDX-License-Identifier: Apache-2.0 */
/* A console with several ports: control messages, names, sockets. */
#include "devices/virtio_console.h"

#include "tests/harness/fake_driver.h"
#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <linux/virtio_console.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define RAM    (32 * MIB)
#define QSIZE  16u
#define CTL_RX 2u
#define CTL_TX 3u
#define RX1    4u
#define TX1    5u
#define RX2    6u
#define PORTS  3u /* 0, "one", "two" */

struct fixture {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct virtio_dev *dev;
    gpa_t buf;  /* 16 MiB */
    gpa_t ctl;  /* a control message to the device */
    gpa_t msgs; /* QSIZE control buffers of 128 bytes */
    char dir[32];
    char path[2][64];
    int client;
    uint16_t q; /* of the conditions below */
    uint16_t want_used;
    uint8_t *got;
    size_t num_got;
    size_t want;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct vcon_args args = {.in_fd = -1, .out_fd = -1, .num_ports = 2};
    struct vdev_env env;

    assert_non_null(f);
    (void)signal(SIGPIPE, SIG_IGN);
    fdrv_init(&f->d, RAM);
    log_init(&f->log, -1, LOG_WARN, "test");
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/mote-con-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    for (int i = 0; i < 2; i++)
        (void)snprintf(f->path[i], sizeof(f->path[i]), "%s/%d", f->dir, i + 1);
    args.ports[0] = (struct vcon_port_args){"one", f->path[0]};
    args.ports[1] = (struct vcon_port_args){"two", f->path[1]};
    env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    assert_int_equal(vcon_new(&env, &args, &f->dev, NULL), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, ~0ull), 0);
    f->buf = fdrv_alloc(&f->d, 16 * MIB, 4096);
    f->ctl = fdrv_alloc(&f->d, 64, 16);
    f->msgs = fdrv_alloc(&f->d, QSIZE * 128u, 16);
    f->client = -1;
    f->got = calloc(1, 16 * MIB);
    assert_non_null(f->got);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    struct stat st;

    assert_int_equal(fdrv_reset(&f->d), 0);
    f->dev->ops->free(f->dev);
    drop_fd(&f->client);
    evloop_free(f->loop);
    assert_int_equal(stat(f->path[0], &st), -1); /* removed */
    assert_int_equal(rmdir(f->dir), 0);
    fdrv_fini(&f->d);
    free(f->got);
    free(f);
    return 0;
}

/* --- what the driver does ------------------------------------------------ */

static bool used_reaches(void *arg)
{
    struct fixture *f = arg;

    return fdrv_used_idx(&f->d, f->q) == f->want_used;
}

static bool wait_used(struct fixture *f, uint16_t q, uint16_t n)
{
    f->q = q;
    f->want_used = n;
    return loop_run_until(f->loop, used_reaches, f);
}

/* A control message of `len` bytes to the device. */
static void say_raw(struct fixture *f, uint32_t id, uint16_t event,
                    uint16_t value, uint32_t len)
{
    struct fdrv_seg seg = {f->ctl, len, false};
    uint8_t m[8];
    uint32_t head;
    uint32_t used;

    put_le32(m, id);
    put_le16(m + 4, event);
    put_le16(m + 6, value);
    fdrv_write(&f->d, f->ctl, m, sizeof(m));
    (void)fdrv_add(&f->d, CTL_TX, &seg, 1);
    fdrv_kick(&f->d, CTL_TX);
    assert_true(fdrv_used(&f->d, CTL_TX, &head, &used));
    assert_int_equal(used, 0);
}

static void say(struct fixture *f, uint32_t id, uint16_t event, uint16_t value)
{
    say_raw(f, id, event, value, 8);
}

static void offer_ctl(struct fixture *f, uint16_t n, uint32_t len)
{
    for (uint16_t i = 0; i < n; i++) {
        struct fdrv_seg seg = {f->msgs + 128ull * i, len, true};

        (void)fdrv_add(&f->d, CTL_RX, &seg, 1);
    }
    fdrv_kick(&f->d, CTL_RX);
}

/*
 * The next control message must be this one. Each comes in a buffer of its
 * own, whose index tests keep by offering all at once and in order.
 */
static void hears(struct fixture *f, uint16_t slot, uint32_t id, uint16_t event,
                  uint16_t value, const char *more)
{
    uint32_t head;
    uint32_t len;
    const uint8_t *m = fdrv_ptr(&f->d, f->msgs + 128ull * slot, 128);

    assert_true(fdrv_used(&f->d, CTL_RX, &head, &len));
    assert_int_equal(len, 8 + strlen(more));
    assert_int_equal(get_le32(m), id);
    assert_int_equal(get_le16(m + 4), event);
    assert_int_equal(get_le16(m + 6), value);
    assert_memory_equal(m + 8, more, strlen(more));
}

static void hears_nothing(struct fixture *f)
{
    uint32_t head;
    uint32_t len;

    assert_false(fdrv_used(&f->d, CTL_RX, &head, &len));
}

/* All ports known, opened by the guest, and the messages so far thrown away. */
static void bring_up(struct fixture *f)
{
    uint32_t head;
    uint32_t len;

    offer_ctl(f, QSIZE, 128);
    say(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1);
    for (uint32_t i = 0; i < PORTS; i++) {
        say(f, i, VIRTIO_CONSOLE_PORT_READY, 1);
        say(f, i, VIRTIO_CONSOLE_PORT_OPEN, 1);
    }
    while (fdrv_used(&f->d, CTL_RX, &head, &len))
        ;
}

static void offer(struct fixture *f, uint16_t q, gpa_t gpa, uint32_t len)
{
    struct fdrv_seg seg = {gpa, len, true};

    (void)fdrv_add(&f->d, q, &seg, 1);
    fdrv_kick(&f->d, q);
}

/* --- what the host's client does ----------------------------------------- */

static int dial(struct fixture *f, int i)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->path[i]);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

static bool client_reads(void *arg)
{
    struct fixture *f = arg;
    ssize_t n = read(f->client, f->got + f->num_got, 16 * MIB - f->num_got);

    if (n > 0)
        f->num_got += (size_t)n;
    return f->num_got >= f->want;
}

static bool client_gets(struct fixture *f, size_t want)
{
    f->want = want;
    return loop_run_until(f->loop, client_reads, f);
}

static bool client_is_closed(void *arg)
{
    struct fixture *f = arg;
    char b;

    return read(f->client, &b, 1) == 0;
}

/* --- control messages ---------------------------------------------------- */

static void test_vcon_ports_are_offered(void **state)
{
    struct fixture *f = *state;
    uint8_t c[12];

    assert_true(f->dev->offered & (1ull << VIRTIO_CONSOLE_F_MULTIPORT));
    assert_int_equal(f->dev->num_queues, 8);
    f->dev->ops->config_read(f->dev, 0, c, 12);
    assert_int_equal(get_le32(c + 4), PORTS);
}

static void test_vcon_ports_are_added_and_named(void **state)
{
    struct fixture *f = *state;

    offer_ctl(f, QSIZE, 128);
    hears_nothing(f);
    say(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1);
    for (uint16_t i = 0; i < PORTS; i++)
        hears(f, i, i, VIRTIO_CONSOLE_PORT_ADD, 1, "");
    hears_nothing(f);
    say(f, 0, VIRTIO_CONSOLE_PORT_READY, 1);
    hears(f, 3, 0, VIRTIO_CONSOLE_CONSOLE_PORT, 1, "");
    hears(f, 4, 0, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
    say(f, 2, VIRTIO_CONSOLE_PORT_READY, 1);
    hears(f, 5, 2, VIRTIO_CONSOLE_PORT_NAME, 1, "two");
    hears(f, 6, 2, VIRTIO_CONSOLE_PORT_OPEN, 0, "");
    hears_nothing(f);
    assert_true(f->d.signals[CTL_RX] > 0);
}

static void test_vcon_resize_is_a_message(void **state)
{
    struct fixture *f = *state;

    offer_ctl(f, QSIZE, 128);
    vcon_resize(f->dev, 100, 50); /* no driver is ready: told later */
    hears_nothing(f);
    say(f, 0, VIRTIO_CONSOLE_PORT_READY, 1);
    hears(f, 0, 0, VIRTIO_CONSOLE_CONSOLE_PORT, 1, "");
    {
        uint32_t head;
        uint32_t len;
        const uint8_t *m = fdrv_ptr(&f->d, f->msgs + 128, 12);

        assert_true(fdrv_used(&f->d, CTL_RX, &head, &len));
        assert_int_equal(len, 12);
        assert_int_equal(get_le16(m + 4), VIRTIO_CONSOLE_RESIZE);
        assert_int_equal(get_le16(m + 8), 100);
        assert_int_equal(get_le16(m + 10), 50);
    }
    hears(f, 2, 0, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
    vcon_resize(f->dev, 80, 25);
    assert_int_equal(fdrv_used_idx(&f->d, CTL_RX), 4);
}

/* However often it asks: a few bits for each port, told once there is room. */
static void test_vcon_messages_wait_for_buffers_and_do_not_pile_up(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 1000; i++) {
        say(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1);
        say(f, 1, VIRTIO_CONSOLE_PORT_READY, 1);
    }
    hears_nothing(f);
    offer_ctl(f, 1, 128);
    hears(f, 0, 0, VIRTIO_CONSOLE_PORT_ADD, 1, "");
    hears_nothing(f);
    offer_ctl(f, 15, 128);
    hears(f, 0, 1, VIRTIO_CONSOLE_PORT_ADD, 1, "");
    hears(f, 1, 1, VIRTIO_CONSOLE_PORT_NAME, 1, "one");
    hears(f, 2, 1, VIRTIO_CONSOLE_PORT_OPEN, 0, "");
    hears(f, 3, 2, VIRTIO_CONSOLE_PORT_ADD, 1, "");
    hears_nothing(f);
}

static void test_vcon_bad_control_messages_do_nothing(void **state)
{
    struct fixture *f = *state;
    static const struct {
        uint32_t id;
        uint16_t event;
        uint16_t value;
        uint32_t len;
    } bad[] = {
        {0, VIRTIO_CONSOLE_DEVICE_READY, 0, 8},
        {0, VIRTIO_CONSOLE_DEVICE_READY, 1, 7},
        {0, VIRTIO_CONSOLE_DEVICE_READY, 1, 0},
        {PORTS, VIRTIO_CONSOLE_PORT_READY, 1, 8},
        {UINT32_MAX, VIRTIO_CONSOLE_PORT_READY, 1, 8},
        {UINT32_MAX, VIRTIO_CONSOLE_PORT_OPEN, 1, 8},
        {1, VIRTIO_CONSOLE_PORT_READY, 0, 8},
        {1, VIRTIO_CONSOLE_PORT_ADD, 1, 8},
        {1, VIRTIO_CONSOLE_PORT_REMOVE, 1, 8},
        {1, VIRTIO_CONSOLE_RESIZE, 1, 8},
        {1, 0xffff, 1, 8},
    };

    offer_ctl(f, QSIZE, 128);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        say_raw(f, bad[i].id, bad[i].event, bad[i].value, bad[i].len);
        hears_nothing(f);
    }
    assert_int_equal(f->d.needs_resets, 0);
    say_raw(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1, 60); /* with a tail */
    hears(f, 0, 0, VIRTIO_CONSOLE_PORT_ADD, 1, "");
}

static void test_vcon_control_buffers_too_small_go_back_empty(void **state)
{
    struct fixture *f = *state;
    uint32_t head;
    uint32_t len;

    offer_ctl(f, QSIZE, 7);
    say(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1);
    loop_run_for(f->loop, 5);
    for (uint16_t i = 0; i < QSIZE; i++) {
        assert_true(fdrv_used(&f->d, CTL_RX, &head, &len));
        assert_int_equal(len, 0);
    }
    assert_true(loop_run_is_idle(f->loop));
    offer_ctl(f, 1, 8);
    assert_true(fdrv_used(&f->d, CTL_RX, &head, &len));
    assert_int_equal(len, 8); /* not lost */
}

/* --- bytes --------------------------------------------------------------- */

static void test_vcon_port_carries_bytes_both_ways(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 5, false};
    uint32_t head;
    uint32_t len;

    bring_up(f);
    f->client = dial(f, 0);
    offer_ctl(f, 8, 128);
    assert_true(wait_used(f, CTL_RX, 9 + 1));
    fdrv_write(&f->d, f->buf, "guest", 5);
    (void)fdrv_add(&f->d, TX1, &seg, 1);
    fdrv_kick(&f->d, TX1);
    assert_true(client_gets(f, 5));
    assert_memory_equal(f->got, "guest", 5);
    assert_int_equal(write(f->client, "host", 4), 4);
    offer(f, RX1, f->buf + 100, 2);
    offer(f, RX1, f->buf + 200, 100);
    assert_true(wait_used(f, RX1, 2));
    assert_true(fdrv_used(&f->d, RX1, &head, &len));
    assert_int_equal(len, 2);
    assert_true(fdrv_used(&f->d, RX1, &head, &len));
    assert_int_equal(len, 2);
    assert_memory_equal(fdrv_ptr(&f->d, f->buf + 100, 2), "ho", 2);
    assert_memory_equal(fdrv_ptr(&f->d, f->buf + 200, 2), "st", 2);
    assert_int_equal(fdrv_used_idx(&f->d, RX2), 0);
}

static void test_vcon_client_comes_and_goes(void **state)
{
    struct fixture *f = *state;

    bring_up(f);
    assert_int_equal(fdrv_used_idx(&f->d, CTL_RX), 9);
    f->client = dial(f, 0);
    assert_true(wait_used(f, CTL_RX, 10));
    hears(f, 9, 1, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
    drop_fd(&f->client);
    assert_true(wait_used(f, CTL_RX, 11));
    hears(f, 10, 1, VIRTIO_CONSOLE_PORT_OPEN, 0, "");
    assert_true(loop_run_is_idle(f->loop));
    f->client = dial(f, 0);
    assert_true(wait_used(f, CTL_RX, 12));
    hears(f, 11, 1, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
    assert_true(loop_run_is_idle(f->loop));
}

static void test_vcon_second_client_waits_for_the_first_to_go(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 3, false};
    int first = -1;

    bring_up(f);
    first = dial(f, 0);
    loop_run_for(f->loop, 5);
    f->client = dial(f, 0);
    assert_true(loop_run_is_idle(f->loop));
    (void)fdrv_add(&f->d, TX1, &seg, 1);
    fdrv_kick(&f->d, TX1);
    loop_run_for(f->loop, 5);
    (void)client_reads(f);
    assert_int_equal(f->num_got, 0);
    drop_fd(&first);
    assert_true(wait_used(f, CTL_RX, 9 + 3));
    (void)fdrv_add(&f->d, TX1, &seg, 1);
    fdrv_kick(&f->d, TX1);
    assert_true(client_gets(f, 3));
}

/* The guest waits for a slow reader and loses nothing. */
static void test_vcon_slow_client_gets_everything(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 8 * MIB, false};
    uint8_t *p = fdrv_ptr(&f->d, f->buf, 8 * MIB);

    for (size_t i = 0; i < 8 * MIB; i++)
        p[i] = (uint8_t)(i * 7 + (i >> 11));
    bring_up(f);
    f->client = dial(f, 0);
    loop_run_for(f->loop, 5);
    (void)fdrv_add(&f->d, TX1, &seg, 1);
    fdrv_kick(&f->d, TX1);
    assert_true(loop_run_is_idle(f->loop)); /* it waits without spinning */
    assert_int_equal(fdrv_used_idx(&f->d, TX1), 0);
    assert_true(client_gets(f, 8 * MIB));
    assert_memory_equal(f->got, p, 8 * MIB);
    assert_true(wait_used(f, TX1, 1));
}

/* Many pieces in one chain; more than fit into one call. */
static void test_vcon_port_output_in_many_pieces(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[200];
    struct vq_setup_args a = fdrv_setup_args(&f->d, TX1, true);

    assert_int_equal(vq_setup(&f->dev->vq[TX1], f->d.mem, &a), 0);
    bring_up(f);
    f->client = dial(f, 0);
    loop_run_for(f->loop, 5);
    for (uint16_t i = 0; i < 200; i++) {
        segs[i] = (struct fdrv_seg){f->buf + 16u * i, 1, false};
        fdrv_write(&f->d, f->buf + 16u * i, &(uint8_t){(uint8_t)i}, 1);
    }
    (void)fdrv_add_indirect(&f->d, TX1, segs, 200);
    fdrv_kick(&f->d, TX1);
    assert_true(client_gets(f, 200));
    for (int i = 0; i < 200; i++)
        assert_int_equal(f->got[i], i);
}

static void test_vcon_output_without_a_client_is_dropped(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 8 * MIB, false};

    bring_up(f);
    (void)fdrv_add(&f->d, TX1, &seg, 1);
    fdrv_kick(&f->d, TX1);
    assert_int_equal(fdrv_used_idx(&f->d, TX1), 1);
}

static void test_vcon_stuck_client_that_goes_frees_the_guest(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 8 * MIB, false};

    bring_up(f);
    f->client = dial(f, 0);
    loop_run_for(f->loop, 5);
    (void)fdrv_add(&f->d, TX1, &seg, 1);
    fdrv_kick(&f->d, TX1);
    loop_run_for(f->loop, 5);
    assert_int_equal(fdrv_used_idx(&f->d, TX1), 0);
    drop_fd(&f->client);
    assert_true(wait_used(f, TX1, 1));
    assert_true(loop_run_is_idle(f->loop));
}

static void test_vcon_input_waits_until_the_guest_opens_the_port(void **state)
{
    struct fixture *f = *state;

    bring_up(f);
    say(f, 1, VIRTIO_CONSOLE_PORT_OPEN, 0);
    f->client = dial(f, 0);
    assert_int_equal(write(f->client, "x", 1), 1);
    offer(f, RX1, f->buf, 16);
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(fdrv_used_idx(&f->d, RX1), 0);
    say(f, 1, VIRTIO_CONSOLE_PORT_OPEN, 1);
    assert_true(wait_used(f, RX1, 1));
}

static void test_vcon_last_bytes_of_a_client_that_left_arrive(void **state)
{
    struct fixture *f = *state;

    bring_up(f);
    f->client = dial(f, 0);
    loop_run_for(f->loop, 5);
    assert_int_equal(write(f->client, "bye", 3), 3);
    drop_fd(&f->client);
    assert_true(loop_run_is_idle(f->loop)); /* no buffer is there */
    offer(f, RX1, f->buf, 16);
    offer(f, RX1, f->buf + 16, 16);
    assert_true(wait_used(f, RX1, 1));
    assert_memory_equal(fdrv_ptr(&f->d, f->buf, 3), "bye", 3);
    assert_true(wait_used(f, CTL_RX, 9 + 2)); /* then it is closed */
    assert_true(loop_run_is_idle(f->loop));
}

/* What it left does not keep the next one out. */
static void test_vcon_next_client_is_let_in_over_old_bytes(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 3, false};

    bring_up(f);
    f->client = dial(f, 0);
    loop_run_for(f->loop, 5);
    assert_int_equal(write(f->client, "bye", 3), 3);
    drop_fd(&f->client);
    loop_run_for(f->loop, 5);
    f->client = dial(f, 0);
    loop_run_for(f->loop, 5);
    (void)fdrv_add(&f->d, TX1, &seg, 1);
    fdrv_kick(&f->d, TX1);
    assert_true(client_gets(f, 3));
}

static void test_vcon_client_that_sent_all_still_listens(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 6, false};

    bring_up(f);
    f->client = dial(f, 0);
    assert_int_equal(write(f->client, "ask", 3), 3);
    assert_int_equal(shutdown(f->client, SHUT_WR), 0);
    offer(f, RX1, f->buf, 16);
    offer(f, RX1, f->buf + 16, 16);
    assert_true(wait_used(f, RX1, 1));
    assert_true(loop_run_is_idle(f->loop));
    (void)fdrv_add(&f->d, TX1, &seg, 1);
    fdrv_kick(&f->d, TX1);
    assert_true(client_gets(f, 6));
    drop_fd(&f->client);
    assert_true(wait_used(f, CTL_RX, 9 + 2));
}

/* --- ends ---------------------------------------------------------------- */

static void test_vcon_reset_keeps_the_client_for_the_next_driver(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 8 * MIB, false};

    bring_up(f);
    f->client = dial(f, 0);
    loop_run_for(f->loop, 5);
    (void)fdrv_add(&f->d, TX1, &seg, 1);
    fdrv_kick(&f->d, TX1); /* in the middle of it */
    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, ~0ull), 0);
    offer_ctl(f, QSIZE, 128);
    hears_nothing(f); /* it has not said that it is ready */
    say(f, 1, VIRTIO_CONSOLE_PORT_READY, 1);
    hears(f, 0, 1, VIRTIO_CONSOLE_PORT_NAME, 1, "one");
    hears(f, 1, 1, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
}

static void test_vcon_client_that_leaves_between_drivers(void **state)
{
    struct fixture *f = *state;

    bring_up(f);
    f->client = dial(f, 0);
    loop_run_for(f->loop, 5);
    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_int_equal(write(f->client, "x", 1), 1);
    drop_fd(&f->client);
    assert_true(loop_run_is_idle(f->loop));
    f->client = dial(f, 0);
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, ~0ull), 0);
    bring_up(f);
}

static void test_vcon_free_closes_the_client(void **state)
{
    struct fixture *f = *state;
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
    assert_true(loop_run_until(f->loop, client_is_closed, f));
}

static void test_vcon_broken_queues_need_reset(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {RAM, 16, false};
    static const uint16_t queues[] = {1, CTL_TX, TX1, 7};

    for (size_t i = 0; i < ARRAY_SIZE(queues); i++) {
        (void)fdrv_add(&f->d, queues[i], &seg, 1);
        fdrv_kick(&f->d, queues[i]);
        assert_int_equal(f->d.needs_resets, i + 1);
        assert_int_equal(fdrv_reset(&f->d), 0);
        assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, ~0ull), 0);
    }
    seg.writable = true;
    (void)fdrv_add(&f->d, CTL_RX, &seg, 1);
    fdrv_kick(&f->d, CTL_RX);
    say(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1);
    assert_int_equal(f->d.needs_resets, ARRAY_SIZE(queues) + 1);
}

/* A driver that declined the ports has no such queues. */
static void test_vcon_ports_declined(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->ctl, 8, false};

    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, 0), 0);
    for (uint16_t q = 2; q < 8; q++) {
        (void)fdrv_add(&f->d, q, &seg, 1);
        fdrv_kick(&f->d, q);
        assert_int_equal(fdrv_used_idx(&f->d, q), 0);
    }
    f->client = dial(f, 0);
    assert_true(loop_run_is_idle(f->loop));
}

static void test_vcon_new_refuses_bad_ports(void **state)
{
    struct fixture *f = *state;
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

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_vcon_ports_are_offered),
        T(test_vcon_ports_are_added_and_named),
        T(test_vcon_resize_is_a_message),
        T(test_vcon_messages_wait_for_buffers_and_do_not_pile_up),
        T(test_vcon_bad_control_messages_do_nothing),
        T(test_vcon_control_buffers_too_small_go_back_empty),
        T(test_vcon_port_carries_bytes_both_ways),
        T(test_vcon_client_comes_and_goes),
        T(test_vcon_second_client_waits_for_the_first_to_go),
        T(test_vcon_slow_client_gets_everything),
        T(test_vcon_port_output_in_many_pieces),
        T(test_vcon_output_without_a_client_is_dropped),
        T(test_vcon_stuck_client_that_goes_frees_the_guest),
        T(test_vcon_input_waits_until_the_guest_opens_the_port),
        T(test_vcon_last_bytes_of_a_client_that_left_arrive),
        T(test_vcon_next_client_is_let_in_over_old_bytes),
        T(test_vcon_client_that_sent_all_still_listens),
        T(test_vcon_reset_keeps_the_client_for_the_next_driver),
        T(test_vcon_client_that_leaves_between_drivers),
        T(test_vcon_free_closes_the_client),
        T(test_vcon_broken_queues_need_reset),
        T(test_vcon_ports_declined),
        T(test_vcon_new_refuses_bad_ports),
    };

    return cmocka_run_group_tests_name("virtio_console_ports", tests, NULL,
                                       NULL);
}
