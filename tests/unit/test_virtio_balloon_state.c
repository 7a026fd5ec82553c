/* SPDX-License-Identifier: Apache-2.0 */
/* A balloon whose machine pauses, is saved and loaded. */
#include "devices/virtio_balloon.h"

#include "tests/harness/balloon_guest.h"
#include "tests/harness/loop_run.h"
#include "tests/harness/state_box.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <linux/virtio_balloon.h>
#include <string.h>

#define SCATTERED  1000u /* pages with gaps: several turns */
#define CFG_NUM    0u
#define CFG_ACTUAL 4u
#define CFG_HINT   8u
#define CFG_POISON 12u

static void offer_stats(struct balloon_guest *f, uint16_t tag, uint64_t v)
{
    struct fdrv_seg seg = {f->list + 60 * KIB, 10, false};
    uint8_t e[10];

    put_le16(e, tag);
    put_le64(e + 2, v);
    fdrv_write(&f->d, seg.gpa, e, 10);
    (void)fdrv_add(&f->d, BG_STATS, &seg, 1);
    fdrv_kick(&f->d, BG_STATS);
}

/* A request that is under way when this returns. */
static void begin_inflate(struct balloon_guest *f)
{
    struct fdrv_seg seg = {f->list, 4 * SCATTERED, false};
    uint32_t pfns[SCATTERED];

    for (uint32_t i = 0; i < SCATTERED; i++)
        pfns[i] = bg_pfn(f, 2 * i);
    bg_put_pfns(f, pfns, SCATTERED);
    (void)fdrv_add(&f->d, BG_INFLATE, &seg, 1);
    fdrv_kick(&f->d, BG_INFLATE);
    assert_int_equal(fdrv_used_idx(&f->d, BG_INFLATE), 0);
}

static void inflate_ends(struct balloon_guest *f)
{
    f->q = BG_INFLATE;
    f->want_used = 1;
    assert_true(loop_run_until(f->loop, bg_used_reaches, f));
    for (uint32_t i = 0; i < SCATTERED; i++) {
        assert_int_equal(bg_byte(f, 2 * i), 0);
        assert_int_equal(bg_byte(f, 2 * i + 1), 'p');
    }
}

static struct virtio_dev *new_device(struct balloon_guest *f, uint64_t target)
{
    const struct vballoon_args args = {.target_bytes = target,
                                       .stats_interval_s = 1,
                                       .deflate_on_oom = true,
                                       .hinting = true,
                                       .reporting = true};
    const struct vdev_env env = {f->d.mem, f->loop, &f->log};
    struct virtio_dev *dev = NULL;

    assert_int_equal(vballoon_new(&env, &args, &dev), 0);
    return dev;
}

/* Saves the guest's device and puts another in its place, at rest. */
static void move(struct balloon_guest *f)
{
    struct virtio_dev *old = f->dev;

    sbox_rest(&f->d);
    f->dev = new_device(f, 0);
    assert_int_equal(fdrv_move(&f->d, f->dev), 0);
    old->ops->free(old);
}

static void test_vballoon_rest_puts_the_statistics_buffer_back(void **state)
{
    struct balloon_guest *f = *state;

    offer_stats(f, VIRTIO_BALLOON_S_MEMFREE, 7);
    offer_stats(f, VIRTIO_BALLOON_S_MEMFREE, 8); /* the first goes back */
    sbox_rest(&f->d);
    assert_int_equal(f->dev->vq[BG_STATS].next_avail, 1);
    loop_run_for(f->loop, 1300); /* nothing is asked for */
    assert_int_equal(fdrv_used_idx(&f->d, BG_STATS), 1);
    fdrv_wake(&f->d);
    assert_int_equal(f->dev->vq[BG_STATS].next_avail, 2);
    f->q = BG_STATS;
    f->want_used = 2;
    assert_true(loop_run_until(f->loop, bg_used_reaches, f));
    assert_int_equal(bg_info(f).stats[VIRTIO_BALLOON_S_MEMFREE], 8);
}

/* However often it pauses, its time comes. */
static void test_vballoon_rest_keeps_the_time_of_statistics(void **state)
{
    struct balloon_guest *f = *state;
    uint64_t start = util_now_ns();

    assert_int_equal(vballoon_set_stats_interval(f->dev, 1), 0);
    offer_stats(f, VIRTIO_BALLOON_S_MEMFREE, 7);
    for (int i = 0; i < 100 && fdrv_used_idx(&f->d, BG_STATS) == 0; i++) {
        loop_run_for(f->loop, 50);
        sbox_rest(&f->d);
        fdrv_wake(&f->d);
    }
    assert_int_equal(fdrv_used_idx(&f->d, BG_STATS), 1);
    assert_true(util_now_ns() - start >= 1000000000); /* nor too early */
}

static void test_vballoon_rest_in_the_middle_of_a_request(void **state)
{
    struct balloon_guest *f = *state;

    begin_inflate(f);
    sbox_rest(&f->d);
    loop_run_for(f->loop, 20);
    assert_int_equal(fdrv_used_idx(&f->d, BG_INFLATE), 0);
    assert_int_equal(bg_byte(f, 2 * (SCATTERED - 1)), 'p');
    fdrv_wake(&f->d);
    inflate_ends(f);
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_vballoon_rest_of_a_stopped_queue(void **state)
{
    struct balloon_guest *f = *state;

    begin_inflate(f);
    vq_stop(&f->dev->vq[BG_INFLATE]);
    sbox_rest(&f->d);
    fdrv_wake(&f->d);
    loop_run_for(f->loop, 20);
    assert_int_equal(fdrv_used_idx(&f->d, BG_INFLATE), 0);
    assert_int_equal(bg_byte(f, 2 * (SCATTERED - 1)), 'p');
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_vballoon_host_may_set_things_while_it_rests(void **state)
{
    struct balloon_guest *f = *state;

    offer_stats(f, VIRTIO_BALLOON_S_MEMFREE, 7);
    sbox_rest(&f->d);
    assert_int_equal(vballoon_set_target(f->dev, 4 * MIB), 0);
    assert_int_equal(vballoon_set_stats_interval(f->dev, 1), 0);
    loop_run_for(f->loop, 1300);
    assert_int_equal(fdrv_used_idx(&f->d, BG_STATS), 0);
    assert_int_equal(bg_config(f, CFG_NUM), 4 * MIB / BG_PAGE);
    assert_int_equal(f->d.config_changes, 1);
    fdrv_wake(&f->d);
    f->q = BG_STATS;
    f->want_used = 1;
    assert_true(loop_run_until(f->loop, bg_used_reaches, f));
}

/* A balloon at work goes on in the copy, and its figures are right. */
static void test_BL_086_vballoon_saved_in_the_middle(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg seg = {f->list, 4 * SCATTERED, false};
    struct vballoon_info i;

    assert_int_equal(vballoon_set_target(f->dev, 16 * MIB), 0);
    bg_config_set(f, CFG_ACTUAL, 77);
    offer_stats(f, VIRTIO_BALLOON_S_MEMFREE, 7);
    begin_inflate(f);
    move(f);
    i = bg_info(f);
    assert_int_equal(i.target_bytes, 16 * MIB);
    assert_int_equal(i.actual_bytes, 77 * BG_PAGE);
    assert_int_equal(i.stats_valid, 1 << VIRTIO_BALLOON_S_MEMFREE);
    assert_int_equal(i.stats[VIRTIO_BALLOON_S_MEMFREE], 7);
    assert_int_equal(bg_config(f, CFG_NUM), 16 * MIB / BG_PAGE);
    assert_int_equal(bg_config(f, CFG_ACTUAL), 77);
    fdrv_wake(&f->d);
    inflate_ends(f);
    bg_request(f, BG_DEFLATE, &seg, 1);
    f->q = BG_STATS;
    f->want_used = 1;
    assert_true(loop_run_until(f->loop, bg_used_reaches, f));
    offer_stats(f, VIRTIO_BALLOON_S_MEMFREE, 9);
    assert_int_equal(bg_info(f).stats[VIRTIO_BALLOON_S_MEMFREE], 9);
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_vballoon_load_goes_on_with_a_hinting_run(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg cmd = {f->list, 4, false};
    struct fdrv_seg page = {f->pages, BG_PAGE, true};
    struct vballoon_hinting h;
    uint8_t b[4];

    assert_int_equal(vballoon_hinting_start(f->dev, true), 0);
    put_le32(b, bg_config(f, CFG_HINT));
    fdrv_write(&f->d, f->list, b, 4);
    bg_request(f, BG_HINT, &cmd, 1);
    move(f);
    assert_int_equal(vballoon_hinting_status(f->dev, &h), 0);
    assert_int_equal(h.host_cmd, 2);
    assert_int_equal(h.guest_cmd, 2);
    assert_true(h.guest_said);
    assert_int_equal(bg_config(f, CFG_HINT), 2);
    fdrv_wake(&f->d);
    bg_request(f, BG_HINT, &page, 1);
    assert_int_equal(bg_byte(f, 0), 0);
    put_le32(b, VIRTIO_BALLOON_CMD_ID_STOP);
    fdrv_write(&f->d, f->list, b, 4);
    bg_request(f, BG_HINT, &cmd, 1);
    assert_int_equal(bg_config(f, CFG_HINT), VIRTIO_BALLOON_CMD_ID_DONE);
    assert_int_equal(vballoon_hinting_start(f->dev, false), 0);
    assert_int_equal(bg_config(f, CFG_HINT), 3); /* never the same again */
}

/* Or a page would not read as the guest's allocator left it. */
static void test_vballoon_load_keeps_the_poison(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg page = {f->pages, BG_PAGE, true};

    bg_config_set(f, CFG_POISON, 0xaaaaaaaa);
    move(f);
    assert_int_equal(bg_config(f, CFG_POISON), 0xaaaaaaaa);
    fdrv_wake(&f->d);
    bg_request(f, BG_REPORT, &page, 1);
    assert_int_equal(bg_byte(f, 0), 'p');
}

static void test_vballoon_load_keeps_a_changed_interval(void **state)
{
    struct balloon_guest *f = *state;

    assert_int_equal(vballoon_set_stats_interval(f->dev, 3600), 0);
    offer_stats(f, VIRTIO_BALLOON_S_MEMFREE, 7);
    move(f);
    fdrv_wake(&f->d);
    loop_run_for(f->loop, 1300);
    assert_int_equal(fdrv_used_idx(&f->d, BG_STATS), 0);
}

enum {
    AT_TARGET = 0,
    AT_SAID = 20,
    AT_ACK = 21,
    AT_INTERVAL = 26,
    AT_VALID = 30
};

static void test_vballoon_load_refuses_impossible_values(void **state)
{
    static const struct {
        size_t at;
        uint32_t value;
        uint32_t bytes;
    } bad[] = {
        {AT_TARGET, BG_RAM / BG_PAGE + 1, 4},
        {AT_TARGET, UINT32_MAX, 4},
        {AT_SAID, 2, 1},
        {AT_ACK, 0x80, 1},
        {AT_INTERVAL, 0, 4},
        {AT_INTERVAL, 65536, 4},
        {AT_VALID, 1u << 16, 4},
    };
    struct balloon_guest *f = *state;
    struct virtio_dev *old = f->dev;
    struct state_box box;

    sbox_rest(&f->d);
    sbox_save(&f->d, &box);
    for (size_t i = 0; i < ARRAY_SIZE(bad) + box.len + 1; i++) {
        struct state_in in = sbox_in(&box);
        uint8_t keep[4];

        f->dev = new_device(f, 1 * MIB);
        if (i < ARRAY_SIZE(bad)) {
            memcpy(keep, box.bytes + bad[i].at, 4);
            if (bad[i].bytes == 1)
                box.bytes[bad[i].at] = (uint8_t)bad[i].value;
            else
                put_le32(box.bytes + bad[i].at, bad[i].value);
        } else {
            in = sbox_in_part(&box, i - ARRAY_SIZE(bad));
        }
        assert_int_equal(sbox_load_in(&f->d, f->dev, &in),
                         i < ARRAY_SIZE(bad) + box.len ? -EBADMSG : 0);
        if (i < ARRAY_SIZE(bad))
            memcpy(box.bytes + bad[i].at, keep, 4);
        if (i < ARRAY_SIZE(bad) + box.len) {
            assert_int_equal(bg_info(f).target_bytes, 1 * MIB);
            f->dev->ops->free(f->dev);
            f->d.dev = old;
        }
    }
    assert_int_equal(bg_info(f).target_bytes, 8 * MIB);
    old->ops->free(old);
    sbox_free(&box);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, bg_setup, bg_teardown)
#define TP(name)                                                               \
    cmocka_unit_test_setup_teardown(name, bg_setup_poison, bg_teardown)
    const struct CMUnitTest tests[] = {
        T(test_vballoon_rest_puts_the_statistics_buffer_back),
        T(test_vballoon_rest_keeps_the_time_of_statistics),
        T(test_vballoon_rest_in_the_middle_of_a_request),
        T(test_vballoon_rest_of_a_stopped_queue),
        T(test_vballoon_host_may_set_things_while_it_rests),
        T(test_BL_086_vballoon_saved_in_the_middle),
        T(test_vballoon_load_goes_on_with_a_hinting_run),
        TP(test_vballoon_load_keeps_the_poison),
        T(test_vballoon_load_keeps_a_changed_interval),
        T(test_vballoon_load_refuses_impossible_values),
    };

    return cmocka_run_group_tests_name("virtio_balloon_state", tests, NULL,
                                       NULL);
}
