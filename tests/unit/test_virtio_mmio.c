/* SPDX-License-Identifier: Apache-2.0 */
/* Registers, negotiation, status, queues. */
#include "devices/virtio_mmio.h"

#include "tests/harness/mmio_test.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

/* --- registers ----------------------------------------------------------- */

static void test_mmio_identity_registers(void **state)
{
    struct mmio_test *f = *state;

    assert_int_equal(mt_rd(f, VIRTIO_MMIO_MAGIC_VALUE), 0x74726976);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_VERSION), 2);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_DEVICE_ID), 42);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_VENDOR_ID), 0x65746f6d);
    mt_wr(f, VIRTIO_MMIO_DEVICE_ID, 1);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_DEVICE_ID), 42);
    assert_int_equal(virtio_mmio_num_queues(f->m), 2);
    assert_true(virtio_mmio_kick_fd(f->m, 1) >= 0);
    assert_int_equal(virtio_mmio_kick_fd(f->m, 2), -1);
}

static void test_mmio_shared_memory_registers_show_no_region(void **state)
{
    struct mmio_test *f = *state;

    mt_wr(f, VIRTIO_MMIO_SHM_SEL, 0);
    for (uint32_t off = VIRTIO_MMIO_SHM_LEN_LOW;
         off <= VIRTIO_MMIO_SHM_BASE_HIGH; off += 4)
        assert_int_equal(mt_rd(f, off), UINT32_MAX);
}

static void test_mmio_device_features_by_half(void **state)
{
    struct mmio_test *f = *state;
    uint64_t want = MT_OFFERED | MT_VERSION_1 | MT_EVENT_IDX | MT_INDIRECT;

    assert_int_equal(mt_rd(f, VIRTIO_MMIO_DEVICE_FEATURES), (uint32_t)want);
    mt_wr(f, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_DEVICE_FEATURES),
                     (uint32_t)(want >> 32));
    for (uint32_t sel = 2; sel != 0; sel <<= 1) {
        mt_wr(f, VIRTIO_MMIO_DEVICE_FEATURES_SEL, sel);
        assert_int_equal(mt_rd(f, VIRTIO_MMIO_DEVICE_FEATURES), 0);
    }
}

/* Queue reset is not offered, so its register is not there. */
static void test_mmio_queue_reset_is_absent(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, 0);
    assert_int_equal(mt_rd(f, 0x0c0), 0);
    mt_wr(f, 0x0c0, 1);
    assert_int_equal(mt_rd(f, 0x0c0), 0);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_QUEUE_READY), 1);
}

static void test_mmio_wrong_width_reads_zero_and_writes_nothing(void **state)
{
    static const uint32_t widths[] = {1, 2, 4, 8};
    static const uint8_t ones[8] = {0xff, 0xff, 0xff, 0xff,
                                    0xff, 0xff, 0xff, 0xff};
    static const uint8_t zeroes[8] = {0};
    struct mmio_test *f = *state;

    mt_start(f);
    (void)mt_irqs(f);
    for (size_t w = 0; w < ARRAY_SIZE(widths); w++) {
        for (uint32_t off = 0; off + widths[w] <= VIRTIO_MMIO_CONFIG; off++) {
            uint8_t b[8] = {0};

            if (widths[w] == 4 && off % 4 == 0)
                continue;
            virtio_mmio_bus_ops.write(f->m, off, ones, widths[w]);
            virtio_mmio_bus_ops.write(f->m, off, zeroes, widths[w]);
            virtio_mmio_bus_ops.read(f->m, off, b, widths[w]);
            assert_memory_equal(b, zeroes, sizeof(b));
        }
    }
    assert_int_equal(mt_status(f), MT_ST_OK);
    assert_int_equal(f->t.resets, 0);
}

static void test_BL_043_queue_selector_out_of_range(void **state)
{
    static const uint32_t widths[] = {1, 2, 4, 8};
    static const uint32_t sels[] = {2,       7,           8,          0xffff,
                                    0x10000, 0x80000000u, 0xffffffffu};
    static const uint8_t ones[8] = {0xff, 0xff, 0xff, 0xff,
                                    0xff, 0xff, 0xff, 0xff};
    struct mmio_test *f = *state;

    mt_negotiate(f, MT_VERSION_1);
    for (size_t s = 0; s < ARRAY_SIZE(sels); s++) {
        mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, sels[s]);
        for (size_t w = 0; w < ARRAY_SIZE(widths); w++) {
            for (uint32_t off = VIRTIO_MMIO_QUEUE_NUM_MAX;
                 off < VIRTIO_MMIO_INTERRUPT_STATUS; off++) {
                uint8_t b[8] = {0};

                if (off == VIRTIO_MMIO_QUEUE_SEL)
                    continue;
                virtio_mmio_bus_ops.write(f->m, off, ones, widths[w]);
                virtio_mmio_bus_ops.read(f->m, off, b, widths[w]);
                assert_int_equal(get_le64(b), 0);
            }
            for (uint32_t off = VIRTIO_MMIO_QUEUE_DESC_LOW; off < 0xac; off++)
                virtio_mmio_bus_ops.write(f->m, off, ones, widths[w]);
        }
    }
    /* and the queues that exist are as they were */
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, 1);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_QUEUE_NUM_MAX), 256);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
    assert_int_equal(mt_status(f), MT_ST_FEAT);
}

/* --- features ------------------------------------------------------------ */

static void test_mmio_features_without_version_1_are_refused(void **state)
{
    struct mmio_test *f = *state;

    mt_negotiate(f, MT_EVENT_IDX | MT_INDIRECT | MT_OFFERED);
    assert_int_equal(mt_status(f), MT_ST_DRV);
    /* nothing leads past it */
    mt_set_status(f, MT_ST_OK);
    assert_int_equal(mt_status(f), MT_ST_DRV);
    assert_int_equal(f->t.activations, 0);
    assert_true(mt_log_lines(f) > 0);
}

static void test_mmio_features_not_offered_are_refused(void **state)
{
    static const unsigned bits[] = {0, 6, 31, 33, 41, 63};
    struct mmio_test *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(bits); i++) {
        mt_set_status(f, 0);
        mt_negotiate(f, MT_VERSION_1 | (1ull << bits[i]));
        assert_int_equal(mt_status(f), MT_ST_DRV);
    }
    mt_set_status(f, 0);
    mt_set_status(f, MT_ST_ACK);
    mt_set_status(f, MT_ST_DRV);
    mt_set_features(f, MT_VERSION_1);
    mt_wr(f, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 2);
    mt_wr(f, VIRTIO_MMIO_DRIVER_FEATURES, 1);
    mt_set_status(f, MT_ST_FEAT);
    assert_int_equal(mt_status(f), MT_ST_DRV);
}

/* Until FEATURES_OK the last word counts, in each half for itself. */
static void test_mmio_features_may_be_written_again(void **state)
{
    struct mmio_test *f = *state;

    mt_set_status(f, MT_ST_ACK);
    mt_set_status(f, MT_ST_DRV);
    mt_set_features(f, ~0ull);
    mt_wr(f, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 2);
    mt_wr(f, VIRTIO_MMIO_DRIVER_FEATURES, 1);
    mt_set_features(f, MT_VERSION_1);
    mt_set_status(f, MT_ST_FEAT);
    assert_int_equal(mt_status(f), MT_ST_DRV); /* of selector 2 */
    mt_wr(f, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 7);
    mt_wr(f, VIRTIO_MMIO_DRIVER_FEATURES, 0);
    mt_set_status(f, MT_ST_FEAT);
    assert_int_equal(mt_status(f), MT_ST_FEAT);
}

static void test_mmio_accepted_features_reach_the_device(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    assert_true(f->t.dev.features ==
                (MT_VERSION_1 | MT_EVENT_IDX | MT_OFFERED));
    assert_true(f->t.dev.vq[0].event_idx);
    assert_false(f->t.dev.vq[0].indirect);
    assert_int_equal(f->t.dev.vq[0].size, 8);
    assert_int_equal(f->t.dev.vq[1].size, 256);
}

static void test_mmio_features_are_frozen_by_features_ok(void **state)
{
    struct mmio_test *f = *state;

    mt_negotiate(f, MT_VERSION_1);
    mt_set_features(f, MT_VERSION_1 | MT_EVENT_IDX | 1);
    mt_setup_queue(f, 0, 8);
    mt_set_status(f, MT_ST_OK);
    assert_int_equal(mt_status(f), MT_ST_OK);
    assert_true(f->t.dev.features == MT_VERSION_1);
}

/* --- status -------------------------------------------------------------- */

static void test_mmio_status_needs_its_order(void **state)
{
    struct mmio_test *f = *state;

    mt_set_status(f, VIRTIO_CONFIG_S_DRIVER);
    assert_int_equal(mt_status(f), 0);
    mt_set_status(f, VIRTIO_CONFIG_S_DRIVER_OK);
    assert_int_equal(mt_status(f), 0);
    mt_set_status(f, MT_ST_ACK);
    mt_set_status(f, MT_ST_ACK | VIRTIO_CONFIG_S_FEATURES_OK);
    assert_int_equal(mt_status(f), MT_ST_ACK);
    mt_set_status(f, MT_ST_DRV);
    mt_set_status(f, MT_ST_DRV | VIRTIO_CONFIG_S_DRIVER_OK);
    assert_int_equal(mt_status(f), MT_ST_DRV);
    assert_int_equal(f->t.activations, 0);
}

static void test_mmio_status_bits_cannot_be_cleared_or_invented(void **state)
{
    static const uint32_t bad[] = {
        MT_ST_FEAT | 0x10, MT_ST_FEAT | 0x20, MT_ST_FEAT | 0x100, 0xffffffffu,
        MT_ST_ACK,         MT_ST_DRV,         0x80000000u};
    struct mmio_test *f = *state;

    mt_negotiate(f, MT_VERSION_1);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        mt_set_status(f, bad[i]);
        assert_int_equal(mt_status(f), MT_ST_FEAT);
    }
}

static void test_mmio_failed_leads_only_to_reset(void **state)
{
    struct mmio_test *f = *state;

    mt_negotiate(f, MT_VERSION_1);
    mt_set_status(f, MT_ST_FEAT | VIRTIO_CONFIG_S_FAILED);
    assert_int_equal(mt_status(f), MT_ST_FEAT | VIRTIO_CONFIG_S_FAILED);
    mt_set_status(f, MT_ST_OK | VIRTIO_CONFIG_S_FAILED);
    assert_int_equal(mt_status(f), MT_ST_FEAT | VIRTIO_CONFIG_S_FAILED);
    assert_int_equal(f->t.activations, 0);
    mt_set_status(f, 0);
    mt_start(f);
}

static void test_mmio_reset_clears_everything(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    mt_on_loop(f, mt_poke_config);
    mt_set_status(f, 0);
    assert_int_equal(mt_status(f), 0);
    assert_int_equal(f->t.resets, 1);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_INTERRUPT_STATUS), 0);
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, 1);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
    assert_int_equal(f->t.dev.vq[1].size, 0);
    mt_start(f);
    assert_int_equal(f->t.activations, 2);
}

static void test_mmio_driver_ok_twice_activates_once(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    mt_set_status(f, MT_ST_OK);
    assert_int_equal(f->t.activations, 1);
}

static void test_mmio_device_that_cannot_start_needs_reset(void **state)
{
    struct mmio_test *f = *state;

    f->t.activate_rc = -EIO;
    mt_negotiate(f, MT_VERSION_1);
    mt_setup_queue(f, 0, 8);
    mt_set_status(f, MT_ST_OK);
    mt_on_loop(f, mt_poke_config); /* the loop is past it now */
    assert_int_equal(mt_status(f), MT_ST_OK | MT_ST_NEEDS);
    f->t.activate_rc = 0;
    mt_set_status(f, 0);
    assert_int_equal(f->t.resets, 1);
    mt_start(f);
}

static void test_mmio_broken_device_tells_the_driver(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    mt_on_loop(f, mt_poke_broken);
    assert_int_equal(mt_status(f), MT_ST_OK | MT_ST_NEEDS);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_INTERRUPT_STATUS),
                     VIRTIO_MMIO_INT_CONFIG);
    assert_int_equal(mt_irqs(f), 1);
    assert_true(f->t.dev.vq[1].broken);
    /* a driver cannot take the bit away or set it */
    mt_set_status(f, MT_ST_OK);
    assert_int_equal(mt_status(f), MT_ST_OK | MT_ST_NEEDS);
    mt_set_status(f, 0);
    assert_int_equal(mt_status(f), 0);
    mt_set_status(f, MT_ST_ACK | MT_ST_NEEDS);
    assert_int_equal(mt_status(f), MT_ST_ACK);
}

static void test_mmio_faults_do_not_flood_the_log(void **state)
{
    struct mmio_test *f = *state;

    mt_set_status(f, MT_ST_ACK);
    for (int i = 0; i < 1000; i++)
        mt_set_status(f, 0x20);
    assert_in_range(mt_log_lines(f), 1, 10);
}

/* --- queues -------------------------------------------------------------- */

static void bad_queue(struct mmio_test *f, const struct vq_setup_args *a)
{
    mt_set_status(f, 0);
    mt_negotiate(f, MT_VERSION_1);
    assert_int_equal(mt_status(f), MT_ST_FEAT);
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, 0);
    mt_write_queue(f, a);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
    assert_int_equal(mt_status(f), MT_ST_FEAT | MT_ST_NEEDS);
    mt_set_status(f, MT_ST_OK);
    assert_int_equal(mt_status(f), MT_ST_FEAT | MT_ST_NEEDS);
    assert_int_equal(f->t.activations, 0);
}

static void test_mmio_bad_queue_is_refused_where_it_is_written(void **state)
{
    struct mmio_test *f = *state;
    struct vq_setup_args good;
    struct vq_setup_args a;

    fdrv_queue_init(&f->d, 0, 16, false);
    good = fdrv_setup_args(&f->d, 0, false);
    a = good;
    a.size = 0;
    bad_queue(f, &a);
    a.size = 12;
    bad_queue(f, &a);
    a.size = 32; /* fine, were it not above the queue's maximum */
    bad_queue(f, &a);
    a = good;
    a.desc += 8;
    bad_queue(f, &a);
    a = good;
    a.avail = MT_RAM;
    bad_queue(f, &a);
    a = good;
    a.used = UINT64_MAX - 3;
    bad_queue(f, &a);
}

/* A size whose low 16 bits alone would be fine. */
static void test_mmio_queue_size_is_not_truncated(void **state)
{
    struct mmio_test *f = *state;
    struct vq_setup_args a;

    fdrv_queue_init(&f->d, 0, 16, false);
    a = fdrv_setup_args(&f->d, 0, false);
    mt_negotiate(f, MT_VERSION_1);
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, 0);
    a.size = 0;
    mt_write_queue(f, &a);
    mt_set_status(f, 0);
    mt_negotiate(f, MT_VERSION_1);
    a.size = 16;
    mt_wr(f, VIRTIO_MMIO_QUEUE_DESC_LOW, (uint32_t)a.desc);
    mt_wr(f, VIRTIO_MMIO_QUEUE_AVAIL_LOW, (uint32_t)a.avail);
    mt_wr(f, VIRTIO_MMIO_QUEUE_USED_LOW, (uint32_t)a.used);
    mt_wr(f, VIRTIO_MMIO_QUEUE_NUM, 0x10010);
    mt_wr(f, VIRTIO_MMIO_QUEUE_READY, 1);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
}

static void test_mmio_running_queue_cannot_be_moved(void **state)
{
    struct mmio_test *f = *state;
    const void *desc;

    mt_start(f);
    desc = f->t.dev.vq[0].desc;
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, 0);
    mt_wr(f, VIRTIO_MMIO_QUEUE_NUM, 4);
    mt_wr(f, VIRTIO_MMIO_QUEUE_DESC_LOW, 0);
    mt_wr(f, VIRTIO_MMIO_QUEUE_READY, 1);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_QUEUE_READY), 1);
    assert_ptr_equal(f->t.dev.vq[0].desc, desc);
    assert_int_equal(f->t.dev.vq[0].size, 8);
}

static void test_mmio_ready_queue_changes_only_when_taken_back(void **state)
{
    struct mmio_test *f = *state;

    mt_negotiate(f, MT_VERSION_1);
    mt_setup_queue(f, 0, 8);
    mt_wr(f, VIRTIO_MMIO_QUEUE_NUM, 4);
    mt_set_status(f, MT_ST_OK);
    assert_int_equal(f->t.dev.vq[0].size, 8);
    mt_set_status(f, 0);
    mt_negotiate(f, MT_VERSION_1);
    mt_setup_queue(f, 0, 8);
    mt_wr(f, VIRTIO_MMIO_QUEUE_READY, 0);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
    mt_wr(f, VIRTIO_MMIO_QUEUE_NUM, 4);
    mt_wr(f, VIRTIO_MMIO_QUEUE_READY, 1);
    mt_set_status(f, MT_ST_OK);
    assert_int_equal(f->t.dev.vq[0].size, 4);
    assert_int_equal(f->t.dev.vq[1].size, 0); /* never made ready */
}

static void test_mmio_queues_need_a_driver(void **state)
{
    struct mmio_test *f = *state;

    mt_setup_queue(f, 0, 8);
    assert_int_equal(mt_rd(f, VIRTIO_MMIO_QUEUE_READY), 0);
    assert_int_equal(mt_status(f), 0);
}

#define T(t)                                                                   \
    cmocka_unit_test_setup_teardown(t, mt_setup, mt_teardown),                 \
        cmocka_unit_test_setup_teardown(t, mt_setup_epoll, mt_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_mmio_identity_registers),
        T(test_mmio_shared_memory_registers_show_no_region),
        T(test_mmio_device_features_by_half),
        T(test_mmio_queue_reset_is_absent),
        T(test_mmio_wrong_width_reads_zero_and_writes_nothing),
        T(test_BL_043_queue_selector_out_of_range),
        T(test_mmio_features_without_version_1_are_refused),
        T(test_mmio_features_not_offered_are_refused),
        T(test_mmio_features_may_be_written_again),
        T(test_mmio_accepted_features_reach_the_device),
        T(test_mmio_features_are_frozen_by_features_ok),
        T(test_mmio_status_needs_its_order),
        T(test_mmio_status_bits_cannot_be_cleared_or_invented),
        T(test_mmio_failed_leads_only_to_reset),
        T(test_mmio_reset_clears_everything),
        T(test_mmio_driver_ok_twice_activates_once),
        T(test_mmio_device_that_cannot_start_needs_reset),
        T(test_mmio_broken_device_tells_the_driver),
        T(test_mmio_faults_do_not_flood_the_log),
        T(test_mmio_bad_queue_is_refused_where_it_is_written),
        T(test_mmio_queue_size_is_not_truncated),
        T(test_mmio_running_queue_cannot_be_moved),
        T(test_mmio_ready_queue_changes_only_when_taken_back),
        T(test_mmio_queues_need_a_driver),
    };

    return cmocka_run_group_tests_name("virtio_mmio", tests, NULL, NULL);
}
