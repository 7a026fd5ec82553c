/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtq.h"

#include "tests/harness/fake_driver.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define RAM   (4 * MIB)
#define QSIZE 8u

struct fixture {
    struct fdrv d;
    struct virtq vq;
    struct vq_chain c;
    gpa_t buf;
};

static struct fixture *make(uint16_t size, bool event_idx, bool indirect)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct vq_setup_args args;

    assert_non_null(f);
    fdrv_init(&f->d, RAM);
    fdrv_queue_init(&f->d, 0, size, event_idx);
    f->buf = fdrv_alloc(&f->d, 65536, 4096);
    args = fdrv_setup_args(&f->d, 0, indirect);
    assert_int_equal(vq_setup(&f->vq, f->d.mem, &args), 0);
    return f;
}

static int setup_plain(void **state)
{
    *state = make(QSIZE, false, false);
    return 0;
}

static int setup_event(void **state)
{
    *state = make(QSIZE, true, true);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    fdrv_fini(&f->d);
    free(f);
    return 0;
}

/* One raw descriptor chain of one buffer at head `head`, published. */
static void offer_raw(struct fixture *f, uint16_t head)
{
    fdrv_set_avail_entry(&f->d, 0, f->d.q[0].avail_idx % QSIZE, head);
    f->d.q[0].avail_idx++;
    fdrv_publish(&f->d, 0);
}

static void expect_broken(struct fixture *f)
{
    assert_int_equal(vq_pop(&f->vq, &f->c), -EPROTO);
    assert_true(f->vq.broken);
    /* and stays so */
    assert_int_equal(vq_pop(&f->vq, &f->c), -EPROTO);
    assert_false(vq_enable_kicks(&f->vq));
    assert_false(vq_should_signal(&f->vq));
    vq_push(&f->vq, 0, 1);
    assert_int_equal(fdrv_used_idx(&f->d, 0), 0);
}

/* Its memory is the driver's again, whatever is still on its way. */
static void test_push_to_a_stopped_queue_writes_nothing(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 16, true};
    struct vq_used used[] = {{0, 1}};
    uint8_t ring[6 + 8 * QSIZE];

    (void)fdrv_add(&f->d, 0, &seg, 1);
    (void)fdrv_add(&f->d, 0, &seg, 1);
    fdrv_publish(&f->d, 0);
    assert_int_equal(vq_pop(&f->vq, &f->c), 1);
    used[0].head = f->c.head;
    assert_int_equal(vq_pop(&f->vq, &f->c), 1);
    vq_stop(&f->vq);
    memset(ring, 0x5a, sizeof(ring));
    fdrv_write(&f->d, f->d.q[0].used, ring, sizeof(ring));
    vq_push(&f->vq, f->c.head, 1);
    vq_push_all(&f->vq, used, 1);
    assert_false(vq_should_signal(&f->vq));
    assert_memory_equal(fdrv_ptr(&f->d, f->d.q[0].used, sizeof(ring)), ring,
                        sizeof(ring));
}

/* --- set-up -------------------------------------------------------------- */

static int try_setup(struct fixture *f, const struct vq_setup_args *args)
{
    return vq_setup(&f->vq, f->d.mem, args);
}

static void test_vq_setup_bad_size_is_refused(void **state)
{
    static const uint16_t bad[] = {0, 3, 6, 1025, 2048, 0x8000, 0xffff};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct vq_setup_args a = fdrv_setup_args(&f->d, 0, false);

        a.size = bad[i];
        assert_int_equal(try_setup(f, &a), -EINVAL);
        assert_int_equal(f->vq.size, 0);
    }
}

static void test_vq_setup_misaligned_ring_is_refused(void **state)
{
    struct fixture *f = *state;
    struct vq_setup_args a = fdrv_setup_args(&f->d, 0, false);

    a.desc += 8;
    assert_int_equal(try_setup(f, &a), -EINVAL);
    a = fdrv_setup_args(&f->d, 0, false);
    a.avail += 1;
    assert_int_equal(try_setup(f, &a), -EINVAL);
    a = fdrv_setup_args(&f->d, 0, false);
    a.used += 2;
    assert_int_equal(try_setup(f, &a), -EINVAL);
}

/* BL-044: rings that end behind RAM or wrap the address space. */
static void test_BL_044_vq_setup_ring_outside_ram_is_refused(void **state)
{
    static const gpa_t bad[] = {RAM - 16, RAM, RAM + 4096, UINT64_MAX - 255,
                                UINT64_MAX - 15};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        gpa_t *fields[3];
        struct vq_setup_args a;

        fields[0] = &a.desc;
        fields[1] = &a.avail;
        fields[2] = &a.used;
        for (size_t k = 0; k < 3; k++) {
            a = fdrv_setup_args(&f->d, 0, false);
            *fields[k] = bad[i] & ~15ull;
            assert_int_equal(try_setup(f, &a), -EFAULT);
            assert_int_equal(f->vq.size, 0);
        }
    }
}

static void test_vq_setup_ring_that_ends_with_ram_is_accepted(void **state)
{
    struct fixture *f = *state;
    struct vq_setup_args a = fdrv_setup_args(&f->d, 0, false);

    a.desc = RAM - 16 * QSIZE;
    assert_int_equal(try_setup(f, &a), 0);
    a = fdrv_setup_args(&f->d, 0, false);
    a.avail = RAM - (6 + 2 * QSIZE);
    assert_int_equal(try_setup(f, &a), 0);
    a.avail += 2;
    assert_int_equal(try_setup(f, &a), -EFAULT);
}

static void test_vq_calls_before_setup_do_nothing(void **state)
{
    struct fixture *f = *state;

    vq_teardown(&f->vq);
    assert_int_equal(vq_pop(&f->vq, &f->c), 0);
    assert_false(vq_enable_kicks(&f->vq));
    assert_false(vq_should_signal(&f->vq));
    vq_disable_kicks(&f->vq);
    vq_push(&f->vq, 3, 4);
    vq_unpop(&f->vq);
    vq_teardown(&f->vq);
}

/* --- good chains --------------------------------------------------------- */

static void check_chain(struct fixture *f, uint16_t head)
{
    assert_int_equal(vq_pop(&f->vq, &f->c), 1);
    assert_int_equal(f->c.head, head);
    assert_int_equal(f->c.num_readable, 2);
    assert_int_equal(f->c.num_writable, 1);
    assert_int_equal(f->c.readable_bytes, 116);
    assert_int_equal(f->c.writable_bytes, 7);
    assert_ptr_equal(f->c.iov[1].iov_base, fdrv_ptr(&f->d, f->buf + 1000, 100));
    assert_int_equal(f->c.iov[1].iov_len, 100);
}

static void test_vq_pop_direct_chain_gives_its_buffers(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {{f->buf, 16, false},
                              {f->buf + 1000, 100, false},
                              {f->buf + 3001, 7, true}};
    uint32_t head;
    uint32_t len;

    for (int round = 0; round < 70000; round++) {
        uint16_t h = fdrv_add(&f->d, 0, segs, ARRAY_SIZE(segs));

        assert_int_equal(vq_pop(&f->vq, &f->c), 0);
        fdrv_publish(&f->d, 0);
        check_chain(f, h);
        assert_int_equal(vq_pop(&f->vq, &f->c), 0);
        assert_false(fdrv_used(&f->d, 0, &head, &len));
        vq_push(&f->vq, h, 7);
        assert_true(fdrv_used(&f->d, 0, &head, &len));
        assert_int_equal(head, h);
        assert_int_equal(len, 7);
    }
}

static void test_vq_pop_indirect_chain_gives_its_buffers(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {{f->buf, 16, false},
                              {f->buf + 1000, 100, false},
                              {f->buf + 3001, 7, true}};
    uint16_t h = fdrv_add_indirect(&f->d, 0, segs, ARRAY_SIZE(segs));

    fdrv_publish(&f->d, 0);
    check_chain(f, h);
}

/* spec: virtio-1.2 2.7.5.3.2: direct ones, then one indirect; its WRITE flag
 * means nothing. The table here has an odd address. */
static void test_vq_pop_direct_then_indirect_is_accepted(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {{f->buf + 1000, 100, false},
                              {f->buf + 3001, 7, true}};
    struct vring_desc table[2];

    (void)fdrv_add(&f->d, 0, segs, 2);
    fdrv_read(&f->d, f->d.q[0].desc, table, sizeof(table));
    fdrv_write(&f->d, f->buf + 9001, table, sizeof(table));
    fdrv_set_desc(&f->d, 0, 0, f->buf, 16, VRING_DESC_F_NEXT, 5);
    fdrv_set_desc(&f->d, 0, 5, f->buf + 9001, sizeof(table),
                  VRING_DESC_F_INDIRECT | VRING_DESC_F_WRITE, 0);
    fdrv_publish(&f->d, 0);
    check_chain(f, 0);
}

static void test_vq_pop_zero_length_buffers_are_left_out(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {{f->buf, 16, false},
                              {UINT64_MAX, 0, false},
                              {f->buf + 1000, 100, false},
                              {0, 0, true},
                              {f->buf + 3001, 7, true}};
    uint16_t h = fdrv_add(&f->d, 0, segs, ARRAY_SIZE(segs));

    fdrv_publish(&f->d, 0);
    check_chain(f, h);
}

static void test_vq_unpop_gives_the_chain_again(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {{f->buf, 16, false}};
    uint16_t h1 = fdrv_add(&f->d, 0, segs, 1);
    uint16_t h2 = fdrv_add(&f->d, 0, segs, 1);

    fdrv_publish(&f->d, 0);
    assert_int_equal(vq_pop(&f->vq, &f->c), 1);
    assert_int_equal(vq_pop(&f->vq, &f->c), 1);
    assert_int_equal(f->c.head, h2);
    vq_unpop(&f->vq);
    assert_int_equal(vq_pop(&f->vq, &f->c), 1);
    assert_int_equal(f->c.head, h2);
    vq_push(&f->vq, h1, 0);
    vq_push(&f->vq, h2, 0);
    assert_int_equal(fdrv_used_idx(&f->d, 0), 2);
}

/* --- broken rings -------------------------------------------------------- */

static void test_vq_pop_bad_head_breaks_the_queue(void **state)
{
    struct fixture *f = *state;

    offer_raw(f, QSIZE);
    expect_broken(f);
}

static void test_vq_pop_bad_next_breaks_the_queue(void **state)
{
    struct fixture *f = *state;

    fdrv_set_desc(&f->d, 0, 2, f->buf, 16, VRING_DESC_F_NEXT, QSIZE);
    offer_raw(f, 2);
    expect_broken(f);
}

static void test_vq_pop_loop_breaks_the_queue(void **state)
{
    struct fixture *f = *state;

    fdrv_set_desc(&f->d, 0, 2, f->buf, 0, VRING_DESC_F_NEXT, 3);
    fdrv_set_desc(&f->d, 0, 3, f->buf, 16, VRING_DESC_F_NEXT, 2);
    offer_raw(f, 2);
    expect_broken(f);
}

static void test_vq_pop_buffer_outside_ram_breaks_the_queue(void **state)
{
    static const struct {
        uint64_t addr;
        uint32_t len;
    } bad[] = {{RAM, 1},        {RAM - 1, 2},         {0, UINT32_MAX},
               {UINT64_MAX, 1}, {UINT64_MAX - 3, 16}, {RAM - 4096, 4097}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        for (uint16_t w = 0; w < 2; w++) {
            struct fixture *f = make(QSIZE, false, false);
            void *again = f;

            fdrv_set_desc(&f->d, 0, 0, bad[i].addr, bad[i].len,
                          w ? VRING_DESC_F_WRITE : 0, 0);
            offer_raw(f, 0);
            expect_broken(f);
            teardown(&again);
        }
    }
}

static void test_vq_pop_readable_after_writable_breaks_the_queue(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {{f->buf, 16, true}, {f->buf + 64, 16, false}};

    (void)fdrv_add(&f->d, 0, segs, 2);
    fdrv_publish(&f->d, 0);
    expect_broken(f);
}

static void test_vq_pop_indirect_not_negotiated_breaks_the_queue(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {{f->buf, 16, true}};

    (void)fdrv_add_indirect(&f->d, 0, segs, 1);
    fdrv_publish(&f->d, 0);
    expect_broken(f);
}

static void indirect_case(uint64_t addr, uint32_t len, uint16_t flags)
{
    struct fixture *f = make(QSIZE, true, true);
    void *state = f;

    fdrv_set_desc(&f->d, 0, 0, addr ? addr : f->buf, len, flags, 0);
    offer_raw(f, 0);
    expect_broken(f);
    teardown(&state);
}

static void test_vq_pop_bad_indirect_table_breaks_the_queue(void **state)
{
    (void)state;
    indirect_case(0, 0, VRING_DESC_F_INDIRECT);
    indirect_case(0, 15, VRING_DESC_F_INDIRECT);
    indirect_case(0, 17, VRING_DESC_F_INDIRECT);
    indirect_case(0, 16 * (VQ_MAX_SIZE + 1), VRING_DESC_F_INDIRECT);
    indirect_case(0, 0xfffffff0u, VRING_DESC_F_INDIRECT);
    indirect_case(0, 16, VRING_DESC_F_INDIRECT | VRING_DESC_F_NEXT);
    indirect_case(RAM, 16, VRING_DESC_F_INDIRECT);
    indirect_case(RAM - 16, 32, VRING_DESC_F_INDIRECT);
    indirect_case(UINT64_MAX - 15, 16, VRING_DESC_F_INDIRECT);
}

static void test_vq_pop_nested_indirect_breaks_the_queue(void **state)
{
    struct fixture *f = *state;
    struct vring_desc inner;

    fdrv_set_desc(&f->d, 0, 1, f->buf + 64, 16, VRING_DESC_F_INDIRECT, 0);
    fdrv_get_desc(&f->d, 0, 1, &inner);
    fdrv_write(&f->d, f->buf, &inner, sizeof(inner));
    fdrv_set_desc(&f->d, 0, 0, f->buf, 16, VRING_DESC_F_INDIRECT, 0);
    offer_raw(f, 0);
    expect_broken(f);
}

static void test_vq_pop_loop_in_indirect_table_breaks_the_queue(void **state)
{
    struct fixture *f = *state;
    struct vring_desc d;

    fdrv_set_desc(&f->d, 0, 1, f->buf + 4096, 16, VRING_DESC_F_NEXT, 0);
    fdrv_get_desc(&f->d, 0, 1, &d);
    fdrv_write(&f->d, f->buf, &d, sizeof(d));
    fdrv_set_desc(&f->d, 0, 0, f->buf, 32, VRING_DESC_F_INDIRECT, 0);
    offer_raw(f, 0);
    expect_broken(f);
}

static void test_vq_pop_too_many_buffers_breaks_the_queue(void **state)
{
    struct fdrv_seg segs[VQ_MAX_SEGS + 1];

    (void)state;
    for (uint16_t n = VQ_MAX_SEGS; n <= VQ_MAX_SEGS + 1; n++) {
        struct fixture *f = make(VQ_MAX_SIZE, true, true);
        void *again = f;

        for (uint16_t i = 0; i < n; i++)
            segs[i] = (struct fdrv_seg){f->buf + i, 1, true};
        (void)fdrv_add(&f->d, 0, segs, n);
        fdrv_publish(&f->d, 0);
        if (n == VQ_MAX_SEGS) {
            assert_int_equal(vq_pop(&f->vq, &f->c), 1);
            assert_int_equal(f->c.num_writable, VQ_MAX_SEGS);
        } else {
            expect_broken(f);
        }
        teardown(&again);
    }
}

static void test_BL_042_avail_index_jump_breaks_the_queue(void **state)
{
    static const uint16_t jumps[] = {QSIZE + 1, 0x7fff, 0x8000, 65535};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(jumps); i++) {
        struct fixture *f = make(QSIZE, false, false);
        void *again = f;

        fdrv_set_desc(&f->d, 0, 0, f->buf, 16, 0, 0);
        fdrv_set_avail_idx(&f->d, 0, jumps[i]);
        expect_broken(f);
        teardown(&again);
    }
}

static void test_BL_042_more_outstanding_than_the_ring_breaks_it(void **state)
{
    struct fixture *f = *state;

    fdrv_set_desc(&f->d, 0, 0, f->buf, 16, 0, 0);
    for (unsigned i = 0; i < QSIZE; i++) {
        offer_raw(f, 0);
        assert_int_equal(vq_pop(&f->vq, &f->c), 1);
    }
    offer_raw(f, 0);
    expect_broken(f);
}

static void test_vq_pop_full_ring_is_fine(void **state)
{
    struct fixture *f = *state;

    fdrv_set_desc(&f->d, 0, 0, f->buf, 16, 0, 0);
    f->d.q[0].avail_idx = QSIZE;
    fdrv_publish(&f->d, 0);
    for (unsigned i = 0; i < QSIZE; i++)
        assert_int_equal(vq_pop(&f->vq, &f->c), 1);
    assert_int_equal(vq_pop(&f->vq, &f->c), 0);
}

static void test_vq_setup_again_heals_a_broken_queue(void **state)
{
    struct fixture *f = *state;
    struct vq_setup_args a;

    offer_raw(f, QSIZE);
    expect_broken(f);
    fdrv_queue_init(&f->d, 0, QSIZE, false);
    a = fdrv_setup_args(&f->d, 0, false);
    assert_int_equal(vq_setup(&f->vq, f->d.mem, &a), 0);
    fdrv_set_desc(&f->d, 0, 0, f->buf, 16, 0, 0);
    offer_raw(f, 0);
    assert_int_equal(vq_pop(&f->vq, &f->c), 1);
}

/* --- notifications ------------------------------------------------------- */

static uint16_t serve_one(struct fixture *f)
{
    struct fdrv_seg seg = {f->buf, 16, true};
    uint16_t h = fdrv_add(&f->d, 0, &seg, 1);
    uint32_t head;
    uint32_t len;

    fdrv_publish(&f->d, 0);
    assert_int_equal(vq_pop(&f->vq, &f->c), 1);
    vq_push(&f->vq, h, 16);
    assert_true(fdrv_used(&f->d, 0, &head, &len));
    return h;
}

static void test_vq_signal_follows_the_no_interrupt_flag(void **state)
{
    struct fixture *f = *state;

    assert_false(vq_should_signal(&f->vq)); /* nothing pushed */
    serve_one(f);
    assert_true(vq_should_signal(&f->vq));
    assert_false(vq_should_signal(&f->vq));
    fdrv_set_avail_flags(&f->d, 0, VRING_AVAIL_F_NO_INTERRUPT);
    serve_one(f);
    assert_false(vq_should_signal(&f->vq));
}

static void test_vq_signal_follows_used_event(void **state)
{
    struct fixture *f = *state;

    fdrv_set_used_event(&f->d, 0, 0);
    serve_one(f);
    assert_true(vq_should_signal(&f->vq)); /* crossed 0 */
    fdrv_set_used_event(&f->d, 0, 3);
    serve_one(f);
    assert_false(vq_should_signal(&f->vq)); /* now at 2 */
    serve_one(f);
    assert_false(vq_should_signal(&f->vq));
    serve_one(f);
    assert_true(vq_should_signal(&f->vq)); /* crossed 3 */
}

static void test_vq_signal_after_a_full_turn_without_decision(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 65536; i++)
        serve_one(f);
    assert_true(vq_should_signal(&f->vq));
}

static void test_vq_enable_kicks_sees_late_requests(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 16, true};

    assert_false(vq_enable_kicks(&f->vq));
    vq_disable_kicks(&f->vq);
    assert_int_equal(fdrv_used_flags(&f->d, 0), VRING_USED_F_NO_NOTIFY);
    (void)fdrv_add(&f->d, 0, &seg, 1);
    fdrv_publish(&f->d, 0);
    assert_true(vq_enable_kicks(&f->vq));
    assert_int_equal(fdrv_used_flags(&f->d, 0), 0);
}

static void test_vq_enable_kicks_writes_avail_event(void **state)
{
    struct fixture *f = *state;

    serve_one(f);
    serve_one(f);
    assert_false(vq_enable_kicks(&f->vq));
    assert_int_equal(fdrv_avail_event(&f->d, 0), 2);
    vq_disable_kicks(&f->vq);
    assert_int_equal(fdrv_used_flags(&f->d, 0), 0);
}

/* Those that wait ask for no kick, the one behind them does. */
static void test_vq_kick_behind_what_waits(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg seg = {f->buf, 16, true};

    assert_int_equal(vq_enable_kicks_behind(&f->vq), 0);
    for (int i = 0; i < 3; i++)
        (void)fdrv_add(&f->d, 0, &seg, 1);
    fdrv_publish(&f->d, 0);
    vq_disable_kicks(&f->vq);
    assert_int_equal(vq_enable_kicks_behind(&f->vq), 3);
    if (f->vq.event_idx)
        assert_int_equal(fdrv_avail_event(&f->d, 0), 3);
    else
        assert_int_equal(fdrv_used_flags(&f->d, 0), 0);
    assert_int_equal(vq_pop(&f->vq, &f->c), 1); /* they are still there */
    vq_push(&f->vq, f->c.head, 0);
    vq_stop(&f->vq);
    assert_int_equal(vq_enable_kicks_behind(&f->vq), 0);
}

/* --- bytes of a chain ---------------------------------------------------- */

static void test_vq_chain_copies_across_buffers(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {{f->buf, 3, false},
                              {f->buf + 100, 4, false},
                              {f->buf + 200, 2, true},
                              {f->buf + 300, 5, true}};
    char out[16] = {0};

    fdrv_write(&f->d, f->buf, "abc", 3);
    fdrv_write(&f->d, f->buf + 100, "defg", 4);
    (void)fdrv_add(&f->d, 0, segs, ARRAY_SIZE(segs));
    fdrv_publish(&f->d, 0);
    assert_int_equal(vq_pop(&f->vq, &f->c), 1);
    assert_int_equal(vq_chain_read(&f->c, 0, out, sizeof(out)), 7);
    assert_memory_equal(out, "abcdefg", 8);
    assert_int_equal(vq_chain_read(&f->c, 2, out, 3), 3);
    assert_memory_equal(out, "cde", 3);
    assert_int_equal(vq_chain_read(&f->c, 7, out, 1), 0);
    assert_int_equal(vq_chain_read(&f->c, SIZE_MAX, out, 1), 0);
    assert_int_equal(vq_chain_write(&f->c, 1, "123456789", 9), 6);
    fdrv_read(&f->d, f->buf + 200, out, 2);
    fdrv_read(&f->d, f->buf + 300, out + 2, 5);
    assert_memory_equal(out,
                        "\0"
                        "123456",
                        7);
}

static void test_vq_chain_slice_covers_a_range_or_fails(void **state)
{
    struct fixture *f = *state;
    struct fdrv_seg segs[] = {{f->buf, 3, false},
                              {f->buf + 100, 4, true},
                              {f->buf + 200, 2, true},
                              {f->buf + 300, 5, true}};
    struct iovec v[4];

    (void)fdrv_add(&f->d, 0, segs, ARRAY_SIZE(segs));
    fdrv_publish(&f->d, 0);
    assert_int_equal(vq_pop(&f->vq, &f->c), 1);
    assert_int_equal(vq_chain_slice(&f->c, true, 3, 4, v, 4), 3);
    assert_ptr_equal(v[0].iov_base, fdrv_ptr(&f->d, f->buf + 103, 1));
    assert_int_equal(v[0].iov_len, 1);
    assert_int_equal(v[1].iov_len, 2);
    assert_int_equal(v[2].iov_len, 1);
    assert_int_equal(vq_chain_slice(&f->c, true, 0, 11, v, 4), 3);
    assert_int_equal(vq_chain_slice(&f->c, true, 0, 11, v, 2), -EINVAL);
    assert_int_equal(vq_chain_slice(&f->c, true, 0, 12, v, 4), -EINVAL);
    assert_int_equal(vq_chain_slice(&f->c, true, 11, 0, v, 4), 0);
    assert_int_equal(vq_chain_slice(&f->c, true, 11, 1, v, 4), -EINVAL);
    assert_int_equal(vq_chain_slice(&f->c, true, SIZE_MAX, 1, v, 4), -EINVAL);
    assert_int_equal(vq_chain_slice(&f->c, false, 0, 3, v, 4), 1);
}

#define PLAIN(t) cmocka_unit_test_setup_teardown(t, setup_plain, teardown)
#define EVENT(t) cmocka_unit_test_setup_teardown(t, setup_event, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAIN(test_vq_setup_bad_size_is_refused),
        PLAIN(test_vq_setup_misaligned_ring_is_refused),
        PLAIN(test_BL_044_vq_setup_ring_outside_ram_is_refused),
        PLAIN(test_vq_setup_ring_that_ends_with_ram_is_accepted),
        PLAIN(test_vq_calls_before_setup_do_nothing),
        PLAIN(test_vq_pop_direct_chain_gives_its_buffers),
        EVENT(test_vq_pop_indirect_chain_gives_its_buffers),
        EVENT(test_vq_pop_direct_then_indirect_is_accepted),
        PLAIN(test_vq_pop_zero_length_buffers_are_left_out),
        PLAIN(test_vq_unpop_gives_the_chain_again),
        PLAIN(test_vq_pop_bad_head_breaks_the_queue),
        PLAIN(test_vq_pop_bad_next_breaks_the_queue),
        PLAIN(test_vq_pop_loop_breaks_the_queue),
        cmocka_unit_test_setup_teardown(
            test_push_to_a_stopped_queue_writes_nothing, setup_event, teardown),
        cmocka_unit_test(test_vq_pop_buffer_outside_ram_breaks_the_queue),
        PLAIN(test_vq_pop_readable_after_writable_breaks_the_queue),
        PLAIN(test_vq_pop_indirect_not_negotiated_breaks_the_queue),
        cmocka_unit_test(test_vq_pop_bad_indirect_table_breaks_the_queue),
        EVENT(test_vq_pop_nested_indirect_breaks_the_queue),
        EVENT(test_vq_pop_loop_in_indirect_table_breaks_the_queue),
        cmocka_unit_test(test_vq_pop_too_many_buffers_breaks_the_queue),
        cmocka_unit_test(test_BL_042_avail_index_jump_breaks_the_queue),
        PLAIN(test_BL_042_more_outstanding_than_the_ring_breaks_it),
        PLAIN(test_vq_pop_full_ring_is_fine),
        PLAIN(test_vq_setup_again_heals_a_broken_queue),
        PLAIN(test_vq_signal_follows_the_no_interrupt_flag),
        EVENT(test_vq_signal_follows_used_event),
        EVENT(test_vq_signal_after_a_full_turn_without_decision),
        PLAIN(test_vq_enable_kicks_sees_late_requests),
        EVENT(test_vq_enable_kicks_writes_avail_event),
        PLAIN(test_vq_kick_behind_what_waits),
        EVENT(test_vq_kick_behind_what_waits),
        PLAIN(test_vq_chain_copies_across_buffers),
        PLAIN(test_vq_chain_slice_covers_a_range_or_fails),
    };

    return cmocka_run_group_tests_name("virtq", tests, NULL, NULL);
}
