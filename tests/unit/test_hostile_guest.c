/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What style.md asks of every device, asked of every device: accesses to the
 * configuration space, requests of odd shapes, resets at any time.
 */
#include "devices/virtio.h"

#include "tests/harness/hostile_guest.h"
#include "tests/harness/loop_run.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>

/* --- the configuration space --------------------------------------------- */

static void test_config_by_every_offset_and_width(void **state)
{
    (void)state;
    for (size_t i = 0; i < HG_NUM_DEVICES; i++) {
        const struct hg_device *dev = &hg_devices[i];
        struct hostile_guest f;
        uint8_t all[256] = {0};
        uint8_t got[8];
        uint8_t ones[8];

        hg_begin(&f, dev, 0);
        memset(ones, 0xff, sizeof(ones));
        assert_true(f.dev->config_len <= sizeof(all));
        if (f.dev->config_len)
            f.dev->ops->config_read(f.dev, 0, all, f.dev->config_len);
        for (uint32_t off = 0; off < f.dev->config_len; off++) {
            for (uint32_t len = 1; len <= 8 && off + len <= f.dev->config_len;
                 len *= 2) {
                f.dev->ops->config_read(f.dev, off, got, len);
                assert_memory_equal(got, all + off, len);
            }
        }
        for (uint32_t off = 0; off < f.dev->config_len; off++) {
            for (uint32_t len = 1; len <= 8 && off + len <= f.dev->config_len;
                 len *= 2) {
                if (f.dev->ops->config_write)
                    f.dev->ops->config_write(f.dev, off, ones, len);
            }
        }
        for (uint32_t off = 0; off < f.dev->config_len; off++) {
            f.dev->ops->config_read(f.dev, off, got, 1);
            if (got[0] != all[off] && !(dev->writable_config & 1ull << off))
                fail_msg("%s: byte %u was written", dev->name, off);
        }
        hg_end(&f);
    }
}

/* --- requests of odd shapes ---------------------------------------------- */

static const struct fdrv_seg shapes[][3] = {
    {{0, 0, false}},
    {{0, 0, true}},
    {{0, 1, false}},
    {{0, 1, true}},
    {{0, 7, false}, {64, 1, false}, {128, 3, true}},
    {{0, 4096, true}, {8192, 4096, true}, {16384, 1, true}},
    {{1, 4095, false}, {8191, 3, false}, {16385, 2, true}},
    {{0, 65536, false}, {65536, 65536, false}, {131072, 65536, true}},
};

static uint64_t shape_room(const struct fdrv_seg *s)
{
    uint64_t room = 0;

    for (int i = 0; i < 3; i++)
        room += s[i].writable ? s[i].len : 0;
    return room;
}

struct all_back {
    struct hostile_guest *f;
    uint16_t q;
    uint16_t want;
};

static bool all_came_back(void *arg)
{
    struct all_back *a = arg;

    return fdrv_used_idx(&a->f->d, a->q) == a->want;
}

static void odd_requests(struct hostile_guest *f, uint16_t q, bool kept)
{
    uint16_t head[ARRAY_SIZE(shapes)];
    uint32_t seen = 0;
    uint16_t want = ARRAY_SIZE(shapes) - kept;
    struct all_back a = {f, q, want};
    uint32_t h;
    uint32_t len;

    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        struct fdrv_seg segs[3];

        memcpy(segs, shapes[i], sizeof(segs));
        for (int k = 0; k < 3; k++)
            segs[k].gpa += f->buf;
        head[i] = fdrv_add_indirect(&f->d, q, segs, shapes[i][1].len ? 3 : 1);
    }
    fdrv_kick(&f->d, q);
    assert_true(loop_run_until(f->loop, all_came_back, &a));
    while (fdrv_used(&f->d, q, &h, &len)) {
        size_t i = 0;

        while (i < ARRAY_SIZE(shapes) && head[i] != h)
            i++;
        assert_true(i < ARRAY_SIZE(shapes));
        assert_false(seen & 1u << i); /* exactly once */
        seen |= 1u << i;
        assert_true(len <= shape_room(shapes[i]));
    }
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_odd_requests_complete_once_and_within_their_room(void **state)
{
    (void)state;
    for (size_t i = 0; i < HG_NUM_DEVICES; i++) {
        for (uint16_t q = 0; q < VIRTIO_MAX_QUEUES; q++) {
            struct hostile_guest f;

            if (!(hg_devices[i].any_shape & 1u << q))
                continue;
            hg_begin(&f, &hg_devices[i], HG_INDIRECT);
            odd_requests(&f, q, hg_devices[i].keeps & 1u << q);
            hg_end(&f);
        }
    }
}

/* --- resets -------------------------------------------------------------- */

/* Whatever is in flight: afterwards nothing of the guest's is written. */
static void test_reset_at_any_time_silences_every_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < HG_NUM_DEVICES; i++) {
        struct hostile_guest f;

        hg_begin(&f, &hg_devices[i], HG_INDIRECT);
        for (int round = 0; round < 20; round++) {
            uint16_t used[VIRTIO_MAX_QUEUES];

            for (uint16_t q = 0; q < f.dev->num_queues; q++) {
                struct fdrv_seg segs[] = {{f.buf, 4096, false},
                                          {f.buf + 65536, 65536, true},
                                          {f.buf + 131072, 1, true}};

                for (uint16_t n = 0; n < HG_QSIZE / 4; n++)
                    (void)fdrv_add(&f.d, q, segs, 3);
                fdrv_kick(&f.d, q);
            }
            if (round % 3 == 0)
                loop_run_for(f.loop, 1);
            hg_reset(&f);
            memset(fdrv_ptr(&f.d, f.buf, MIB), 0x77, MIB);
            for (uint16_t q = 0; q < f.dev->num_queues; q++)
                used[q] = fdrv_used_idx(&f.d, q);
            loop_run_for(f.loop, 1);
            for (uint16_t q = 0; q < f.dev->num_queues; q++)
                assert_int_equal(fdrv_used_idx(&f.d, q), used[q]);
            for (size_t b = 0; b < MIB; b += 512)
                assert_int_equal(*(uint8_t *)fdrv_ptr(&f.d, f.buf + b, 1),
                                 0x77);
            f.d.next_free = 4096; /* the rings take the same place again */
            assert_int_equal(fdrv_attach(&f.d, f.dev, HG_QSIZE,
                                         f.dev->offered | HG_INDIRECT),
                             0);
            f.buf = fdrv_alloc(&f.d, MIB, 4096);
        }
        hg_end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_by_every_offset_and_width),
        cmocka_unit_test(test_odd_requests_complete_once_and_within_their_room),
        cmocka_unit_test(test_reset_at_any_time_silences_every_device),
    };

    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("hostile_guest", tests, NULL, NULL);
}
