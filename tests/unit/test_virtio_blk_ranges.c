/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of discard and write-zeroes. spec: virtio-1.2 5.2.6.2 */
#include "devices/virtio_blk_req.h"

#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

#define SECTORS 10000000u
#define SEG     16u
#define UNMAP   1u

static uint8_t memory[VBLK_HEADER_BYTES + (VBLK_MAX_RANGES + 2) * SEG];
static uint8_t answer[2];

static const struct vblk_limits all = {
    .capacity_bytes = SECTORS * 512ull, .discard = true, .write_zeroes = true};

static void put_seg(unsigned i, uint64_t sector, uint32_t count, uint32_t flags)
{
    uint8_t *p = memory + VBLK_HEADER_BYTES + i * SEG;

    put_le64(p, sector);
    put_le32(p + 8, count);
    put_le32(p + 12, flags);
}

/* A chain of the header and `bytes` of the segments that were put. */
static struct vq_chain *chain(uint32_t type, size_t bytes, size_t in)
{
    static struct vq_chain c;

    memset(&c, 0, sizeof(c));
    put_le32(memory, type);
    c.iov[0] = (struct iovec){memory, VBLK_HEADER_BYTES + bytes};
    c.num_readable = 1;
    c.readable_bytes = VBLK_HEADER_BYTES + bytes;
    c.iov[1] = (struct iovec){answer, in};
    c.num_writable = 1;
    c.writable_bytes = in;
    return &c;
}

static void expect(const struct vq_chain *c, const struct vblk_limits *limits,
                   uint8_t status)
{
    struct vblk_req r;

    assert_int_equal(vblk_parse(c, limits, &r), 0);
    assert_int_equal(r.status, status);
    assert_ptr_equal(r.status_byte, answer + c->writable_bytes - 1);
}

static void both(size_t bytes, size_t in, uint8_t status)
{
    expect(chain(VIRTIO_BLK_T_DISCARD, bytes, in), &all, status);
    expect(chain(VIRTIO_BLK_T_WRITE_ZEROES, bytes, in), &all, status);
}

static void test_vblk_ranges_are_taken_as_given(void **state)
{
    struct vblk_req r;

    (void)state;
    put_seg(0, 8, 16, 0);
    put_seg(1, SECTORS - 1, 1, UNMAP);
    assert_int_equal(
        vblk_parse(chain(VIRTIO_BLK_T_WRITE_ZEROES, 2 * SEG, 1), &all, &r), 0);
    assert_int_equal(r.status, VIRTIO_BLK_S_OK);
    assert_int_equal(r.op, VBLK_WRITE_ZEROES);
    assert_int_equal(r.num_ranges, 2);
    assert_int_equal(r.ranges[0].offset_bytes, 8 * 512);
    assert_int_equal(r.ranges[0].len_bytes, 16 * 512);
    assert_false(r.ranges[0].may_unmap);
    assert_true(r.ranges[1].offset_bytes == (SECTORS - 1) * 512ull);
    assert_true(r.ranges[1].may_unmap);
    put_seg(1, 0, 1, 0);
    assert_int_equal(
        vblk_parse(chain(VIRTIO_BLK_T_DISCARD, 2 * SEG, 1), &all, &r), 0);
    assert_int_equal(r.status, VIRTIO_BLK_S_OK);
    assert_int_equal(r.op, VBLK_DISCARD);
}

static void test_vblk_ranges_that_touch_are_joined(void **state)
{
    struct vblk_req r;

    (void)state;
    for (unsigned i = 0; i < VBLK_MAX_RANGES; i++)
        put_seg(i, 100 + 8 * i, 8, 0);
    assert_int_equal(
        vblk_parse(chain(VIRTIO_BLK_T_DISCARD, VBLK_MAX_RANGES * SEG, 1), &all,
                   &r),
        0);
    assert_int_equal(r.num_ranges, 1);
    assert_int_equal(r.ranges[0].offset_bytes, 100 * 512);
    assert_int_equal(r.ranges[0].len_bytes, VBLK_MAX_RANGES * 8 * 512);
    /* not when they want different things, overlap or leave a gap */
    put_seg(1, 108, 8, UNMAP);
    put_seg(2, 116, 8, 0);
    put_seg(3, 125, 8, 0);
    put_seg(4, 132, 8, 0);
    assert_int_equal(
        vblk_parse(chain(VIRTIO_BLK_T_WRITE_ZEROES, 5 * SEG, 1), &all, &r), 0);
    assert_int_equal(r.num_ranges, 5);
}

static void test_vblk_range_past_the_end_is_an_error(void **state)
{
    static const struct {
        uint64_t sector;
        uint32_t count;
    } bad[] = {{SECTORS, 1},    {SECTORS - 1, 2},      {SECTORS + 1, 1},
               {UINT64_MAX, 1}, {UINT64_MAX / 512, 8}, {UINT64_MAX - 7, 8}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        put_seg(0, 0, 8, 0);
        put_seg(1, bad[i].sector, bad[i].count, 0);
        both(2 * SEG, 1, VIRTIO_BLK_S_IOERR);
    }
}

static void test_vblk_range_empty_or_too_long_is_an_error(void **state)
{
    (void)state;
    put_seg(0, 0, 0, 0);
    both(SEG, 1, VIRTIO_BLK_S_IOERR);
    put_seg(0, 0, VBLK_MAX_RANGE_SECTORS, 0);
    both(SEG, 1, VIRTIO_BLK_S_OK);
    put_seg(0, 0, VBLK_MAX_RANGE_SECTORS + 1, 0);
    both(SEG, 1, VIRTIO_BLK_S_IOERR);
    put_seg(0, 0, UINT32_MAX, 0);
    both(SEG, 1, VIRTIO_BLK_S_IOERR);
}

static void test_vblk_range_unknown_flags_are_unsupported(void **state)
{
    (void)state;
    for (unsigned bit = 1; bit < 32; bit++) {
        put_seg(0, 0, 8, 1u << bit);
        both(SEG, 1, VIRTIO_BLK_S_UNSUPP);
    }
    /* unmap is for zeroes only */
    put_seg(0, 0, 8, UNMAP);
    expect(chain(VIRTIO_BLK_T_DISCARD, SEG, 1), &all, VIRTIO_BLK_S_UNSUPP);
    expect(chain(VIRTIO_BLK_T_WRITE_ZEROES, SEG, 1), &all, VIRTIO_BLK_S_OK);
}

static void test_vblk_ranges_of_a_bad_length_are_an_error(void **state)
{
    static const size_t bad[] = {
        0, 1, SEG - 1, SEG + 1, 2 * SEG - 8, (VBLK_MAX_RANGES + 1) * SEG};

    (void)state;
    for (unsigned i = 0; i < VBLK_MAX_RANGES + 2; i++)
        put_seg(i, 100 * i, 8, 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        both(bad[i], 1, VIRTIO_BLK_S_IOERR);
    both(VBLK_MAX_RANGES * SEG, 1, VIRTIO_BLK_S_OK);
    both(SEG, 2, VIRTIO_BLK_S_IOERR); /* there is nothing to read back */
}

static void test_vblk_ranges_split_byte_by_byte(void **state)
{
    struct vq_chain *c = chain(VIRTIO_BLK_T_DISCARD, SEG, 1);
    struct vblk_req r;

    (void)state;
    put_seg(0, 77, 3, 0);
    c->iov[VBLK_HEADER_BYTES + SEG] = c->iov[1];
    for (uint16_t i = 0; i < VBLK_HEADER_BYTES + SEG; i++)
        c->iov[i] = (struct iovec){memory + i, 1};
    c->num_readable = VBLK_HEADER_BYTES + SEG;
    assert_int_equal(vblk_parse(c, &all, &r), 0);
    assert_int_equal(r.status, VIRTIO_BLK_S_OK);
    assert_int_equal(r.ranges[0].offset_bytes, 77 * 512);
    assert_int_equal(r.ranges[0].len_bytes, 3 * 512);
}

static void test_vblk_ranges_not_negotiated_are_unsupported(void **state)
{
    struct vblk_limits l = all;

    (void)state;
    put_seg(0, 0, 8, 0);
    l.discard = false;
    expect(chain(VIRTIO_BLK_T_DISCARD, SEG, 1), &l, VIRTIO_BLK_S_UNSUPP);
    expect(chain(VIRTIO_BLK_T_WRITE_ZEROES, SEG, 1), &l, VIRTIO_BLK_S_OK);
    l.discard = true;
    l.write_zeroes = false;
    expect(chain(VIRTIO_BLK_T_DISCARD, SEG, 1), &l, VIRTIO_BLK_S_OK);
    expect(chain(VIRTIO_BLK_T_WRITE_ZEROES, SEG, 1), &l, VIRTIO_BLK_S_UNSUPP);
}

static void test_vblk_ranges_of_a_read_only_disk_are_an_error(void **state)
{
    struct vblk_limits l = all;

    (void)state;
    put_seg(0, 0, 8, 0);
    l.read_only = true;
    expect(chain(VIRTIO_BLK_T_DISCARD, SEG, 1), &l, VIRTIO_BLK_S_IOERR);
    expect(chain(VIRTIO_BLK_T_WRITE_ZEROES, SEG, 1), &l, VIRTIO_BLK_S_IOERR);
    l.discard = false;
    l.write_zeroes = false;
    expect(chain(VIRTIO_BLK_T_DISCARD, SEG, 1), &l, VIRTIO_BLK_S_IOERR);
    expect(chain(VIRTIO_BLK_T_WRITE_ZEROES, SEG, 1), &l, VIRTIO_BLK_S_IOERR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vblk_ranges_are_taken_as_given),
        cmocka_unit_test(test_vblk_ranges_that_touch_are_joined),
        cmocka_unit_test(test_vblk_range_past_the_end_is_an_error),
        cmocka_unit_test(test_vblk_range_empty_or_too_long_is_an_error),
        cmocka_unit_test(test_vblk_range_unknown_flags_are_unsupported),
        cmocka_unit_test(test_vblk_ranges_of_a_bad_length_are_an_error),
        cmocka_unit_test(test_vblk_ranges_split_byte_by_byte),
        cmocka_unit_test(test_vblk_ranges_not_negotiated_are_unsupported),
        cmocka_unit_test(test_vblk_ranges_of_a_read_only_disk_are_an_error),
    };

    return cmocka_run_group_tests_name("virtio_blk_ranges", tests, NULL, NULL);
}
