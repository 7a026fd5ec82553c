/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport is about two threads: each test plays the vCPU, the loop runs
 * on a thread of its own.
 */
#include "devices/virtio_mmio.h"

#include "tests/harness/fake_driver.h"
#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define RAM        (4 * MIB)
#define CONFIG_LEN 10u
#define OFFERED    ((1ull << 5) | (1ull << 40))
#define VERSION_1  (1ull << VIRTIO_F_VERSION_1)
#define EVENT_IDX  (1ull << VIRTIO_RING_F_EVENT_IDX)
#define INDIRECT   (1ull << VIRTIO_RING_F_INDIRECT_DESC)
#define ST_ACK     VIRTIO_CONFIG_S_ACKNOWLEDGE
#define ST_DRV     (ST_ACK | VIRTIO_CONFIG_S_DRIVER)
#define ST_FEAT    (ST_DRV | VIRTIO_CONFIG_S_FEATURES_OK)
#define ST_OK      (ST_FEAT | VIRTIO_CONFIG_S_DRIVER_OK)
#define ST_NEEDS   VIRTIO_CONFIG_S_NEEDS_RESET

/* A device that notes what is asked of it. */
struct tdev {
    struct virtio_dev dev;
    int activations;
    int resets;
    int frees;
    int activate_rc;
    bool hold_reset; /* a request stays in flight until release_reset() */
    _Atomic uint16_t last_kick;
    sem_t kicked;
    sem_t resetting;
    struct ev_call release;
    uint8_t config[CONFIG_LEN];
};

struct fixture {
    enum evloop_backend backend;
    struct fdrv d;
    struct log log;
    int log_fd;
    int irq_fd;
    struct evloop *loop;
    struct loop_thread *thread;
    struct tdev t;
    struct virtio_mmio *m;
    sem_t done;
};

static int t_activate(struct virtio_dev *dev)
{
    struct tdev *t = container_of(dev, struct tdev, dev);

    t->activations++;
    return t->activate_rc;
}

static int t_reset(struct virtio_dev *dev)
{
    struct tdev *t = container_of(dev, struct tdev, dev);

    t->resets++;
    if (!t->hold_reset)
        return 0;
    sem_post(&t->resetting);
    return -EINPROGRESS;
}

static void t_kick(struct virtio_dev *dev, uint16_t q)
{
    struct tdev *t = container_of(dev, struct tdev, dev);

    t->last_kick = q;
    sem_post(&t->kicked);
}

static void t_config_read(struct virtio_dev *dev, uint32_t off, void *data,
                          uint32_t len)
{
    struct tdev *t = container_of(dev, struct tdev, dev);

    assert_true(off < CONFIG_LEN && len <= CONFIG_LEN - off);
    memcpy(data, t->config + off, len);
}

static void t_config_write(struct virtio_dev *dev, uint32_t off,
                           const void *data, uint32_t len)
{
    struct tdev *t = container_of(dev, struct tdev, dev);

    assert_true(off < CONFIG_LEN && len <= CONFIG_LEN - off);
    memcpy(t->config + off, data, len);
}

static void t_free(struct virtio_dev *dev)
{
    container_of(dev, struct tdev, dev)->frees++;
}

static const struct virtio_ops t_ops = {
    .config_read = t_config_read,
    .config_write = t_config_write,
    .activate = t_activate,
    .reset = t_reset,
    .queue_kick = t_kick,
    .free = t_free,
};

static void on_release(struct ev_call *c)
{
    struct tdev *t = c->arg;

    t->hold_reset = false;
    virtio_reset_done(&t->dev);
}

static void release_reset(struct fixture *f)
{
    f->t.release.fn = on_release;
    f->t.release.arg = &f->t;
    evloop_post(f->loop, &f->t.release);
}

/* --- fixture ------------------------------------------------------------- */

static void on_down(void *arg)
{
    struct fixture *f = arg;

    sem_post(&f->done);
}

static void do_shutdown(struct ev_call *c)
{
    struct fixture *f = c->arg;

    virtio_mmio_shutdown(f->m, on_down, f);
}

static int setup_backend(void **state, enum evloop_backend backend)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct vdev_env env;

    assert_non_null(f);
    fdrv_init(&f->d, RAM);
    f->log_fd = memfd_create("log", 0);
    log_init(&f->log, f->log_fd, LOG_INFO, "test");
    f->irq_fd = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(evloop_new(backend, &f->loop), 0);
    env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    virtio_dev_init(&f->t.dev, &t_ops, &env, "t", 42);
    f->t.dev.offered = OFFERED;
    f->t.dev.num_queues = 2;
    f->t.dev.queue_max[0] = 16;
    f->t.dev.queue_max[1] = 256;
    f->t.dev.config_len = CONFIG_LEN;
    for (uint8_t i = 0; i < CONFIG_LEN; i++)
        f->t.config[i] = (uint8_t)(0x10 + i);
    sem_init(&f->t.kicked, 0, 0);
    sem_init(&f->t.resetting, 0, 0);
    sem_init(&f->done, 0, 0);
    assert_int_equal(virtio_mmio_new(&f->t.dev, f->irq_fd, &f->m), 0);
    f->thread = loop_thread_start(f->loop);
    *state = f;
    return 0;
}

static int setup(void **state)
{
    return setup_backend(state, EVLOOP_AUTO);
}

static int setup_epoll(void **state)
{
    return setup_backend(state, EVLOOP_EPOLL);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    struct ev_call down = {.fn = do_shutdown, .arg = f};

    virtio_mmio_cancel_waits(f->m);
    evloop_post(f->loop, &down);
    sem_wait(&f->done);
    loop_thread_stop(f->thread);
    virtio_mmio_free(f->m);
    assert_int_equal(f->t.frees, 1);
    evloop_free(f->loop);
    close(f->irq_fd);
    close(f->log_fd);
    fdrv_fini(&f->d);
    free(f);
    return 0;
}

/* --- the driver ---------------------------------------------------------- */

static uint32_t rd(struct fixture *f, uint32_t off)
{
    uint8_t b[4] = {0};

    virtio_mmio_bus_ops.read(f->m, off, b, 4);
    return get_le32(b);
}

static void wr(struct fixture *f, uint32_t off, uint32_t v)
{
    uint8_t b[4];

    put_le32(b, v);
    virtio_mmio_bus_ops.write(f->m, off, b, 4);
}

static uint32_t status(struct fixture *f)
{
    return rd(f, VIRTIO_MMIO_STATUS);
}

static void set_status(struct fixture *f, uint32_t v)
{
    wr(f, VIRTIO_MMIO_STATUS, v);
}

static void set_features(struct fixture *f, uint64_t v)
{
    wr(f, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
    wr(f, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)v);
    wr(f, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
    wr(f, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)(v >> 32));
}

static void negotiate(struct fixture *f, uint64_t features)
{
    set_status(f, ST_ACK);
    set_status(f, ST_DRV);
    set_features(f, features);
    set_status(f, ST_FEAT);
}

static void write_queue(struct fixture *f, const struct vq_setup_args *a)
{
    wr(f, VIRTIO_MMIO_QUEUE_NUM, a->size);
    wr(f, VIRTIO_MMIO_QUEUE_DESC_LOW, (uint32_t)a->desc);
    wr(f, VIRTIO_MMIO_QUEUE_DESC_HIGH, (uint32_t)(a->desc >> 32));
    wr(f, VIRTIO_MMIO_QUEUE_AVAIL_LOW, (uint32_t)a->avail);
    wr(f, VIRTIO_MMIO_QUEUE_AVAIL_HIGH, (uint32_t)(a->avail >> 32));
    wr(f, VIRTIO_MMIO_QUEUE_USED_LOW, (uint32_t)a->used);
    wr(f, VIRTIO_MMIO_QUEUE_USED_HIGH, (uint32_t)(a->used >> 32));
    wr(f, VIRTIO_MMIO_QUEUE_READY, 1);
}

static void setup_queue(struct fixture *f, uint16_t q, uint16_t size)
{
    struct vq_setup_args a;

    fdrv_queue_init(&f->d, q, size, false);
    a = fdrv_setup_args(&f->d, q, false);
    wr(f, VIRTIO_MMIO_QUEUE_SEL, q);
    write_queue(f, &a);
}

static void start(struct fixture *f)
{
    negotiate(f, VERSION_1 | EVENT_IDX | OFFERED);
    setup_queue(f, 0, 8);
    setup_queue(f, 1, 256);
    set_status(f, ST_OK);
    assert_int_equal(status(f), ST_OK);
}

struct poke {
    struct ev_call call;
    struct fixture *f;
    sem_t done;
    void (*fn)(struct fixture *f);
};

static void on_poke(struct ev_call *c)
{
    struct poke *p = c->arg;

    p->fn(p->f);
    sem_post(&p->done);
}

/* Runs `fn` on the loop's thread. */
static void on_loop(struct fixture *f, void (*fn)(struct fixture *f))
{
    struct poke p = {.f = f, .fn = fn};

    sem_init(&p.done, 0, 0);
    p.call.fn = on_poke;
    p.call.arg = &p;
    evloop_post(f->loop, &p.call);
    sem_wait(&p.done);
}

static void poke_nothing(struct fixture *f)
{
    (void)f;
}

/* What a turn of the loop asks for is done before the end of the next. */
static uint64_t irqs(struct fixture *f)
{
    uint64_t n = 0;

    on_loop(f, poke_nothing);
    on_loop(f, poke_nothing);
    return read(f->irq_fd, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

/* Lines that the device has logged. */
static int log_lines(struct fixture *f)
{
    char buf[8192];
    ssize_t n = pread(f->log_fd, buf, sizeof(buf), 0);
    int lines = 0;

    for (ssize_t i = 0; i < n; i++)
        lines += buf[i] == '\n';
    return lines;
}

/* --- registers ----------------------------------------------------------- */

static void test_mmio_identity_registers(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(rd(f, VIRTIO_MMIO_MAGIC_VALUE), 0x74726976);
    assert_int_equal(rd(f, VIRTIO_MMIO_VERSION), 2);
    assert_int_equal(rd(f, VIRTIO_MMIO_DEVICE_ID), 42);
    assert_int_equal(rd(f, VIRTIO_MMIO_VENDOR_ID), 0x65746f6d);
    wr(f, VIRTIO_MMIO_DEVICE_ID, 1);
    assert_int_equal(rd(f, VIRTIO_MMIO_DEVICE_ID), 42);
    assert_int_equal(virtio_mmio_num_queues(f->m), 2);
    assert_true(virtio_mmio_kick_fd(f->m, 1) >= 0);
    assert_int_equal(virtio_mmio_kick_fd(f->m, 2), -1);
}

static void test_mmio_shared_memory_registers_show_no_region(void **state)
{
    struct fixture *f = *state;

    wr(f, VIRTIO_MMIO_SHM_SEL, 0);
    for (uint32_t off = VIRTIO_MMIO_SHM_LEN_LOW;
         off <= VIRTIO_MMIO_SHM_BASE_HIGH; off += 4)
        assert_int_equal(rd(f, off), UINT32_MAX);
}

static void test_mmio_device_features_by_half(void **state)
{
    struct fixture *f = *state;
    uint64_t want = OFFERED | VERSION_1 | EVENT_IDX | INDIRECT;

    assert_int_equal(rd(f, VIRTIO_MMIO_DEVICE_FEATURES), (uint32_t)want);
    wr(f, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
    assert_int_equal(rd(f, VIRTIO_MMIO_DEVICE_FEATURES),
                     (uint32_t)(want >> 32));
    for (uint32_t sel = 2; sel != 0; sel <<= 1) {
        wr(f, VIRTIO_MMIO_DEVICE_FEATURES_SEL, sel);
        assert_int_equal(rd(f, VIRTIO_MMIO_DEVICE_FEATURES), 0);
    }
}

/* Queue reset is not offered, so its register is not there. */
static void test_mmio_queue_reset_is_absent(void **state)
{
    struct fixture *f = *state;

    start(f);
    wr(f, VIRTIO_MMIO_QUEUE_SEL, 0);
    assert_int_equal(rd(f, 0x0c0), 0);
    wr(f, 0x0c0, 1);
    assert_int_equal(rd(f, 0x0c0), 0);
    assert_int_equal(rd(f, VIRTIO_MMIO_QUEUE_READY), 1);
}

static void test_mmio_wrong_width_reads_zero_and_writes_nothing(void **state)
{
    static const uint32_t widths[] = {1, 2, 4, 8};
    static const uint8_t ones[8] = {0xff, 0xff, 0xff, 0xff,
                                    0xff, 0xff, 0xff, 0xff};
    static const uint8_t zeroes[8] = {0};
    struct fixture *f = *state;

    start(f);
    (void)irqs(f);
    for (size_t w = 0; w < ARRAY_SIZE(widths); w++) {
        for (uint32_t off = 0; off + widths[w] <= VIRTIO_MMIO_CONFIG; off++) {
            uint8_t b[8] = {0};

            if (widths[w] == 4 && off % 4 == 0)
                continue;
            virtio_mmio_bus_ops.write(f->m, off, ones, widths[w]);
            virtio_mmio_bus_ops.write(f->m, off, zeroes, widths[w]);
            virtio_mmio_bus_ops.read(f->m, off, b, widths[w]);
            assert_memory_equal(b, zeroes, sizeof(b));
        }
    }
    assert_int_equal(status(f), ST_OK);
    assert_int_equal(f->t.resets, 0);
}

static void test_BL_043_queue_selector_out_of_range(void **state)
{
    static const uint32_t widths[] = {1, 2, 4, 8};
    static const uint32_t sels[] = {2,       7,           8,          0xffff,
                                    0x10000, 0x80000000u, 0xffffffffu};
    static const uint8_t ones[8] = {0xff, 0xff, 0xff, 0xff,
                                    0xff, 0xff, 0xff, 0xff};
    struct fixture *f = *state;

    negotiate(f, VERSION_1);
    for (size_t s = 0; s < ARRAY_SIZE(sels); s++) {
        wr(f, VIRTIO_MMIO_QUEUE_SEL, sels[s]);
        for (size_t w = 0; w < ARRAY_SIZE(widths); w++) {
            for (uint32_t off = VIRTIO_MMIO_QUEUE_NUM_MAX;
                 off < VIRTIO_MMIO_INTERRUPT_STATUS; off++) {
                uint8_t b[8] = {0};

                if (off == VIRTIO_MMIO_QUEUE_SEL)
                    continue;
                virtio_mmio_bus_ops.write(f->m, off, ones, widths[w]);
                virtio_mmio_bus_ops.read(f->m, off, b, widths[w]);
                assert_int_equal(get_le64(b), 0);
            }
            for (uint32_t off = VIRTIO_MMIO_QUEUE_DESC_LOW; off < 0xac; off++)
                virtio_mmio_bus_ops.write(f->m, off, ones, widths[w]);
        }
    }
    /* and the queues that exist are as they were */
    wr(f, VIRTIO_MMIO_QUEUE_SEL, 1);
    assert_int_equal(rd(f, VIRTIO_MMIO_QUEUE_NUM_MAX), 256);
    assert_int_equal(rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
    assert_int_equal(status(f), ST_FEAT);
}

/* --- configuration space ------------------------------------------------- */

static void test_mmio_config_reads_by_offset_and_width(void **state)
{
    static const uint32_t widths[] = {1, 2, 4, 8};
    struct fixture *f = *state;

    for (size_t w = 0; w < ARRAY_SIZE(widths); w++) {
        for (uint32_t off = 0; off < CONFIG_LEN + 8; off++) {
            uint8_t b[8] = {0};

            virtio_mmio_bus_ops.read(f->m, VIRTIO_MMIO_CONFIG + off, b,
                                     widths[w]);
            for (uint32_t i = 0; i < 8; i++) {
                bool inside = i < widths[w] && off + i < CONFIG_LEN;

                assert_int_equal(b[i], inside ? 0x10 + off + i : 0);
            }
        }
    }
}

static void test_mmio_config_write_past_the_end_does_nothing(void **state)
{
    static const uint8_t data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct fixture *f = *state;
    uint8_t before[CONFIG_LEN];

    memcpy(before, f->t.config, sizeof(before));
    virtio_mmio_bus_ops.write(f->m, VIRTIO_MMIO_CONFIG + 8, data, 4);
    virtio_mmio_bus_ops.write(f->m, VIRTIO_MMIO_CONFIG + 10, data, 1);
    virtio_mmio_bus_ops.write(f->m, VIRTIO_MMIO_CONFIG + 0xe00, data, 8);
    assert_memory_equal(f->t.config, before, sizeof(before));
    virtio_mmio_bus_ops.write(f->m, VIRTIO_MMIO_CONFIG + 2, data, 8);
    assert_memory_equal(f->t.config + 2, data, 8);
}

static void poke_config(struct fixture *f)
{
    virtio_config_changed(&f->t.dev);
}

static void poke_broken(struct fixture *f)
{
    virtio_needs_reset(&f->t.dev);
}

static void poke_used(struct fixture *f)
{
    struct vq_chain c;

    assert_int_equal(vq_pop(&f->t.dev.vq[0], &c), 1);
    vq_push(&f->t.dev.vq[0], c.head, 0);
    virtio_signal(&f->t.dev, 0);
}

static void test_mmio_config_change_counts_and_interrupts(void **state)
{
    struct fixture *f = *state;
    uint32_t gen;

    start(f);
    gen = rd(f, VIRTIO_MMIO_CONFIG_GENERATION);
    on_loop(f, poke_config);
    assert_int_not_equal(rd(f, VIRTIO_MMIO_CONFIG_GENERATION), gen);
    assert_int_equal(rd(f, VIRTIO_MMIO_INTERRUPT_STATUS),
                     VIRTIO_MMIO_INT_CONFIG);
    assert_int_equal(irqs(f), 1);
}

static void change_config(struct virtio_dev *dev, void *arg)
{
    struct tdev *t = container_of(dev, struct tdev, dev);

    memcpy(t->config, arg, 8);
}

static void update_config(struct fixture *f)
{
    uint64_t v = 0x0102030405060708u;

    virtio_config_update(&f->t.dev, change_config, &v);
}

static void test_mmio_config_update_counts_and_interrupts(void **state)
{
    struct fixture *f = *state;
    uint32_t gen = rd(f, VIRTIO_MMIO_CONFIG_GENERATION);

    on_loop(f, update_config); /* no driver yet: nobody to interrupt */
    assert_int_equal(rd(f, VIRTIO_MMIO_CONFIG_GENERATION), gen + 1);
    assert_int_equal(rd(f, VIRTIO_MMIO_INTERRUPT_STATUS), 0);
    assert_int_equal(irqs(f), 0);
    start(f);
    on_loop(f, update_config);
    assert_int_equal(rd(f, VIRTIO_MMIO_CONFIG_GENERATION), gen + 2);
    assert_int_equal(rd(f, VIRTIO_MMIO_INTERRUPT_STATUS),
                     VIRTIO_MMIO_INT_CONFIG);
    assert_int_equal(irqs(f), 1);
}

struct flipper {
    struct ev_timer timer;
    struct fixture *f;
    uint64_t n;
    bool stop; /* loop's thread */
};

static struct flipper flip;

static void on_flip(struct ev_timer *t)
{
    struct flipper *fl = t->arg;
    uint64_t v = fl->n << 32 | fl->n;

    fl->n++;
    virtio_config_update(&fl->f->t.dev, change_config, &v);
    if (!fl->stop)
        assert_int_equal(evloop_timer_arm(fl->f->loop, t, 0, on_flip, fl), 0);
}

static void start_flip(struct fixture *f)
{
    flip = (struct flipper){.f = f, .n = 1};
    flip.timer.arg = &flip;
    on_flip(&flip.timer);
}

static void stop_flip(struct fixture *f)
{
    (void)f;
    flip.stop = true;
}

/* A field of 64 bits is read in two halves. spec: virtio-1.2 2.5.1 */
static void test_mmio_wide_config_field_is_never_seen_torn(void **state)
{
    struct fixture *f = *state;

    start(f);
    on_loop(f, start_flip);
    for (int i = 0; i < 3000; i++) {
        uint8_t half[2][4] = {{0}};
        uint32_t before = rd(f, VIRTIO_MMIO_CONFIG_GENERATION);

        virtio_mmio_bus_ops.read(f->m, VIRTIO_MMIO_CONFIG, half[0], 4);
        virtio_mmio_bus_ops.read(f->m, VIRTIO_MMIO_CONFIG + 4, half[1], 4);
        if (rd(f, VIRTIO_MMIO_CONFIG_GENERATION) == before)
            assert_memory_equal(half[0], half[1], 4);
    }
    on_loop(f, stop_flip);
    (void)irqs(f);
}

static void poke_many(struct fixture *f)
{
    for (int i = 0; i < 5; i++)
        virtio_config_changed(&f->t.dev);
}

static void test_mmio_one_interrupt_for_all_of_a_turn(void **state)
{
    struct fixture *f = *state;

    start(f);
    on_loop(f, poke_many);
    assert_int_equal(irqs(f), 1);
    assert_int_equal(irqs(f), 0);
}

/* --- interrupts ---------------------------------------------------------- */

static void test_mmio_interrupt_status_until_acknowledged(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg;

    start(f);
    seg = (struct fdrv_seg){fdrv_alloc(&f->d, 16, 16), 16, true};
    (void)fdrv_add(&f->d, 0, &seg, 1);
    fdrv_publish(&f->d, 0);
    on_loop(f, poke_used);
    assert_int_equal(irqs(f), 1);
    on_loop(f, poke_config);
    assert_int_equal(irqs(f), 1);
    assert_int_equal(rd(f, VIRTIO_MMIO_INTERRUPT_STATUS), 3);
    wr(f, VIRTIO_MMIO_INTERRUPT_ACK, 1);
    assert_int_equal(rd(f, VIRTIO_MMIO_INTERRUPT_STATUS), 2);
    wr(f, VIRTIO_MMIO_INTERRUPT_ACK, 0xffffffffu);
    assert_int_equal(rd(f, VIRTIO_MMIO_INTERRUPT_STATUS), 0);
}

/* --- features ------------------------------------------------------------ */

static void test_mmio_features_without_version_1_are_refused(void **state)
{
    struct fixture *f = *state;

    negotiate(f, EVENT_IDX | INDIRECT | OFFERED);
    assert_int_equal(status(f), ST_DRV);
    /* nothing leads past it */
    set_status(f, ST_OK);
    assert_int_equal(status(f), ST_DRV);
    assert_int_equal(f->t.activations, 0);
    assert_true(log_lines(f) > 0);
}

static void test_mmio_features_not_offered_are_refused(void **state)
{
    static const unsigned bits[] = {0, 6, 31, 33, 41, 63};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(bits); i++) {
        set_status(f, 0);
        negotiate(f, VERSION_1 | (1ull << bits[i]));
        assert_int_equal(status(f), ST_DRV);
    }
    set_status(f, 0);
    set_status(f, ST_ACK);
    set_status(f, ST_DRV);
    set_features(f, VERSION_1);
    wr(f, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 2);
    wr(f, VIRTIO_MMIO_DRIVER_FEATURES, 1);
    set_status(f, ST_FEAT);
    assert_int_equal(status(f), ST_DRV);
}

static void test_mmio_accepted_features_reach_the_device(void **state)
{
    struct fixture *f = *state;

    start(f);
    assert_true(f->t.dev.features == (VERSION_1 | EVENT_IDX | OFFERED));
    assert_true(f->t.dev.vq[0].event_idx);
    assert_false(f->t.dev.vq[0].indirect);
    assert_int_equal(f->t.dev.vq[0].size, 8);
    assert_int_equal(f->t.dev.vq[1].size, 256);
}

static void test_mmio_features_are_frozen_by_features_ok(void **state)
{
    struct fixture *f = *state;

    negotiate(f, VERSION_1);
    set_features(f, VERSION_1 | EVENT_IDX | 1);
    setup_queue(f, 0, 8);
    set_status(f, ST_OK);
    assert_int_equal(status(f), ST_OK);
    assert_true(f->t.dev.features == VERSION_1);
}

/* --- status -------------------------------------------------------------- */

static void test_mmio_status_needs_its_order(void **state)
{
    struct fixture *f = *state;

    set_status(f, VIRTIO_CONFIG_S_DRIVER);
    assert_int_equal(status(f), 0);
    set_status(f, VIRTIO_CONFIG_S_DRIVER_OK);
    assert_int_equal(status(f), 0);
    set_status(f, ST_ACK);
    set_status(f, ST_ACK | VIRTIO_CONFIG_S_FEATURES_OK);
    assert_int_equal(status(f), ST_ACK);
    set_status(f, ST_DRV);
    set_status(f, ST_DRV | VIRTIO_CONFIG_S_DRIVER_OK);
    assert_int_equal(status(f), ST_DRV);
    assert_int_equal(f->t.activations, 0);
}

static void test_mmio_status_bits_cannot_be_cleared_or_invented(void **state)
{
    static const uint32_t bad[] = {
        ST_FEAT | 0x10, ST_FEAT | 0x20, ST_FEAT | 0x100, 0xffffffffu,
        ST_ACK,         ST_DRV,         0x80000000u};
    struct fixture *f = *state;

    negotiate(f, VERSION_1);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        set_status(f, bad[i]);
        assert_int_equal(status(f), ST_FEAT);
    }
}

static void test_mmio_failed_leads_only_to_reset(void **state)
{
    struct fixture *f = *state;

    negotiate(f, VERSION_1);
    set_status(f, ST_FEAT | VIRTIO_CONFIG_S_FAILED);
    assert_int_equal(status(f), ST_FEAT | VIRTIO_CONFIG_S_FAILED);
    set_status(f, ST_OK | VIRTIO_CONFIG_S_FAILED);
    assert_int_equal(status(f), ST_FEAT | VIRTIO_CONFIG_S_FAILED);
    assert_int_equal(f->t.activations, 0);
    set_status(f, 0);
    start(f);
}

static void test_mmio_reset_clears_everything(void **state)
{
    struct fixture *f = *state;

    start(f);
    on_loop(f, poke_config);
    set_status(f, 0);
    assert_int_equal(status(f), 0);
    assert_int_equal(f->t.resets, 1);
    assert_int_equal(rd(f, VIRTIO_MMIO_INTERRUPT_STATUS), 0);
    wr(f, VIRTIO_MMIO_QUEUE_SEL, 1);
    assert_int_equal(rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
    assert_int_equal(f->t.dev.vq[1].size, 0);
    start(f);
    assert_int_equal(f->t.activations, 2);
}

static void test_mmio_driver_ok_twice_activates_once(void **state)
{
    struct fixture *f = *state;

    start(f);
    set_status(f, ST_OK);
    assert_int_equal(f->t.activations, 1);
}

static void test_mmio_device_that_cannot_start_needs_reset(void **state)
{
    struct fixture *f = *state;

    f->t.activate_rc = -EIO;
    negotiate(f, VERSION_1);
    setup_queue(f, 0, 8);
    set_status(f, ST_OK);
    on_loop(f, poke_config); /* the loop is past it now */
    assert_int_equal(status(f), ST_OK | ST_NEEDS);
    f->t.activate_rc = 0;
    set_status(f, 0);
    assert_int_equal(f->t.resets, 1);
    start(f);
}

static void test_mmio_broken_device_tells_the_driver(void **state)
{
    struct fixture *f = *state;

    start(f);
    on_loop(f, poke_broken);
    assert_int_equal(status(f), ST_OK | ST_NEEDS);
    assert_int_equal(rd(f, VIRTIO_MMIO_INTERRUPT_STATUS),
                     VIRTIO_MMIO_INT_CONFIG);
    assert_int_equal(irqs(f), 1);
    assert_true(f->t.dev.vq[1].broken);
    /* a driver cannot take the bit away or set it */
    set_status(f, ST_OK);
    assert_int_equal(status(f), ST_OK | ST_NEEDS);
    set_status(f, 0);
    assert_int_equal(status(f), 0);
    set_status(f, ST_ACK | ST_NEEDS);
    assert_int_equal(status(f), ST_ACK);
}

static void test_mmio_faults_do_not_flood_the_log(void **state)
{
    struct fixture *f = *state;

    set_status(f, ST_ACK);
    for (int i = 0; i < 1000; i++)
        set_status(f, 0x20);
    assert_in_range(log_lines(f), 1, 10);
}

/* --- queues -------------------------------------------------------------- */

static void bad_queue(struct fixture *f, const struct vq_setup_args *a)
{
    set_status(f, 0);
    negotiate(f, VERSION_1);
    assert_int_equal(status(f), ST_FEAT);
    wr(f, VIRTIO_MMIO_QUEUE_SEL, 0);
    write_queue(f, a);
    assert_int_equal(rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
    assert_int_equal(status(f), ST_FEAT | ST_NEEDS);
    set_status(f, ST_OK);
    assert_int_equal(status(f), ST_FEAT | ST_NEEDS);
    assert_int_equal(f->t.activations, 0);
}

static void test_mmio_bad_queue_is_refused_where_it_is_written(void **state)
{
    struct fixture *f = *state;
    struct vq_setup_args good;
    struct vq_setup_args a;

    fdrv_queue_init(&f->d, 0, 16, false);
    good = fdrv_setup_args(&f->d, 0, false);
    a = good;
    a.size = 0;
    bad_queue(f, &a);
    a.size = 12;
    bad_queue(f, &a);
    a.size = 32; /* fine, were it not above the queue's maximum */
    bad_queue(f, &a);
    a = good;
    a.desc += 8;
    bad_queue(f, &a);
    a = good;
    a.avail = RAM;
    bad_queue(f, &a);
    a = good;
    a.used = UINT64_MAX - 3;
    bad_queue(f, &a);
}

/* A size whose low 16 bits alone would be fine. */
static void test_mmio_queue_size_is_not_truncated(void **state)
{
    struct fixture *f = *state;
    struct vq_setup_args a;

    fdrv_queue_init(&f->d, 0, 16, false);
    a = fdrv_setup_args(&f->d, 0, false);
    negotiate(f, VERSION_1);
    wr(f, VIRTIO_MMIO_QUEUE_SEL, 0);
    a.size = 0;
    write_queue(f, &a);
    set_status(f, 0);
    negotiate(f, VERSION_1);
    a.size = 16;
    wr(f, VIRTIO_MMIO_QUEUE_DESC_LOW, (uint32_t)a.desc);
    wr(f, VIRTIO_MMIO_QUEUE_AVAIL_LOW, (uint32_t)a.avail);
    wr(f, VIRTIO_MMIO_QUEUE_USED_LOW, (uint32_t)a.used);
    wr(f, VIRTIO_MMIO_QUEUE_NUM, 0x10010);
    wr(f, VIRTIO_MMIO_QUEUE_READY, 1);
    assert_int_equal(rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
}

static void test_mmio_running_queue_cannot_be_moved(void **state)
{
    struct fixture *f = *state;
    const void *desc;

    start(f);
    desc = f->t.dev.vq[0].desc;
    wr(f, VIRTIO_MMIO_QUEUE_SEL, 0);
    wr(f, VIRTIO_MMIO_QUEUE_NUM, 4);
    wr(f, VIRTIO_MMIO_QUEUE_DESC_LOW, 0);
    wr(f, VIRTIO_MMIO_QUEUE_READY, 0);
    assert_int_equal(rd(f, VIRTIO_MMIO_QUEUE_READY), 1);
    assert_ptr_equal(f->t.dev.vq[0].desc, desc);
    assert_int_equal(f->t.dev.vq[0].size, 8);
}

static void test_mmio_ready_queue_changes_only_when_taken_back(void **state)
{
    struct fixture *f = *state;

    negotiate(f, VERSION_1);
    setup_queue(f, 0, 8);
    wr(f, VIRTIO_MMIO_QUEUE_NUM, 4);
    set_status(f, ST_OK);
    assert_int_equal(f->t.dev.vq[0].size, 8);
    set_status(f, 0);
    negotiate(f, VERSION_1);
    setup_queue(f, 0, 8);
    wr(f, VIRTIO_MMIO_QUEUE_READY, 0);
    assert_int_equal(rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
    wr(f, VIRTIO_MMIO_QUEUE_NUM, 4);
    wr(f, VIRTIO_MMIO_QUEUE_READY, 1);
    set_status(f, ST_OK);
    assert_int_equal(f->t.dev.vq[0].size, 4);
    assert_int_equal(f->t.dev.vq[1].size, 0); /* never made ready */
}

static void test_mmio_queues_need_a_driver(void **state)
{
    struct fixture *f = *state;

    setup_queue(f, 0, 8);
    assert_int_equal(rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
    assert_int_equal(status(f), 0);
}

/* --- kicks --------------------------------------------------------------- */

static void test_mmio_kick_by_eventfd_and_by_register(void **state)
{
    struct fixture *f = *state;

    start(f);
    assert_int_equal(eventfd_write(virtio_mmio_kick_fd(f->m, 1), 1), 0);
    sem_wait(&f->t.kicked);
    assert_int_equal(f->t.last_kick, 1);
    wr(f, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
    sem_wait(&f->t.kicked);
    assert_int_equal(f->t.last_kick, 0);
}

static void test_mmio_kick_without_running_device_is_ignored(void **state)
{
    struct fixture *f = *state;
    int n = 0;

    wr(f, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
    wr(f, VIRTIO_MMIO_QUEUE_NOTIFY, 2);
    wr(f, VIRTIO_MMIO_QUEUE_NOTIFY, 0xffffffffu);
    on_loop(f, poke_nothing);
    on_loop(f, poke_nothing);
    sem_getvalue(&f->t.kicked, &n);
    assert_int_equal(n, 0);
    start(f);
    on_loop(f, poke_broken);
    while (sem_trywait(&f->t.kicked) == 0)
        ; /* the early kick may be told when the device starts */
    wr(f, VIRTIO_MMIO_QUEUE_NOTIFY, 1);
    on_loop(f, poke_nothing);
    on_loop(f, poke_nothing);
    sem_getvalue(&f->t.kicked, &n);
    assert_int_equal(n, 0);
}

/* --- reset and the end of the VM, with requests in flight ---------------- */

static void *reset_main(void *arg)
{
    set_status(arg, 0);
    return NULL;
}

static void test_mmio_reset_waits_for_requests_in_flight(void **state)
{
    struct fixture *f = *state;
    pthread_t vcpu;

    start(f);
    f->t.hold_reset = true;
    assert_int_equal(pthread_create(&vcpu, NULL, reset_main, f), 0);
    sem_wait(&f->t.resetting);
    assert_int_equal(status(f), ST_OK); /* not over yet; reads do not wait */
    release_reset(f);
    assert_int_equal(pthread_join(vcpu, NULL), 0);
    assert_int_equal(status(f), 0);
    start(f);
}

static void test_mmio_second_vcpu_waits_for_the_first(void **state)
{
    struct fixture *f = *state;
    pthread_t vcpu[2];

    start(f);
    f->t.hold_reset = true;
    assert_int_equal(pthread_create(&vcpu[0], NULL, reset_main, f), 0);
    assert_int_equal(pthread_create(&vcpu[1], NULL, reset_main, f), 0);
    sem_wait(&f->t.resetting);
    release_reset(f);
    assert_int_equal(pthread_join(vcpu[0], NULL), 0);
    assert_int_equal(pthread_join(vcpu[1], NULL), 0);
    assert_int_equal(f->t.resets, 1);
    assert_int_equal(status(f), 0);
}

static void test_mmio_cancel_ends_the_wait_of_a_vcpu(void **state)
{
    struct fixture *f = *state;
    pthread_t vcpu;

    start(f);
    f->t.hold_reset = true;
    assert_int_equal(pthread_create(&vcpu, NULL, reset_main, f), 0);
    sem_wait(&f->t.resetting);
    virtio_mmio_cancel_waits(f->m);
    assert_int_equal(pthread_join(vcpu, NULL), 0);
    /* The shutdown of the fixture takes over the reset that is under way. */
    release_reset(f);
}

static void test_mmio_shutdown_resets_a_running_device(void **state)
{
    struct fixture *f = *state;

    start(f);
}

/* A guest that queues its last words and ends at once has them carried out,
 * though the kick and the end come in one turn of the loop. */
static void test_mmio_shutdown_serves_what_was_queued_before(void **state)
{
    struct fixture *f = *state;
    struct ev_call down = {.fn = do_shutdown, .arg = f};
    int kicks = 0;

    start(f);
    evloop_post(f->loop, &down);
    sem_wait(&f->done);
    sem_getvalue(&f->t.kicked, &kicks);
    assert_true(kicks > 0);
    assert_int_equal(f->t.resets, 1);
}

/* The VM stops: a vCPU that still runs changes nothing any more. */
static void test_mmio_nothing_starts_once_waits_are_cancelled(void **state)
{
    struct fixture *f = *state;

    negotiate(f, VERSION_1);
    setup_queue(f, 0, 8);
    virtio_mmio_cancel_waits(f->m);
    set_status(f, ST_OK);
    set_status(f, 0);
    assert_int_equal(status(f), ST_FEAT);
    assert_int_equal(f->t.activations, 0);
}

static void *start_main(void *arg)
{
    set_status(arg, ST_OK);
    return NULL;
}

struct block {
    struct ev_call call;
    sem_t reached;
    sem_t go;
};

static void on_block(struct ev_call *c)
{
    struct block *b = c->arg;

    sem_post(&b->reached);
    sem_wait(&b->go);
}

static void test_mmio_start_that_comes_after_the_shutdown(void **state)
{
    struct fixture *f = *state;
    struct ev_call down = {.fn = do_shutdown, .arg = f};
    struct block b = {.call = {.fn = on_block, .arg = &b}};
    pthread_t vcpu;

    sem_init(&b.reached, 0, 0);
    sem_init(&b.go, 0, 0);
    negotiate(f, VERSION_1);
    setup_queue(f, 0, 8);
    /* The loop stands still; a shutdown is queued before the start is. */
    evloop_post(f->loop, &b.call);
    sem_wait(&b.reached);
    evloop_post(f->loop, &down);
    assert_int_equal(pthread_create(&vcpu, NULL, start_main, f), 0);
    sem_post(&b.go);
    sem_wait(&f->done);
    virtio_mmio_cancel_waits(f->m);
    assert_int_equal(pthread_join(vcpu, NULL), 0);
    /* Either order is right: it never ran, or it ran and was reset. */
    assert_int_equal(f->t.activations, f->t.resets);
    assert_false(status(f) & VIRTIO_CONFIG_S_DRIVER_OK);
}

#define T(t)                                                                   \
    cmocka_unit_test_setup_teardown(t, setup, teardown),                       \
        cmocka_unit_test_setup_teardown(t, setup_epoll, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_mmio_identity_registers),
        T(test_mmio_shared_memory_registers_show_no_region),
        T(test_mmio_device_features_by_half),
        T(test_mmio_queue_reset_is_absent),
        T(test_mmio_wrong_width_reads_zero_and_writes_nothing),
        T(test_BL_043_queue_selector_out_of_range),
        T(test_mmio_config_reads_by_offset_and_width),
        T(test_mmio_config_write_past_the_end_does_nothing),
        T(test_mmio_config_change_counts_and_interrupts),
        T(test_mmio_interrupt_status_until_acknowledged),
        T(test_mmio_features_without_version_1_are_refused),
        T(test_mmio_features_not_offered_are_refused),
        T(test_mmio_accepted_features_reach_the_device),
        T(test_mmio_features_are_frozen_by_features_ok),
        T(test_mmio_status_needs_its_order),
        T(test_mmio_status_bits_cannot_be_cleared_or_invented),
        T(test_mmio_failed_leads_only_to_reset),
        T(test_mmio_reset_clears_everything),
        T(test_mmio_driver_ok_twice_activates_once),
        T(test_mmio_device_that_cannot_start_needs_reset),
        T(test_mmio_broken_device_tells_the_driver),
        T(test_mmio_faults_do_not_flood_the_log),
        T(test_mmio_bad_queue_is_refused_where_it_is_written),
        T(test_mmio_queue_size_is_not_truncated),
        T(test_mmio_running_queue_cannot_be_moved),
        T(test_mmio_ready_queue_changes_only_when_taken_back),
        T(test_mmio_queues_need_a_driver),
        T(test_mmio_config_update_counts_and_interrupts),
        T(test_mmio_wide_config_field_is_never_seen_torn),
        T(test_mmio_one_interrupt_for_all_of_a_turn),
        T(test_mmio_kick_by_eventfd_and_by_register),
        T(test_mmio_kick_without_running_device_is_ignored),
        T(test_mmio_reset_waits_for_requests_in_flight),
        T(test_mmio_second_vcpu_waits_for_the_first),
        T(test_mmio_cancel_ends_the_wait_of_a_vcpu),
        T(test_mmio_shutdown_resets_a_running_device),
        T(test_mmio_shutdown_serves_what_was_queued_before),
        T(test_mmio_nothing_starts_once_waits_are_cancelled),
        T(test_mmio_start_that_comes_after_the_shutdown),
    };

    return cmocka_run_group_tests_name("virtio_mmio", tests, NULL, NULL);
}
