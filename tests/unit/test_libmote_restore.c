/* SPDX-License-Identifier: Apache-2.0 */
/* The host's RESTORE, read by the agent's own parser. */
#include "tools/libmote/restore.h"

#include "guest/agent/restore_parse.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>
#include <time.h>

static const uint8_t old_mac[6] = {2, 0, 0, 0, 0, 1};

static struct lm_net net(void)
{
    struct lm_net n = LM_NET_NONE;

    n.mac[0] = 2;
    n.mac[5] = 9;
    return n;
}

static void parse(const struct lm_restore *r, bool by_mac, struct lm_buf *buf,
                  struct restore_request *out)
{
    const struct lm_net n = net();

    assert_int_equal(lm_restore_message(r, &n, by_mac, buf), 0);
    assert_int_equal(restore_parse(buf->data, buf->len, out), 0);
}

static void test_restore_message_of_the_least(void **state)
{
    const struct lm_restore r = {.hostname = NULL};
    struct lm_buf buf = {0};
    struct lm_buf again = {0};
    struct restore_request req;
    struct restore_request second;
    uint64_t now_ns = (uint64_t)time(NULL) * 1000000000;

    (void)state;
    parse(&r, true, &buf, &req);
    parse(&r, true, &again, &second);
    assert_true(req.time_ns >= now_ns && req.time_ns < now_ns + 60000000000);
    assert_null(req.hostname.value);
    assert_int_equal(req.interface_count, 0);
    assert_int_equal(req.seed.length, 32);
    assert_memory_not_equal(req.seed.value, second.seed.value, 32);
    lm_buf_fini(&buf);
    lm_buf_fini(&again);
}

/* The value of an attribute of the interface, or NULL. */
static const uint8_t *inside(const struct restore_request *req, uint16_t type,
                             uint32_t length)
{
    struct codec_iter it;
    struct codec_attr a;

    codec_iter_init(&it, req->interfaces[0].value, req->interfaces[0].length);
    while (codec_iter_next(&it, &a) > 0) {
        if (a.type == type && a.length == length)
            return a.value;
    }
    return NULL;
}

static void test_restore_message_gives_new_addresses(void **state)
{
    const struct mote_net_params p = {.kind = MOTE_NET_TAP,
                                      .tap = "t0",
                                      .address = "10.1.2.3/24",
                                      .gateway = "10.1.2.1",
                                      .resolver = "10.1.2.2"};
    const struct lm_restore r = {
        .hostname = "copy-1", .net = &p, .old_mac = old_mac};
    struct lm_buf buf = {0};
    struct restore_request req;
    const struct lm_net n = net();

    (void)state;
    parse(&r, true, &buf, &req);
    assert_int_equal(req.hostname.length, 6);
    assert_int_equal(req.interface_count, 1);
    assert_memory_equal(inside(&req, MOTE_ATTR_IF_MAC, 6), old_mac, 6);
    assert_memory_equal(inside(&req, MOTE_ATTR_SET_MAC, 6), n.mac, 6);
    assert_memory_equal(inside(&req, MOTE_ATTR_ADDRESS, sizeof(struct mote_ip)),
                        "\4\30\0\0\12\1\2\3", 8);
    assert_non_null(inside(&req, MOTE_ATTR_ROUTE, sizeof(struct mote_route)));
    assert_non_null(inside(&req, MOTE_ATTR_RESOLVER, sizeof(struct mote_ip)));
    lm_buf_fini(&buf);
    memset(&buf, 0, sizeof(buf));
    parse(&r, false, &buf, &req); /* by whichever interface is the first */
    assert_null(inside(&req, MOTE_ATTR_IF_MAC, 6));
    lm_buf_fini(&buf);
}

static void
test_restore_message_keeps_addresses_that_are_not_given(void **state)
{
    const struct mote_net_params tap = {.kind = MOTE_NET_TAP, .tap = "t0"};
    const struct mote_net_params user = {.kind = MOTE_NET_USER};
    struct lm_restore r = {.net = &tap, .old_mac = old_mac};
    struct lm_buf buf = {0};
    struct restore_request req;

    (void)state;
    parse(&r, true, &buf, &req);
    assert_int_equal(req.interface_count, 0);
    lm_buf_fini(&buf);
    memset(&buf, 0, sizeof(buf));
    r.net = &user; /* its address is always the same, but told again */
    parse(&r, true, &buf, &req);
    assert_int_equal(req.interface_count, 1);
    assert_memory_equal(inside(&req, MOTE_ATTR_ADDRESS, sizeof(struct mote_ip)),
                        "\4\30\0\0\12\0\2\17", 8);
    lm_buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restore_message_of_the_least),
        cmocka_unit_test(test_restore_message_gives_new_addresses),
        cmocka_unit_test(
            test_restore_message_keeps_addresses_that_are_not_given),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
