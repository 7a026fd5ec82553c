/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_blk_req.h"

#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

#define SECTORS 100u

static uint8_t memory[16 + 4096];
static uint8_t answer[4096];

static const struct vblk_limits rw = {.capacity_bytes = SECTORS * 512u};
static const struct vblk_limits ro = {.capacity_bytes = SECTORS * 512u,
                                      .read_only = true};

/* A chain of a header, `out` more readable bytes and `in` writable ones. */
static struct vq_chain *chain(uint32_t type, uint64_t sector, size_t out,
                              size_t in)
{
    static struct vq_chain c;

    memset(&c, 0, sizeof(c));
    memset(memory, 0, sizeof(memory));
    put_le32(memory, type);
    put_le64(memory + 8, sector);
    c.iov[0].iov_base = memory;
    c.iov[0].iov_len = 16 + out;
    c.num_readable = 1;
    c.readable_bytes = 16 + out;
    if (in > 0) {
        c.iov[1].iov_base = answer;
        c.iov[1].iov_len = in;
        c.num_writable = 1;
        c.writable_bytes = in;
    }
    return &c;
}

static void expect_status(const struct vq_chain *c,
                          const struct vblk_limits *limits, uint8_t status)
{
    struct vblk_req r;

    assert_int_equal(vblk_parse(c, limits, &r), 0);
    assert_int_equal(r.status, status);
    assert_ptr_equal(r.status_byte, answer + c->writable_bytes - 1);
}

static void test_vblk_parse_read(void **state)
{
    struct vblk_req r;

    (void)state;
    assert_int_equal(vblk_parse(chain(VIRTIO_BLK_T_IN, 7, 0, 1025), &rw, &r),
                     0);
    assert_int_equal(r.op, VBLK_READ);
    assert_int_equal(r.status, VIRTIO_BLK_S_OK);
    assert_int_equal(r.offset_bytes, 7 * 512);
    assert_int_equal(r.data_bytes, 1024);
    assert_ptr_equal(r.status_byte, answer + 1024);
}

static void test_vblk_parse_write(void **state)
{
    struct vblk_req r;

    (void)state;
    assert_int_equal(vblk_parse(chain(VIRTIO_BLK_T_OUT, 7, 1024, 1), &rw, &r),
                     0);
    assert_int_equal(r.op, VBLK_WRITE);
    assert_int_equal(r.status, VIRTIO_BLK_S_OK);
    assert_int_equal(r.data_bytes, 1024);
}

static void test_vblk_parse_header_split_byte_by_byte(void **state)
{
    struct vq_chain *c = chain(VIRTIO_BLK_T_IN, SECTORS - 1, 0, 513);
    struct vblk_req r;

    (void)state;
    c->iov[16] = c->iov[1];
    for (uint16_t i = 0; i < 16; i++) {
        c->iov[i].iov_base = memory + i;
        c->iov[i].iov_len = 1;
    }
    c->num_readable = 16;
    assert_int_equal(vblk_parse(c, &rw, &r), 0);
    assert_int_equal(r.status, VIRTIO_BLK_S_OK);
    assert_int_equal(r.offset_bytes, (SECTORS - 1) * 512);
}

static void test_vblk_parse_flush_and_id(void **state)
{
    struct vblk_req r;

    (void)state;
    assert_int_equal(vblk_parse(chain(VIRTIO_BLK_T_FLUSH, 0, 0, 1), &rw, &r),
                     0);
    assert_int_equal(r.op, VBLK_FLUSH);
    assert_int_equal(r.status, VIRTIO_BLK_S_OK);
    assert_int_equal(vblk_parse(chain(VIRTIO_BLK_T_GET_ID, 0, 0, 21), &rw, &r),
                     0);
    assert_int_equal(r.op, VBLK_GET_ID);
    assert_int_equal(r.status, VIRTIO_BLK_S_OK);
    expect_status(chain(VIRTIO_BLK_T_GET_ID, 0, 0, 20), &rw,
                  VIRTIO_BLK_S_IOERR);
}

static void test_vblk_parse_without_header_or_status_is_no_request(void **state)
{
    struct vq_chain *c;
    struct vblk_req r;

    (void)state;
    assert_int_equal(vblk_parse(chain(VIRTIO_BLK_T_IN, 0, 0, 0), &rw, &r),
                     -EPROTO);
    c = chain(VIRTIO_BLK_T_IN, 0, 0, 513);
    c->iov[0].iov_len = 15;
    c->readable_bytes = 15;
    assert_int_equal(vblk_parse(c, &rw, &r), -EPROTO);
    c->num_readable = 0;
    c->readable_bytes = 0;
    c->iov[0] = c->iov[1];
    assert_int_equal(vblk_parse(c, &rw, &r), -EPROTO);
}

static void test_vblk_parse_range_outside_the_disk_is_an_error(void **state)
{
    static const uint64_t bad[] = {
        SECTORS - 1,    SECTORS,          SECTORS + 1, UINT64_MAX,
        UINT64_MAX - 1, UINT64_MAX / 512, 1ull << 55,  (1ull << 55) + 1};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        expect_status(chain(VIRTIO_BLK_T_IN, bad[i], 0, 1025), &rw,
                      VIRTIO_BLK_S_IOERR);
        expect_status(chain(VIRTIO_BLK_T_OUT, bad[i], 1024, 1), &rw,
                      VIRTIO_BLK_S_IOERR);
    }
    expect_status(chain(VIRTIO_BLK_T_IN, SECTORS - 2, 0, 1025), &rw,
                  VIRTIO_BLK_S_OK);
}

static void test_vblk_parse_length_not_whole_sectors_is_an_error(void **state)
{
    static const size_t bad[] = {0, 1, 511, 513, 1023};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        expect_status(chain(VIRTIO_BLK_T_IN, 0, 0, bad[i] + 1), &rw,
                      VIRTIO_BLK_S_IOERR);
        expect_status(chain(VIRTIO_BLK_T_OUT, 0, bad[i], 1), &rw,
                      VIRTIO_BLK_S_IOERR);
    }
}

/* The used length has 32 bits. */
static void test_vblk_parse_huge_length_is_an_error(void **state)
{
    static const struct vblk_limits huge = {.capacity_bytes = 1ull << 60};
    struct vq_chain *c = chain(VIRTIO_BLK_T_IN, 0, 0, 513);
    struct vblk_req r;

    (void)state;
    /* nine buffers over the same memory, as a guest may offer them */
    c->num_writable = 9;
    c->writable_bytes = 1;
    for (uint16_t i = 1; i <= 9; i++) {
        c->iov[i].iov_base = answer;
        c->iov[i].iov_len = i < 9 ? 1ul << 29 : 1;
        c->writable_bytes += i < 9 ? 1ul << 29 : 0;
    }
    assert_int_equal(vblk_parse(c, &huge, &r), 0);
    assert_int_equal(r.status, VIRTIO_BLK_S_IOERR);
}

static void test_vblk_parse_write_to_read_only_is_an_error(void **state)
{
    (void)state;
    expect_status(chain(VIRTIO_BLK_T_OUT, 0, 512, 1), &ro, VIRTIO_BLK_S_IOERR);
    expect_status(chain(VIRTIO_BLK_T_IN, 0, 0, 513), &ro, VIRTIO_BLK_S_OK);
}

static void test_vblk_parse_data_of_the_wrong_direction_is_an_error(void **s)
{
    (void)s;
    expect_status(chain(VIRTIO_BLK_T_IN, 0, 512, 513), &rw, VIRTIO_BLK_S_IOERR);
    expect_status(chain(VIRTIO_BLK_T_OUT, 0, 512, 513), &rw,
                  VIRTIO_BLK_S_IOERR);
}

static void test_vblk_parse_other_types_are_unsupported(void **state)
{
    static const uint32_t other[] = {2,
                                     3,
                                     5,
                                     VIRTIO_BLK_T_DISCARD,
                                     VIRTIO_BLK_T_WRITE_ZEROES,
                                     VIRTIO_BLK_T_SECURE_ERASE,
                                     VIRTIO_BLK_T_OUT | 0x80000000u,
                                     0xffffffffu};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(other); i++)
        expect_status(chain(other[i], 0, 16, 513), &rw, VIRTIO_BLK_S_UNSUPP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vblk_parse_read),
        cmocka_unit_test(test_vblk_parse_write),
        cmocka_unit_test(test_vblk_parse_header_split_byte_by_byte),
        cmocka_unit_test(test_vblk_parse_flush_and_id),
        cmocka_unit_test(
            test_vblk_parse_without_header_or_status_is_no_request),
        cmocka_unit_test(test_vblk_parse_range_outside_the_disk_is_an_error),
        cmocka_unit_test(test_vblk_parse_length_not_whole_sectors_is_an_error),
        cmocka_unit_test(test_vblk_parse_huge_length_is_an_error),
        cmocka_unit_test(test_vblk_parse_write_to_read_only_is_an_error),
        cmocka_unit_test(
            test_vblk_parse_data_of_the_wrong_direction_is_an_error),
        cmocka_unit_test(test_vblk_parse_other_types_are_unsupported),
    };

    return cmocka_run_group_tests_name("virtio_blk_req", tests, NULL, NULL);
}
