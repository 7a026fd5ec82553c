/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics, and pages that are free: hints and reports. */
#include "devices/virtio_balloon.h"

#include "tests/harness/balloon_guest.h"
#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <linux/virtio_balloon.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
/* --- statistics ---------------------------------------------------------- */

static void put_stat(struct balloon_guest *f, uint32_t i, uint16_t tag,
                     uint64_t v)
{
    uint8_t e[10];

    put_le16(e, tag);
    put_le64(e + 2, v);
    fdrv_write(&f->d, f->list + 10ull * i, e, 10);
}

/* The driver's buffer, which the device keeps. */
static void offer_stats(struct balloon_guest *f, uint32_t bytes)
{
    struct fdrv_seg seg = {f->list, bytes, false};

    (void)fdrv_add(&f->d, BG_STATS, &seg, 1);
    fdrv_kick(&f->d, BG_STATS);
}

static void test_vballoon_all_statistics_are_told(void **state)
{
    struct balloon_guest *f = *state;
    struct vballoon_info i;

    assert_int_equal(bg_info(f).stats_valid, 0);
    for (uint16_t t = 0; t < VBALLOON_NUM_STATS; t++)
        put_stat(f, t, t, 1000ull + t);
    offer_stats(f, 10 * VBALLOON_NUM_STATS);
    i = bg_info(f);
    assert_int_equal(i.stats_valid, 0xffff);
    for (uint16_t t = 0; t < VBALLOON_NUM_STATS; t++)
        assert_int_equal(i.stats[t], 1000 + t);
    assert_int_equal(fdrv_used_idx(&f->d, BG_STATS), 0); /* held */
}

static void test_vballoon_statistics_are_asked_for_each_interval(void **state)
{
    struct balloon_guest *f = *state;
    uint32_t head;
    uint32_t len;

    put_stat(f, 0, VIRTIO_BALLOON_S_MEMFREE, 7);
    offer_stats(f, 10);
    f->q = BG_STATS;
    f->want_used = 1;
    assert_true(loop_run_until(f->loop, bg_used_reaches, f));
    assert_true(fdrv_used(&f->d, BG_STATS, &head, &len));
    assert_int_equal(len, 0);
    assert_int_equal(f->d.signals[BG_STATS], 1);
    assert_int_equal(bg_info(f).stats[VIRTIO_BALLOON_S_MEMFREE], 7);
    put_stat(f, 0, VIRTIO_BALLOON_S_MEMTOT, 8);
    offer_stats(f, 10);
    assert_int_equal(bg_info(f).stats_valid, 1 << VIRTIO_BALLOON_S_MEMTOT);
    f->want_used = 2;
    assert_true(loop_run_until(f->loop, bg_used_reaches, f));
}

static void test_vballoon_odd_statistics_are_left_out(void **state)
{
    struct balloon_guest *f = *state;

    put_stat(f, 0, 16, 1);
    put_stat(f, 1, 0xffff, 2);
    put_stat(f, 2, 3, 3);
    put_stat(f, 3, 3, 4);
    put_stat(f, 4, 5, 5);
    offer_stats(f, 49); /* the last entry is torn */
    assert_int_equal(bg_info(f).stats_valid, 1 << 3);
    assert_int_equal(bg_info(f).stats[3], 4);
    offer_stats(f, 0);
    assert_int_equal(bg_info(f).stats_valid, 0);
    put_stat(f, 0, 1, 1);
    offer_stats(f, 64 * 1024); /* the front of it */
    assert_true(bg_info(f).stats_valid & 2);
    offer_stats(f, 9);
    assert_int_equal(bg_info(f).stats_valid, 0);
    /* of four buffers all but the last came back */
    assert_int_equal(fdrv_used_idx(&f->d, BG_STATS), 3);
}

static void test_vballoon_stats_interval_can_change_not_end(void **state)
{
    struct balloon_guest *f = *state;

    offer_stats(f, 0);
    assert_int_equal(vballoon_set_stats_interval(f->dev, 0), -EINVAL);
    assert_int_equal(vballoon_set_stats_interval(f->dev, 65536), -EINVAL);
    assert_int_equal(vballoon_set_stats_interval(f->dev, 3600), 0);
    loop_run_for(f->loop, 1200);
    assert_int_equal(fdrv_used_idx(&f->d, BG_STATS), 0);
    assert_int_equal(vballoon_set_stats_interval(f->dev, 1), 0);
    f->q = BG_STATS;
    f->want_used = 1;
    assert_true(loop_run_until(f->loop, bg_used_reaches, f));
}

/* --- hinting ------------------------------------------------------------- */

static void hint_cmd(struct balloon_guest *f, uint32_t cmd)
{
    struct fdrv_seg seg = {f->list, 4, false};

    bg_put_pfns(f, &cmd, 1);
    bg_request(f, BG_HINT, &seg, 1);
}

static void hint_pages(struct balloon_guest *f, uint32_t page, uint32_t pages)
{
    struct fdrv_seg seg = {f->pages + (gpa_t)page * BG_PAGE, pages * BG_PAGE,
                           true};

    bg_request(f, BG_HINT, &seg, 1);
}

static struct vballoon_hinting hinting(struct balloon_guest *f)
{
    struct vballoon_hinting h;

    assert_int_equal(vballoon_hinting_status(f->dev, &h), 0);
    return h;
}

static void test_vballoon_a_hinting_run_gives_memory_back(void **state)
{
    struct balloon_guest *f = *state;
    uint64_t before = bg_resident(f);

    assert_false(hinting(f).guest_said);
    hint_pages(f, 0, 16); /* nobody has asked */
    assert_int_equal(bg_resident(f), before);
    assert_int_equal(vballoon_hinting_start(f->dev, true), 0);
    assert_int_equal(f->d.config_changes, 1);
    assert_int_equal(bg_config(f, 8), 2);
    hint_pages(f, 0, 16); /* before the driver has begun */
    assert_int_equal(bg_resident(f), before);
    hint_cmd(f, 2);
    assert_int_equal(hinting(f).guest_cmd, 2);
    hint_pages(f, 0, 16);
    hint_pages(f, 1024, 1024);
    assert_int_equal(before - bg_resident(f), 1040 * BG_PAGE);
    hint_cmd(f, VIRTIO_BALLOON_CMD_ID_STOP);
    assert_int_equal(bg_config(f, 8), VIRTIO_BALLOON_CMD_ID_DONE);
    assert_int_equal(f->d.config_changes, 2);
    assert_int_equal(hinting(f).host_cmd, VIRTIO_BALLOON_CMD_ID_DONE);
    assert_int_equal(hinting(f).guest_cmd, VIRTIO_BALLOON_CMD_ID_STOP);
    before = bg_resident(f);
    hint_pages(f, 4096, 16);
    assert_int_equal(bg_resident(f), before);
}

static void test_vballoon_hinting_waits_for_stop_when_told_so(void **state)
{
    struct balloon_guest *f = *state;

    assert_int_equal(vballoon_hinting_start(f->dev, false), 0);
    hint_cmd(f, 2);
    hint_cmd(f, VIRTIO_BALLOON_CMD_ID_STOP);
    assert_int_equal(bg_config(f, 8), 2);
    assert_int_equal(vballoon_hinting_stop(f->dev), 0);
    assert_int_equal(bg_config(f, 8), VIRTIO_BALLOON_CMD_ID_DONE);
    assert_int_equal(vballoon_hinting_start(f->dev, true), 0);
    assert_int_equal(bg_config(f, 8), 3);
    hint_cmd(f, VIRTIO_BALLOON_CMD_ID_STOP); /* late: of the run before */
    assert_int_equal(bg_config(f, 8), 3);
}

static void test_vballoon_stop_in_the_middle_of_a_run(void **state)
{
    struct balloon_guest *f = *state;
    uint64_t before;

    assert_int_equal(vballoon_hinting_start(f->dev, true), 0);
    hint_cmd(f, 2);
    assert_int_equal(vballoon_hinting_stop(f->dev), 0);
    before = bg_resident(f);
    hint_pages(f, 0, 16);
    assert_int_equal(bg_resident(f), before);
    hint_cmd(f, 7); /* a run that never was */
    hint_pages(f, 0, 16);
    assert_int_equal(bg_resident(f), before);
    hint_cmd(f, VIRTIO_BALLOON_CMD_ID_DONE);
    hint_pages(f, 0, 16);
    assert_int_equal(bg_resident(f), before);
}

static void test_vballoon_reset_forgets_the_run(void **state)
{
    struct balloon_guest *f = *state;

    assert_int_equal(vballoon_hinting_start(f->dev, true), 0);
    hint_cmd(f, 2);
    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_int_equal(vballoon_hinting_start(f->dev, true), -ENOTCONN);
    assert_int_equal(fdrv_attach(&f->d, f->dev, BG_QSIZE, BG_NO_POISON), 0);
    assert_int_equal(bg_config(f, 8), VIRTIO_BALLOON_CMD_ID_STOP);
    assert_false(hinting(f).guest_said);
    assert_int_equal(vballoon_hinting_start(f->dev, true), 0);
    assert_int_equal(bg_config(f, 8), 3); /* numbers are not used twice */
}

/* --- reports ------------------------------------------------------------- */

static void test_vballoon_reported_pages_go_back(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg segs[] = {{f->pages, 2 * MIB, true},
                              {f->pages + 4 * MIB, 2 * MIB, true}};
    uint64_t before = bg_resident(f);

    bg_request(f, BG_REPORT, segs, 2);
    assert_int_equal(before - bg_resident(f), 4 * MIB);
    assert_int_equal(bg_byte(f, 512), 'p');
    assert_int_equal(bg_info(f).discarded_bytes, 4 * MIB);
}

/* What is not a whole page stays as it is. */
static void test_vballoon_only_whole_pages_are_reported(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg segs[] = {{f->pages + 1, 3 * BG_PAGE, true},
                              {f->pages + 8 * BG_PAGE, BG_PAGE - 1, true},
                              {f->pages + 9 * BG_PAGE + 1, BG_PAGE, true},
                              {f->pages + 11 * BG_PAGE, 1, true}};
    uint64_t before = bg_resident(f);

    bg_request(f, BG_REPORT, segs, 4);
    assert_int_equal(before - bg_resident(f), 2 * BG_PAGE);
    assert_int_equal(bg_byte(f, 0), 'p');
    assert_int_equal(bg_byte(f, 3), 'p');
    assert_int_equal(bg_byte(f, 8), 'p');
    assert_int_equal(bg_byte(f, 10), 'p');
}

static void test_vballoon_a_large_report_takes_several_turns(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg seg = {f->pages, 32 * MIB, true};
    struct fdrv_seg twice[] = {seg, {0, 16 * BG_PAGE, true}};

    memcpy(fdrv_ptr(&f->d, f->list, 4), "kept", 4);
    twice[1].gpa = f->pages;
    (void)fdrv_add(&f->d, BG_REPORT, twice, 2);
    fdrv_kick(&f->d, BG_REPORT);
    assert_int_equal(fdrv_used_idx(&f->d, BG_REPORT), 0);
    f->q = BG_REPORT;
    f->want_used = 1;
    assert_true(loop_run_until(f->loop, bg_used_reaches, f));
    assert_memory_equal(fdrv_ptr(&f->d, f->list, 4), "kept", 4);
}

/* A driver that stops the queue uses the pages again. */
static void test_vballoon_a_stopped_queue_takes_no_more_pages(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg seg = {f->pages, 32 * MIB, true};
    struct fdrv_seg twice[] = {seg, {f->pages, 16 * BG_PAGE, true}};

    (void)fdrv_add(&f->d, BG_REPORT, twice, 2);
    fdrv_kick(&f->d, BG_REPORT);
    assert_int_equal(fdrv_used_idx(&f->d, BG_REPORT), 0); /* not yet done */
    vq_stop(&f->dev->vq[BG_REPORT]);
    memset(fdrv_ptr(&f->d, f->pages, BG_PAGE), 'u', BG_PAGE);
    loop_run_for(f->loop, 5);
    assert_int_equal(bg_byte(f, 0), 'u');
    assert_int_equal(fdrv_used_idx(&f->d, BG_REPORT), 0);
}

static void test_vballoon_more_free_pages_than_ram_are_refused(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg segs[3];
    uint64_t before = bg_resident(f);

    for (size_t i = 0; i < 3; i++)
        segs[i] = (struct fdrv_seg){f->pages, 30 * MIB, true};
    bg_request(f, BG_REPORT, segs, 3);
    assert_int_equal(bg_resident(f), before);
    assert_int_equal(bg_info(f).bad_requests, 1);
    assert_int_equal(vballoon_hinting_start(f->dev, true), 0);
    hint_cmd(f, 2);
    bg_request(f, BG_HINT, segs, 3);
    assert_int_equal(bg_resident(f), before);
    assert_int_equal(bg_info(f).bad_requests, 2);
}

static void test_vballoon_a_poisoned_page_is_left_alone(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg seg = {f->pages, 2 * MIB, true};
    uint64_t before = bg_resident(f);

    bg_config_set(f, 12, 0xaaaaaaaa);
    assert_int_equal(bg_config(f, 12), 0xaaaaaaaa);
    bg_request(f, BG_REPORT, &seg, 1);
    assert_int_equal(bg_resident(f), before);
    assert_int_equal(bg_byte(f, 0), 'p');
}

static void test_vballoon_pages_poisoned_with_zero_go_back(void **state)
{
    struct balloon_guest *f = *state;
    struct fdrv_seg seg = {f->pages, 2 * MIB, true};
    CLEANUP_FD int fd = memfd_create("t", 0);
    uint64_t before = bg_resident(f);

    bg_config_set(f, 12, 0);
    bg_request(f, BG_REPORT, &seg, 1);
    assert_int_equal(before - bg_resident(f), 2 * MIB);
    /* Where a file would show again, the page stays as it is. */
    assert_int_equal(ftruncate(fd, BG_PAGE), 0);
    assert_int_equal(gm_map_file(f->d.mem, f->pages, BG_PAGE, fd, 0), 0);
    fdrv_write(&f->d, f->pages, "mine", 4);
    seg.len = BG_PAGE;
    bg_request(f, BG_REPORT, &seg, 1);
    assert_memory_equal(fdrv_ptr(&f->d, f->pages, 4), "mine", 4);
}

#define T(t)  cmocka_unit_test_setup_teardown(t, bg_setup, bg_teardown)
#define TP(t) cmocka_unit_test_setup_teardown(t, bg_setup_poison, bg_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_vballoon_all_statistics_are_told),
        T(test_vballoon_statistics_are_asked_for_each_interval),
        T(test_vballoon_odd_statistics_are_left_out),
        T(test_vballoon_stats_interval_can_change_not_end),
        T(test_vballoon_a_hinting_run_gives_memory_back),
        T(test_vballoon_hinting_waits_for_stop_when_told_so),
        T(test_vballoon_stop_in_the_middle_of_a_run),
        T(test_vballoon_reset_forgets_the_run),
        T(test_vballoon_reported_pages_go_back),
        T(test_vballoon_only_whole_pages_are_reported),
        T(test_vballoon_a_large_report_takes_several_turns),
        T(test_vballoon_a_stopped_queue_takes_no_more_pages),
        T(test_vballoon_more_free_pages_than_ram_are_refused),
        TP(test_vballoon_a_poisoned_page_is_left_alone),
        TP(test_vballoon_pages_poisoned_with_zero_go_back),
    };

    return cmocka_run_group_tests_name("virtio_balloon_free", tests, NULL,
                                       NULL);
}
