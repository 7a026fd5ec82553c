/* SPDX-License-Identifier: Apache-2.0 */
/* Every way to break a ring, on every device. */
#include "devices/virtq.h"

#include "tests/harness/hostile_guest.h"
#include "tests/harness/loop_run.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <endian.h>
#include <signal.h>

/* --- broken rings -------------------------------------------------------- */

static uint16_t put_one(struct hostile_guest *f, uint16_t q)
{
    struct fdrv_seg seg = {f->buf, 64, true};

    return fdrv_add(&f->d, q, &seg, 1);
}

static void fault_idx_jump(struct hostile_guest *f, uint16_t q)
{
    (void)put_one(f, q);
    fdrv_set_avail_idx(&f->d, q, (uint16_t)(f->d.q[q].size + 1));
}

static void fault_idx_back(struct hostile_guest *f, uint16_t q)
{
    (void)put_one(f, q);
    fdrv_set_avail_idx(&f->d, q, 65535);
}

static void fault_head(struct hostile_guest *f, uint16_t q)
{
    (void)put_one(f, q);
    fdrv_set_avail_entry(&f->d, q, 0, f->d.q[q].size);
    fdrv_publish(&f->d, q);
}

static void fault_head_max(struct hostile_guest *f, uint16_t q)
{
    (void)put_one(f, q);
    fdrv_set_avail_entry(&f->d, q, 0, 0xffff);
    fdrv_publish(&f->d, q);
}

/* The only descriptor of a request becomes this. */
static void set_desc(struct hostile_guest *f, uint16_t q, uint64_t addr,
                     uint32_t len, uint16_t flags, uint16_t next)
{
    uint16_t head = put_one(f, q);

    fdrv_set_desc(&f->d, q, head, addr, len, flags,
                  next == 0xfffe ? head : next);
    fdrv_publish(&f->d, q);
}

static void fault_next(struct hostile_guest *f, uint16_t q)
{
    set_desc(f, q, f->buf, 64, VRING_DESC_F_NEXT, f->d.q[q].size);
}

static void fault_loop(struct hostile_guest *f, uint16_t q)
{
    set_desc(f, q, f->buf, 64, VRING_DESC_F_NEXT, 0xfffe);
}

static void fault_outside(struct hostile_guest *f, uint16_t q)
{
    set_desc(f, q, HG_RAM, 1, VRING_DESC_F_WRITE, 0);
}

static void fault_across_end(struct hostile_guest *f, uint16_t q)
{
    set_desc(f, q, HG_RAM - 63, 64, 0, 0);
}

static void fault_wrap(struct hostile_guest *f, uint16_t q)
{
    set_desc(f, q, UINT64_MAX - 31, 64, 0, 0);
}

static void fault_huge(struct hostile_guest *f, uint16_t q)
{
    set_desc(f, q, f->buf, UINT32_MAX, VRING_DESC_F_WRITE, 0);
}

static void fault_order(struct hostile_guest *f, uint16_t q)
{
    struct fdrv_seg segs[] = {{f->buf, 64, true}, {f->buf + 64, 64, false}};

    (void)fdrv_add(&f->d, q, segs, 2);
    fdrv_publish(&f->d, q);
}

static void fault_indirect_length(struct hostile_guest *f, uint16_t q)
{
    set_desc(f, q, f->buf, 17, VRING_DESC_F_INDIRECT, 0);
}

static void fault_indirect_empty(struct hostile_guest *f, uint16_t q)
{
    set_desc(f, q, f->buf, 0, VRING_DESC_F_INDIRECT, 0);
}

static void fault_indirect_long(struct hostile_guest *f, uint16_t q)
{
    set_desc(f, q, f->buf, 16 * 1025, VRING_DESC_F_INDIRECT, 0);
}

static void fault_indirect_outside(struct hostile_guest *f, uint16_t q)
{
    set_desc(f, q, HG_RAM, 16, VRING_DESC_F_INDIRECT, 0);
}

static void fault_indirect_nested(struct hostile_guest *f, uint16_t q)
{
    struct vring_desc inner = {htole64(f->buf), htole32(16),
                               htole16(VRING_DESC_F_INDIRECT), 0};

    fdrv_write(&f->d, f->buf, &inner, sizeof(inner));
    set_desc(f, q, f->buf, 16, VRING_DESC_F_INDIRECT, 0);
}

static const struct fault {
    const char *name;
    void (*fn)(struct hostile_guest *f, uint16_t q);
} faults[] = {
    {"idx_jump", fault_idx_jump},
    {"idx_back", fault_idx_back},
    {"head", fault_head},
    {"head_max", fault_head_max},
    {"next", fault_next},
    {"loop", fault_loop},
    {"outside", fault_outside},
    {"across_end", fault_across_end},
    {"wrap", fault_wrap},
    {"huge", fault_huge},
    {"order", fault_order},
    {"indirect_length", fault_indirect_length},
    {"indirect_empty", fault_indirect_empty},
    {"indirect_long", fault_indirect_long},
    {"indirect_outside", fault_indirect_outside},
    {"indirect_nested", fault_indirect_nested},
};

/* Stops, says so, uses nothing, rests, and works again after a reset. */
static void one_fault(const struct hg_device *dev, uint16_t q,
                      const struct fault *fault)
{
    struct hostile_guest f;
    uint32_t before;

    hg_begin(&f, dev, HG_INDIRECT);
    fault->fn(&f, q);
    f.dev->ops->queue_kick(f.dev, q);
    if (f.d.needs_resets == 0)
        fail_msg("%s, queue %u, %s: no NEEDS_RESET", dev->name, q, fault->name);
    before = f.d.needs_resets;
    loop_run_for(f.loop, 2);
    assert_int_equal(f.d.needs_resets,
                     before); /* and goes on about it no more */
    for (uint16_t i = 0; i < f.dev->num_queues; i++)
        assert_int_equal(fdrv_used_idx(&f.d, i), 0);
    hg_reset(&f);
    assert_int_equal(
        fdrv_attach(&f.d, f.dev, HG_QSIZE, f.dev->offered | HG_INDIRECT), 0);
    assert_false(f.dev->vq[q].broken);
    hg_end(&f);
}

static void test_BL_042_every_ring_fault_stops_every_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < HG_NUM_DEVICES; i++) {
        for (uint16_t q = 0; q < VIRTIO_MAX_QUEUES; q++) {
            for (size_t k = 0; k < ARRAY_SIZE(faults); k++) {
                if (hg_devices[i].eager & 1u << q)
                    one_fault(&hg_devices[i], q, &faults[k]);
            }
        }
    }
}

/* A table that was not agreed upon. */
static void test_indirect_not_negotiated_stops_every_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < HG_NUM_DEVICES; i++) {
        struct hostile_guest f;
        uint16_t q = (uint16_t)__builtin_ctz(hg_devices[i].eager);

        hg_begin(&f, &hg_devices[i], 0);
        set_desc(&f, q, f.buf, 16, VRING_DESC_F_INDIRECT, 0);
        f.dev->ops->queue_kick(f.dev, q);
        assert_true(f.d.needs_resets > 0);
        hg_end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_BL_042_every_ring_fault_stops_every_device),
        cmocka_unit_test(test_indirect_not_negotiated_stops_every_device),
    };

    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("hostile_rings", tests, NULL, NULL);
}
