/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration changes, interrupts, kicks, resets and the end. */
#include "devices/virtio_mmio.h"

#include "tests/harness/loop_run.h"
#include "tests/harness/mmio_test.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* --- configuration space ------------------------------------------------- */

static void test_mmio_config_reads_by_offset_and_width(void **state)
{
    static const uint32_t widths[] = {1, 2, 4, 8};
    struct mmio_test *f = *state;

    for (size_t w = 0; w < ARRAY_SIZE(widths); w++) {
        for (uint32_t off = 0; off < MT_CONFIG_LEN + 8; off++) {
            uint8_t b[8] = {0};

            virtio_mmio_bus_ops.read(f->m, VIRTIO_MMIO_CONFIG + off, b,
                                     widths[w]);
            for (uint32_t i = 0; i < 8; i++) {
                bool inside = i < widths[w] && off + i < MT_CONFIG_LEN;

                assert_int_equal(b[i], inside ? 0x10 + off + i : 0);
            }
        }
    }
}

static void test_mmio_config_write_past_the_end_does_nothing(void **state)
{
    static const uint8_t data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct mmio_test *f = *state;
    uint8_t before[MT_CONFIG_LEN];

    memcpy(before, f->t.config, sizeof(before));
    virtio_mmio_bus_ops.write(f->m, VIRTIO_MMIO_CONFIG + 8, data, 4);
    virtio_mmio_bus_ops.write(f->m, VIRTIO_MMIO_CONFIG + 10, data, 1);
    virtio_mmio_bus_ops.write(f->m, VIRTIO_MMIO_CONFIG + 0xe00, data, 8);
    assert_memory_equal(f->t.config, before, sizeof(before));
    virtio_mmio_bus_ops.write(f->m, VIRTIO_MMIO_CONFIG + 2, data, 8);
    assert_memory_equal(f->t.config + 2, data, 8);
}

static void poke_used(struct mmio_test *f)
{
    struct vq_chain c;

    assert_int_equal(vq_pop(&f->t.dev.vq[0], &c), 1);
    vq_push(&f->t.dev.vq[0], c.head, 0);
    virtio_signal(&f->t.dev, 0);
}

static void test_mmio_config_change_counts_and_interrupts(void **state)
{
    struct mmio_test *f = *state;
    uint32_t gen;

    mt_start(f);
    gen = mt_rd(f, VIRTIO_MMIO_CONFIG_GENERATION);
    mt_on_loop(f, mt_poke_config);
    assert_int_not_equal(mt_rd(f, VIRTIO_MMIO_CONFIG_GENERATION), gen);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_INTERRUPT_STATUS),
                     VIRTIO_MMIO_INT_CONFIG);
    assert_int_equal(mt_irqs(f), 1);
}

static void change_config(struct virtio_dev *dev, void *arg)
{
    struct mmio_test_dev *t = container_of(dev, struct mmio_test_dev, dev);

    memcpy(t->config, arg, 8);
}

static void update_config(struct mmio_test *f)
{
    uint64_t v = 0x0102030405060708u;

    virtio_config_update(&f->t.dev, change_config, &v);
}

static void test_mmio_config_update_counts_and_interrupts(void **state)
{
    struct mmio_test *f = *state;
    uint32_t gen = mt_rd(f, VIRTIO_MMIO_CONFIG_GENERATION);

    mt_on_loop(f, update_config); /* no driver yet: nobody to interrupt */
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_CONFIG_GENERATION), gen + 1);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_INTERRUPT_STATUS), 0);
    assert_int_equal(mt_irqs(f), 0);
    mt_start(f);
    mt_on_loop(f, update_config);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_CONFIG_GENERATION), gen + 2);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_INTERRUPT_STATUS),
                     VIRTIO_MMIO_INT_CONFIG);
    assert_int_equal(mt_irqs(f), 1);
}

struct flipper {
    struct ev_timer timer;
    struct mmio_test *f;
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

static void start_flip(struct mmio_test *f)
{
    flip = (struct flipper){.f = f, .n = 1};
    flip.timer.arg = &flip;
    on_flip(&flip.timer);
}

static void stop_flip(struct mmio_test *f)
{
    (void)f;
    flip.stop = true;
}

/* A field of 64 bits is read in two halves. spec: virtio-1.2 2.5.1 */
static void test_mmio_wide_config_field_is_never_seen_torn(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    mt_on_loop(f, start_flip);
    for (int i = 0; i < 3000; i++) {
        uint8_t half[2][4] = {{0}};
        uint32_t before = mt_rd(f, VIRTIO_MMIO_CONFIG_GENERATION);

        virtio_mmio_bus_ops.read(f->m, VIRTIO_MMIO_CONFIG, half[0], 4);
        virtio_mmio_bus_ops.read(f->m, VIRTIO_MMIO_CONFIG + 4, half[1], 4);
        if (mt_rd(f, VIRTIO_MMIO_CONFIG_GENERATION) == before)
            assert_memory_equal(half[0], half[1], 4);
    }
    mt_on_loop(f, stop_flip);
    (void)mt_irqs(f);
}

/* spec: virtio-1.2 3.1.1: nothing is sent before DRIVER_OK */
static void test_mmio_config_change_before_driver_ok_is_silent(void **state)
{
    struct mmio_test *f = *state;
    uint32_t gen = mt_rd(f, VIRTIO_MMIO_CONFIG_GENERATION);

    mt_negotiate(f, MT_VERSION_1);
    mt_on_loop(f, mt_poke_config);
    assert_int_equal(mt_irqs(f), 0);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_INTERRUPT_STATUS), 0);
    assert_int_not_equal(mt_rd(f, VIRTIO_MMIO_CONFIG_GENERATION), gen);
}

static void poke_many(struct mmio_test *f)
{
    for (int i = 0; i < 5; i++)
        virtio_config_changed(&f->t.dev);
}

static void test_mmio_one_interrupt_for_all_of_a_turn(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    mt_on_loop(f, poke_many);
    assert_int_equal(mt_irqs(f), 1);
    assert_int_equal(mt_irqs(f), 0);
}

/* --- interrupts ---------------------------------------------------------- */

static void test_mmio_interrupt_status_until_acknowledged(void **state)
{
    struct mmio_test *f = *state;
    struct fdrv_seg seg;

    mt_start(f);
    seg = (struct fdrv_seg){fdrv_alloc(&f->d, 16, 16), 16, true};
    (void)fdrv_add(&f->d, 0, &seg, 1);
    fdrv_publish(&f->d, 0);
    mt_on_loop(f, poke_used);
    assert_int_equal(mt_irqs(f), 1);
    mt_on_loop(f, mt_poke_config);
    assert_int_equal(mt_irqs(f), 1);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_INTERRUPT_STATUS), 3);
    mt_wr(f, VIRTIO_MMIO_INTERRUPT_ACK, 1);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_INTERRUPT_STATUS), 2);
    mt_wr(f, VIRTIO_MMIO_INTERRUPT_ACK, 0xffffffffu);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_INTERRUPT_STATUS), 0);
}

/* --- kicks --------------------------------------------------------------- */

static void test_mmio_kick_by_eventfd_and_by_register(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    assert_int_equal(eventfd_write(virtio_mmio_kick_fd(f->m, 1), 1), 0);
    sem_wait(&f->t.kicked);
    assert_int_equal(f->t.last_kick, 1);
    mt_wr(f, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
    sem_wait(&f->t.kicked);
    assert_int_equal(f->t.last_kick, 0);
}

static void poke_offer(struct mmio_test *f)
{
    struct fdrv_seg seg = {0x1000, 16, true};
    struct vq_chain c;

    (void)fdrv_add(&f->d, 0, &seg, 1);
    fdrv_publish(&f->d, 0);
    assert_int_equal(vq_pop(&f->t.dev.vq[0], &c), 1); /* now in flight */
    (void)fdrv_add(&f->d, 0, &seg, 1);
    fdrv_publish(&f->d, 0);
}

/* What a device does that has not noticed. */
static void poke_stopped(struct mmio_test *f)
{
    struct virtq *vq = &f->t.dev.vq[0];
    struct vq_chain c;

    assert_int_equal(vq_pop(vq, &c), 0);
    vq_push(vq, 0, 16);
    vq_unpop(vq);
    vq_disable_kicks(vq);
    assert_false(vq_enable_kicks(vq));
    assert_false(vq_should_signal(vq));
}

/* spec: virtio-1.2 4.2.2.2: the driver writes 0 and reads it back */
static void test_mmio_stopped_queue_is_left_alone(void **state)
{
    struct mmio_test *f = *state;
    struct timespec soon;

    mt_start(f);
    mt_on_loop(f, poke_offer);
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, 0);
    mt_wr(f, VIRTIO_MMIO_QUEUE_READY, 0);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
    mt_on_loop(f, poke_stopped);
    assert_int_equal(fdrv_used_idx(&f->d, 0), 0);
    mt_wr(f, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
    mt_on_loop(f, mt_poke_nothing);
    mt_on_loop(f, mt_poke_nothing);
    assert_int_equal(sem_trywait(&f->t.kicked), -1);
    /* It stays so, the other queue goes on, and a reset brings it back. */
    mt_wr(f, VIRTIO_MMIO_QUEUE_READY, 1);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
    mt_wr(f, VIRTIO_MMIO_QUEUE_NOTIFY, 1);
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &soon), 0);
    soon.tv_sec += 20;
    assert_int_equal(sem_timedwait(&f->t.kicked, &soon), 0);
    assert_int_equal(f->t.last_kick, 1);
    assert_int_equal(mt_status(f), MT_ST_OK);
    mt_set_status(f, 0);
    mt_start(f);
    assert_false(f->t.dev.vq[0].stopped);
}

static void test_mmio_kick_without_running_device_is_ignored(void **state)
{
    struct mmio_test *f = *state;
    int n = 0;

    mt_wr(f, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
    mt_wr(f, VIRTIO_MMIO_QUEUE_NOTIFY, 2);
    mt_wr(f, VIRTIO_MMIO_QUEUE_NOTIFY, 0xffffffffu);
    mt_on_loop(f, mt_poke_nothing);
    mt_on_loop(f, mt_poke_nothing);
    sem_getvalue(&f->t.kicked, &n);
    assert_int_equal(n, 0);
    mt_start(f);
    mt_on_loop(f, mt_poke_broken);
    while (sem_trywait(&f->t.kicked) == 0)
        ; /* the early kick may be told when the device starts */
    mt_wr(f, VIRTIO_MMIO_QUEUE_NOTIFY, 1);
    mt_on_loop(f, mt_poke_nothing);
    mt_on_loop(f, mt_poke_nothing);
    sem_getvalue(&f->t.kicked, &n);
    assert_int_equal(n, 0);
}

/* --- reset and the end of the VM, with requests in flight ---------------- */

static void *reset_main(void *arg)
{
    mt_set_status(arg, 0);
    return NULL;
}

static void test_mmio_reset_waits_for_requests_in_flight(void **state)
{
    struct mmio_test *f = *state;
    pthread_t vcpu;

    mt_start(f);
    f->t.hold_reset = true;
    assert_int_equal(pthread_create(&vcpu, NULL, reset_main, f), 0);
    sem_wait(&f->t.resetting);
    assert_int_equal(mt_status(f),
                     MT_ST_OK); /* not over yet; reads do not wait */
    mt_release_reset(f);
    assert_int_equal(pthread_join(vcpu, NULL), 0);
    assert_int_equal(mt_status(f), 0);
    mt_start(f);
}

static void test_mmio_second_vcpu_waits_for_the_first(void **state)
{
    struct mmio_test *f = *state;
    pthread_t vcpu[2];

    mt_start(f);
    f->t.hold_reset = true;
    assert_int_equal(pthread_create(&vcpu[0], NULL, reset_main, f), 0);
    assert_int_equal(pthread_create(&vcpu[1], NULL, reset_main, f), 0);
    sem_wait(&f->t.resetting);
    mt_release_reset(f);
    assert_int_equal(pthread_join(vcpu[0], NULL), 0);
    assert_int_equal(pthread_join(vcpu[1], NULL), 0);
    assert_int_equal(f->t.resets, 1);
    assert_int_equal(mt_status(f), 0);
}

static void test_mmio_cancel_ends_the_wait_of_a_vcpu(void **state)
{
    struct mmio_test *f = *state;
    pthread_t vcpu;

    mt_start(f);
    f->t.hold_reset = true;
    assert_int_equal(pthread_create(&vcpu, NULL, reset_main, f), 0);
    sem_wait(&f->t.resetting);
    virtio_mmio_cancel_waits(f->m);
    assert_int_equal(pthread_join(vcpu, NULL), 0);
    /* The shutdown of the fixture takes over the reset that is under way. */
    mt_release_reset(f);
}

static void test_mmio_shutdown_resets_a_running_device(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
}

/* A guest that queues its last words and ends at once has them carried out,
 * though the kick and the end come in one turn of the loop. */
static void test_mmio_shutdown_serves_what_was_queued_before(void **state)
{
    struct mmio_test *f = *state;
    struct ev_call down = {.fn = mt_do_shutdown, .arg = f};
    int kicks = 0;

    mt_start(f);
    evloop_post(f->loop, &down);
    sem_wait(&f->done);
    sem_getvalue(&f->t.kicked, &kicks);
    assert_true(kicks > 0);
    assert_int_equal(f->t.resets, 1);
}

/* The VM stops: a vCPU that still runs changes nothing any more. */
static void test_mmio_nothing_starts_once_waits_are_cancelled(void **state)
{
    struct mmio_test *f = *state;

    mt_negotiate(f, MT_VERSION_1);
    mt_setup_queue(f, 0, 8);
    virtio_mmio_cancel_waits(f->m);
    mt_set_status(f, MT_ST_OK);
    mt_set_status(f, 0);
    assert_int_equal(mt_status(f), MT_ST_FEAT);
    assert_int_equal(f->t.activations, 0);
}

static void *start_main(void *arg)
{
    mt_set_status(arg, MT_ST_OK);
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
    struct mmio_test *f = *state;
    struct ev_call down = {.fn = mt_do_shutdown, .arg = f};
    struct block b = {.call = {.fn = on_block, .arg = &b}};
    pthread_t vcpu;

    sem_init(&b.reached, 0, 0);
    sem_init(&b.go, 0, 0);
    mt_negotiate(f, MT_VERSION_1);
    mt_setup_queue(f, 0, 8);
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
    assert_false(mt_status(f) & VIRTIO_CONFIG_S_DRIVER_OK);
}

#define T(t)                                                                   \
    cmocka_unit_test_setup_teardown(t, mt_setup, mt_teardown),                 \
        cmocka_unit_test_setup_teardown(t, mt_setup_epoll, mt_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_mmio_config_reads_by_offset_and_width),
        T(test_mmio_config_write_past_the_end_does_nothing),
        T(test_mmio_config_change_counts_and_interrupts),
        T(test_mmio_config_change_before_driver_ok_is_silent),
        T(test_mmio_interrupt_status_until_acknowledged),
        T(test_mmio_config_update_counts_and_interrupts),
        T(test_mmio_wide_config_field_is_never_seen_torn),
        T(test_mmio_one_interrupt_for_all_of_a_turn),
        T(test_mmio_kick_by_eventfd_and_by_register),
        T(test_mmio_stopped_queue_is_left_alone),
        T(test_mmio_kick_without_running_device_is_ignored),
        T(test_mmio_reset_waits_for_requests_in_flight),
        T(test_mmio_second_vcpu_waits_for_the_first),
        T(test_mmio_cancel_ends_the_wait_of_a_vcpu),
        T(test_mmio_shutdown_resets_a_running_device),
        T(test_mmio_shutdown_serves_what_was_queued_before),
        T(test_mmio_nothing_starts_once_waits_are_cancelled),
        T(test_mmio_start_that_comes_after_the_shutdown),
    };

    return cmocka_run_group_tests_name("virtio_mmio_life", tests, NULL, NULL);
}
