/* SPDX-License-Identifier: Apache-2.0 */
/* Any request on a disk that wants blocks of 4 KiB. */
#include "devices/disk_align.h"

#include "tests/harness/loop_run.h"
#include "tests/harness/mem_disk.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK    4096u
#define SIZE     (1024 * 1024u)
#define MAX_REQS 64u

struct req {
    struct disk_io io;
    struct iovec iov[DISK_SCRATCH_IOVS];
    bool done;
    int status;
};

struct fixture {
    struct evloop *loop;
    struct mem_disk mem;
    struct disk *disk;
    uint8_t *stored;
    uint8_t *want; /* what the disk has to hold */
    uint8_t *buf;  /* page aligned */
    struct req req[MAX_REQS];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    f->stored = malloc(SIZE);
    f->want = malloc(SIZE);
    f->buf = aligned_alloc(BLOCK, SIZE);
    assert_true(f->stored && f->want && f->buf);
    for (uint32_t i = 0; i < SIZE; i++)
        f->stored[i] = (uint8_t)(i * 7 + i / 512);
    memcpy(f->want, f->stored, SIZE);
    mem_disk_init(&f->mem, f->stored, SIZE);
    f->mem.align = BLOCK;
    assert_int_equal(disk_align_new(&f->mem.base,
                                    (struct disk_raw_alignment){BLOCK, BLOCK},
                                    &f->disk),
                     0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    assert_memory_equal(f->stored, f->want, SIZE);
    f->disk->ops->free(f->disk);
    assert_int_equal(f->mem.freed, 1);
    evloop_free(f->loop);
    free(f->stored);
    free(f->want);
    free(f->buf);
    free(f);
    return 0;
}

static void on_done(struct disk_io *io, int status)
{
    struct req *r = io->arg;

    assert_false(r->done);
    r->done = true;
    r->status = status;
}

static struct req *submit(struct fixture *f, unsigned i, enum disk_op op,
                          uint64_t off, uint64_t len)
{
    struct req *r = &f->req[i];

    r->done = false;
    r->io.op = op;
    r->io.offset_bytes = off;
    r->io.len_bytes = len;
    r->io.iov = r->iov;
    r->io.done = on_done;
    r->io.arg = r;
    f->disk->ops->submit(f->disk, f->loop, &r->io);
    assert_false(r->done);
    return r;
}

/* Read or write between `buf` and the disk, one buffer. */
static struct req *data(struct fixture *f, unsigned i, enum disk_op op,
                        uint64_t off, uint8_t *buf, size_t len)
{
    f->req[i].iov[0] = (struct iovec){buf, len};
    f->req[i].io.iovcnt = 1;
    if (op == DISK_WRITE)
        memcpy(f->want + off, buf, len);
    return submit(f, i, op, off, 0);
}

static void settle(struct fixture *f)
{
    loop_run_for(f->loop, 0);
    mem_disk_complete_all(&f->mem);
    loop_run_for(f->loop, 0);
}

static void expect_ok(struct fixture *f, const struct req *r)
{
    settle(f);
    assert_true(r->done);
    assert_int_equal(r->status, 0);
}

/* --- one at a time ------------------------------------------------------- */

static void test_align_aligned_requests_go_straight_through(void **state)
{
    struct fixture *f = *state;
    struct req *r = data(f, 0, DISK_READ, BLOCK, f->buf, 2 * BLOCK);

    assert_ptr_equal(f->mem.held[0]->iov[0].iov_base, f->buf);
    expect_ok(f, r);
    assert_memory_equal(f->buf, f->want + BLOCK, 2 * BLOCK);
    memset(f->buf, 'w', BLOCK);
    r = data(f, 0, DISK_WRITE, 5 * BLOCK, f->buf, BLOCK);
    assert_ptr_equal(f->mem.held[0]->iov[0].iov_base, f->buf);
    expect_ok(f, r);
    expect_ok(f, submit(f, 0, DISK_FLUSH, 77, 0));
    assert_int_equal(f->mem.submitted, 3);
}

static void test_BL_038_odd_reads_give_the_right_bytes(void **state)
{
    static const struct {
        uint64_t off;
        uint32_t len;
        uint32_t shift; /* of the buffer's address */
    } c[] = {
        {512, 512, 0},        {0, 512, 0},          {BLOCK - 512, 1024, 0},
        {BLOCK, BLOCK, 16},   {1536, 3 * BLOCK, 1}, {SIZE - 512, 512, 3},
        {512, 300 * 1024, 7}, {0, SIZE / 2, 1},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
        uint8_t *p = f->buf + c[i].shift;

        memset(f->buf, 0, SIZE / 2 + 16);
        expect_ok(f, data(f, 0, DISK_READ, c[i].off, p, c[i].len));
        assert_memory_equal(p, f->want + c[i].off, c[i].len);
        assert_int_equal(p[c[i].len], 0);
    }
}

static void test_BL_038_odd_writes_change_only_their_bytes(void **state)
{
    static const struct {
        uint64_t off;
        uint32_t len;
        uint32_t shift;
    } c[] = {
        {512, 512, 0},          {0, 512, 0},
        {BLOCK - 512, 1024, 0}, {BLOCK, BLOCK, 16},
        {1536, 3 * BLOCK, 1},   {SIZE - 512, 512, 3},
        {512, 300 * 1024, 7},   {BLOCK, 256 * 1024, 1},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
        memset(f->buf, (int)('A' + i), SIZE / 2);
        expect_ok(
            f, data(f, 0, DISK_WRITE, c[i].off, f->buf + c[i].shift, c[i].len));
        assert_memory_equal(f->stored, f->want, SIZE);
    }
}

/* Whole blocks from an odd address need no reading. */
static void test_align_whole_blocks_are_not_read_before_a_write(void **state)
{
    struct fixture *f = *state;

    memset(f->buf, 'q', 3 * BLOCK);
    expect_ok(f, data(f, 0, DISK_WRITE, BLOCK, f->buf + 1, 2 * BLOCK));
    assert_int_equal(f->mem.ops_seen[DISK_READ], 0);
}

static void test_align_buffers_of_odd_lengths(void **state)
{
    static const size_t lens[] = {1, 511, 3000, 584, 4096};
    struct fixture *f = *state;
    struct req *r = &f->req[0];
    uint8_t *p = f->buf;

    for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
        r->iov[i] = (struct iovec){p, lens[i]};
        memset(p, (int)('a' + i), lens[i]);
        p += lens[i];
    }
    r->io.iovcnt = ARRAY_SIZE(lens);
    memcpy(f->want + 1024, f->buf, 8192);
    expect_ok(f, submit(f, 0, DISK_WRITE, 1024, 0));
}

static void test_align_zeroes_have_odd_ends(void **state)
{
    static const struct {
        uint64_t off;
        uint64_t len;
    } c[] = {{512, 512},
             {1024, 2 * BLOCK},
             {0, BLOCK},
             {BLOCK, 1536},
             {BLOCK + 512, SIZE - BLOCK - 1024}};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
        memset(f->want + c[i].off, 0, c[i].len);
        expect_ok(f, submit(f, 0, DISK_WRITE_ZEROES, c[i].off, c[i].len));
        assert_memory_equal(f->stored, f->want, SIZE);
    }
}

static void test_align_discard_only_takes_whole_blocks(void **state)
{
    struct fixture *f = *state;

    expect_ok(f, submit(f, 0, DISK_DISCARD, 512, BLOCK));
    assert_int_equal(f->mem.submitted, 0);
    memset(f->want + BLOCK, 0xd1, 2 * BLOCK);
    expect_ok(f, submit(f, 0, DISK_DISCARD, 512, 3 * BLOCK));
    assert_int_equal(f->mem.submitted, 1);
}

static void test_align_errors_are_passed_on(void **state)
{
    struct fixture *f = *state;
    struct req *r = data(f, 0, DISK_READ, 512, f->buf, 512);

    mem_disk_complete(&f->mem, 0, -EIO);
    assert_int_equal(r->status, -EIO);
    r = submit(f, 0, DISK_WRITE_ZEROES, 512, 512);
    mem_disk_complete(&f->mem, 0, -ENOSPC); /* the read before the write */
    assert_true(r->done);
    assert_int_equal(r->status, -ENOSPC);
    r = submit(f, 0, DISK_DISCARD, 0, BLOCK);
    mem_disk_complete(&f->mem, 0, -EOPNOTSUPP);
    assert_int_equal(r->status, -EOPNOTSUPP);
    assert_int_equal(f->mem.num_held, 0);
}

/* --- many at a time ------------------------------------------------------ */

/* Two sectors of one block: neither write may bring back the other's old
 * bytes. */
static void test_BL_038_partial_writes_of_a_block_take_turns(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < 8; i++) {
        memset(f->buf + i * 512, (int)('0' + i), 512);
        (void)data(f, i, DISK_WRITE, i * 512u, f->buf + i * 512, 512);
    }
    assert_int_equal(f->mem.num_held, 1); /* the others wait */
    settle(f);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(f->req[i].done && f->req[i].status == 0, true);
}

static void test_align_whole_and_partial_writes_take_turns(void **state)
{
    struct fixture *f = *state;

    memset(f->buf, 'p', 512);
    memset(f->buf + BLOCK, 'w', BLOCK);
    (void)data(f, 0, DISK_WRITE, 512, f->buf, 512);
    (void)data(f, 1, DISK_WRITE, 0, f->buf + BLOCK, BLOCK);
    (void)data(f, 2, DISK_WRITE, 512, f->buf, 512);
    assert_int_equal(f->mem.num_held, 1);
    settle(f);
    /* the other way round: the partial one waits for the whole one */
    (void)data(f, 3, DISK_WRITE, 8 * BLOCK, f->buf + BLOCK, BLOCK);
    (void)data(f, 4, DISK_WRITE, 8 * BLOCK + 512, f->buf, 512);
    assert_int_equal(f->mem.num_held, 1);
    settle(f);
    for (unsigned i = 0; i < 5; i++)
        assert_true(f->req[i].done);
}

static void test_align_apart_writes_do_not_wait(void **state)
{
    struct fixture *f = *state;

    memset(f->buf, 'x', 512);
    for (unsigned i = 0; i < 8; i++)
        (void)data(f, i, DISK_WRITE, i * BLOCK + 512u, f->buf, 512);
    assert_int_equal(f->mem.num_held, 8);
    /* whole blocks never wait for each other, even the same one */
    memset(f->buf + BLOCK, 'y', BLOCK);
    (void)data(f, 8, DISK_WRITE, 20 * BLOCK, f->buf + BLOCK, BLOCK);
    (void)data(f, 9, DISK_WRITE, 20 * BLOCK, f->buf + BLOCK, BLOCK);
    assert_int_equal(f->mem.num_held, 10);
    settle(f);
}

/* A later request behind a waiting one must not overtake it. */
static void test_align_waiting_writes_keep_their_order(void **state)
{
    struct fixture *f = *state;

    memset(f->buf, 'a', 512);
    memset(f->buf + 512, 'b', 2 * BLOCK);
    memset(f->buf + 512 + 2 * BLOCK, 'c', 512);
    (void)data(f, 0, DISK_WRITE, 0, f->buf, 512);
    (void)data(f, 1, DISK_WRITE, 512, f->buf + 512, 2 * BLOCK);
    (void)data(f, 2, DISK_WRITE, 2 * BLOCK, f->buf + 512 + 2 * BLOCK, 512);
    assert_int_equal(f->mem.num_held, 1);
    settle(f);
    for (unsigned i = 0; i < 3; i++)
        assert_true(f->req[i].done);
}

static void test_align_few_buffers_serve_many_requests(void **state)
{
    struct fixture *f = *state;

    memset(f->buf, 0, SIZE);
    for (unsigned i = 0; i < MAX_REQS; i++)
        (void)data(f, i, DISK_READ, i * BLOCK + 512u, f->buf + i * 512, 512);
    assert_true(f->mem.num_held < MAX_REQS);
    settle(f);
    for (unsigned i = 0; i < MAX_REQS; i++) {
        assert_true(f->req[i].done);
        assert_memory_equal(f->buf + i * 512, f->want + i * BLOCK + 512, 512);
    }
}

/* Against a plain model, the completions in any order. */
static void test_align_random_writes_match_a_model(void **state)
{
    struct fixture *f = *state;
    uint32_t seed = 12345;

    for (unsigned round = 0; round < 200; round++) {
        unsigned n = 0;

        for (; n < 16; n++) {
            uint64_t off;
            uint32_t len;

            seed = seed * 1664525 + 1013904223;
            off = 512u * ((seed >> 8) % 64);
            len = 512u * (1 + (seed >> 20) % 24);
            memset(f->buf + n * 16384u, (int)(seed >> 13), len);
            (void)data(f, n, DISK_WRITE, off, f->buf + n * 16384u, len);
            /* whole, overlapping writes in flight have no order */
            if (off % BLOCK == 0 && len % BLOCK == 0)
                mem_disk_complete_all(&f->mem);
        }
        while (f->mem.num_held > 0) {
            seed = seed * 1664525 + 1013904223;
            mem_disk_complete(&f->mem, (seed >> 10) % f->mem.num_held, 0);
        }
        for (unsigned i = 0; i < n; i++)
            assert_true(f->req[i].done);
        assert_memory_equal(f->stored, f->want, SIZE);
    }
}

static void test_align_size_is_whole_blocks(void **state)
{
    struct fixture *f = *state;

    f->mem.new_size_bytes = SIZE - 512;
    assert_int_equal(f->disk->ops->refresh(f->disk), 0);
    assert_int_equal(f->disk->size_bytes, SIZE - BLOCK);
    f->mem.refresh_rc = -EIO;
    assert_int_equal(f->disk->ops->refresh(f->disk), -EIO);
    assert_int_equal(f->disk->size_bytes, SIZE - BLOCK);
    f->mem.base.size_bytes = SIZE;
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_align_aligned_requests_go_straight_through),
        T(test_BL_038_odd_reads_give_the_right_bytes),
        T(test_BL_038_odd_writes_change_only_their_bytes),
        T(test_align_whole_blocks_are_not_read_before_a_write),
        T(test_align_buffers_of_odd_lengths),
        T(test_align_zeroes_have_odd_ends),
        T(test_align_discard_only_takes_whole_blocks),
        T(test_align_errors_are_passed_on),
        T(test_BL_038_partial_writes_of_a_block_take_turns),
        T(test_align_whole_and_partial_writes_take_turns),
        T(test_align_apart_writes_do_not_wait),
        T(test_align_waiting_writes_keep_their_order),
        T(test_align_few_buffers_serve_many_requests),
        T(test_align_random_writes_match_a_model),
        T(test_align_size_is_whole_blocks),
    };

    return cmocka_run_group_tests_name("disk_align", tests, NULL, NULL);
}
