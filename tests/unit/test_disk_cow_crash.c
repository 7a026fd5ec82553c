/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host loses its power at every moment of a random run. What was written to
 * the file on top is noted in order; for each prefix images are made as a disk
 * with a write cache may leave them: what a sync covered is there, of the rest
 * any sectors. Each opens, and each sector of the disk holds what was there at
 * the last flush of the guest that had ended, or what was written since.
 */
#include "tests/harness/cow_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DISK_BYTES (6u * 65536)
#define SECTORS    (DISK_BYTES / 512)
#define STEPS      60u
#define PARALLEL   3u
#define IMAGES     4u /* of each prefix */

/* A request of the guest, in the time of the spy's clock. */
struct guest_op {
    enum disk_op op;
    uint32_t first;
    uint32_t count;
    uint32_t tag; /* what its sectors hold */
    uint64_t start;
    uint64_t finish;
};

struct crash {
    struct evloop *loop;
    struct disk *disk;
    struct rig_spy spy;
    int base;
    int delta;
    uint64_t seed;
    uint32_t next_tag;
    struct guest_op op[STEPS * PARALLEL];
    size_t num_ops;
    uint8_t *start_image;
    uint8_t *image;
    size_t image_bytes;
    uint8_t buf[PARALLEL][DISK_BYTES];
};

static void fill(uint8_t *p, uint32_t count, uint32_t tag)
{
    for (uint32_t i = 0; i < count * 512; i += 4)
        memcpy(p + i, &tag, 4);
}

/* --- the run ---------------------------------------------------------------
 */

static struct guest_op *crash_op(struct crash *c, enum disk_op op,
                                 uint32_t first, uint32_t count)
{
    struct guest_op *g = &c->op[c->num_ops++];

    *g = (struct guest_op){op, first, count, 0, ++*c->spy.clock, UINT64_MAX};
    if (op == DISK_WRITE)
        g->tag = ++c->next_tag;
    return g;
}

static bool crash_overlaps(const struct guest_op *a, uint32_t first,
                           uint32_t count)
{
    return first < a->first + a->count && a->first < first + count;
}

static void crash_writes(struct crash *c)
{
    struct guest_op *g[PARALLEL];
    struct rig_req req[PARALLEL];
    uint32_t n = 0;

    for (uint32_t k = 0; k < PARALLEL; k++) {
        uint32_t first = rig_random(&c->seed, SECTORS);
        uint32_t count =
            1 + rig_random(&c->seed, rig_random(&c->seed, 3) ? 20 : 300);
        bool taken = false;

        if (count > SECTORS - first)
            count = SECTORS - first;
        for (uint32_t i = 0; i < n; i++)
            taken |= crash_overlaps(g[i], first, count);
        if (taken)
            continue;
        g[n] = crash_op(
            c, rig_random(&c->seed, 4) ? DISK_WRITE : DISK_WRITE_ZEROES, first,
            count);
        fill(c->buf[n], count, g[n]->tag);
        rig_submit(c->disk, c->loop, &req[n], g[n]->op, (uint64_t)first * 512,
                   c->buf[n], (size_t)count * 512);
        n++;
    }
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(rig_wait(&req[i]), 0);
        g[i]->finish = ++*c->spy.clock;
    }
}

/* A flush while writes are on their way. */
static void crash_flush(struct crash *c)
{
    struct guest_op *w = crash_op(c, DISK_WRITE, 0, SECTORS / 2 + 3);
    struct guest_op *f;
    struct rig_req write;
    struct rig_req flush;

    fill(c->buf[0], w->count, w->tag);
    rig_submit(c->disk, c->loop, &write, DISK_WRITE, 0, c->buf[0],
               (size_t)w->count * 512);
    f = crash_op(c, DISK_FLUSH, 0, 0);
    rig_submit(c->disk, c->loop, &flush, DISK_FLUSH, 0, NULL, 0);
    assert_int_equal(rig_wait(&flush), 0);
    f->finish = ++*c->spy.clock;
    assert_int_equal(rig_wait(&write), 0);
    w->finish = ++*c->spy.clock;
}

/* --- what is left ----------------------------------------------------------
 */

/* When the last sync that covers what was finished at `finish` had ended. */
static bool crash_is_synced(const struct crash *c, uint64_t finish, uint64_t at)
{
    for (size_t i = 0; i < c->spy.num_events; i++) {
        const struct rig_event *e = c->spy.event[i];

        if (e->op == DISK_FLUSH && e->start > finish && e->finish <= at)
            return true;
    }
    return false;
}

/* Sectors that are not synced are there or not; `mode` 0: none, 1: all. */
static void crash_make_image(struct crash *c, uint64_t at, uint32_t mode)
{
    memcpy(c->image, c->start_image, c->image_bytes);
    for (size_t i = 0; i < c->spy.num_events; i++) {
        const struct rig_event *e = c->spy.event[i];
        bool synced = crash_is_synced(c, e->finish, at);

        if (e->op == DISK_FLUSH || e->start > at)
            continue;
        for (uint64_t o = 0; o < e->len_bytes; o += 512) {
            uint8_t *p = c->image + e->offset_bytes + o;

            if (!synced &&
                (mode == 0 || (mode > 1 && rig_random(&c->seed, 2) == 0)))
                continue;
            if (e->op == DISK_WRITE)
                memcpy(p, e->data + o, 512);
            else
                memset(p, 0, 512);
        }
    }
}

/* The value of sector `s` in `got` may be there at `at`. */
static bool crash_allowed(const struct crash *c, uint32_t s, uint32_t got,
                          uint64_t at)
{
    uint32_t stable = 0x80000000u + s; /* the base's */
    uint64_t flushed = 0;              /* start of the last flush that ended */

    for (size_t i = 0; i < c->num_ops; i++) {
        if (c->op[i].op == DISK_FLUSH && c->op[i].finish <= at)
            flushed = c->op[i].start;
    }
    for (size_t i = 0; i < c->num_ops; i++) {
        const struct guest_op *g = &c->op[i];

        if (g->op == DISK_FLUSH || g->start > at || !crash_overlaps(g, s, 1))
            continue;
        if (g->finish < flushed)
            stable = g->tag;
        else if (g->tag == got)
            return true;
    }
    return got == stable;
}

static void crash_check(struct crash *c, uint64_t at)
{
    int file = rig_file(c->image, c->image_bytes);
    int fds[2] = {file, c->base};
    struct disk *disk = rig_open(fds, 2, DISK_READ_ONLY);
    uint8_t *got = c->buf[0];

    assert_int_equal(rig_do(disk, c->loop, DISK_READ, 0, got, DISK_BYTES), 0);
    for (uint32_t s = 0; s < SECTORS; s++) {
        uint32_t tag;

        memcpy(&tag, got + (size_t)s * 512, 4);
        for (uint32_t i = 0; i < 512; i += 4)
            assert_memory_equal(got + (size_t)s * 512 + i, &tag, 4);
        if (!crash_allowed(c, s, tag, at))
            fail_msg("time %llu, sector %u: %x", (unsigned long long)at, s,
                     tag);
    }
    disk->ops->free(disk);
    (void)close(file);
}

/* --- all of it -------------------------------------------------------------
 */

static void crash_prepare(struct crash *c, uint64_t seed)
{
    uint8_t *base = malloc(DISK_BYTES);
    int fds[2];

    assert_non_null(base);
    for (uint32_t s = 0; s < SECTORS; s++)
        fill(base + (size_t)s * 512, 1, 0x80000000u + s);
    c->seed = seed;
    assert_int_equal(evloop_new(EVLOOP_EPOLL, &c->loop), 0);
    c->base = rig_file(base, DISK_BYTES);
    free(base);
    c->delta = rig_delta(c->base, COW_BASE_RAW, 0);
    c->image_bytes = cow_file_bytes(DISK_BYTES);
    c->start_image = malloc(c->image_bytes);
    c->image = malloc(c->image_bytes);
    assert_true(c->start_image && c->image);
    assert_int_equal(pread(c->delta, c->start_image, c->image_bytes, 0),
                     c->image_bytes);
    /* What an earlier crash left in clusters that do not count. */
    memset(c->start_image + cow_data_offset(DISK_BYTES), 0xee, DISK_BYTES);
    assert_int_equal(pwrite(c->delta, c->start_image, c->image_bytes, 0),
                     c->image_bytes);
    fds[0] = c->delta;
    fds[1] = c->base;
    c->disk = rig_open(fds, 2, 0);
    rig_spy_init(&c->spy, c->disk, 0);
}

static void test_cow_crash_leaves_what_a_write_cache_may(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct crash *c = calloc(1, sizeof(*c));
        uint64_t end;

        assert_non_null(c);
        crash_prepare(c, seed * 0x9e3779b97f4a7c15ull);
        for (uint32_t i = 0; i < STEPS / 4; i++) {
            if (rig_random(&c->seed, 4) == 0)
                crash_flush(c);
            else
                crash_writes(c);
        }
        end = *c->spy.clock;
        for (uint64_t at = 0; at <= end; at++) {
            for (uint32_t k = 0; k < IMAGES; k++) {
                crash_make_image(c, at, k);
                crash_check(c, at);
            }
        }
        c->disk->ops->free(c->disk);
        rig_spy_fini(&c->spy);
        evloop_free(c->loop);
        (void)close(c->base);
        (void)close(c->delta);
        free(c->start_image);
        free(c->image);
        free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cow_crash_leaves_what_a_write_cache_may),
    };

    (void)alarm(300); /* against a hang */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
