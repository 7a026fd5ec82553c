/* SPDX-License-Identifier: Apache-2.0 */
/* Inflate, deflate, configuration. */
#include "devices/virtio_balloon.h"

#include "tests/harness/balloon_guest.h"
#include "tests/harness/loop_run.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <linux/virtio_balloon.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
/* --- inflate and deflate ------------------------------------------------- */

static void test_vballoon_inflated_pages_go_back_at_once(void **state)
{
    struct balloon_guest *f = *state;
    uint64_t before = bg_resident(f);
    uint32_t pfns[256];

    for (uint32_t i = 0; i < 256; i++)
        pfns[i] = bg_pfn(f, 255 - i); /* as Linux does: downwards */
    bg_inflate(f, pfns, 256);
    assert_int_equal(before - bg_resident(f), 256 * BG_PAGE);
    assert_int_equal(bg_byte(f, 0), 0);
    assert_int_equal(bg_byte(f, 255), 0);
    assert_int_equal(bg_byte(f, 256), 'p');
    assert_int_equal(bg_info(f).discarded_bytes, 256 * BG_PAGE);
    assert_int_equal(f->d.signals[BG_INFLATE], 1);
}

static void test_vballoon_scattered_and_double_pages_go_once(void **state)
{
    struct balloon_guest *f = *state;
    uint64_t before = bg_resident(f);
    uint32_t pfns[] = {bg_pfn(f, 9), bg_pfn(f, 3), bg_pfn(f, 9), bg_pfn(f, 7)};

    bg_inflate(f, pfns, 4);
    assert_int_equal(before - bg_resident(f), 3 * BG_PAGE);
    assert_int_equal(bg_info(f).discarded_bytes, 3 * BG_PAGE);
    assert_int_equal(bg_byte(f, 8), 'p');
    bg_inflate(f, pfns, 4); /* once more: nothing is there */
    assert_int_equal(before - bg_resident(f), 3 * BG_PAGE);
    assert_int_equal(bg_info(f).bad_requests, 0);
}

static void test_vballoon_pages_outside_ram_harm_nobody(void **state)
{
    struct balloon_guest *f = *state;
    uint32_t pfns[] = {
        UINT32_MAX,   (uint32_t)(BG_RAM / BG_PAGE),     0xfffff,
        bg_pfn(f, 1), (uint32_t)(BG_RAM / BG_PAGE) + 1, 1u << 31};
    uint64_t before = bg_resident(f);

    bg_inflate(f, pfns, ARRAY_SIZE(pfns));
    assert_int_equal(before - bg_resident(f), BG_PAGE);
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_vballoon_deflate_gives_pages_back_to_the_guest(void **state)
{
    struct balloon_guest *f = *state;
    uint32_t pfn = bg_pfn(f, 5);
    struct fdrv_seg seg = {f->list, 4, false};
    uint64_t before = bg_resident(f);

    bg_inflate(f, &pfn, 1);
    bg_request(f, BG_DEFLATE, &seg, 1);
    fdrv_write(&f->d, f->pages + 5 * BG_PAGE, "back", 4);
    assert_int_equal(bg_resident(f), before);
    /* Pages that never were in the balloon, and no list at all. */
    bg_put_pfns(f, &(uint32_t){UINT32_MAX}, 1);
    bg_request(f, BG_DEFLATE, &seg, 1);
    seg.len = 0;
    bg_request(f, BG_DEFLATE, &seg, 1);
    assert_int_equal(f->d.needs_resets, 0);
}

/* A page is usable before its deflate request, so nobody has to tell us. */
static void test_vballoon_does_not_ask_to_be_told(void **state)
{
    struct balloon_guest *f = *state;
    uint32_t pfn = bg_pfn(f, 5);
    struct fdrv_seg seg = {f->list, 4, false};

    assert_false(f->dev->offered & (1ull << VIRTIO_BALLOON_F_MUST_TELL_HOST));
    bg_inflate(f, &pfn, 1);
    fdrv_write(&f->d, f->pages + 5 * BG_PAGE, "mine", 4);
    bg_request(f, BG_DEFLATE, &seg, 1);
    assert_memory_equal(fdrv_ptr(&f->d, f->pages + 5 * BG_PAGE, 4), "mine", 4);
}

static void test_vballoon_bad_lists_complete_and_are_counted(void **state)
{
    struct balloon_guest *f = *state;
    static const uint32_t sizes[] = {0, 1, 5, 4 * 4096 + 4, 64 * 1024};
    uint64_t before = bg_resident(f);
    struct fdrv_seg only_room = {f->list, 16, true};

    for (uint32_t i = 0; i < 64 * KIB / 4; i++)
        put_le32(fdrv_ptr(&f->d, f->list + 4ull * i, 4), bg_pfn(f, i % 512));
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct fdrv_seg seg = {f->list, sizes[i], false};

        bg_request(f, BG_INFLATE, &seg, 1);
        assert_int_equal(bg_info(f).bad_requests, i + 1);
    }
    bg_request(f, BG_INFLATE, &only_room, 1);
    assert_int_equal(bg_info(f).bad_requests, ARRAY_SIZE(sizes) + 1);
    assert_int_equal(bg_info(f).discarded_bytes, 0);
    assert_int_equal(bg_resident(f), before);
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_vballoon_largest_list_is_taken(void **state)
{
    struct balloon_guest *f = *state;
    uint32_t *pfns = calloc(4096, sizeof(*pfns));
    uint64_t before = bg_resident(f);

    assert_non_null(pfns);
    for (uint32_t i = 0; i < 4096; i++)
        pfns[i] = bg_pfn(f, i);
    bg_inflate(f, pfns, 4096);
    assert_int_equal(before - bg_resident(f), 4096 * BG_PAGE);
    free(pfns);
}

/* Pages that do not lie side by side cost a call each: a turn does a few. */
static void test_vballoon_scattered_pages_take_several_turns(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg seg = {f->list, 4 * 1024, false};
    uint64_t before = bg_resident(f);

    for (uint32_t i = 0; i < 1024; i++)
        put_le32(fdrv_ptr(&f->d, f->list + 4ull * i, 4), bg_pfn(f, 2 * i));
    (void)fdrv_add(&f->d, BG_INFLATE, &seg, 1);
    fdrv_kick(&f->d, BG_INFLATE);
    assert_int_equal(fdrv_used_idx(&f->d, BG_INFLATE), 0);
    assert_int_equal(before - bg_resident(f), 256 * BG_PAGE);
    f->q = BG_INFLATE;
    f->want_used = 1;
    assert_true(loop_run_until(f->loop, bg_used_reaches, f));
    assert_int_equal(before - bg_resident(f), 1024 * BG_PAGE);
}

static void test_vballoon_reset_ends_a_request_half_way(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg seg = {f->list, 4 * 1024, false};
    uint64_t left;

    for (uint32_t i = 0; i < 1024; i++)
        put_le32(fdrv_ptr(&f->d, f->list + 4ull * i, 4), bg_pfn(f, 2 * i));
    (void)fdrv_add(&f->d, BG_INFLATE, &seg, 1);
    fdrv_kick(&f->d, BG_INFLATE);
    assert_int_equal(fdrv_reset(&f->d), 0);
    left = bg_resident(f);
    loop_run_for(f->loop, 10);
    assert_int_equal(bg_resident(f), left);
    assert_int_equal(fdrv_attach(&f->d, f->dev, BG_QSIZE, BG_NO_POISON), 0);
    bg_inflate(f, &(uint32_t){bg_pfn(f, 4001)},
               1); /* the old one is forgotten */
    assert_int_equal(bg_byte(f, 2046), 'p');
}

/* Rings, lists, everything: what is gone reads zero and breaks nobody. */
static void test_vballoon_its_own_rings_may_be_inflated(void **state)
{
    struct balloon_guest *f = *state;
    uint32_t *pfns = calloc(4096, sizeof(*pfns));
    struct fdrv_seg seg = {f->list, 4 * 4096, false};

    assert_non_null(pfns);
    for (uint32_t i = 0; i < 4096; i++)
        pfns[i] = i; /* with the list itself among them */
    bg_put_pfns(f, pfns, 4096);
    (void)fdrv_add(&f->d, BG_INFLATE, &seg, 1);
    fdrv_kick(&f->d, BG_INFLATE);
    loop_run_for(f->loop, 10);
    assert_int_equal(bg_info(f).discarded_bytes, 4096 * BG_PAGE);
    /* The avail ring reads zero now: an index that went backwards. */
    assert_int_equal(f->d.needs_resets, 1);
    free(pfns);
}

static void test_vballoon_broken_rings_need_reset(void **state)
{
    struct balloon_guest *f = *state;
    static const uint16_t queues[] = {BG_INFLATE, BG_DEFLATE, BG_STATS, BG_HINT,
                                      BG_REPORT};
    struct fdrv_seg seg = {BG_RAM, 16, false};

    for (size_t i = 0; i < ARRAY_SIZE(queues); i++) {
        (void)fdrv_add(&f->d, queues[i], &seg, 1);
        fdrv_kick(&f->d, queues[i]);
        assert_int_equal(f->d.needs_resets, i + 1);
        bg_restart(f, BG_NO_POISON);
    }
}

/* --- configuration, target ----------------------------------------------- */

static void test_vballoon_target_is_told(void **state)
{
    struct balloon_guest *f = *state;

    assert_int_equal(bg_config(f, 0), 8 * MIB / BG_PAGE);
    assert_int_equal(vballoon_set_target(f->dev, 16 * MIB), 0);
    assert_int_equal(bg_config(f, 0), 16 * MIB / BG_PAGE);
    assert_int_equal(f->d.config_changes, 1);
    assert_int_equal(bg_info(f).target_bytes, 16 * MIB);
    assert_int_equal(vballoon_set_target(f->dev, BG_RAM), 0);
    assert_int_equal(vballoon_set_target(f->dev, BG_RAM + 1), -EINVAL);
    assert_int_equal(vballoon_set_target(f->dev, UINT64_MAX), -EINVAL);
    assert_int_equal(bg_info(f).target_bytes, BG_RAM);
    assert_int_equal(f->d.config_changes, 2);
}

static void test_vballoon_target_without_a_driver_waits_for_one(void **state)
{
    struct balloon_guest *f = *state;

    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_int_equal(vballoon_set_target(f->dev, MIB), 0);
    assert_int_equal(f->d.config_changes, 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, BG_QSIZE, 0), 0);
    assert_int_equal(bg_config(f, 0), MIB / BG_PAGE);
}

static void test_BL_086_actual_is_what_the_driver_says_within_ram(void **state)
{
    struct balloon_guest *f = *state;

    bg_config_set(f, 4, 1000);
    assert_int_equal(bg_info(f).actual_bytes, 1000 * BG_PAGE);
    assert_int_equal(bg_config(f, 4), 1000);
    bg_config_set(f, 4, UINT32_MAX);
    assert_int_equal(bg_info(f).actual_bytes, BG_RAM);
    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_int_equal(bg_info(f).actual_bytes, 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, BG_QSIZE, 0), 0);
}

static void test_vballoon_config_writes_of_other_kinds_do_nothing(void **state)
{
    struct balloon_guest *f = *state;
    static const struct {
        uint32_t off;
        uint32_t len;
    } bad[] = {{0, 4}, {8, 4}, {4, 1}, {4, 2},  {4, 8},  {5, 4},  {6, 2},
               {2, 4}, {0, 8}, {8, 8}, {12, 2}, {15, 1}, {14, 2}, {0, 1}};
    uint8_t before[16];
    uint8_t after[16];
    uint8_t junk[8];

    memset(junk, 0xff, sizeof(junk));
    f->dev->ops->config_read(f->dev, 0, before, 16);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        f->dev->ops->config_write(f->dev, bad[i].off, junk, bad[i].len);
    f->dev->ops->config_read(f->dev, 0, after, 16);
    assert_memory_equal(before, after, 16);
}

static void test_vballoon_offers_only_what_was_asked_for(void **state)
{
    struct balloon_guest *f = *state;
    static const struct {
        struct vballoon_args args;
        uint64_t offered;
        uint16_t queues;
        uint32_t config_len;
    } t[] = {
        {{0}, 0, 2, 8},
        {{.deflate_on_oom = true}, 1 << VIRTIO_BALLOON_F_DEFLATE_ON_OOM, 2, 8},
        {{.stats_interval_s = 1}, 1 << VIRTIO_BALLOON_F_STATS_VQ, 3, 8},
        {{.hinting = true},
         1 << VIRTIO_BALLOON_F_FREE_PAGE_HINT |
             1 << VIRTIO_BALLOON_F_PAGE_POISON,
         3,
         16},
        {{.reporting = true},
         1 << VIRTIO_BALLOON_F_REPORTING | 1 << VIRTIO_BALLOON_F_PAGE_POISON,
         3,
         16},
    };

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct virtio_dev *dev = NULL;
        struct vballoon_hinting h;

        assert_int_equal(vballoon_new(&f->dev->env, &t[i].args, &dev), 0);
        assert_int_equal(dev->offered, t[i].offered);
        assert_int_equal(dev->num_queues, t[i].queues);
        assert_int_equal(dev->config_len, t[i].config_len);
        assert_int_equal(vballoon_set_stats_interval(dev, 5),
                         t[i].args.stats_interval_s ? 0 : -ENODEV);
        assert_int_equal(vballoon_hinting_start(dev, true),
                         t[i].args.hinting ? -ENOTCONN : -ENODEV);
        assert_int_equal(vballoon_hinting_stop(dev),
                         t[i].args.hinting ? -ENOTCONN : -ENODEV);
        assert_int_equal(vballoon_hinting_status(dev, &h),
                         t[i].args.hinting ? 0 : -ENODEV);
        dev->ops->free(dev);
    }
}

static void test_vballoon_new_refuses_what_cannot_be(void **state)
{
    struct balloon_guest *f = *state;
    const struct vballoon_args big = {.target_bytes = BG_RAM + BG_PAGE};
    const struct vballoon_args slow = {.stats_interval_s = 65536};
    struct virtio_dev *dev = NULL;

    assert_int_equal(vballoon_new(&f->dev->env, &big, &dev), -EINVAL);
    assert_int_equal(vballoon_new(&f->dev->env, &slow, &dev), -EINVAL);
    assert_null(dev);
}

/* Without statistics and hinting, reports come on queue 2. */
static void
test_vballoon_queues_of_declined_features_have_no_number(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg seg = {f->pages, 2 * MIB, true};
    uint64_t before = bg_resident(f);

    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, BG_QSIZE,
                                 1ull << VIRTIO_BALLOON_F_REPORTING),
                     0);
    bg_request(f, 2, &seg, 1);
    assert_true(before - bg_resident(f) > MIB);
    seg.gpa += 2 * MIB;
    (void)fdrv_add(&f->d, 4, &seg, 1); /* nobody listens there */
    fdrv_kick(&f->d, 4);
    assert_int_equal(fdrv_used_idx(&f->d, 4), 0);
}

/* --- how much ------------------------------------------------------------ */

static uint64_t cpu_ns(void)
{
    struct timespec t;

    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Pages that were never touched, a full ring of them: it ends. */
static void test_vballoon_untouched_pages_cost_little(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg seg = {f->list, 4 * 4096, false};
    uint64_t start;

    for (uint32_t i = 0; i < 4096; i++)
        put_le32(fdrv_ptr(&f->d, f->list + 4ull * i, 4), bg_pfn(f, 2 * i));
    for (uint32_t i = 0; i < BG_QSIZE; i++)
        (void)fdrv_add(&f->d, BG_INFLATE, &seg, 1);
    start = cpu_ns();
    fdrv_kick(&f->d, BG_INFLATE);
    f->q = BG_INFLATE;
    f->want_used = BG_QSIZE;
    assert_true(loop_run_until(f->loop, bg_used_reaches, f));
    print_message("65536 pages: %llu ms of CPU\n",
                  (unsigned long long)((cpu_ns() - start) / 1000000));
    assert_true(loop_run_is_idle(f->loop));
}

#define T(t) cmocka_unit_test_setup_teardown(t, bg_setup, bg_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_vballoon_inflated_pages_go_back_at_once),
        T(test_vballoon_scattered_and_double_pages_go_once),
        T(test_vballoon_pages_outside_ram_harm_nobody),
        T(test_vballoon_deflate_gives_pages_back_to_the_guest),
        T(test_vballoon_does_not_ask_to_be_told),
        T(test_vballoon_bad_lists_complete_and_are_counted),
        T(test_vballoon_largest_list_is_taken),
        T(test_vballoon_scattered_pages_take_several_turns),
        T(test_vballoon_reset_ends_a_request_half_way),
        T(test_vballoon_its_own_rings_may_be_inflated),
        T(test_vballoon_broken_rings_need_reset),
        T(test_vballoon_target_is_told),
        T(test_vballoon_target_without_a_driver_waits_for_one),
        T(test_BL_086_actual_is_what_the_driver_says_within_ram),
        T(test_vballoon_config_writes_of_other_kinds_do_nothing),
        T(test_vballoon_offers_only_what_was_asked_for),
        T(test_vballoon_new_refuses_what_cannot_be),
        T(test_vballoon_queues_of_declined_features_have_no_number),
        T(test_vballoon_untouched_pages_cost_little),
    };

    return cmocka_run_group_tests_name("virtio_balloon", tests, NULL, NULL);
}
