/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random requests on chains of one to four copy-on-write files against a plain
 * array, on both back ends of the loop: several at a time that do not overlap,
 * flushes, opening anew, a new file on top.
 */
#include "tests/harness/cow_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BASE_BYTES (5u * 65536 + 1024)
#define DISK_BYTES (9u * 65536 + 512) /* the last cluster is short */
#define SECTORS    (DISK_BYTES / 512)
#define STEPS      400u
#define PARALLEL   4u

struct model {
    struct evloop *loop;
    struct disk *disk;
    int fds[COW_MAX_DEPTH + 1];
    size_t num_fds;
    uint64_t seed;
    unsigned flags;
    uint8_t want[DISK_BYTES];
    /* A discarded sector may read as anything until it is written. */
    bool loose[SECTORS];
    struct rig_req req[PARALLEL];
    uint8_t buf[PARALLEL][DISK_BYTES];
    uint32_t first[PARALLEL];
    uint32_t count[PARALLEL];
};

static void model_compare(const struct model *m, const uint8_t *got,
                          uint32_t first, uint32_t count)
{
    for (uint32_t s = first; s < first + count; s++) {
        if (!m->loose[s])
            assert_memory_equal(got + (size_t)(s - first) * 512,
                                m->want + (size_t)s * 512, 512);
    }
}

static void model_check_all(struct model *m)
{
    uint8_t *got = m->buf[0];

    assert_int_equal(rig_do(m->disk, m->loop, DISK_READ, 0, got, DISK_BYTES),
                     0);
    model_compare(m, got, 0, SECTORS);
}

static bool model_overlaps(const struct model *m, uint32_t n, uint32_t first,
                           uint32_t count)
{
    for (uint32_t i = 0; i < n; i++) {
        if (first < m->first[i] + m->count[i] && m->first[i] < first + count)
            return true;
    }
    return false;
}

static void model_expect(struct model *m, enum disk_op op, uint32_t i)
{
    for (uint32_t s = m->first[i]; s < m->first[i] + m->count[i]; s++) {
        uint8_t *p = m->want + (size_t)s * 512;

        if (op == DISK_WRITE)
            memcpy(p, m->buf[i] + (size_t)(s - m->first[i]) * 512, 512);
        if (op == DISK_WRITE_ZEROES)
            memset(p, 0, 512);
        if (op != DISK_READ)
            m->loose[s] = op == DISK_DISCARD;
    }
}

static void model_batch(struct model *m)
{
    static const enum disk_op ops[] = {
        DISK_READ,  DISK_READ,         DISK_WRITE,  DISK_WRITE,
        DISK_WRITE, DISK_WRITE_ZEROES, DISK_DISCARD};
    enum disk_op op[PARALLEL];
    uint32_t n = 0;

    for (uint32_t k = 0; k < PARALLEL; k++) {
        uint32_t first = rig_random(&m->seed, SECTORS);
        uint32_t count =
            1 + rig_random(&m->seed, rig_random(&m->seed, 4) ? 40 : 500);

        if (count > SECTORS - first)
            count = SECTORS - first;
        if (model_overlaps(m, n, first, count))
            continue;
        op[n] = ops[rig_random(&m->seed, ARRAY_SIZE(ops))];
        m->first[n] = first;
        m->count[n] = count;
        for (uint32_t i = 0; op[n] == DISK_WRITE && i < count * 512; i++)
            m->buf[n][i] = (uint8_t)rig_random(&m->seed, 256);
        model_expect(m, op[n], n);
        rig_submit(m->disk, m->loop, &m->req[n], op[n], (uint64_t)first * 512,
                   m->buf[n], (size_t)count * 512);
        n++;
    }
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(rig_wait(&m->req[i]), 0);
    for (uint32_t i = 0; i < n; i++) {
        if (op[i] == DISK_READ)
            model_compare(m, m->buf[i], m->first[i], m->count[i]);
    }
}

static void model_reopen(struct model *m)
{
    m->disk->ops->free(m->disk);
    m->disk = rig_open(m->fds, m->num_fds, m->flags);
}

static void model_freeze(struct model *m)
{
    int fd = rig_file(NULL, 0);

    assert_int_equal(disk_cow_freeze(m->disk, rig_reopen(fd), "below", NULL),
                     0);
    memmove(m->fds + 1, m->fds, m->num_fds * sizeof(m->fds[0]));
    m->fds[0] = fd;
    m->num_fds++;
    model_check_all(m);
}

static void model_step(struct model *m, size_t max_fds)
{
    uint32_t what = rig_random(&m->seed, 40);

    if (what == 0)
        model_reopen(m);
    else if (what < 4)
        assert_int_equal(rig_do(m->disk, m->loop, DISK_FLUSH, 0, NULL, 0), 0);
    else if (what == 4 && m->num_fds < max_fds)
        model_freeze(m);
    else if (what == 5)
        model_check_all(m);
    else
        model_batch(m);
}

static void model_run(enum evloop_backend backend, uint32_t depth,
                      unsigned flags, uint64_t seed)
{
    struct model *m = calloc(1, sizeof(*m));
    uint8_t *base = malloc(BASE_BYTES);
    int raw;

    assert_true(m && base);
    assert_int_equal(evloop_new(backend, &m->loop), 0);
    m->seed = seed;
    m->flags = flags;
    for (uint32_t i = 0; i < BASE_BYTES; i++)
        base[i] = (uint8_t)rig_random(&m->seed, 256);
    memcpy(m->want, base, BASE_BYTES);
    raw = rig_file(base, BASE_BYTES);
    m->fds[0] = rig_delta(raw, COW_BASE_RAW, DISK_BYTES);
    m->fds[1] = raw;
    m->num_fds = 2;
    m->disk = rig_open(m->fds, 2, flags);
    for (uint32_t i = 0; i < STEPS; i++)
        model_step(m, depth + 1);
    model_reopen(m);
    model_check_all(m);
    m->disk->ops->free(m->disk);
    assert_int_equal(pread(raw, m->buf[0], BASE_BYTES, 0), BASE_BYTES);
    assert_memory_equal(m->buf[0], base, BASE_BYTES);
    for (size_t i = 0; i < m->num_fds; i++)
        (void)close(m->fds[i]);
    evloop_free(m->loop);
    free(base);
    free(m);
}

static void test_cow_model_chains_by_epoll(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 4; depth++)
        model_run(EVLOOP_EPOLL, depth, 0, 0x1234567 + depth);
}

static void test_cow_model_chains_by_uring(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 4; depth++)
        model_run(EVLOOP_AUTO, depth, 0, 0x7654321 + depth);
}

static void test_cow_model_without_flushes(void **state)
{
    (void)state;
    model_run(EVLOOP_AUTO, 3, DISK_UNSAFE, 0x777);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cow_model_chains_by_epoll),
        cmocka_unit_test(test_cow_model_chains_by_uring),
        cmocka_unit_test(test_cow_model_without_flushes),
    };

    (void)alarm(300); /* against a hang */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
