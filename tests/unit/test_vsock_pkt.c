/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/vsock_buf.h"
#include "devices/vsock_pkt.h"
#include "devices/vsock_unix.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define CID 42u

/* --- header -------------------------------------------------------------- */

static struct vsock_pkt some_packet(void)
{
    return (struct vsock_pkt){
        .src_cid = CID,
        .dst_cid = 2,
        .src_port = 0x11223344,
        .dst_port = 0x55667788,
        .len = 16,
        .type = VIRTIO_VSOCK_TYPE_STREAM,
        .op = VIRTIO_VSOCK_OP_RW,
        .flags = 3,
        .buf_alloc = 65536,
        .fwd_cnt = 0xfffffff0,
    };
}

/* A chain of the header and `len` bytes, cut every `step` bytes. */
struct chain {
    uint8_t bytes[256];
    struct vq_chain c;
};

static void make_chain(struct chain *x, const struct vsock_pkt *p, size_t len,
                       size_t step)
{
    struct virtio_vsock_hdr hdr;
    size_t total = sizeof(hdr) + len;

    memset(x, 0, sizeof(*x));
    vsock_pkt_encode(p, &hdr);
    memcpy(x->bytes, &hdr, sizeof(hdr));
    for (size_t at = 0; at < total; at += step) {
        size_t n = total - at < step ? total - at : step;

        x->c.iov[x->c.num_readable].iov_base = x->bytes + at;
        x->c.iov[x->c.num_readable].iov_len = n;
        x->c.num_readable++;
        x->c.readable_bytes += n;
    }
}

static void test_pkt_encode_is_little_endian_in_spec_order(void **state)
{
    struct vsock_pkt p = some_packet();
    struct virtio_vsock_hdr hdr;
    uint8_t b[44];

    (void)state;
    vsock_pkt_encode(&p, &hdr);
    memcpy(b, &hdr, sizeof(b));
    assert_int_equal(get_le64(b), CID);
    assert_int_equal(get_le64(b + 8), 2);
    assert_int_equal(get_le32(b + 16), 0x11223344);
    assert_int_equal(get_le32(b + 20), 0x55667788);
    assert_int_equal(get_le32(b + 24), 16);
    assert_int_equal(get_le16(b + 28), 1);
    assert_int_equal(get_le16(b + 30), 5);
    assert_int_equal(get_le32(b + 32), 3);
    assert_int_equal(get_le32(b + 36), 65536);
    assert_int_equal(get_le32(b + 40), 0xfffffff0);
}

static void test_pkt_parse_header_in_one_or_many_pieces(void **state)
{
    struct vsock_pkt p = some_packet();
    struct virtio_vsock_hdr hdr;
    struct vsock_pkt got;
    struct chain x;

    (void)state;
    for (size_t step = 1; step <= 60; step++) {
        make_chain(&x, &p, 16, step);
        memset(&got, 0, sizeof(got));
        assert_int_equal(vsock_pkt_parse(&x.c, CID, &got), 0);
        vsock_pkt_encode(&got, &hdr);
        assert_memory_equal(&hdr, x.bytes, sizeof(hdr));
    }
}

static void test_pkt_parse_short_header_has_nobody_to_answer(void **state)
{
    struct vsock_pkt p = some_packet();
    struct vsock_pkt got;
    struct chain x;

    (void)state;
    make_chain(&x, &p, 0, 43);
    x.c.num_readable = 1;
    x.c.readable_bytes = 43;
    assert_int_equal(vsock_pkt_parse(&x.c, CID, &got), -ENOMSG);
    x.c.num_readable = 0;
    x.c.readable_bytes = 0;
    assert_int_equal(vsock_pkt_parse(&x.c, CID, &got), -ENOMSG);
}

static int parse(const struct vsock_pkt *p, size_t len)
{
    struct vsock_pkt got;
    struct chain x;

    make_chain(&x, p, len, 60);
    return vsock_pkt_parse(&x.c, CID, &got);
}

static void test_pkt_parse_rejects_what_is_not_for_us(void **state)
{
    struct vsock_pkt p = some_packet();

    (void)state;
    p.src_cid = CID + 1;
    assert_int_equal(parse(&p, 16), -ENOMSG);
    p = some_packet();
    p.dst_cid = 5;
    assert_int_equal(parse(&p, 16), -ENXIO);
    p = some_packet();
    p.type = VIRTIO_VSOCK_TYPE_SEQPACKET;
    assert_int_equal(parse(&p, 16), -ENXIO);
    p.type = 0;
    assert_int_equal(parse(&p, 16), -ENXIO);
}

static void test_pkt_parse_rejects_bad_operation_and_length(void **state)
{
    struct vsock_pkt p = some_packet();

    (void)state;
    p.op = VIRTIO_VSOCK_OP_INVALID;
    assert_int_equal(parse(&p, 16), -EPROTO);
    p.op = VIRTIO_VSOCK_OP_CREDIT_REQUEST + 1;
    assert_int_equal(parse(&p, 16), -EPROTO);
    p.op = 0xffff;
    assert_int_equal(parse(&p, 16), -EPROTO);
    p = some_packet();
    assert_int_equal(parse(&p, 15), -EPROTO);
    p.len = UINT32_MAX;
    assert_int_equal(parse(&p, 16), -EPROTO);
    p.len = 8; /* shorter than its chain: the rest is padding */
    assert_int_equal(parse(&p, 16), 0);
}

static void test_pkt_reset_swaps_ends_and_keeps_type(void **state)
{
    struct vsock_pkt p = some_packet();
    struct vsock_pkt r;

    (void)state;
    p.type = VIRTIO_VSOCK_TYPE_SEQPACKET;
    r = vsock_pkt_reset_for(&p);
    assert_int_equal(r.src_cid, 2);
    assert_int_equal(r.dst_cid, CID);
    assert_int_equal(r.src_port, p.dst_port);
    assert_int_equal(r.dst_port, p.src_port);
    assert_int_equal(r.type, VIRTIO_VSOCK_TYPE_SEQPACKET);
    assert_int_equal(r.op, VIRTIO_VSOCK_OP_RST);
    assert_int_equal(r.len, 0);
}

/* --- the CONNECT line ---------------------------------------------------- */

static int line(const char *s)
{
    uint32_t port = 0;
    int rc = vsu_parse_line(s, strlen(s), &port);

    return rc ? rc : (int)port;
}

static void test_line_accepts_decimal_ports(void **state)
{
    uint32_t port = 0;

    (void)state;
    assert_int_equal(line("CONNECT 52"), 52);
    assert_int_equal(line("connect 1024"), 1024);
    assert_int_equal(line("CONNECT 0"), 0);
    assert_int_equal(line("CONNECT 007"), 7);
    assert_int_equal(vsu_parse_line("CONNECT 4294967294", 18, &port), 0);
    assert_int_equal(port, 4294967294u);
}

static void test_line_rejects_all_else(void **state)
{
    static const char *const bad[] = {
        "",
        "CONNECT",
        "CONNECT ",
        "CONNECT  52",
        "CONNECT 52 ",
        "CONNECT 52\r",
        "CONNECT +52",
        "CONNECT -1",
        "CONNECT 0x10",
        "CONNECT 5a",
        "CONNECT 4294967295",
        "CONNECT 4294967296",
        "CONNECT 99999999999999999999999",
        "CONNECT 0000000000000000000000052",
        " CONNECT 52",
        "CONNECT\t52",
        "GET / HTTP/1.1",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(line(bad[i]), -EINVAL);
    {
        uint32_t port;

        assert_int_equal(vsu_parse_line("CONNECT 5\0", 10, &port), -EINVAL);
        assert_int_equal(vsu_parse_line("CON\0ECT 52", 10, &port), -EINVAL);
    }
}

/* --- the byte queue ------------------------------------------------------ */

static void test_buf_keeps_bytes_in_order_while_it_grows(void **state)
{
    struct vsock_buf b = {0};
    uint8_t chunk[3000];
    struct iovec iov[2];
    uint32_t in = 0;
    uint32_t out = 0;

    (void)state;
    srand(1);
    for (int round = 0; round < 3000; round++) {
        uint32_t n = (uint32_t)rand() % (uint32_t)sizeof(chunk);
        uint32_t first;
        int k;

        for (uint32_t i = 0; i < n; i++)
            chunk[i] = (uint8_t)((in + i) * 7 + ((in + i) >> 8));
        first = n / 3;
        iov[0] = (struct iovec){chunk, first};
        iov[1] = (struct iovec){chunk + first, n - first};
        if (b.len < 200000) {
            assert_int_equal(vsock_buf_append(&b, iov, 2), 0);
            in += n;
        }
        k = vsock_buf_peek(&b, iov);
        for (int j = 0; j < k; j++) {
            const uint8_t *p = iov[j].iov_base;

            for (size_t i = 0; i < iov[j].iov_len; i += 97)
                assert_int_equal(
                    p[i],
                    (uint8_t)((out + (j ? iov[0].iov_len : 0) + i) * 7 +
                              ((out + (j ? iov[0].iov_len : 0) + i) >> 8)));
        }
        n = b.len ? (uint32_t)rand() % (b.len + 1) : 0;
        if (round % 5 == 0)
            n = n < 100 ? n : 100;
        vsock_buf_consume(&b, n);
        out += n;
        assert_int_equal(b.len, in - out);
    }
    vsock_buf_consume(&b, b.len);
    assert_null(b.mem); /* an empty one holds no memory */
    assert_int_equal(vsock_buf_peek(&b, iov), 0);
}

static void test_buf_append_of_nothing_allocates_nothing(void **state)
{
    struct vsock_buf b = {0};
    struct iovec iov = {NULL, 0};

    (void)state;
    assert_int_equal(vsock_buf_append(&b, &iov, 1), 0);
    assert_int_equal(vsock_buf_append(&b, NULL, 0), 0);
    assert_null(b.mem);
    vsock_buf_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pkt_encode_is_little_endian_in_spec_order),
        cmocka_unit_test(test_pkt_parse_header_in_one_or_many_pieces),
        cmocka_unit_test(test_pkt_parse_short_header_has_nobody_to_answer),
        cmocka_unit_test(test_pkt_parse_rejects_what_is_not_for_us),
        cmocka_unit_test(test_pkt_parse_rejects_bad_operation_and_length),
        cmocka_unit_test(test_pkt_reset_swaps_ends_and_keeps_type),
        cmocka_unit_test(test_line_accepts_decimal_ports),
        cmocka_unit_test(test_line_rejects_all_else),
        cmocka_unit_test(test_buf_keeps_bytes_in_order_while_it_grows),
        cmocka_unit_test(test_buf_append_of_nothing_allocates_nothing),
    };

    return cmocka_run_group_tests_name("vsock_pkt", tests, NULL, NULL);
}
