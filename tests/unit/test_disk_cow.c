/* SPDX-License-Identifier: Apache-2.0 */
/* The copy-on-write disk, one property at a time; what fails below it. */
#include "tests/harness/cow_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLUSTER    65536u
#define BASE_BYTES (8 * CLUSTER)
#define DISK_BYTES (12 * CLUSTER + 1024)

struct fixture {
    struct evloop *loop;
    struct disk *disk;
    struct rig_spy top;
    struct rig_spy below;
    int fds[2]; /* delta, base */
    uint8_t *base;
    uint8_t *buf;
    uint32_t fail_after; /* requests that the hook lets pass */
    int fail;
    enum disk_op fail_op;
    uint64_t fail_from; /* offsets */
    uint64_t fail_to;
};

static int hook(struct rig_spy *spy, const struct disk_io *io)
{
    struct fixture *f = spy->arg;

    if (!f->fail || io->op != f->fail_op)
        return 0;
    if (io->op != DISK_FLUSH &&
        (io->offset_bytes < f->fail_from || io->offset_bytes >= f->fail_to))
        return 0;
    if (f->fail_after > 0) {
        f->fail_after--;
        return 0;
    }
    return f->fail;
}

static void attach(struct fixture *f, unsigned flags)
{
    f->disk = rig_open(f->fds, 2, flags);
    rig_spy_init(&f->top, f->disk, 0);
    rig_spy_init(&f->below, f->disk, 1);
    f->top.hook = f->below.hook = hook;
    f->top.arg = f->below.arg = f;
}

static void detach(struct fixture *f)
{
    f->fail = 0;
    f->disk->ops->free(f->disk);
    rig_spy_fini(&f->top);
    rig_spy_fini(&f->below);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    f->base = malloc(BASE_BYTES);
    f->buf = malloc(DISK_BYTES);
    assert_true(f->base && f->buf);
    for (uint32_t i = 0; i < BASE_BYTES; i++)
        f->base[i] = (uint8_t)(1 + i % 251);
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    f->fds[1] = rig_file(f->base, BASE_BYTES);
    f->fds[0] = rig_delta(f->fds[1], COW_BASE_RAW, DISK_BYTES);
    f->fail_to = UINT64_MAX;
    attach(f, 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    detach(f);
    evloop_free(f->loop);
    (void)close(f->fds[0]);
    (void)close(f->fds[1]);
    free(f->base);
    free(f->buf);
    free(f);
    return 0;
}

static int op(struct fixture *f, enum disk_op what, uint64_t off, size_t len)
{
    return rig_do(f->disk, f->loop, what, off, f->buf, len);
}

/* `len` bytes at `off` are `want` (NULL: zero). */
static void expect(struct fixture *f, uint64_t off, const uint8_t *want,
                   size_t len)
{
    memset(f->buf, 0xa5, len);
    assert_int_equal(op(f, DISK_READ, off, len), 0);
    for (size_t i = 0; i < len; i++) {
        if (f->buf[i] != (want ? want[i] : 0))
            fail_msg("byte %zu is %u", i, f->buf[i]);
    }
}

static uint64_t allocated(const struct fixture *f)
{
    struct disk_cow_info info;

    disk_cow_info(f->disk, &info);
    return info.num_allocated;
}

/* --- what requests do ------------------------------------------------------
 */

static void test_cow_reads_the_base_and_zeroes_behind_it(void **state)
{
    struct fixture *f = *state;

    expect(f, 0, f->base, BASE_BYTES);
    expect(f, BASE_BYTES, NULL, DISK_BYTES - BASE_BYTES);
    assert_int_equal(allocated(f), 0);
    assert_int_equal(f->top.ops_seen[DISK_READ], 0);
    /* one read for all that lies together */
    assert_int_equal(f->below.ops_seen[DISK_READ], 1);
}

static void test_cow_whole_clusters_are_written_without_reading(void **state)
{
    struct fixture *f = *state;

    memset(f->buf, 'w', 3 * CLUSTER);
    assert_int_equal(op(f, DISK_WRITE, CLUSTER, 3 * CLUSTER), 0);
    assert_int_equal(f->below.ops_seen[DISK_READ], 0);
    assert_int_equal(f->top.ops_seen[DISK_WRITE], 1);
    assert_int_equal(allocated(f), 3);
    /* the short cluster at the end as well */
    assert_int_equal(op(f, DISK_WRITE, 12 * CLUSTER, 1024), 0);
    assert_int_equal(f->below.ops_seen[DISK_READ], 0);
    assert_int_equal(allocated(f), 4);
}

static void test_cow_part_of_a_cluster_brings_the_rest(void **state)
{
    struct fixture *f = *state;

    memset(f->buf, 'p', 1024);
    assert_int_equal(op(f, DISK_WRITE, CLUSTER + 512, 1024), 0);
    assert_int_equal(f->below.ops_seen[DISK_READ], 1);
    assert_int_equal(allocated(f), 1);
    memset(f->base + CLUSTER + 512, 'p', 1024);
    expect(f, 0, f->base, BASE_BYTES);
    /* a second time nothing is brought */
    memset(f->buf, 'q', 512);
    assert_int_equal(op(f, DISK_WRITE, CLUSTER, 512), 0);
    assert_int_equal(f->top.ops_seen[DISK_WRITE], 2);
    memset(f->base + CLUSTER, 'q', 512);
    expect(f, 0, f->base, BASE_BYTES);
}

static void test_cow_zeroes_do_not_show_the_base(void **state)
{
    struct fixture *f = *state;

    memset(f->base + CLUSTER - 512, 0, 2 * CLUSTER + 1024);
    assert_int_equal(
        op(f, DISK_WRITE_ZEROES, CLUSTER - 512, 2 * CLUSTER + 1024), 0);
    expect(f, 0, f->base, BASE_BYTES);
    assert_int_equal(allocated(f), 4);
    /* where it reads as zero anyway nothing happens */
    assert_int_equal(op(f, DISK_WRITE_ZEROES, BASE_BYTES, 3 * CLUSTER), 0);
    assert_int_equal(allocated(f), 4);
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), 0);
    detach(f);
    attach(f, 0);
    expect(f, 0, f->base, BASE_BYTES);
}

static void test_cow_zeroed_clusters_take_no_room(void **state)
{
    struct fixture *f = *state;
    struct stat before;
    struct stat after;

    memset(f->buf, 'x', 4 * CLUSTER);
    assert_int_equal(op(f, DISK_WRITE, 0, 4 * CLUSTER), 0);
    assert_int_equal(fstat(f->fds[0], &before), 0);
    assert_int_equal(op(f, DISK_WRITE_ZEROES, 0, 2 * CLUSTER), 0);
    assert_int_equal(op(f, DISK_DISCARD, 2 * CLUSTER, 2 * CLUSTER), 0);
    assert_int_equal(fstat(f->fds[0], &after), 0);
    assert_int_equal(before.st_blocks - after.st_blocks, 4 * CLUSTER / 512);
    expect(f, 0, NULL, 2 * CLUSTER);
}

static void test_cow_discard_of_what_is_not_ours_does_nothing(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(op(f, DISK_DISCARD, 512, DISK_BYTES - 512), 0);
    assert_int_equal(f->top.num_events, 0);
    expect(f, 0, f->base, BASE_BYTES);
}

static void test_cow_writes_into_one_cluster_take_turns(void **state)
{
    struct fixture *f = *state;
    struct rig_req req[40];

    for (uint32_t i = 0; i < 40; i++) {
        memset(f->buf + (size_t)i * 512, (int)('0' + i), 512);
        rig_submit(f->disk, f->loop, &req[i], DISK_WRITE,
                   3 * CLUSTER + (uint64_t)i * 1024, f->buf + (size_t)i * 512,
                   512);
        memset(f->base + 3 * CLUSTER + (size_t)i * 1024, (int)('0' + i), 512);
    }
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(rig_wait(&req[i]), 0);
    assert_int_equal(f->below.ops_seen[DISK_READ], 1);
    expect(f, 0, f->base, BASE_BYTES);
}

/* More clusters at once than there are bounce buffers. */
static void test_cow_more_copies_than_buffers_wait(void **state)
{
    enum { N = 64 };
    int fd = rig_delta(-1, COW_BASE_NONE, N * CLUSTER);
    struct fixture *f = *state;
    struct disk *disk = rig_open(&fd, 1, 0);
    struct rig_req req[N];
    uint8_t got[1024];

    memset(f->buf, 'n', 512);
    for (uint32_t i = 0; i < N; i++)
        rig_submit(disk, f->loop, &req[i], DISK_WRITE,
                   (uint64_t)i * CLUSTER + 512, f->buf, 512);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(rig_wait(&req[i]), 0);
    assert_true(container_of(disk, struct disk_cow, base)->num_bounces <=
                COW_MAX_BOUNCES);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(
            rig_do(disk, f->loop, DISK_READ, (uint64_t)i * CLUSTER, got, 1024),
            0);
        assert_int_equal(got[511], 0);
        assert_memory_equal(got + 512, f->buf, 512);
    }
    disk->ops->free(disk);
    (void)close(fd);
}

static void test_cow_read_only_disk_reads_and_flushes(void **state)
{
    struct fixture *f = *state;

    memset(f->buf, 'r', 512);
    assert_int_equal(op(f, DISK_WRITE, 0, 512), 0);
    detach(f);
    attach(f, DISK_READ_ONLY);
    memset(f->base, 'r', 512);
    expect(f, 0, f->base, BASE_BYTES);
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), 0);
    assert_int_equal(f->top.ops_seen[DISK_FLUSH], 0);
}

/* --- flushes ---------------------------------------------------------------
 */

static void test_cow_flush_without_new_clusters_is_one_sync(void **state)
{
    struct fixture *f = *state;

    memset(f->buf, 'a', 512);
    assert_int_equal(op(f, DISK_WRITE, 0, 512), 0);
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), 0);
    assert_int_equal(f->top.ops_seen[DISK_FLUSH], 2);
    assert_int_equal(op(f, DISK_WRITE, 1024, 512), 0);
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), 0);
    assert_int_equal(f->top.ops_seen[DISK_FLUSH], 3);
}

static void test_cow_flushes_at_once_share_a_round(void **state)
{
    struct fixture *f = *state;
    struct rig_req req[20];

    memset(f->buf, 'a', 512);
    assert_int_equal(op(f, DISK_WRITE, 0, 512), 0);
    for (uint32_t i = 0; i < 20; i++)
        rig_submit(f->disk, f->loop, &req[i], DISK_FLUSH, 0, NULL, 0);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(rig_wait(&req[i]), 0);
    assert_int_equal(f->top.ops_seen[DISK_FLUSH], 3); /* 2, then 1 for 19 */
}

/* The monitor is killed: what was completed is there in spite of that. */
static void test_cow_unsafe_writes_outlive_the_monitor(void **state)
{
    struct fixture *f = *state;
    struct disk *copy;
    uint8_t got[512];
    off_t from = 0;
    int fd;

    detach(f);
    attach(f, DISK_UNSAFE);
    memset(f->buf, 'u', 512);
    assert_int_equal(op(f, DISK_WRITE, 0, 512), 0);
    assert_int_equal(f->top.ops_seen[DISK_FLUSH], 0);
    /* a copy of the file as it is now: the disk's own lock is in the way */
    fd = rig_file(NULL, 0);
    while ((uint64_t)from < cow_file_bytes(DISK_BYTES)) /* may give less */
        assert_true(sendfile(fd, f->fds[0], &from,
                             cow_file_bytes(DISK_BYTES) - (uint64_t)from) > 0);
    copy = rig_open((int[]){fd, f->fds[1]}, 2, DISK_READ_ONLY);
    assert_int_equal(rig_do(copy, f->loop, DISK_READ, 0, got, 512), 0);
    memset(f->buf, 'u', 512);
    assert_memory_equal(got, f->buf, 512);
    copy->ops->free(copy);
    (void)close(fd);
}

/* --- faults below ----------------------------------------------------------
 */

static void arm(struct fixture *f, enum disk_op what, int rc, uint32_t after)
{
    f->fail = rc;
    f->fail_op = what;
    f->fail_after = after;
}

static void test_cow_base_that_cannot_be_read_fails_that_request(void **state)
{
    struct fixture *f = *state;

    arm(f, DISK_READ, -EIO, 0);
    assert_int_equal(op(f, DISK_READ, 0, 4096), -EIO);
    memset(f->buf, 'z', 512);
    assert_int_equal(op(f, DISK_WRITE, 0, 512), -EIO);
    assert_int_equal(allocated(f), 0);
    f->fail = 0;
    expect(f, 0, f->base, BASE_BYTES);
    memset(f->buf, 'z', 512);
    assert_int_equal(op(f, DISK_WRITE, 0, 512), 0);
    memset(f->base, 'z', 512);
    expect(f, 0, f->base, BASE_BYTES);
}

static void test_cow_full_file_system_keeps_what_was_there(void **state)
{
    struct fixture *f = *state;

    arm(f, DISK_WRITE, -ENOSPC, 0);
    memset(f->buf, 'n', 3 * CLUSTER);
    assert_int_equal(op(f, DISK_WRITE, 512, 512), -ENOSPC);
    assert_int_equal(op(f, DISK_WRITE, CLUSTER, 2 * CLUSTER), -ENOSPC);
    assert_int_equal(op(f, DISK_WRITE, 512, 3 * CLUSTER), -ENOSPC);
    assert_int_equal(allocated(f), 0);
    expect(f, 0, f->base, BASE_BYTES);
    f->fail = 0;
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), 0);
}

/* Those that waited for the one that failed go on. */
static void test_cow_writers_behind_a_failure_go_on(void **state)
{
    struct fixture *f = *state;
    struct rig_req req[5];

    /* The spy's clock: the first write to the top fails, not the others. */
    f->fail = -EIO;
    f->fail_op = DISK_READ;
    for (uint32_t i = 0; i < 5; i++) {
        memset(f->buf + (size_t)i * 512, (int)('A' + i), 512);
        rig_submit(f->disk, f->loop, &req[i], DISK_WRITE, (uint64_t)i * 512,
                   f->buf + (size_t)i * 512, 512);
    }
    f->fail = 0; /* only the first has asked for its read so far */
    assert_int_equal(rig_wait(&req[0]), -EIO);
    for (uint32_t i = 1; i < 5; i++) {
        assert_int_equal(rig_wait(&req[i]), 0);
        memset(f->base + (size_t)i * 512, (int)('A' + i), 512);
    }
    expect(f, 0, f->base, BASE_BYTES);
}

static void test_cow_bitmap_that_cannot_be_written_is_tried_again(void **state)
{
    struct fixture *f = *state;

    memset(f->buf, 'b', 512);
    assert_int_equal(op(f, DISK_WRITE, 0, 512), 0);
    arm(f, DISK_WRITE, -EIO, 0);
    f->fail_to = cow_data_offset(DISK_BYTES);
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), -EIO);
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), -EIO);
    f->fail = 0;
    memset(f->base, 'b', 512);
    expect(f, 0, f->base, BASE_BYTES);
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), 0);
    assert_int_equal(f->top.ops_seen[DISK_WRITE], 4); /* data, 3 times map */
}

/* What the host forgot in a failed sync must not get a bit later. */
static void test_cow_failed_sync_stays_failed(void **state)
{
    struct fixture *f = *state;

    memset(f->buf, 's', 512);
    assert_int_equal(op(f, DISK_WRITE, 0, 512), 0);
    arm(f, DISK_FLUSH, -EIO, 0);
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), -EIO);
    f->fail = 0;
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), -EIO);
    assert_int_equal(f->top.ops_seen[DISK_WRITE], 1); /* no bitmap */
    detach(f);
    attach(f, 0);
    expect(f, 0, f->base, BASE_BYTES);
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), 0);
}

static void test_cow_failed_second_sync_stays_failed(void **state)
{
    struct fixture *f = *state;

    memset(f->buf, 's', 512);
    assert_int_equal(op(f, DISK_WRITE, 0, 512), 0);
    arm(f, DISK_FLUSH, -EIO, 1);
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), -EIO);
    f->fail = 0;
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), -EIO);
}

/* --- a new top -------------------------------------------------------------
 */

static void test_cow_freeze_puts_a_new_file_on_top(void **state)
{
    struct fixture *f = *state;
    int top = rig_file(NULL, 0);
    int child = -1;
    struct disk_cow_info info;
    struct disk *other;
    uint8_t got[1024];

    memset(f->buf, '1', 512);
    assert_int_equal(op(f, DISK_WRITE, 0, 512), 0);
    assert_int_equal(disk_cow_freeze(f->disk, rig_reopen(top), "d", NULL), 0);
    disk_cow_info(f->disk, &info);
    assert_int_equal(info.depth, 2);
    assert_int_equal(info.num_allocated, 0);
    assert_true(info.has_raw_base);
    memset(f->buf, '2', 512);
    assert_int_equal(op(f, DISK_WRITE, 512, 512), 0);
    assert_int_equal(op(f, DISK_FLUSH, 0, 0), 0);
    /* another one on the same layer sees what was there at that moment */
    child = rig_delta(f->fds[0], COW_BASE_COW, 0);
    other = rig_open((int[]){child, f->fds[0], f->fds[1]}, 3, 0);
    assert_int_equal(rig_do(other, f->loop, DISK_READ, 0, got, 1024), 0);
    memset(f->base, '1', 512);
    assert_memory_equal(got, f->base, 1024);
    other->ops->free(other);
    memset(f->base + 512, '2', 512);
    expect(f, 0, f->base, BASE_BYTES);
    (void)close(top);
    (void)close(child);
}

static void test_cow_freeze_that_fails_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct errmsg err = {""};
    struct disk_cow_info info;

    /* not empty */
    assert_int_equal(disk_cow_freeze(f->disk, f->fds[1], "d", &err), -EINVAL);
    assert_non_null(strstr(err.text, "no empty file"));
    disk_cow_info(f->disk, &info);
    assert_int_equal(info.depth, 1);
    memset(f->buf, 'k', 512);
    assert_int_equal(op(f, DISK_WRITE, 0, 512), 0);
    detach(f);
    attach(f, 0); /* it is not marked as a base */
    memset(f->base, 'k', 512);
    expect(f, 0, f->base, BASE_BYTES);
}

static void test_cow_chain_ends_at_sixteen_files(void **state)
{
    struct fixture *f = *state;
    int fds[COW_MAX_DEPTH + 1];
    struct errmsg err = {""};

    for (uint32_t i = 1; i < COW_MAX_DEPTH; i++) {
        memset(f->buf, (int)i, 512);
        assert_int_equal(op(f, DISK_WRITE, (uint64_t)i * 1024, 512), 0);
        memset(f->base + (size_t)i * 1024, (int)i, 512);
        assert_int_equal(
            disk_cow_freeze(f->disk, rig_file(NULL, 0), NULL, NULL), 0);
    }
    fds[0] = rig_file(NULL, 0);
    assert_int_equal(disk_cow_freeze(f->disk, fds[0], NULL, &err), -EMLINK);
    assert_non_null(strstr(err.text, "flatten"));
    (void)close(fds[0]);
    expect(f, 0, f->base, BASE_BYTES);
    assert_int_equal(disk_cow_fds(f->disk, fds), COW_MAX_DEPTH + 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_cow_reads_the_base_and_zeroes_behind_it),
        T(test_cow_whole_clusters_are_written_without_reading),
        T(test_cow_part_of_a_cluster_brings_the_rest),
        T(test_cow_zeroes_do_not_show_the_base),
        T(test_cow_zeroed_clusters_take_no_room),
        T(test_cow_discard_of_what_is_not_ours_does_nothing),
        T(test_cow_writes_into_one_cluster_take_turns),
        T(test_cow_more_copies_than_buffers_wait),
        T(test_cow_read_only_disk_reads_and_flushes),
        T(test_cow_flush_without_new_clusters_is_one_sync),
        T(test_cow_flushes_at_once_share_a_round),
        T(test_cow_unsafe_writes_outlive_the_monitor),
        T(test_cow_base_that_cannot_be_read_fails_that_request),
        T(test_cow_full_file_system_keeps_what_was_there),
        T(test_cow_writers_behind_a_failure_go_on),
        T(test_cow_bitmap_that_cannot_be_written_is_tried_again),
        T(test_cow_failed_sync_stays_failed),
        T(test_cow_failed_second_sync_stays_failed),
        T(test_cow_freeze_puts_a_new_file_on_top),
        T(test_cow_freeze_that_fails_changes_nothing),
        T(test_cow_chain_ends_at_sixteen_files),
    };

    (void)alarm(300); /* against a hang */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
