/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The block device as it changes while it runs: size, backing, limits; and what
 * several queues, ranges and cache modes make of requests.
 */
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
#include <sys/stat.h>

#define RAM       (16 * MIB)
#define SECTORS   64u
#define QSIZE     32u
#define NO_ANSWER 0xee
#define ALL       (~0ull)
#define BIT(n)    (1ull << (n))
#define NS_PER_MS 1000000ull

struct fixture {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct mem_disk disk;
    struct mem_disk other;
    struct virtio_dev *dev;
    gpa_t status;
    gpa_t data;
};

static struct fixture *make(const struct vblk_args *args, bool read_only,
                            uint64_t features)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct vdev_env env;

    assert_non_null(f);
    fdrv_init(&f->d, RAM);
    log_init(&f->log, -1, LOG_OFF, "test");
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    mem_disk_init(&f->disk, NULL, SECTORS * 512u);
    mem_disk_init(&f->other, NULL, SECTORS * 1024u);
    f->disk.base.read_only = read_only;
    env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    assert_int_equal(vblk_new(&env, &f->disk.base, args, &f->dev), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, features), 0);
    f->status = fdrv_alloc(&f->d, 256, 64);
    f->data = fdrv_alloc(&f->d, MIB, 4096);
    memset(fdrv_ptr(&f->d, f->status, 256), NO_ANSWER, 256);
    return f;
}

static int setup(void **state)
{
    static const struct vblk_args args = {.id = "a"};

    *state = make(&args, false, ALL);
    return 0;
}

static int setup_four_queues(void **state)
{
    static const struct vblk_args args = {.id = "a", .num_queues = 9};

    *state = make(&args, false, ALL);
    return 0;
}

static int setup_unsafe(void **state)
{
    static const struct vblk_args args = {.id = "a", .unsafe_cache = true};

    *state = make(&args, false, 0);
    return 0;
}

static int setup_read_only(void **state)
{
    static const struct vblk_args args = {.id = "a"};

    *state = make(&args, true, ALL);
    return 0;
}

static int setup_no_flush(void **state)
{
    static const struct vblk_args args = {.id = "a"};

    *state = make(&args, false,
                  BIT(VIRTIO_BLK_F_DISCARD) | BIT(VIRTIO_BLK_F_WRITE_ZEROES));
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    if (fdrv_reset(&f->d) == -EINPROGRESS) {
        mem_disk_complete_all(&f->disk);
        mem_disk_complete_all(&f->other);
    }
    f->dev->ops->free(f->dev);
    assert_int_equal(f->disk.freed, 1);
    evloop_free(f->loop);
    fdrv_fini(&f->d);
    free(f);
    return 0;
}

/* --- the driver ---------------------------------------------------------- */

static struct fdrv_seg header(struct fixture *f, uint32_t type, uint64_t sector)
{
    uint8_t h[16] = {0};

    put_le32(h, type);
    put_le64(h + 8, sector);
    return (struct fdrv_seg){fdrv_put(&f->d, h, 16, 16), 16, false};
}

/* A request on queue `q` whose status byte is the i-th; `len` 0: no data. */
static uint16_t add(struct fixture *f, uint16_t q, unsigned i, uint32_t type,
                    uint64_t sector, uint32_t len)
{
    struct fdrv_seg segs[3] = {header(f, type, sector)};
    uint16_t n = 1;

    if (len > 0)
        segs[n++] = (struct fdrv_seg){f->data, len, type != VIRTIO_BLK_T_OUT};
    segs[n++] = (struct fdrv_seg){f->status + i, 1, true};
    return fdrv_add(&f->d, q, segs, n);
}

static void put_range(uint8_t *p, uint64_t sector, uint32_t count,
                      uint32_t flags)
{
    put_le64(p, sector);
    put_le32(p + 8, count);
    put_le32(p + 12, flags);
}

/* Discard or zero the ranges; `bytes` of `ranges` go along. */
static void add_ranges(struct fixture *f, unsigned i, uint32_t type,
                       const uint8_t *ranges, uint32_t bytes)
{
    const struct fdrv_seg segs[3] = {
        header(f, type, 0),
        {fdrv_put(&f->d, ranges, bytes, 16), bytes, false},
        {f->status + i, 1, true},
    };

    (void)fdrv_add(&f->d, 0, segs, 3);
    fdrv_kick(&f->d, 0);
}

static uint8_t status_of(struct fixture *f, unsigned i)
{
    uint8_t s;

    fdrv_read(&f->d, f->status + i, &s, 1);
    return s;
}

static uint64_t capacity(struct fixture *f)
{
    uint8_t b[8] = {0};

    f->dev->ops->config_read(f->dev, 0, b, 8);
    return get_le64(b);
}

static struct virtio_blk_config config(struct fixture *f)
{
    struct virtio_blk_config c;

    f->dev->ops->config_read(f->dev, 0, &c, sizeof(c));
    return c;
}

/* --- ranges -------------------------------------------------------------- */

static void test_vblk_ranges_are_announced(void **state)
{
    struct fixture *f = *state;
    struct virtio_blk_config c = config(f);

    assert_true(f->dev->offered & BIT(VIRTIO_BLK_F_DISCARD));
    assert_true(f->dev->offered & BIT(VIRTIO_BLK_F_WRITE_ZEROES));
    assert_int_equal(le32toh(c.max_discard_sectors), VBLK_MAX_RANGE_SECTORS);
    assert_int_equal(le32toh(c.max_discard_seg), VBLK_MAX_RANGES);
    assert_int_equal(le32toh(c.discard_sector_alignment), 1);
    assert_int_equal(le32toh(c.max_write_zeroes_sectors),
                     VBLK_MAX_RANGE_SECTORS);
    assert_int_equal(le32toh(c.max_write_zeroes_seg), VBLK_MAX_RANGES);
    assert_int_equal(c.write_zeroes_may_unmap, 1);
}

/* Sectors stay 512 bytes; what is better is only told. */
static void test_vblk_large_blocks_are_told_as_topology(void **state)
{
    static const struct vblk_args args = {.id = "a"};
    struct fixture *f = *state;
    struct vdev_env env = f->dev->env;
    struct virtio_blk_config c;
    struct virtio_dev *dev = NULL;

    assert_false(f->dev->offered & BIT(VIRTIO_BLK_F_TOPOLOGY));
    f->other.base.block_bytes = 4096;
    f->other.base.discard_bytes = 4096;
    assert_int_equal(vblk_new(&env, &f->other.base, &args, &dev), 0);
    assert_true(dev->offered & BIT(VIRTIO_BLK_F_TOPOLOGY));
    dev->ops->config_read(dev, 0, &c, sizeof(c));
    assert_int_equal(le32toh(c.blk_size), 512);
    assert_int_equal(c.physical_block_exp, 3);
    assert_int_equal(le16toh(c.min_io_size), 8);
    assert_int_equal(le32toh(c.discard_sector_alignment), 8);
    dev->ops->free(dev);
}

static void test_vblk_ranges_are_done_one_after_the_other(void **state)
{
    struct fixture *f = *state;
    uint8_t r[3 * 16];

    put_range(r, 0, 8, 0);
    put_range(r + 16, 16, 4, 1);
    put_range(r + 32, 20, 4, 1); /* joined to the one before */
    add_ranges(f, 0, VIRTIO_BLK_T_WRITE_ZEROES, r, sizeof(r));
    assert_int_equal(f->disk.num_held, 1);
    assert_int_equal(f->disk.held[0]->op, DISK_WRITE_ZEROES);
    assert_int_equal(f->disk.held[0]->len_bytes, 8 * 512);
    assert_false(f->disk.held[0]->may_unmap);
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(status_of(f, 0), NO_ANSWER);
    assert_int_equal(f->disk.held[0]->offset_bytes, 16 * 512);
    assert_int_equal(f->disk.held[0]->len_bytes, 8 * 512);
    assert_true(f->disk.held[0]->may_unmap);
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(f->disk.num_held, 0);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_OK);
    assert_int_equal(fdrv_used_idx(&f->d, 0), 1);
}

static void test_vblk_range_that_fails_ends_the_request(void **state)
{
    struct fixture *f = *state;
    uint8_t r[2 * 16];

    put_range(r, 0, 8, 0);
    put_range(r + 16, 16, 8, 0);
    add_ranges(f, 0, VIRTIO_BLK_T_DISCARD, r, sizeof(r));
    mem_disk_complete(&f->disk, 0, -EIO);
    assert_int_equal(f->disk.num_held, 0);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_IOERR);
    add_ranges(f, 1, VIRTIO_BLK_T_DISCARD, r, sizeof(r));
    mem_disk_complete(&f->disk, 0, -EOPNOTSUPP);
    assert_int_equal(f->disk.num_held, 0);
    assert_int_equal(status_of(f, 1), VIRTIO_BLK_S_UNSUPP);
}

static void test_vblk_bad_range_spoils_the_whole_request(void **state)
{
    struct fixture *f = *state;
    uint8_t r[2 * 16];

    put_range(r, 0, 8, 0);
    put_range(r + 16, SECTORS, 1, 0);
    add_ranges(f, 0, VIRTIO_BLK_T_DISCARD, r, sizeof(r));
    put_range(r + 16, 0, 1, 2);
    add_ranges(f, 1, VIRTIO_BLK_T_WRITE_ZEROES, r, sizeof(r));
    assert_int_equal(f->disk.submitted, 0);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_IOERR);
    assert_int_equal(status_of(f, 1), VIRTIO_BLK_S_UNSUPP);
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_vblk_read_only_disk_offers_and_does_no_ranges(void **state)
{
    struct fixture *f = *state;
    uint8_t r[16];

    assert_false(f->dev->offered &
                 (BIT(VIRTIO_BLK_F_DISCARD) | BIT(VIRTIO_BLK_F_WRITE_ZEROES) |
                  BIT(VIRTIO_BLK_F_FLUSH)));
    put_range(r, 0, 8, 0);
    add_ranges(f, 0, VIRTIO_BLK_T_DISCARD, r, sizeof(r));
    add_ranges(f, 1, VIRTIO_BLK_T_WRITE_ZEROES, r, sizeof(r));
    assert_int_equal(f->disk.submitted, 0);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_IOERR);
    assert_int_equal(status_of(f, 1), VIRTIO_BLK_S_IOERR);
}

/* --- durability ---------------------------------------------------------- */

static void test_BL_032_zeroes_are_synced_without_the_flush_feature(void **s)
{
    struct fixture *f = *s;
    uint8_t r[16];

    put_range(r, 0, 8, 0);
    add_ranges(f, 0, VIRTIO_BLK_T_WRITE_ZEROES, r, sizeof(r));
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(f->disk.held[0]->op, DISK_FLUSH);
    assert_int_equal(status_of(f, 0), NO_ANSWER);
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_OK);
    add_ranges(f, 1, VIRTIO_BLK_T_DISCARD, r, sizeof(r));
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(status_of(f, 1), VIRTIO_BLK_S_OK);
}

static void test_vblk_unsafe_cache_never_syncs(void **state)
{
    struct fixture *f = *state;

    assert_false(f->dev->offered & BIT(VIRTIO_BLK_F_FLUSH));
    (void)add(f, 0, 0, VIRTIO_BLK_T_OUT, 0, 512);
    fdrv_kick(&f->d, 0);
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_OK);
    (void)add(f, 0, 1, VIRTIO_BLK_T_FLUSH, 0, 0);
    fdrv_kick(&f->d, 0);
    assert_int_equal(status_of(f, 1), VIRTIO_BLK_S_OK);
    assert_int_equal(f->disk.ops_seen[DISK_FLUSH], 0);
}

/* --- several queues ------------------------------------------------------ */

static void test_vblk_four_queues_at_most(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(f->dev->num_queues, 4);
    assert_true(f->dev->offered & BIT(VIRTIO_BLK_F_MQ));
    assert_int_equal(le16toh(config(f).num_queues), 4);
}

static void test_vblk_queues_answer_on_their_own(void **state)
{
    struct fixture *f = *state;

    for (uint16_t q = 0; q < 4; q++) {
        (void)add(f, q, q, VIRTIO_BLK_T_IN, q, 512);
        fdrv_kick(&f->d, q);
    }
    assert_int_equal(f->disk.num_held, 4);
    mem_disk_complete(&f->disk, 2, 0);
    loop_run_for(f->loop, 0);
    for (uint16_t q = 0; q < 4; q++) {
        assert_int_equal(fdrv_used_idx(&f->d, q), q == 2);
        assert_int_equal(f->d.signals[q], q == 2);
    }
}

/* Every queue filled up: there is a place for each request. */
static void test_vblk_all_queues_full_at_once(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[2];

    for (uint16_t q = 0; q < 4; q++) {
        f->dev->vq[q].indirect = true;
        for (unsigned i = 0; i < QSIZE; i++) {
            segs[0] = header(f, VIRTIO_BLK_T_FLUSH, 0);
            segs[1] = (struct fdrv_seg){f->status + i, 1, true};
            (void)fdrv_add_indirect(&f->d, q, segs, 2);
        }
        fdrv_kick(&f->d, q);
    }
    assert_int_equal(f->disk.num_held, 4 * QSIZE);
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_BL_042_broken_queue_stops_the_others_too(void **state)
{
    struct fixture *f = *state;

    (void)add(f, 1, 0, VIRTIO_BLK_T_IN, 0, 512);
    fdrv_kick(&f->d, 1);
    fdrv_set_avail_idx(&f->d, 2, QSIZE + 1);
    f->dev->ops->queue_kick(f->dev, 2);
    assert_int_equal(f->d.needs_resets, 1);
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(fdrv_used_idx(&f->d, 1), 0);
    f->dev->ops->queue_kick(f->dev, 1);
    assert_int_equal(f->d.needs_resets, 1);
    assert_true(loop_run_is_idle(f->loop));
}

static void test_vblk_one_signal_for_the_completions_of_a_turn(void **state)
{
    struct fixture *f = *state;

    fdrv_set_used_event(&f->d, 0, 0);
    for (unsigned i = 0; i < 5; i++)
        (void)add(f, 0, i, VIRTIO_BLK_T_IN, i, 512);
    fdrv_kick(&f->d, 0);
    for (unsigned i = 0; i < 5; i++)
        mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(f->d.signals[0], 0);
    loop_run_for(f->loop, 0);
    assert_int_equal(f->d.signals[0], 1);
    assert_int_equal(fdrv_used_idx(&f->d, 0), 5);
}

static void test_vblk_reset_forgets_signals_that_wait(void **state)
{
    struct fixture *f = *state;

    (void)add(f, 0, 0, VIRTIO_BLK_T_IN, 0, 512);
    fdrv_kick(&f->d, 0);
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(fdrv_reset(&f->d), 0);
    loop_run_for(f->loop, 0);
    assert_int_equal(f->d.signals[0], 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, ALL), 0);
}

/* --- size ---------------------------------------------------------------- */

static void test_BL_031_growth_is_told_and_used(void **state)
{
    struct fixture *f = *state;

    (void)add(f, 0, 0, VIRTIO_BLK_T_IN, SECTORS, 512);
    fdrv_kick(&f->d, 0);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_IOERR);
    f->disk.new_size_bytes = (SECTORS + 8) * 512u;
    assert_int_equal(vblk_refresh_size(f->dev), 0);
    assert_int_equal(f->d.config_changes, 1);
    assert_int_equal(capacity(f), SECTORS + 8);
    (void)add(f, 0, 1, VIRTIO_BLK_T_IN, SECTORS, 512);
    fdrv_kick(&f->d, 0);
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(status_of(f, 1), VIRTIO_BLK_S_OK);
}

static void test_BL_031_unchanged_size_disturbs_nobody(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(vblk_refresh_size(f->dev), 0);
    assert_int_equal(f->d.config_changes, 0);
    f->disk.refresh_rc = -EIO;
    f->disk.new_size_bytes = 512;
    assert_int_equal(vblk_refresh_size(f->dev), -EIO);
    assert_int_equal(f->d.config_changes, 0);
    assert_int_equal(capacity(f), SECTORS);
}

static void test_BL_031_shrink_fails_requests_past_the_end_singly(void **state)
{
    struct fixture *f = *state;

    f->disk.new_size_bytes = 8 * 512u;
    assert_int_equal(vblk_refresh_size(f->dev), 0);
    assert_int_equal(capacity(f), 8);
    (void)add(f, 0, 0, VIRTIO_BLK_T_IN, 8, 512);
    (void)add(f, 0, 1, VIRTIO_BLK_T_OUT, 7, 1024);
    (void)add(f, 0, 2, VIRTIO_BLK_T_OUT, 7, 512);
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.num_held, 1);
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_IOERR);
    assert_int_equal(status_of(f, 1), VIRTIO_BLK_S_IOERR);
    assert_int_equal(status_of(f, 2), VIRTIO_BLK_S_OK);
    assert_int_equal(f->d.needs_resets, 0);
}

/* A shrink between two ranges of one request. */
static void test_BL_031_shrink_in_the_middle_of_a_request(void **state)
{
    struct fixture *f = *state;
    uint8_t r[2 * 16];

    put_range(r, 0, 8, 0);
    put_range(r + 16, 32, 8, 0);
    add_ranges(f, 0, VIRTIO_BLK_T_WRITE_ZEROES, r, sizeof(r));
    f->disk.new_size_bytes = 39 * 512u;
    assert_int_equal(vblk_refresh_size(f->dev), 0);
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(f->disk.num_held, 0);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_IOERR);
}

/* --- swap ---------------------------------------------------------------- */

static void test_BL_031_swap_leaves_requests_in_flight_on_the_old_disk(void **s)
{
    struct fixture *f = *s;

    (void)add(f, 0, 0, VIRTIO_BLK_T_OUT, 0, 512);
    (void)add(f, 0, 1, VIRTIO_BLK_T_IN, 0, 512);
    fdrv_kick(&f->d, 0);
    assert_int_equal(vblk_swap(f->dev, &f->other.base), 0);
    assert_int_equal(capacity(f), 2 * SECTORS);
    assert_int_equal(f->d.config_changes, 1);
    (void)add(f, 0, 2, VIRTIO_BLK_T_IN, SECTORS, 512);
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.num_held, 2);
    assert_int_equal(f->other.num_held, 1);
    mem_disk_complete(&f->other, 0, 0);
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(f->disk.freed, 0);
    mem_disk_complete(&f->disk, 0, -EIO);
    assert_int_equal(f->disk.freed, 1);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_OK);
    assert_int_equal(status_of(f, 1), VIRTIO_BLK_S_IOERR);
    assert_int_equal(status_of(f, 2), VIRTIO_BLK_S_OK);
}

static void test_vblk_swap_at_rest_frees_the_old_disk_at_once(void **state)
{
    struct fixture *f = *state;

    f->other.base.size_bytes = SECTORS * 512u;
    assert_int_equal(vblk_swap(f->dev, &f->other.base), 0);
    assert_int_equal(f->disk.freed, 1);
    assert_int_equal(f->d.config_changes, 0); /* the same size */
}

static void test_vblk_swap_of_another_kind_is_refused(void **state)
{
    struct fixture *f = *state;

    f->other.base.read_only = true;
    assert_int_equal(vblk_swap(f->dev, &f->other.base), -EINVAL);
    assert_int_equal(f->disk.freed, 0);
    assert_int_equal(f->other.freed, 0);
    assert_int_equal(capacity(f), SECTORS);
}

/* The write's sync goes where the write went. */
static void test_BL_032_swap_in_the_middle_of_a_durable_write(void **state)
{
    struct fixture *f = *state;

    (void)add(f, 0, 0, VIRTIO_BLK_T_OUT, 0, 512);
    fdrv_kick(&f->d, 0);
    assert_int_equal(vblk_swap(f->dev, &f->other.base), 0);
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(f->disk.num_held, 1);
    assert_int_equal(f->disk.held[0]->op, DISK_FLUSH);
    assert_int_equal(f->other.submitted, 0);
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(f->disk.freed, 1);
    assert_int_equal(status_of(f, 0), VIRTIO_BLK_S_OK);
}

static void test_vblk_reset_waits_for_the_old_disk_as_well(void **state)
{
    struct fixture *f = *state;

    (void)add(f, 0, 0, VIRTIO_BLK_T_IN, 0, 512);
    fdrv_kick(&f->d, 0);
    assert_int_equal(vblk_swap(f->dev, &f->other.base), 0);
    assert_int_equal(fdrv_reset(&f->d), -EINPROGRESS);
    mem_disk_complete(&f->disk, 0, 0);
    assert_int_equal(f->d.reset_dones, 1);
    assert_int_equal(f->disk.freed, 1);
    assert_int_equal(status_of(f, 0), NO_ANSWER);
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, ALL), 0);
}

static void test_vblk_knows_its_file(void **state)
{
    struct fixture *f = *state;
    struct stat st = {0};

    assert_true(vblk_is_file(f->dev, &st));
}

/* --- limits -------------------------------------------------------------- */

static const struct rate_limit_config slow = {
    .ops = {.size = 2, .refill_ms = 100},
};
static const struct rate_limit_config no_limit = {{0}, {0}};

static bool all_taken(void *arg)
{
    struct fixture *f = arg;

    return f->disk.submitted == 6;
}

static void test_vblk_limited_requests_wait_in_the_queue(void **state)
{
    struct fixture *f = *state;
    uint64_t start = util_now_ns();

    vblk_set_rate_limit(f->dev, &slow);
    for (unsigned i = 0; i < 5; i++)
        (void)add(f, 0, i, VIRTIO_BLK_T_IN, i, 512);
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.submitted, 2);
    (void)add(f, 0, 5, VIRTIO_BLK_T_IN, 5, 512);
    fdrv_kick(&f->d, 0); /* a kick changes nothing */
    assert_int_equal(f->disk.submitted, 2);
    assert_true(loop_run_until(f->loop, all_taken, f));
    assert_true(util_now_ns() - start >= 190 * NS_PER_MS);
    mem_disk_complete_all(&f->disk);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(status_of(f, i), VIRTIO_BLK_S_OK);
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_vblk_limited_device_does_not_spin(void **state)
{
    static const struct rate_limit_config never = {
        .bandwidth = {.size = 512, .refill_ms = 3600000},
    };
    struct fixture *f = *state;

    vblk_set_rate_limit(f->dev, &never);
    for (unsigned i = 0; i < 2; i++)
        (void)add(f, 0, i, VIRTIO_BLK_T_IN, i, 512);
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.submitted, 1);
    assert_true(loop_run_is_idle(f->loop));
}

static void test_BL_036_request_larger_than_the_bucket_passes(void **state)
{
    static const struct rate_limit_config small = {
        .bandwidth = {.size = 4096, .refill_ms = 40},
    };
    struct fixture *f = *state;

    vblk_set_rate_limit(f->dev, &small);
    for (unsigned i = 0; i < 6; i++)
        (void)add(f, 0, i, VIRTIO_BLK_T_IN, 0, 16384);
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.submitted, 1);
    assert_true(loop_run_until(f->loop, all_taken, f));
}

static void test_vblk_limit_taken_away_lets_all_pass_at_once(void **state)
{
    struct fixture *f = *state;

    vblk_set_rate_limit(f->dev, &slow);
    for (unsigned i = 0; i < 6; i++)
        (void)add(f, 0, i, VIRTIO_BLK_T_IN, i, 512);
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.submitted, 2);
    vblk_set_rate_limit(f->dev, &no_limit);
    assert_int_equal(f->disk.submitted, 6);
    loop_run_for(f->loop, 0);
    assert_int_equal(f->disk.submitted, 6);
}

static void test_vblk_limited_queues_take_turns(void **state)
{
    static const struct rate_limit_config one = {
        .ops = {.size = 1, .refill_ms = 5},
    };
    struct fixture *f = *state;

    vblk_set_rate_limit(f->dev, &one);
    for (uint16_t q = 0; q < 4; q++) {
        for (unsigned i = 0; i < 4; i++)
            (void)add(f, q, i, VIRTIO_BLK_T_IN, q, 512);
        fdrv_kick(&f->d, q);
    }
    assert_true(loop_run_until(f->loop, all_taken, f));
    for (uint64_t q = 0; q < 4; q++) {
        bool seen = false;

        for (uint32_t i = 0; i < f->disk.num_held; i++)
            seen |= f->disk.held[i]->offset_bytes == q * 512;
        assert_true(seen);
    }
}

static void test_vblk_reset_of_a_limited_device(void **state)
{
    struct fixture *f = *state;

    vblk_set_rate_limit(f->dev, &slow);
    for (unsigned i = 0; i < 6; i++)
        (void)add(f, 0, i, VIRTIO_BLK_T_FLUSH, 0, 0);
    fdrv_kick(&f->d, 0);
    mem_disk_complete_all(&f->disk);
    assert_int_equal(fdrv_reset(&f->d), 0);
    loop_run_for(f->loop, 120);
    assert_int_equal(f->disk.submitted, 2);
    assert_int_equal(fdrv_attach(&f->d, f->dev, QSIZE, ALL), 0);
    (void)add(f, 0, 0, VIRTIO_BLK_T_FLUSH, 0, 0);
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.submitted, 3);
}

/* What a hostile driver changes while its request waits is checked anew. */
static void test_vblk_request_changed_while_it_waits(void **state)
{
    struct fixture *f = *state;
    uint8_t h[16] = {0};
    struct fdrv_seg head;

    vblk_set_rate_limit(f->dev, &slow);
    for (unsigned i = 0; i < 2; i++)
        (void)add(f, 0, i, VIRTIO_BLK_T_IN, i, 512);
    head = header(f, VIRTIO_BLK_T_IN, 3);
    (void)fdrv_add(&f->d, 0,
                   (const struct fdrv_seg[]){
                       head, {f->data, 512, true}, {f->status + 2, 1, true}},
                   3);
    fdrv_kick(&f->d, 0);
    assert_int_equal(f->disk.submitted, 2);
    put_le64(h + 8, SECTORS);
    fdrv_write(&f->d, head.gpa, h, sizeof(h));
    vblk_set_rate_limit(f->dev, &no_limit);
    assert_int_equal(f->disk.submitted, 2);
    assert_int_equal(status_of(f, 2), VIRTIO_BLK_S_IOERR);
}

#define T(t)    cmocka_unit_test_setup_teardown(t, setup, teardown)
#define T_MQ(t) cmocka_unit_test_setup_teardown(t, setup_four_queues, teardown)
#define T_US(t) cmocka_unit_test_setup_teardown(t, setup_unsafe, teardown)
#define T_RO(t) cmocka_unit_test_setup_teardown(t, setup_read_only, teardown)
#define T_NF(t) cmocka_unit_test_setup_teardown(t, setup_no_flush, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_vblk_ranges_are_announced),
        T(test_vblk_large_blocks_are_told_as_topology),
        T(test_vblk_ranges_are_done_one_after_the_other),
        T(test_vblk_range_that_fails_ends_the_request),
        T(test_vblk_bad_range_spoils_the_whole_request),
        T_RO(test_vblk_read_only_disk_offers_and_does_no_ranges),
        T_NF(test_BL_032_zeroes_are_synced_without_the_flush_feature),
        T_US(test_vblk_unsafe_cache_never_syncs),
        T_MQ(test_vblk_four_queues_at_most),
        T_MQ(test_vblk_queues_answer_on_their_own),
        T_MQ(test_vblk_all_queues_full_at_once),
        T_MQ(test_BL_042_broken_queue_stops_the_others_too),
        T(test_vblk_one_signal_for_the_completions_of_a_turn),
        T(test_vblk_reset_forgets_signals_that_wait),
        T(test_BL_031_growth_is_told_and_used),
        T(test_BL_031_unchanged_size_disturbs_nobody),
        T(test_BL_031_shrink_fails_requests_past_the_end_singly),
        T(test_BL_031_shrink_in_the_middle_of_a_request),
        T(test_BL_031_swap_leaves_requests_in_flight_on_the_old_disk),
        T(test_vblk_swap_at_rest_frees_the_old_disk_at_once),
        T(test_vblk_swap_of_another_kind_is_refused),
        T_NF(test_BL_032_swap_in_the_middle_of_a_durable_write),
        T(test_vblk_reset_waits_for_the_old_disk_as_well),
        T(test_vblk_knows_its_file),
        T(test_vblk_limited_requests_wait_in_the_queue),
        T(test_vblk_limited_device_does_not_spin),
        T(test_BL_036_request_larger_than_the_bucket_passes),
        T(test_vblk_limit_taken_away_lets_all_pass_at_once),
        T_MQ(test_vblk_limited_queues_take_turns),
        T(test_vblk_reset_of_a_limited_device),
        T(test_vblk_request_changed_while_it_waits),
    };

    return cmocka_run_group_tests_name("virtio_blk_change", tests, NULL, NULL);
}
