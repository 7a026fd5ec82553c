/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers that a guest reads as memory: after whatever a driver does the
 * words show what reading the registers would give.
 */
#include "devices/virtio_mmio.h"

#include "tests/harness/fake_driver.h"
#include "tests/harness/loop_run.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define NUM_WORDS (VIRTIO_MMIO_CONFIG / 4)
#define ST_DRV    (VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER)
#define ST_FEAT   (ST_DRV | VIRTIO_CONFIG_S_FEATURES_OK)
#define ST_OK     (ST_FEAT | VIRTIO_CONFIG_S_DRIVER_OK)

struct fixture {
    struct fdrv d;
    struct log log;
    int log_fd;
    int irq_fd;
    struct evloop *loop;
    struct loop_thread *thread;
    struct virtio_dev dev;
    struct virtio_mmio *m;
    sem_t done;
    uint32_t words[NUM_WORDS];
};

static void p_config_read(struct virtio_dev *dev, uint32_t off, void *data,
                          uint32_t len)
{
    (void)dev;
    (void)off;
    memset(data, 0x5a, len);
}

static int p_nothing(struct virtio_dev *dev)
{
    (void)dev;
    return 0;
}

static void p_kick(struct virtio_dev *dev, uint16_t q)
{
    (void)dev;
    (void)q;
}

static void p_free(struct virtio_dev *dev)
{
    (void)dev;
}

static const struct virtio_ops p_ops = {
    .config_read = p_config_read,
    .activate = p_nothing,
    .reset = p_nothing,
    .queue_kick = p_kick,
    .free = p_free,
};

struct task {
    struct ev_call call;
    struct fixture *f;
    void (*fn)(struct fixture *f);
    sem_t done;
};

static void on_task(struct ev_call *c)
{
    struct task *t = c->arg;

    t->fn(t->f);
    sem_post(&t->done);
}

/* Runs `fn` on the loop's thread, and waits for it. */
static void on_loop(struct fixture *f, void (*fn)(struct fixture *f))
{
    struct task t = {.f = f, .fn = fn};

    sem_init(&t.done, 0, 0);
    t.call.fn = on_task;
    t.call.arg = &t;
    evloop_post(f->loop, &t.call);
    sem_wait(&t.done);
}

static void on_down(void *arg)
{
    struct fixture *f = arg;

    sem_post(&f->done);
}

static void shut_down(struct fixture *f)
{
    virtio_mmio_shutdown(f->m, on_down, f);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct vdev_env env;

    assert_non_null(f);
    fdrv_init(&f->d, 4 * MIB);
    f->log_fd = memfd_create("log", 0);
    log_init(&f->log, f->log_fd, LOG_INFO, "test");
    f->irq_fd = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    virtio_dev_init(&f->dev, &p_ops, &env, "t", 42);
    f->dev.offered = (1ull << 5) | (1ull << 40);
    f->dev.num_queues = 2;
    f->dev.queue_max[0] = 16;
    f->dev.queue_max[1] = 256;
    f->dev.config_len = 8;
    sem_init(&f->done, 0, 0);
    assert_int_equal(virtio_mmio_new(&f->dev, f->irq_fd, &f->m), 0);
    virtio_mmio_show_registers(f->m, f->words);
    f->thread = loop_thread_start(f->loop);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    virtio_mmio_cancel_waits(f->m);
    on_loop(f, shut_down);
    sem_wait(&f->done);
    loop_thread_stop(f->thread);
    virtio_mmio_free(f->m);
    evloop_free(f->loop);
    close(f->irq_fd);
    close(f->log_fd);
    fdrv_fini(&f->d);
    free(f);
    return 0;
}

static void check_words(struct fixture *f)
{
    for (uint32_t off = 0; off < VIRTIO_MMIO_CONFIG; off += 4) {
        uint8_t b[4] = {0};

        virtio_mmio_bus_ops.read(f->m, off, b, 4);
        if (get_le32(b) != f->words[off / 4])
            fail_msg("register 0x%x: 0x%x, its word 0x%x", off, get_le32(b),
                     f->words[off / 4]);
    }
}

static void wr(struct fixture *f, uint32_t off, uint32_t v)
{
    uint8_t b[4];

    put_le32(b, v);
    virtio_mmio_bus_ops.write(f->m, off, b, 4);
    check_words(f);
}

static uint32_t word(const struct fixture *f, uint32_t off)
{
    return f->words[off / 4];
}

static void start(struct fixture *f)
{
    struct vq_setup_args a;

    wr(f, VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_ACKNOWLEDGE);
    wr(f, VIRTIO_MMIO_STATUS, ST_DRV);
    wr(f, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
    wr(f, VIRTIO_MMIO_DRIVER_FEATURES, 1u << (VIRTIO_F_VERSION_1 - 32));
    wr(f, VIRTIO_MMIO_STATUS, ST_FEAT);
    fdrv_queue_init(&f->d, 0, 8, false);
    a = fdrv_setup_args(&f->d, 0, false);
    wr(f, VIRTIO_MMIO_QUEUE_SEL, 0);
    wr(f, VIRTIO_MMIO_QUEUE_NUM, a.size);
    wr(f, VIRTIO_MMIO_QUEUE_DESC_LOW, (uint32_t)a.desc);
    wr(f, VIRTIO_MMIO_QUEUE_AVAIL_LOW, (uint32_t)a.avail);
    wr(f, VIRTIO_MMIO_QUEUE_USED_LOW, (uint32_t)a.used);
    wr(f, VIRTIO_MMIO_QUEUE_READY, 1);
    assert_int_equal(word(f, VIRTIO_MMIO_QUEUE_READY), 1);
    wr(f, VIRTIO_MMIO_STATUS, ST_OK);
    assert_int_equal(word(f, VIRTIO_MMIO_STATUS), ST_OK);
}

static void test_words_show_the_device_at_once(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(word(f, VIRTIO_MMIO_MAGIC_VALUE), 0x74726976);
    assert_int_equal(word(f, VIRTIO_MMIO_DEVICE_ID), 42);
    check_words(f);
}

static void test_words_follow_selectors(void **state)
{
    struct fixture *f = *state;

    wr(f, VIRTIO_MMIO_QUEUE_SEL, 1);
    assert_int_equal(word(f, VIRTIO_MMIO_QUEUE_NUM_MAX), 256);
    wr(f, VIRTIO_MMIO_QUEUE_SEL, 0xffff); /* BL-043 */
    assert_int_equal(word(f, VIRTIO_MMIO_QUEUE_NUM_MAX), 0);
    wr(f, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
    assert_int_equal(word(f, VIRTIO_MMIO_DEVICE_FEATURES) & 0x100, 0x100);
    wr(f, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 7);
    assert_int_equal(word(f, VIRTIO_MMIO_DEVICE_FEATURES), 0);
}

static void test_words_follow_start_and_reset(void **state)
{
    struct fixture *f = *state;

    start(f);
    wr(f, VIRTIO_MMIO_STATUS, 0);
    assert_int_equal(word(f, VIRTIO_MMIO_STATUS), 0);
    start(f);
}

static void break_device(struct fixture *f)
{
    virtio_needs_reset(&f->dev);
}

static void test_words_show_that_a_reset_is_needed(void **state)
{
    struct fixture *f = *state;

    start(f);
    on_loop(f, break_device);
    check_words(f);
    assert_int_equal(word(f, VIRTIO_MMIO_STATUS),
                     ST_OK | VIRTIO_CONFIG_S_NEEDS_RESET);
    assert_int_equal(word(f, VIRTIO_MMIO_CONFIG_GENERATION), 1);
    assert_int_equal(word(f, VIRTIO_MMIO_INTERRUPT_STATUS),
                     VIRTIO_MMIO_INT_CONFIG);
}

static void use_buffer(struct fixture *f)
{
    f->dev.transport_ops->signal_queue(f->dev.transport, 0);
}

static void change_config(struct fixture *f)
{
    virtio_config_changed(&f->dev);
}

/* An acknowledgement of used buffers alone may never reach the monitor. */
static void test_used_buffer_bit_stays_until_reset(void **state)
{
    struct fixture *f = *state;

    start(f);
    assert_int_equal(word(f, VIRTIO_MMIO_INTERRUPT_STATUS), 0);
    on_loop(f, use_buffer);
    assert_int_equal(word(f, VIRTIO_MMIO_INTERRUPT_STATUS), 1);
    wr(f, VIRTIO_MMIO_INTERRUPT_ACK, 1);
    assert_int_equal(word(f, VIRTIO_MMIO_INTERRUPT_STATUS), 1);
    on_loop(f, change_config);
    assert_int_equal(word(f, VIRTIO_MMIO_INTERRUPT_STATUS), 3);
    wr(f, VIRTIO_MMIO_INTERRUPT_ACK, 3);
    assert_int_equal(word(f, VIRTIO_MMIO_INTERRUPT_STATUS), 1);
    wr(f, VIRTIO_MMIO_STATUS, 0);
    assert_int_equal(word(f, VIRTIO_MMIO_INTERRUPT_STATUS), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_words_show_the_device_at_once),
        T(test_words_follow_selectors),
        T(test_words_follow_start_and_reset),
        T(test_words_show_that_a_reset_is_needed),
        T(test_used_buffer_bit_stays_until_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
