/* SPDX-License-Identifier: Apache-2.0 */
/* The block device at rest, saved and loaded. */
#include "devices/virtio_blk.h"

#include "devices/virtio_blk_req.h"
#include "tests/harness/fake_driver.h"
#include "tests/harness/loop_run.h"
#include "tests/harness/mem_disk.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <linux/virtio_blk.h>
#include <stdlib.h>
#include <string.h>

#define RAM       (4 * MIB)
#define SECTORS   64u
#define QUEUES    2u
#define QSIZE     16u
#define NO_ANSWER 0xee
#define NUM_DEVS  8u

/* One driver and the devices that it has, one after the other. */
struct fixture {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct mem_disk disks[NUM_DEVS];
    struct virtio_dev *devs[NUM_DEVS];
    struct mem_disk other;
    unsigned num; /* the last of them is the driver's */
    uint32_t seed;
    /* by request */
    gpa_t status;
    unsigned next; /* number of the next request, and its sector */
    uint8_t carried_out[SECTORS];
    uint8_t used[SECTORS];
    uint16_t head_of[QUEUES][VQ_MAX_SIZE];
};

static struct mem_disk *disk(struct fixture *f)
{
    return &f->disks[f->num - 1];
}

static struct virtio_dev *
new_device(struct fixture *f, const struct vblk_args *args, uint64_t size_bytes)
{
    struct vdev_env env = {f->d.mem, f->loop, &f->log};
    struct mem_disk *m = &f->disks[f->num];

    assert_true(f->num < NUM_DEVS);
    mem_disk_init(m, NULL, size_bytes);
    assert_int_equal(vblk_new(&env, &m->base, args, &f->devs[f->num]), 0);
    return f->devs[f->num++];
}

static const struct vblk_args plain = {.id = "a", .num_queues = QUEUES};
/* Four requests, the next in an hour. */
static const struct vblk_args limited = {
    .id = "a", .num_queues = QUEUES, .limit.ops = {4, 0, 4 * 3600 * 1000}};
/* Four requests, then one in a millisecond. */
static const struct vblk_args slow = {
    .id = "a", .num_queues = QUEUES, .limit.ops = {4, 0, 4}};

static struct fixture *make(const struct vblk_args *args)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    fdrv_init(&f->d, RAM);
    log_init(&f->log, -1, LOG_OFF, "test");
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    assert_int_equal(fdrv_attach(&f->d, new_device(f, args, SECTORS * 512),
                                 QSIZE, 1ull << VIRTIO_RING_F_EVENT_IDX),
                     0);
    f->status = fdrv_alloc(&f->d, SECTORS, 64);
    memset(fdrv_ptr(&f->d, f->status, SECTORS), NO_ANSWER, SECTORS);
    return f;
}

static int setup(void **state)
{
    *state = make(&plain);
    return 0;
}

static int setup_limited(void **state)
{
    *state = make(&limited);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < f->num; i++) {
        f->devs[i]->resting = false;
        if (f->devs[i]->ops->reset(f->devs[i]) == -EINPROGRESS)
            mem_disk_complete_all(&f->disks[i]);
        f->devs[i]->ops->free(f->devs[i]);
        assert_int_equal(f->disks[i].freed, 1);
    }
    evloop_free(f->loop);
    fdrv_fini(&f->d);
    free(f);
    return 0;
}

/* --- the driver ----------------------------------------------------------- */

/* A request of type `type` on its own sector, or -1: the ring is full. */
static int add(struct fixture *f, uint16_t q, uint32_t type)
{
    unsigned i = f->next;
    uint8_t h[16] = {0};
    struct fdrv_seg segs[3];

    if (i == SECTORS || f->d.q[q].num_free < 3)
        return -1;
    put_le32(h, type);
    put_le64(h + 8, i);
    segs[0] = (struct fdrv_seg){fdrv_put(&f->d, h, 16, 16), 16, false};
    segs[1] = (struct fdrv_seg){fdrv_alloc(&f->d, 512, 512), 512,
                                type == VIRTIO_BLK_T_IN};
    segs[2] = (struct fdrv_seg){f->status + i, 1, true};
    f->head_of[q][fdrv_add(&f->d, q, segs, 3)] = (uint16_t)i;
    return (int)f->next++;
}

static uint8_t status_of(struct fixture *f, unsigned i)
{
    uint8_t s;

    fdrv_read(&f->d, f->status + i, &s, 1);
    return s;
}

static void take_used(struct fixture *f)
{
    uint32_t head;
    uint32_t len;

    for (uint16_t q = 0; q < QUEUES; q++) {
        while (fdrv_used(&f->d, q, &head, &len)) {
            unsigned i = f->head_of[q][head];

            assert_int_equal(status_of(f, i), VIRTIO_BLK_S_OK);
            f->used[i]++;
        }
    }
}

/* Ends the i-th request of those that the disk has. */
static void end_one(struct fixture *f, uint32_t i)
{
    struct mem_disk *m = disk(f);

    f->carried_out[m->held[i]->offset_bytes / 512]++;
    mem_disk_complete(m, i, 0);
}

static uint32_t draw(struct fixture *f, uint32_t below)
{
    f->seed = f->seed * 1664525u + 1013904223u;
    return (f->seed >> 8) % below;
}

/* --- rest ----------------------------------------------------------------- */

static void test_vblk_rest_ends_what_is_in_flight(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 3; i++)
        (void)add(f, 0, VIRTIO_BLK_T_IN);
    fdrv_kick(&f->d, 0);
    assert_int_equal(disk(f)->num_held, 3);
    assert_int_equal(fdrv_rest(&f->d), -EINPROGRESS);
    (void)add(f, 1, VIRTIO_BLK_T_IN);
    fdrv_kick(&f->d, 1); /* not taken up */
    assert_int_equal(disk(f)->num_held, 3);
    end_one(f, 1);
    end_one(f, 0);
    assert_int_equal(f->d.rests, 0);
    end_one(f, 0);
    assert_int_equal(f->d.rests, 1);
    take_used(f);
    assert_int_equal(f->used[0] + f->used[1] + f->used[2], 3);
    assert_true(f->d.signals[0] > 0); /* not left for the end of the turn */
    assert_int_equal(disk(f)->num_held, 0);
    fdrv_wake(&f->d);
    assert_int_equal(disk(f)->num_held, 1);
    assert_int_equal(f->d.rests, 1);
}

static void test_vblk_rest_with_nothing_in_flight_is_at_once(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fdrv_rest(&f->d), 0);
    fdrv_wake(&f->d);
    (void)add(f, 0, VIRTIO_BLK_T_IN);
    fdrv_kick(&f->d, 0);
    end_one(f, 0); /* and its signal still waits for the end of the turn */
    f->d.signals[0] = 0;
    assert_int_equal(fdrv_rest(&f->d), 0);
    assert_int_equal(f->d.signals[0], 1);
    assert_int_equal(f->d.rests, 0);
}

static void test_vblk_wake_before_the_last_request_has_ended(void **state)
{
    struct fixture *f = *state;

    (void)add(f, 0, VIRTIO_BLK_T_IN);
    fdrv_kick(&f->d, 0);
    assert_int_equal(fdrv_rest(&f->d), -EINPROGRESS);
    fdrv_wake(&f->d);
    end_one(f, 0);
    assert_int_equal(f->d.rests, 0);
    take_used(f);
    assert_int_equal(f->used[0], 1);
}

/* A rest goes on with what a request has to do yet, a sync for one. */
static void test_vblk_rest_lets_a_request_take_all_its_steps(void **state)
{
    struct fixture *f = *state; /* no FLUSH: writes are synced */

    (void)add(f, 0, VIRTIO_BLK_T_OUT);
    fdrv_kick(&f->d, 0);
    assert_int_equal(fdrv_rest(&f->d), -EINPROGRESS);
    end_one(f, 0);
    assert_int_equal(disk(f)->num_held, 1);
    assert_int_equal(disk(f)->held[0]->op, DISK_FLUSH);
    assert_int_equal(f->d.rests, 0);
    mem_disk_complete(disk(f), 0, 0);
    assert_int_equal(f->d.rests, 1);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_OK);
}

static void test_vblk_reset_ends_a_rest(void **state)
{
    struct fixture *f = *state;

    (void)add(f, 0, VIRTIO_BLK_T_IN);
    fdrv_kick(&f->d, 0);
    assert_int_equal(fdrv_rest(&f->d), -EINPROGRESS);
    f->d.dev->resting = false; /* as the transport does */
    assert_int_equal(fdrv_reset(&f->d), -EINPROGRESS);
    mem_disk_complete_all(disk(f));
    assert_int_equal(f->d.rests, 0);
    assert_int_equal(f->d.reset_dones, 1);
    assert_int_equal(status_of(f, 0), NO_ANSWER);
}

static void test_vblk_limited_request_waits_in_its_ring(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 2; i++)
        (void)add(f, 0, VIRTIO_BLK_T_IN);
    fdrv_kick(&f->d, 0);
    mem_disk_complete_all(disk(f));
    for (uint16_t q = 0; q < QUEUES; q++) {
        (void)add(f, q, VIRTIO_BLK_T_IN);
        (void)add(f, q, VIRTIO_BLK_T_IN);
        fdrv_kick(&f->d, q);
    }
    assert_int_equal(disk(f)->num_held, 2); /* the bucket is empty */
    mem_disk_complete_all(disk(f));
    assert_int_equal(fdrv_rest(&f->d), 0);
    assert_int_equal(f->d.dev->vq[1].next_avail, f->d.dev->vq[1].next_used);
    assert_true(loop_run_is_idle(f->loop)); /* no timer is left */
    /* neither does the rest fill it, nor a move */
    fdrv_wake(&f->d);
    assert_int_equal(disk(f)->num_held, 0);
    assert_int_equal(fdrv_rest(&f->d), 0);
    assert_int_equal(fdrv_move(&f->d, new_device(f, &plain, SECTORS * 512)), 0);
    fdrv_wake(&f->d);
    assert_int_equal(disk(f)->num_held, 0);
}

static void test_BL_037_limits_of_a_snapshot_can_be_taken_off(void **state)
{
    static const struct rate_limit_config none = {0};
    struct fixture *f = *state;

    for (int i = 0; i < 8 && add(f, (uint16_t)(i % 2), VIRTIO_BLK_T_IN) >= 0;
         i++)
        fdrv_kick(&f->d, (uint16_t)(i % 2));
    mem_disk_complete_all(disk(f));
    assert_int_equal(disk(f)->submitted, 4);
    assert_int_equal(fdrv_rest(&f->d), 0);
    assert_int_equal(fdrv_move(&f->d, new_device(f, &limited, SECTORS * 512)),
                     0);
    vblk_set_rate_limit(f->d.dev, &none); /* a PATCH finds it at rest */
    assert_int_equal(disk(f)->num_held, 0);
    fdrv_wake(&f->d);
    mem_disk_complete_all(disk(f));
    assert_true(disk(f)->submitted > 0);
    while (add(f, 0, VIRTIO_BLK_T_IN) >= 0) {
        fdrv_kick(&f->d, 0);
        mem_disk_complete_all(disk(f));
        take_used(f);
    }
    assert_int_equal(disk(f)->submitted, SECTORS - 4);
}

static void test_BL_037_limits_taken_off_before_the_save_stay_off(void **state)
{
    static const struct rate_limit_config none = {0};
    struct fixture *f = *state;

    vblk_set_rate_limit(f->d.dev, &none);
    assert_int_equal(fdrv_rest(&f->d), 0);
    /* the configuration that comes with the snapshot is the old one */
    assert_int_equal(fdrv_move(&f->d, new_device(f, &limited, SECTORS * 512)),
                     0);
    fdrv_wake(&f->d);
    while (add(f, 0, VIRTIO_BLK_T_IN) >= 0) {
        fdrv_kick(&f->d, 0);
        mem_disk_complete_all(disk(f));
        take_used(f);
    }
    assert_int_equal(disk(f)->submitted, SECTORS);
}

static void test_vblk_swap_at_rest(void **state)
{
    struct fixture *f = *state;
    struct mem_disk *old = disk(f);

    mem_disk_init(&f->other, NULL, 2 * SECTORS * 512);
    (void)add(f, 0, VIRTIO_BLK_T_IN);
    fdrv_kick(&f->d, 0);
    assert_int_equal(fdrv_rest(&f->d), -EINPROGRESS);
    assert_int_equal(vblk_swap(f->d.dev, &f->other.base), 0);
    assert_int_equal(f->d.config_changes, 1);
    (void)add(f, 0, VIRTIO_BLK_T_IN);
    fdrv_publish(&f->d, 0);
    assert_int_equal(old->freed, 0);
    mem_disk_complete(old, 0, 0);
    assert_int_equal(old->freed, 1);
    assert_int_equal(f->d.rests, 1);
    assert_int_equal(f->other.num_held, 0);
    fdrv_wake(&f->d);
    assert_int_equal(f->other.num_held, 1);
    mem_disk_complete_all(&f->other);
    take_used(f);
    assert_int_equal(f->used[0] + f->used[1], 2);
}

/* --- save and load -------------------------------------------------------- */

static uint64_t capacity(struct virtio_dev *dev)
{
    uint8_t b[8] = {0};

    dev->ops->config_read(dev, 0, b, 8);
    return get_le64(b);
}

static void test_vblk_saved_again_before_a_wake_is_the_same(void **state)
{
    struct fixture *f = *state;
    struct state_out a;
    struct state_out b;

    (void)add(f, 0, VIRTIO_BLK_T_IN);
    fdrv_kick(&f->d, 0);
    mem_disk_complete_all(disk(f));
    assert_int_equal(fdrv_rest(&f->d), 0);
    fdrv_save(&f->d, &a);
    assert_int_equal(fdrv_move(&f->d, new_device(f, &plain, 2 * SECTORS * 512)),
                     0);
    loop_run_for(f->loop, 5); /* time goes by, tokens do not */
    fdrv_save(&f->d, &b);
    assert_int_equal(a.len_bytes, b.len_bytes);
    assert_memory_equal(a.data, b.data, a.len_bytes);
    state_out_fini(&a);
    state_out_fini(&b);
}

static void test_BL_040_larger_disk_is_news_once_awake(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fdrv_rest(&f->d), 0);
    assert_int_equal(
        fdrv_move(&f->d, new_device(f, &plain, (SECTORS + 8) * 512)), 0);
    assert_int_equal(capacity(f->d.dev), SECTORS);
    assert_int_equal(f->d.config_changes, 0);
    fdrv_wake(&f->d);
    assert_int_equal(capacity(f->d.dev), SECTORS + 8);
    assert_int_equal(f->d.config_changes, 1);
    assert_int_equal(fdrv_rest(&f->d), 0);
    fdrv_wake(&f->d);
    assert_int_equal(f->d.config_changes, 1);
}

/* What save() writes: size, read-only, id, limits. */
enum { AT_SIZE = 0, AT_RO = 8, AT_ID = 9, AT_LIMIT = 29, BUCKET = 40 };

static void expect_load(struct fixture *f, const struct vblk_args *args,
                        uint64_t size_bytes, int rc, const char *says)
{
    struct errmsg err = {""};
    struct state_out saved;
    struct virtio_dev *dev;

    fdrv_save(&f->d, &saved);
    dev = new_device(f, args, size_bytes);
    dev->resting = true;
    assert_int_equal(dev->ops->activate(dev), 0);
    assert_int_equal(fdrv_load(dev, &saved, &err), rc);
    if (!strstr(err.text, says))
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
    state_out_fini(&saved);
}

static void test_BL_040_smaller_disk_is_refused_with_both_sizes(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fdrv_rest(&f->d), 0);
    expect_load(f, &plain, (SECTORS - 1) * 512, -EINVAL, "32768");
    expect_load(f, &plain, (SECTORS - 1) * 512, -EINVAL, "32256");
    expect_load(f, &plain, SECTORS * 512, 0, "");
}

static void test_vblk_load_refuses_another_disk(void **state)
{
    static const struct vblk_args other = {.id = "b", .num_queues = QUEUES};
    struct fixture *f = *state;

    assert_int_equal(fdrv_rest(&f->d), 0);
    expect_load(f, &other, SECTORS * 512, -EINVAL, "another id");
}

static void test_BL_040_read_only_where_it_was_writable_is_refused(void **state)
{
    struct fixture *f = *state;
    struct vdev_env env = f->d.dev->env;
    struct mem_disk *m = &f->disks[f->num];
    struct errmsg err = {""};
    struct state_out saved;
    struct virtio_dev *dev;

    assert_int_equal(fdrv_rest(&f->d), 0);
    fdrv_save(&f->d, &saved);
    mem_disk_init(m, NULL, SECTORS * 512);
    m->base.read_only = true;
    assert_int_equal(vblk_new(&env, &m->base, &plain, &f->devs[f->num]), 0);
    dev = f->devs[f->num++];
    assert_int_equal(fdrv_load(dev, &saved, &err), -EINVAL);
    assert_non_null(strstr(err.text, "saved writable, here it is read-only"));
    state_out_fini(&saved);
}

struct forgery {
    size_t at;
    uint64_t value;
    size_t len;
};

static int load_forged(struct fixture *f, const struct forgery *g)
{
    static const uint8_t id[STATE_ID_BYTES];
    struct state_out saved;
    struct state_out bad;
    struct state_file file;
    struct state_in in;
    uint8_t b[256];
    size_t n;
    int rc;

    fdrv_save(&f->d, &saved);
    assert_int_equal(state_open(&file, saved.data, saved.len_bytes, NULL), 0);
    assert_int_equal(state_section(&file, "t", 1, &in, NULL), 0);
    n = (size_t)(in.end - in.at);
    assert_int_equal(n, AT_LIMIT + 2 * BUCKET);
    memcpy(b, in.at, n);
    for (size_t i = 0; i < g->len; i++)
        b[g->at + i] = (uint8_t)(g->value >> (8 * i));
    if (g->len == 0)
        n = g->at; /* cut */
    state_out_init(&bad);
    state_begin(&bad, "t", 1);
    state_put_bytes(&bad, b, n);
    state_end(&bad);
    assert_int_equal(state_finish(&bad, id), 0);
    rc = fdrv_load(f->d.dev, &bad, NULL);
    state_out_fini(&saved);
    state_out_fini(&bad);
    return rc;
}

static void test_vblk_load_refuses_impossible_values(void **state)
{
    static const struct forgery bad[] = {
        {AT_SIZE, 511, 8},
        {AT_RO, 2, 1},
        {AT_LIMIT, 1ull << 62, 8},                   /* size */
        {AT_LIMIT + 16, UINT64_MAX, 8},              /* refill time */
        {AT_LIMIT + 24, 1, 8},                       /* burst without one */
        {AT_LIMIT + 32, 1, 8},                       /* more than it holds */
        {AT_LIMIT + BUCKET + 32, 5, 8},              /* the same, of 4 */
        {AT_LIMIT + BUCKET + 32, UINT64_MAX / 2, 8}, /* and far more */
        {AT_LIMIT + BUCKET + 32, 1ull << 63, 8},     /* a debt too large */
        {0, 0, 0},                                   /* cut */
        {AT_LIMIT, 0, 0},
        {AT_LIMIT + BUCKET, 0, 0},
        {AT_LIMIT + 2 * BUCKET - 1, 0, 0},
    };
    static const struct forgery good[] = {
        {AT_LIMIT + BUCKET + 32, 4, 8},
        {AT_LIMIT + BUCKET + 32, (uint64_t)-4, 8}, /* in debt */
    };
    struct fixture *f = *state;

    assert_int_equal(fdrv_rest(&f->d), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        int rc = load_forged(f, &bad[i]);

        if (rc != -EBADMSG)
            fail_msg("forgery %zu gives %d", i, rc);
    }
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_int_equal(load_forged(f, &good[i]), 0);
}

/* --- the model: no request is lost or done twice -------------------------- */

/* At any moment: rest, perhaps by way of another device. */
static void pause_now(struct fixture *f, const struct vblk_args *args)
{
    f->d.rests = 0;
    if (fdrv_rest(&f->d) == -EINPROGRESS) {
        while (f->d.rests == 0) {
            assert_true(disk(f)->num_held > 0);
            end_one(f, draw(f, disk(f)->num_held));
        }
    }
    assert_int_equal(disk(f)->num_held, 0);
    for (uint16_t q = 0; q < QUEUES; q++)
        assert_int_equal(f->d.dev->vq[q].next_avail, f->d.dev->vq[q].next_used);
    /* what comes meanwhile is told by the ring alone */
    if (draw(f, 2))
        (void)add(f, (uint16_t)draw(f, QUEUES), VIRTIO_BLK_T_IN);
    for (uint16_t q = 0; q < QUEUES; q++)
        fdrv_publish(&f->d, q);
    if (f->num < NUM_DEVS && draw(f, 2))
        assert_int_equal(fdrv_move(&f->d, new_device(f, args, SECTORS * 512)),
                         0);
    fdrv_wake(&f->d);
}

static bool all_used(void *arg)
{
    struct fixture *f = arg;
    unsigned n = 0;

    while (disk(f)->num_held > 0)
        end_one(f, 0);
    take_used(f);
    for (unsigned i = 0; i < f->next; i++)
        n += f->used[i];
    return n >= f->next;
}

static void play(const struct vblk_args *args, uint32_t seed)
{
    struct fixture *f = make(args);
    void *state = f;

    f->seed = seed;
    for (int step = 0; step < 120; step++) {
        uint16_t q = (uint16_t)draw(f, QUEUES);

        switch (draw(f, 8)) {
        case 0:
            pause_now(f, args);
            break;
        case 1:
        case 2:
        case 3:
            if (add(f, q, VIRTIO_BLK_T_IN) >= 0)
                fdrv_kick(&f->d, q);
            break;
        case 4:
            loop_run_for(f->loop, draw(f, 2));
            break;
        default:
            if (disk(f)->num_held > 0)
                end_one(f, draw(f, disk(f)->num_held));
            take_used(f);
        }
    }
    assert_true(loop_run_until(f->loop, all_used, f));
    for (unsigned i = 0; i < f->next; i++) {
        assert_int_equal(f->carried_out[i], 1);
        assert_int_equal(f->used[i], 1);
    }
    assert_int_equal(f->d.needs_resets, 0);
    (void)teardown(&state);
}

static void test_vblk_no_request_is_lost_or_done_twice(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 60; seed++)
        play(&plain, seed);
}

static void test_vblk_nor_one_that_the_limiter_holds(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 30; seed++)
        play(&slow, seed);
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
#define L(t) cmocka_unit_test_setup_teardown(t, setup_limited, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_vblk_rest_ends_what_is_in_flight),
        T(test_vblk_rest_with_nothing_in_flight_is_at_once),
        T(test_vblk_wake_before_the_last_request_has_ended),
        T(test_vblk_rest_lets_a_request_take_all_its_steps),
        T(test_vblk_reset_ends_a_rest),
        L(test_vblk_limited_request_waits_in_its_ring),
        L(test_BL_037_limits_of_a_snapshot_can_be_taken_off),
        L(test_BL_037_limits_taken_off_before_the_save_stay_off),
        T(test_vblk_swap_at_rest),
        L(test_vblk_saved_again_before_a_wake_is_the_same),
        T(test_BL_040_larger_disk_is_news_once_awake),
        T(test_BL_040_smaller_disk_is_refused_with_both_sizes),
        T(test_BL_040_read_only_where_it_was_writable_is_refused),
        T(test_vblk_load_refuses_another_disk),
        L(test_vblk_load_refuses_impossible_values),
        cmocka_unit_test(test_vblk_no_request_is_lost_or_done_twice),
        cmocka_unit_test(test_vblk_nor_one_that_the_limiter_holds),
    };

    return cmocka_run_group_tests_name("virtio_blk_state", tests, NULL, NULL);
}
