/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_rng.h"

#include "tests/harness/fake_driver.h"
#include "tests/harness/loop_run.h"
#include "tests/harness/state_box.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define RAM   (32 * MIB)
#define QSIZE 8u

struct fixture {
    struct fdrv d;
    struct evloop *loop;
    struct virtio_dev *dev;
    gpa_t buf;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct vdev_env env;

    assert_non_null(f);
    fdrv_init(&f->d, RAM);
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    env = (struct vdev_env){f->d.mem, f->loop, NULL};
    assert_int_equal(vrng_new(&env, &f->dev), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, 0), 0);
    f->buf = fdrv_alloc(&f->d, MIB, 4096);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fdrv_reset(&f->d), 0);
    f->dev->ops->free(f->dev);
    evloop_free(f->loop);
    fdrv_fini(&f->d);
    free(f);
    return 0;
}

static uint32_t ask(struct fixture *f, const struct fdrv_seg *segs, uint16_t n)
{
    uint16_t h = fdrv_add(&f->d, 0, segs, n);
    uint32_t head;
    uint32_t len;

    fdrv_kick(&f->d, 0);
    assert_true(fdrv_used(&f->d, 0, &head, &len));
    assert_int_equal(head, h);
    return len;
}

static void test_vrng_fills_every_buffer(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {{f->buf, 64, true},
                              {f->buf + 1000, 1, true},
                              {f->buf + 2000, 200, true}};
    static const uint8_t zero[200];

    assert_int_equal(ask(f, segs, 3), 265);
    assert_memory_not_equal(fdrv_ptr(&f->d, f->buf, 64), zero, 64);
    assert_memory_not_equal(fdrv_ptr(&f->d, f->buf + 2000, 200), zero, 200);
    /* nothing around them */
    assert_memory_equal(fdrv_ptr(&f->d, f->buf + 64, 100), zero, 100);
    assert_memory_equal(fdrv_ptr(&f->d, f->buf + 2200, 100), zero, 100);
    assert_int_equal(f->d.signals[0], 1);
}

static void test_vrng_two_answers_differ(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg a = {f->buf, 32, true};
    struct fdrv_seg b = {f->buf + 32, 32, true};
    struct vrng_stats s;

    assert_int_equal(ask(f, &a, 1), 32);
    assert_int_equal(ask(f, &b, 1), 32);
    assert_memory_not_equal(fdrv_ptr(&f->d, f->buf, 32),
                            fdrv_ptr(&f->d, f->buf + 32, 32), 32);
    vrng_get_stats(f->dev, &s);
    assert_int_equal(s.requests, 2);
    assert_int_equal(s.bytes, 64);
    assert_int_equal(s.dry, 0);
}

static void test_vrng_large_request_is_filled_in_part(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, MIB, true};
    static const uint8_t zero[64];

    assert_int_equal(ask(f, &seg, 1), 65536);
    assert_memory_equal(fdrv_ptr(&f->d, f->buf + 65536, 64), zero, 64);
}

static void test_vrng_readable_buffers_are_left_alone(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {{f->buf, 64, false}, {f->buf + 64, 16, true}};
    static const uint8_t zero[64];

    assert_int_equal(ask(f, segs, 2), 16);
    assert_memory_equal(fdrv_ptr(&f->d, f->buf, 64), zero, 64);
    assert_int_equal(ask(f, segs, 1), 0);
    assert_int_equal(f->d.needs_resets, 0);
}

static bool all_used(void *arg)
{
    struct fixture *f = arg;

    return fdrv_used_idx(&f->d, 0) == f->d.q[0].avail_idx;
}

/* A guest that asks for a lot does not hold the loop: it goes on by turns. */
static void test_vrng_many_bytes_take_several_turns(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 65536, true};

    for (unsigned i = 0; i < QSIZE; i++)
        (void)fdrv_add(&f->d, 0, &seg, 1);
    fdrv_kick(&f->d, 0);
    assert_int_equal(fdrv_used_idx(&f->d, 0), 4);
    assert_true(loop_run_until(f->loop, all_used, f));
}

static void test_vrng_reset_ends_the_turns(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 65536, true};

    for (unsigned i = 0; i < QSIZE; i++)
        (void)fdrv_add(&f->d, 0, &seg, 1);
    fdrv_kick(&f->d, 0);
    assert_int_equal(fdrv_reset(&f->d), 0);
    loop_run_for(f->loop, 5);
    assert_int_equal(fdrv_used_idx(&f->d, 0), 4);
}

static void test_vrng_broken_ring_needs_reset(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {RAM, 64, true};

    (void)fdrv_add(&f->d, 0, &seg, 1);
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->d.needs_resets, 1);
    assert_int_equal(fdrv_used_idx(&f->d, 0), 0);
}

static void test_vrng_rest_leaves_requests_in_the_queue(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 65536, true};

    for (int i = 0; i < 8; i++)
        (void)fdrv_add(&f->d, 0, &seg, 1);
    fdrv_kick(&f->d, 0);
    assert_int_equal(fdrv_used_idx(&f->d, 0), 4); /* a turn's worth */
    sbox_rest(&f->d);
    loop_run_for(f->loop, 20);
    assert_int_equal(fdrv_used_idx(&f->d, 0), 4);
    fdrv_wake(&f->d);
    assert_int_equal(fdrv_used_idx(&f->d, 0), 8);
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_vrng_fills_every_buffer),
        T(test_vrng_rest_leaves_requests_in_the_queue),
        T(test_vrng_two_answers_differ),
        T(test_vrng_large_request_is_filled_in_part),
        T(test_vrng_readable_buffers_are_left_alone),
        T(test_vrng_many_bytes_take_several_turns),
        T(test_vrng_reset_ends_the_turns),
        T(test_vrng_broken_ring_needs_reset),
    };

    return cmocka_run_group_tests_name("virtio_rng", tests, NULL, NULL);
}
