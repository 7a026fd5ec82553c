/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The block device under load, on real files and both back ends of the loop:
 * every byte right while signals rain on the loop's thread, no completion
 * missed, nobody else kept waiting.
 */
#include "devices/disk_open.h"
#include "devices/virtio_blk.h"
#include "tests/harness/fake_driver.h"
#include "tests/harness/loop_run.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RAM       (16 * MIB)
#define DISK      (4 * MIB)
#define QSIZE     256u
#define DEPTH     64u
#define BLOCK     4096u
#define NS_PER_MS 1000000ull

struct fixture {
    char path[64];
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct virtio_dev *dev;
    gpa_t header[DEPTH];
    gpa_t data[DEPTH];
    gpa_t status[DEPTH];
    uint8_t slot_of_head[QSIZE];
    uint32_t free_slots[DEPTH];
    uint32_t num_free;
    uint32_t done;
    uint32_t failed;
    uint32_t want;
    uint32_t seed;
    uint32_t type;
    bool endless;
    struct ev_timer tick;
    uint32_t ticks;
};

struct how {
    enum evloop_backend backend;
    unsigned flags;
};

static int setup(void **state)
{
    const struct how *how = *state;
    static const struct vblk_args args = {.id = "load"};
    struct fixture *f = calloc(1, sizeof(*f));
    struct disk *disk = NULL;
    struct vdev_env env;
    int fd;

    assert_non_null(f);
    (void)snprintf(f->path, sizeof(f->path), "/var/tmp/mote-test-XXXXXX");
    fd = mkstemp(f->path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, DISK), 0);
    close(fd);
    fdrv_init(&f->d, RAM);
    log_init(&f->log, -1, LOG_OFF, "test");
    assert_int_equal(evloop_new(how->backend, &f->loop), 0);
    env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    if (disk_open(f->path, how->flags, NULL, &disk, NULL) &&
        disk_open(f->path, 0, NULL, &disk, NULL))
        return -1;
    assert_int_equal(vblk_new(&env, disk, &args, &f->dev), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, ~0ull), 0);
    for (uint32_t i = 0; i < DEPTH; i++) {
        f->header[i] = fdrv_alloc(&f->d, 16, 16);
        f->data[i] = fdrv_alloc(&f->d, BLOCK, BLOCK);
        f->status[i] = fdrv_alloc(&f->d, 1, 1);
        f->free_slots[f->num_free++] = i;
    }
    *state = f;
    return 0;
}

static bool is_reset(void *arg)
{
    return ((struct fixture *)arg)->d.reset_dones > 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    f->d.on_event = NULL;
    evloop_timer_cancel(f->loop, &f->tick);
    if (fdrv_reset(&f->d) == -EINPROGRESS)
        assert_true(loop_run_until(f->loop, is_reset, f));
    f->dev->ops->free(f->dev);
    evloop_free(f->loop);
    fdrv_fini(&f->d);
    unlink(f->path);
    free(f);
    return 0;
}

/* One request of a block, or of a sector at an odd place. */
static void add_one(struct fixture *f, uint64_t sector, uint32_t len)
{
    uint32_t s = f->free_slots[--f->num_free];
    const struct fdrv_seg segs[3] = {
        {f->header[s], 16, false},
        {f->data[s], len, f->type == VIRTIO_BLK_T_IN},
        {f->status[s], 1, true},
    };
    uint8_t h[16] = {0};

    put_le32(h, f->type);
    put_le64(h + 8, sector);
    fdrv_write(&f->d, f->header[s], h, sizeof(h));
    f->slot_of_head[fdrv_add(&f->d, 0, segs, 3)] = (uint8_t)s;
}

static uint32_t draw(struct fixture *f, uint32_t below)
{
    f->seed = f->seed * 1664525u + 1013904223u;
    return (f->seed >> 8) % below;
}

static void drain(struct fixture *f)
{
    uint32_t head;
    uint32_t len;
    uint8_t status;

    while (fdrv_used(&f->d, 0, &head, &len)) {
        uint32_t s = f->slot_of_head[head];

        fdrv_read(&f->d, f->status[s], &status, 1);
        f->failed += status != VIRTIO_BLK_S_OK;
        f->done++;
        f->free_slots[f->num_free++] = s;
    }
    fdrv_set_used_event(&f->d, 0, f->d.q[0].used_idx);
}

static void fill_up(struct fixture *f, uint32_t depth)
{
    while (DEPTH - f->num_free < depth)
        add_one(f, draw(f, DISK / BLOCK) * (BLOCK / 512), BLOCK);
    fdrv_kick(&f->d, 0);
}

static void on_signal(void *arg)
{
    struct fixture *f = arg;

    drain(f);
    if (f->endless || f->done + (DEPTH - f->num_free) < f->want)
        fill_up(f, DEPTH);
}

static bool all_done(void *arg)
{
    struct fixture *f = arg;

    return f->done >= f->want;
}

static void test_BL_033_no_completion_is_missed(void **state)
{
    struct fixture *f = *state;

    f->type = VIRTIO_BLK_T_IN;
    f->want = 5000;
    f->d.on_event = on_signal;
    f->d.on_event_arg = f;
    fill_up(f, DEPTH);
    assert_true(loop_run_until(f->loop, all_done, f));
    while (f->num_free < DEPTH) {
        f->want = f->done + 1;
        assert_true(loop_run_until(f->loop, all_done, f));
    }
    /* and single ones, with the loop idle in between */
    for (uint32_t i = 0; i < 20; i++) {
        f->want = f->done + 1;
        add_one(f, i, 512);
        fdrv_kick(&f->d, 0);
        assert_true(loop_run_until(f->loop, all_done, f));
    }
    assert_int_equal(f->failed, 0);
}

static void on_tick(struct ev_timer *t)
{
    struct fixture *f = t->arg;

    f->ticks++;
    assert_int_equal(
        evloop_timer_arm(f->loop, t, util_now_ns() + NS_PER_MS, on_tick, f), 0);
}

/* A guest that asks without end, and somebody else who wants a turn. */
static void test_BL_035_endless_load_lets_others_in(void **state)
{
    struct fixture *f = *state;

    f->type = VIRTIO_BLK_T_OUT;
    f->endless = true;
    f->d.on_event = on_signal;
    f->d.on_event_arg = f;
    fill_up(f, DEPTH);
    assert_int_equal(evloop_timer_arm(f->loop, &f->tick,
                                      util_now_ns() + NS_PER_MS, on_tick, f),
                     0);
    loop_run_for(f->loop, 200);
    assert_true(f->done > 0);
    assert_true(f->ticks >= 3); /* some 150 on a quiet machine */
    f->endless = false;
}

/* --- changes under load --------------------------------------------------- */

static unsigned count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Two files in turn, requests in flight at each change. The one that was left
 * is unlocked with its last request and can be opened again. */
static void test_BL_028_swaps_and_resizes_leak_nothing(void **state)
{
    struct fixture *f = *state;
    char other[80];
    unsigned before;
    int fd;

    (void)snprintf(other, sizeof(other), "%s.b", f->path);
    fd = open(other, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, DISK), 0);
    close(fd);
    f->type = VIRTIO_BLK_T_OUT;
    before = count_fds();
    for (unsigned i = 0; i < 300; i++) {
        const char *next = i % 2 ? f->path : other;
        struct disk *disk = NULL;

        fill_up(f, 8);
        assert_int_equal(disk_open(next, 0, NULL, &disk, NULL), 0);
        assert_int_equal(vblk_swap(f->dev, disk), 0);
        fill_up(f, 16);
        assert_int_equal(truncate(next, i % 3 ? DISK : DISK + 4096), 0);
        assert_int_equal(vblk_refresh_size(f->dev), 0);
        f->want = f->done + (DEPTH - f->num_free);
        while (f->done < f->want) {
            loop_run_for(f->loop, 0);
            drain(f);
        }
    }
    assert_int_equal(count_fds(), before);
    assert_int_equal(f->failed, 0);
    assert_true(f->d.config_changes > 100);
    unlink(other);
}

/* --- signals ------------------------------------------------------------- */

static atomic_uint caught;

static void on_sigusr1(int sig)
{
    (void)sig;
    atomic_fetch_add(&caught, 1);
}

struct rain {
    pthread_t target;
    atomic_bool stop;
};

static void *rain_main(void *arg)
{
    struct rain *r = arg;
    const struct timespec pause = {.tv_nsec = 50000};

    while (!atomic_load(&r->stop)) {
        (void)pthread_kill(r->target, SIGUSR1);
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Writes blocks and odd sectors, then reads all of it back. */
static void write_and_verify(struct fixture *f)
{
    uint8_t *want = calloc(1, DISK);
    uint32_t target;

    assert_non_null(want);
    f->type = VIRTIO_BLK_T_OUT;
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t n = 0;

        /* apart from each other, so that their order is no matter */
        for (uint32_t i = 0; i < DEPTH / 2; i++, n++) {
            uint32_t len = draw(f, 3) ? BLOCK : 512;
            uint32_t at =
                (i * 16 + (len == 512 ? draw(f, 9) : 8 * draw(f, 2))) * 512;
            uint32_t s = f->free_slots[f->num_free - 1];

            at += (round % 8) * (DEPTH / 2) * 8192;
            memset(fdrv_ptr(&f->d, f->data[s], len), (int)draw(f, 256), len);
            fdrv_read(&f->d, f->data[s], want + at, len);
            add_one(f, at / 512, len);
        }
        target = f->done + n;
        f->want = target;
        fdrv_kick(&f->d, 0);
        while (f->done < target) {
            loop_run_for(f->loop, 0);
            drain(f);
        }
    }
    f->type = VIRTIO_BLK_T_IN;
    for (uint32_t at = 0; at < DISK; at += BLOCK) {
        uint32_t s = f->free_slots[f->num_free - 1];

        add_one(f, at / 512, BLOCK);
        target = f->done + 1;
        fdrv_kick(&f->d, 0);
        while (f->done < target) {
            loop_run_for(f->loop, 0);
            drain(f);
        }
        assert_memory_equal(fdrv_ptr(&f->d, f->data[s], BLOCK), want + at,
                            BLOCK);
    }
    free(want);
}

static void test_vblk_data_is_right_under_a_rain_of_signals(void **state)
{
    struct sigaction sa = {.sa_handler = on_sigusr1}; /* no SA_RESTART */
    struct fixture *f = *state;
    struct rain r = {.target = pthread_self()};
    pthread_t thread;

    assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, rain_main, &r), 0);
    write_and_verify(f);
    atomic_store(&r.stop, true);
    (void)pthread_join(thread, NULL);
    assert_int_equal(f->failed, 0);
    assert_true(atomic_load(&caught) > 0);
}

#define T(name, how)                                                           \
    cmocka_unit_test_prestate_setup_teardown(name, setup, teardown, how)
#define ALL(name) T(name, &cached), T(name, &direct), T(name, &epoll)

int main(void)
{
    static struct how cached = {EVLOOP_AUTO, 0};
    static struct how direct = {EVLOOP_AUTO, DISK_DIRECT};
    static struct how epoll = {EVLOOP_EPOLL, 0};
    const struct CMUnitTest tests[] = {
        ALL(test_BL_033_no_completion_is_missed),
        T(test_BL_028_swaps_and_resizes_leak_nothing, &cached),
        T(test_BL_028_swaps_and_resizes_leak_nothing, &epoll),
        ALL(test_BL_035_endless_load_lets_others_in),
        ALL(test_vblk_data_is_right_under_a_rain_of_signals),
    };

    return cmocka_run_group_tests_name("virtio_blk_load", tests, NULL, NULL);
}
