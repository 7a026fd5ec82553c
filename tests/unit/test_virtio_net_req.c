/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_net_req.h"

#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

#define BIT(b)   VNET_BIT(VIRTIO_NET_F_##b)
#define HOST_ALL (BIT(CSUM) | BIT(HOST_TSO4) | BIT(HOST_TSO6) | BIT(HOST_ECN))
#define GUEST_ALL                                                              \
    (BIT(GUEST_CSUM) | BIT(GUEST_TSO4) | BIT(GUEST_TSO6) | BIT(GUEST_ECN))
#define FRAME 100u

static uint8_t memory[NET_HDR_BYTES + NET_MAX_FRAME + 1];

/* A readable chain of one buffer with this header. */
static struct vq_chain chain_of(const struct virtio_net_hdr_v1 *h,
                                uint32_t frame_bytes)
{
    struct vq_chain c;

    memset(&c, 0, sizeof(c));
    memcpy(memory, h, sizeof(*h));
    c.num_readable = 1;
    c.readable_bytes = NET_HDR_BYTES + frame_bytes;
    c.iov[0].iov_base = memory;
    c.iov[0].iov_len = NET_HDR_BYTES + frame_bytes;
    return c;
}

static struct virtio_net_hdr_v1 tso(uint8_t type)
{
    struct virtio_net_hdr_v1 h = {
        .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
        .gso_type = type,
        .hdr_len = htole16(54),
        .gso_size = htole16(1448),
        .csum_start = htole16(34),
        .csum_offset = htole16(16),
    };
    return h;
}

static int parse(const struct virtio_net_hdr_v1 *h, uint32_t frame,
                 uint64_t features, struct virtio_net_hdr_v1 *out)
{
    struct vq_chain c = chain_of(h, frame);
    uint32_t bytes = 0;
    int rc = vnet_parse_tx(&c, features, out, &bytes);

    if (rc == 0)
        assert_int_equal(bytes, frame);
    return rc;
}

static void refused(struct virtio_net_hdr_v1 h, uint32_t frame,
                    uint64_t features)
{
    struct virtio_net_hdr_v1 out;

    memset(&out, 0x55, sizeof(out));
    assert_int_equal(parse(&h, frame, features, &out), -EBADMSG);
    assert_int_equal(out.flags, 0x55); /* written on success only */
}

static void accepted(struct virtio_net_hdr_v1 h, uint32_t frame,
                     uint64_t features)
{
    struct virtio_net_hdr_v1 out;

    assert_int_equal(parse(&h, frame, features, &out), 0);
}

static void test_tx_plain_frame_is_taken_without_features(void **state)
{
    struct virtio_net_hdr_v1 h = {0};

    (void)state;
    accepted(h, FRAME, 0);
    accepted(h, NET_MIN_FRAME, 0);
    accepted(h, NET_MAX_FRAME, 0);
}

static void test_tx_unused_fields_are_cleared(void **state)
{
    struct virtio_net_hdr_v1 zero = {0};
    struct virtio_net_hdr_v1 out;
    struct virtio_net_hdr_v1 h = {
        .flags = 0xfe, /* all but NEEDS_CSUM: to be ignored */
        .hdr_len = 0xffff,
        .gso_size = 0xffff,
        .csum_start = 0xffff,
        .csum_offset = 0xffff,
        .num_buffers = 0xffff,
    };

    (void)state;
    assert_int_equal(parse(&h, FRAME, HOST_ALL, &out), 0);
    assert_memory_equal(&out, &zero, sizeof(out));
}

static void test_tx_refuses_frames_of_impossible_size(void **state)
{
    struct virtio_net_hdr_v1 h = {0};
    struct virtio_net_hdr_v1 out;
    struct vq_chain c;
    uint32_t bytes;

    (void)state;
    refused(h, NET_MIN_FRAME - 1, HOST_ALL);
    refused(h, 0, HOST_ALL);
    refused(h, NET_MAX_FRAME + 1, HOST_ALL);
    c = chain_of(&h, 0);
    c.iov[0].iov_len = c.readable_bytes = NET_HDR_BYTES - 1;
    assert_int_equal(vnet_parse_tx(&c, 0, &out, &bytes), -EBADMSG);
    c.num_readable = 0;
    c.readable_bytes = 0;
    assert_int_equal(vnet_parse_tx(&c, 0, &out, &bytes), -EBADMSG);
}

static void test_tx_refuses_a_writable_part(void **state)
{
    struct virtio_net_hdr_v1 h = {0};
    struct vq_chain c = chain_of(&h, FRAME);
    uint32_t bytes;

    (void)state;
    c.num_writable = 1;
    c.writable_bytes = 1;
    c.iov[1] = (struct iovec){memory, 1};
    assert_int_equal(vnet_parse_tx(&c, HOST_ALL, &h, &bytes), -EBADMSG);
}

static void test_tx_refuses_checksum_without_feature_or_outside(void **state)
{
    struct virtio_net_hdr_v1 h = tso(VIRTIO_NET_HDR_GSO_NONE);

    (void)state;
    accepted(h, FRAME, BIT(CSUM));
    refused(h, FRAME, HOST_ALL & ~BIT(CSUM));
    h.csum_start = htole16(FRAME - 18);
    accepted(h, FRAME, BIT(CSUM)); /* its last two bytes */
    h.csum_start = htole16(FRAME - 17);
    refused(h, FRAME, BIT(CSUM));
    h.csum_start = htole16(0xffff);
    h.csum_offset = htole16(0xffff);
    refused(h, FRAME, BIT(CSUM));
    refused(h, NET_MAX_FRAME, BIT(CSUM));
}

static void test_tx_segmentation_needs_its_feature(void **state)
{
    const uint8_t ecn = VIRTIO_NET_HDR_GSO_ECN;
    struct virtio_net_hdr_v1 v4 = tso(VIRTIO_NET_HDR_GSO_TCPV4);
    struct virtio_net_hdr_v1 v6 = tso(VIRTIO_NET_HDR_GSO_TCPV6);

    (void)state;
    accepted(v4, FRAME, BIT(CSUM) | BIT(HOST_TSO4));
    accepted(v6, FRAME, BIT(CSUM) | BIT(HOST_TSO6));
    refused(v4, FRAME, HOST_ALL & ~BIT(HOST_TSO4));
    refused(v6, FRAME, HOST_ALL & ~BIT(HOST_TSO6));
    v4.gso_type |= ecn;
    accepted(v4, FRAME, HOST_ALL);
    refused(v4, FRAME, HOST_ALL & ~BIT(HOST_ECN));
    v4.gso_type = ecn; /* of nothing */
    refused(v4, FRAME, HOST_ALL);
}

static void test_tx_refuses_segmentation_that_was_never_offered(void **state)
{
    (void)state;
    refused(tso(VIRTIO_NET_HDR_GSO_UDP), FRAME, HOST_ALL);
    refused(tso(5) /* UDP_L4 */, FRAME, HOST_ALL);
    refused(tso(2), FRAME, HOST_ALL);
    refused(tso(0x7f), FRAME, HOST_ALL);
}

static void test_tx_refuses_half_described_segmentation(void **state)
{
    struct virtio_net_hdr_v1 h = tso(VIRTIO_NET_HDR_GSO_TCPV4);

    (void)state;
    h.flags = 0;
    refused(h, FRAME, HOST_ALL);
    h = tso(VIRTIO_NET_HDR_GSO_TCPV4);
    h.gso_size = 0;
    refused(h, FRAME, HOST_ALL);
    h = tso(VIRTIO_NET_HDR_GSO_TCPV4);
    h.hdr_len = htole16(FRAME);
    accepted(h, FRAME, HOST_ALL);
    h.hdr_len = htole16(FRAME + 1);
    refused(h, FRAME, HOST_ALL);
}

static void test_rx_guest_that_declined_sees_no_offload(void **state)
{
    struct virtio_net_hdr_v1 h = {.flags = VIRTIO_NET_HDR_F_DATA_VALID};

    (void)state;
    assert_true(vnet_check_rx(&h, 0));
    assert_int_equal(h.flags, 0);
    h.flags = VIRTIO_NET_HDR_F_DATA_VALID;
    assert_true(vnet_check_rx(&h, NET_OFFLOAD_CSUM));
    assert_int_equal(h.flags, VIRTIO_NET_HDR_F_DATA_VALID);
    h.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    assert_true(vnet_check_rx(&h, NET_OFFLOAD_CSUM));
    assert_false(vnet_check_rx(&h, 0));
    h = tso(VIRTIO_NET_HDR_GSO_TCPV4);
    assert_true(vnet_check_rx(&h, NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4));
    assert_false(vnet_check_rx(&h, NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO6));
    h = tso(VIRTIO_NET_HDR_GSO_TCPV6);
    assert_true(vnet_check_rx(&h, NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO6));
    assert_false(vnet_check_rx(&h, NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4));
    h.gso_type |= VIRTIO_NET_HDR_GSO_ECN;
    assert_false(vnet_check_rx(&h, NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO6));
    assert_true(vnet_check_rx(&h, ~0u));
    h.gso_type = VIRTIO_NET_HDR_GSO_UDP;
    assert_false(vnet_check_rx(&h, ~0u));
    h.gso_type = VIRTIO_NET_HDR_GSO_ECN;
    assert_false(vnet_check_rx(&h, ~0u));
}

static void test_features_go_with_what_they_need(void **state)
{
    (void)state;
    assert_int_equal(vnet_features_close(HOST_ALL | GUEST_ALL),
                     HOST_ALL | GUEST_ALL);
    assert_int_equal(vnet_features_close(HOST_ALL & ~BIT(CSUM)), 0);
    assert_int_equal(vnet_features_close(GUEST_ALL & ~BIT(GUEST_CSUM)), 0);
    assert_int_equal(vnet_features_close(BIT(CSUM) | BIT(HOST_ECN)), BIT(CSUM));
    assert_int_equal(vnet_features_close(BIT(MQ) | BIT(CTRL_GUEST_OFFLOADS)),
                     0);
    assert_int_equal(vnet_features_close(BIT(MQ) | BIT(CTRL_VQ)),
                     BIT(MQ) | BIT(CTRL_VQ));
    assert_int_equal(vnet_offloads_of(GUEST_ALL), 0xf);
    assert_int_equal(vnet_offloads_of(HOST_ALL), 0);
}

/* --- control requests ---------------------------------------------------- */

#define CTRL_ALL (BIT(CTRL_VQ) | BIT(MQ) | BIT(CTRL_GUEST_OFFLOADS) | GUEST_ALL)

static int ctrl(const void *bytes, uint16_t len, uint64_t features,
                struct vnet_ctrl *out)
{
    static uint8_t ack;
    struct vq_chain c;

    memset(&c, 0, sizeof(c));
    memcpy(memory, bytes, len);
    c.num_readable = 1;
    c.readable_bytes = len;
    c.iov[0] = (struct iovec){memory, len};
    c.num_writable = 1;
    c.writable_bytes = 1;
    c.iov[1] = (struct iovec){&ack, 1};
    return vnet_parse_ctrl(&c, features, 4, out);
}

static void test_ctrl_takes_pairs_within_the_limit(void **state)
{
    uint8_t m[] = {VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, 3, 0};
    struct vnet_ctrl out;

    (void)state;
    assert_int_equal(ctrl(m, 4, CTRL_ALL, &out), 0);
    assert_int_equal(out.op, VNET_CTRL_SET_PAIRS);
    assert_int_equal(out.pairs, 3);
    assert_int_equal(ctrl(m, 4, CTRL_ALL & ~BIT(MQ), &out), -EINVAL);
    assert_int_equal(ctrl(m, 3, CTRL_ALL, &out), -EINVAL);
    m[2] = 5;
    assert_int_equal(ctrl(m, 4, CTRL_ALL, &out), -EINVAL);
    m[2] = 0;
    assert_int_equal(ctrl(m, 4, CTRL_ALL, &out), -EINVAL);
    m[3] = 0x80;
    assert_int_equal(ctrl(m, 4, CTRL_ALL, &out), -EINVAL);
}

static void test_ctrl_takes_offloads_that_were_negotiated(void **state)
{
    uint8_t m[10] = {VIRTIO_NET_CTRL_GUEST_OFFLOADS,
                     VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET};
    struct vnet_ctrl out;

    (void)state;
    put_le64(m + 2, BIT(GUEST_CSUM) | BIT(GUEST_TSO4));
    assert_int_equal(ctrl(m, 10, CTRL_ALL, &out), 0);
    assert_int_equal(out.op, VNET_CTRL_SET_OFFLOADS);
    assert_int_equal(out.offloads, NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4);
    assert_int_equal(ctrl(m, 9, CTRL_ALL, &out), -EINVAL);
    assert_int_equal(ctrl(m, 10, CTRL_ALL & ~BIT(GUEST_TSO4), &out), -EINVAL);
    assert_int_equal(ctrl(m, 10, CTRL_ALL & ~BIT(CTRL_GUEST_OFFLOADS), &out),
                     -EINVAL);
    put_le64(m + 2, BIT(GUEST_TSO4)); /* without the checksum it needs */
    assert_int_equal(ctrl(m, 10, CTRL_ALL, &out), -EINVAL);
    put_le64(m + 2, BIT(MRG_RXBUF)); /* no offload */
    assert_int_equal(ctrl(m, 10, ~0ull, &out), -EINVAL);
    put_le64(m + 2, 0);
    assert_int_equal(ctrl(m, 10, CTRL_ALL, &out), 0);
    assert_int_equal(out.offloads, 0);
}

static void test_ctrl_refuses_what_it_does_not_know(void **state)
{
    uint8_t m[4] = {VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, 1, 0};
    struct vnet_ctrl out;
    struct vq_chain c;

    (void)state;
    assert_int_equal(ctrl(m, 3, ~0ull, &out), -EINVAL);
    assert_int_equal(ctrl(m, 1, ~0ull, &out), -EINVAL);
    m[0] = VIRTIO_NET_CTRL_MQ;
    m[1] = 1; /* RSS */
    assert_int_equal(ctrl(m, 4, ~0ull, &out), -EINVAL);
    memset(&c, 0, sizeof(c));
    c.num_readable = 1;
    c.readable_bytes = 4;
    c.iov[0] = (struct iovec){m, 4};
    assert_int_equal(vnet_parse_ctrl(&c, ~0ull, 4, &out), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tx_plain_frame_is_taken_without_features),
        cmocka_unit_test(test_tx_unused_fields_are_cleared),
        cmocka_unit_test(test_tx_refuses_frames_of_impossible_size),
        cmocka_unit_test(test_tx_refuses_a_writable_part),
        cmocka_unit_test(test_tx_refuses_checksum_without_feature_or_outside),
        cmocka_unit_test(test_tx_segmentation_needs_its_feature),
        cmocka_unit_test(test_tx_refuses_segmentation_that_was_never_offered),
        cmocka_unit_test(test_tx_refuses_half_described_segmentation),
        cmocka_unit_test(test_rx_guest_that_declined_sees_no_offload),
        cmocka_unit_test(test_features_go_with_what_they_need),
        cmocka_unit_test(test_ctrl_takes_pairs_within_the_limit),
        cmocka_unit_test(test_ctrl_takes_offloads_that_were_negotiated),
        cmocka_unit_test(test_ctrl_refuses_what_it_does_not_know),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
