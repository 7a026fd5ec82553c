/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/mmio_test.h"

#include "tests/harness/loop_run.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

static int t_activate(struct virtio_dev *dev)
{
    struct mmio_test_dev *t = container_of(dev, struct mmio_test_dev, dev);

    t->activations++;
    return t->activate_rc;
}

static int t_reset(struct virtio_dev *dev)
{
    struct mmio_test_dev *t = container_of(dev, struct mmio_test_dev, dev);

    t->resets++;
    if (!t->hold_reset)
        return 0;
    sem_post(&t->resetting);
    return -EINPROGRESS;
}

static void t_kick(struct virtio_dev *dev, uint16_t q)
{
    struct mmio_test_dev *t = container_of(dev, struct mmio_test_dev, dev);

    t->last_kick = q;
    sem_post(&t->kicked);
}

static void t_config_read(struct virtio_dev *dev, uint32_t off, void *data,
                          uint32_t len)
{
    struct mmio_test_dev *t = container_of(dev, struct mmio_test_dev, dev);

    assert_true(off < MT_CONFIG_LEN && len <= MT_CONFIG_LEN - off);
    memcpy(data, t->config + off, len);
}

static void t_config_write(struct virtio_dev *dev, uint32_t off,
                           const void *data, uint32_t len)
{
    struct mmio_test_dev *t = container_of(dev, struct mmio_test_dev, dev);

    assert_true(off < MT_CONFIG_LEN && len <= MT_CONFIG_LEN - off);
    memcpy(t->config + off, data, len);
}

static void t_free(struct virtio_dev *dev)
{
    container_of(dev, struct mmio_test_dev, dev)->frees++;
}

static int t_rest(struct virtio_dev *dev)
{
    struct mmio_test_dev *t = container_of(dev, struct mmio_test_dev, dev);

    assert_true(dev->resting);
    t->rests++;
    return t->hold_rest ? -EINPROGRESS : 0;
}

static void t_wake(struct virtio_dev *dev)
{
    assert_false(dev->resting);
    container_of(dev, struct mmio_test_dev, dev)->wakes++;
}

static void t_save(struct virtio_dev *dev, struct state_out *out)
{
    assert_true(dev->resting);
    state_put_u32(out, container_of(dev, struct mmio_test_dev, dev)->extra);
}

static int t_load(struct virtio_dev *dev, struct state_in *in,
                  struct errmsg *err)
{
    struct mmio_test_dev *t = container_of(dev, struct mmio_test_dev, dev);

    (void)err;
    assert_true(dev->resting);
    t->extra = state_get_u32(in);
    return t->load_rc;
}

static const struct virtio_ops t_ops = {
    .config_read = t_config_read,
    .config_write = t_config_write,
    .activate = t_activate,
    .reset = t_reset,
    .queue_kick = t_kick,
    .free = t_free,
    .rest = t_rest,
    .wake = t_wake,
    .save = t_save,
    .load = t_load,
    .state_version = 3,
};

static void on_release(struct ev_call *c)
{
    struct mmio_test_dev *t = c->arg;

    t->hold_reset = false;
    virtio_reset_done(&t->dev);
}

void mt_release_reset(struct mmio_test *f)
{
    f->t.release.fn = on_release;
    f->t.release.arg = &f->t;
    evloop_post(f->loop, &f->t.release);
}

/* --- fixture ------------------------------------------------------------- */

static void on_down(void *arg)
{
    struct mmio_test *f = arg;

    sem_post(&f->done);
}

void mt_do_shutdown(struct ev_call *c)
{
    struct mmio_test *f = c->arg;

    virtio_mmio_shutdown(f->m, on_down, f);
}

/* The loop, the device and its transport, on memory that is there. */
static void setup_device(struct mmio_test *f, enum evloop_backend backend,
                         void *words)
{
    struct vdev_env env;

    f->backend = backend;
    f->log_fd = memfd_create("log", 0);
    log_init(&f->log, f->log_fd, LOG_INFO, "test");
    f->irq_fd = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(evloop_new(backend, &f->loop), 0);
    env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    virtio_dev_init(&f->t.dev, &t_ops, &env, "t", 42);
    f->t.dev.offered = MT_OFFERED;
    f->t.dev.num_queues = 2;
    f->t.dev.queue_max[0] = 16;
    f->t.dev.queue_max[1] = 256;
    f->t.dev.config_len = MT_CONFIG_LEN;
    for (uint8_t i = 0; i < MT_CONFIG_LEN; i++)
        f->t.config[i] = (uint8_t)(0x10 + i);
    sem_init(&f->t.kicked, 0, 0);
    sem_init(&f->t.resetting, 0, 0);
    sem_init(&f->done, 0, 0);
    assert_int_equal(virtio_mmio_new(&f->t.dev, f->irq_fd, &f->m), 0);
    if (words)
        virtio_mmio_show_registers(f->m, words);
    f->thread = loop_thread_start(f->loop);
}

static int setup_backend(void **state, enum evloop_backend backend)
{
    struct mmio_test *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    fdrv_init(&f->d, MT_RAM);
    setup_device(f, backend, NULL);
    *state = f;
    return 0;
}

struct mmio_test *mt_second(struct mmio_test *f, void *words)
{
    struct mmio_test *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    s->d = f->d;
    s->is_second = true;
    setup_device(s, f->backend, words);
    return s;
}

void mt_second_end(struct mmio_test *s)
{
    void *state = s;

    (void)mt_teardown(&state);
}

int mt_setup(void **state)
{
    return setup_backend(state, EVLOOP_AUTO);
}

int mt_setup_epoll(void **state)
{
    return setup_backend(state, EVLOOP_EPOLL);
}

int mt_teardown(void **state)
{
    struct mmio_test *f = *state;
    struct ev_call down = {.fn = mt_do_shutdown, .arg = f};

    virtio_mmio_cancel_waits(f->m);
    if (!f->is_down)
        evloop_post(f->loop, &down);
    sem_wait(&f->done);
    loop_thread_stop(f->thread);
    virtio_mmio_free(f->m);
    assert_int_equal(f->t.frees, 1);
    evloop_free(f->loop);
    close(f->irq_fd);
    close(f->log_fd);
    if (!f->is_second)
        fdrv_fini(&f->d);
    free(f);
    return 0;
}

/* --- the driver ---------------------------------------------------------- */

uint32_t mt_rd(struct mmio_test *f, uint32_t off)
{
    uint8_t b[4] = {0};

    virtio_mmio_bus_ops.read(f->m, off, b, 4);
    return get_le32(b);
}

void mt_wr(struct mmio_test *f, uint32_t off, uint32_t v)
{
    uint8_t b[4];

    put_le32(b, v);
    virtio_mmio_bus_ops.write(f->m, off, b, 4);
}

uint32_t mt_status(struct mmio_test *f)
{
    return mt_rd(f, VIRTIO_MMIO_STATUS);
}

void mt_set_status(struct mmio_test *f, uint32_t v)
{
    mt_wr(f, VIRTIO_MMIO_STATUS, v);
}

void mt_set_features(struct mmio_test *f, uint64_t v)
{
    mt_wr(f, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
    mt_wr(f, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)v);
    mt_wr(f, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
    mt_wr(f, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)(v >> 32));
}

void mt_negotiate(struct mmio_test *f, uint64_t features)
{
    mt_set_status(f, MT_ST_ACK);
    mt_set_status(f, MT_ST_DRV);
    mt_set_features(f, features);
    mt_set_status(f, MT_ST_FEAT);
}

void mt_write_queue(struct mmio_test *f, const struct vq_setup_args *a)
{
    mt_wr(f, VIRTIO_MMIO_QUEUE_NUM, a->size);
    mt_wr(f, VIRTIO_MMIO_QUEUE_DESC_LOW, (uint32_t)a->desc);
    mt_wr(f, VIRTIO_MMIO_QUEUE_DESC_HIGH, (uint32_t)(a->desc >> 32));
    mt_wr(f, VIRTIO_MMIO_QUEUE_AVAIL_LOW, (uint32_t)a->avail);
    mt_wr(f, VIRTIO_MMIO_QUEUE_AVAIL_HIGH, (uint32_t)(a->avail >> 32));
    mt_wr(f, VIRTIO_MMIO_QUEUE_USED_LOW, (uint32_t)a->used);
    mt_wr(f, VIRTIO_MMIO_QUEUE_USED_HIGH, (uint32_t)(a->used >> 32));
    mt_wr(f, VIRTIO_MMIO_QUEUE_READY, 1);
}

void mt_setup_queue(struct mmio_test *f, uint16_t q, uint16_t size)
{
    struct vq_setup_args a;

    fdrv_queue_init(&f->d, q, size, false);
    a = fdrv_setup_args(&f->d, q, false);
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, q);
    mt_write_queue(f, &a);
}

void mt_start(struct mmio_test *f)
{
    mt_negotiate(f, MT_VERSION_1 | MT_EVENT_IDX | MT_OFFERED);
    mt_setup_queue(f, 0, 8);
    mt_setup_queue(f, 1, 256);
    mt_set_status(f, MT_ST_OK);
    assert_int_equal(mt_status(f), MT_ST_OK);
}

struct mmio_poke {
    struct ev_call call;
    struct mmio_test *f;
    sem_t done;
    void (*fn)(struct mmio_test *f);
};

static void on_poke(struct ev_call *c)
{
    struct mmio_poke *p = c->arg;

    p->fn(p->f);
    sem_post(&p->done);
}

/* Runs `fn` on the loop's thread. */
void mt_on_loop(struct mmio_test *f, void (*fn)(struct mmio_test *f))
{
    struct mmio_poke p = {.f = f, .fn = fn};

    sem_init(&p.done, 0, 0);
    p.call.fn = on_poke;
    p.call.arg = &p;
    evloop_post(f->loop, &p.call);
    sem_wait(&p.done);
}

void mt_poke_nothing(struct mmio_test *f)
{
    (void)f;
}

/* What a turn of the loop asks for is done before the end of the next. */
uint64_t mt_irqs(struct mmio_test *f)
{
    uint64_t n = 0;

    mt_on_loop(f, mt_poke_nothing);
    mt_on_loop(f, mt_poke_nothing);
    return read(f->irq_fd, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

/* Lines that the device has logged. */
int mt_log_lines(struct mmio_test *f)
{
    char buf[8192];
    ssize_t n = pread(f->log_fd, buf, sizeof(buf), 0);
    int lines = 0;

    for (ssize_t i = 0; i < n; i++)
        lines += buf[i] == '\n';
    return lines;
}

void mt_poke_config(struct mmio_test *f)
{
    virtio_config_changed(&f->t.dev);
}

void mt_poke_broken(struct mmio_test *f)
{
    virtio_needs_reset(&f->t.dev);
}
