/* SPDX-License-Identifier: Apache-2.0 */
/* The network device at rest, saved and loaded. */
#include "devices/virtio_net.h"

#include "tests/harness/fake_driver.h"
#include "tests/harness/fake_net.h"
#include "tests/harness/loop_run.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define RAM       (24 * MIB)
#define QSIZE     64u
#define BIT(b)    (1ull << VIRTIO_NET_F_##b)
#define EVENT_IDX (1ull << VIRTIO_RING_F_EVENT_IDX)
#define HDR       12u
#define RX        0u
#define TX        1u
#define NUM_DEVS  10u
#define MAX       250u /* frames of a play, each way */

/* One driver and the devices that it has, one after the other. */
struct fixture {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct fnet nets[NUM_DEVS];
    struct virtio_dev *devs[NUM_DEVS];
    unsigned num; /* the last of them is the driver's */
    uint32_t seed;
    uint16_t pairs;
    uint64_t features;
    /* the driver's receive buffers, by queue and head */
    struct fdrv_seg bufs[VIRTIO_MAX_QUEUES][QSIZE];
    bool out[VIRTIO_MAX_QUEUES][QSIZE];
    /* of a play */
    unsigned fed;
    bool fed_bad[2 * MAX];
    unsigned seen; /* the last one that arrived */
    unsigned sent;
    bool sent_bad[2 * MAX];
    unsigned arrived; /* the last one that the network got */
    unsigned tx_used;
};

static struct fnet *net(struct fixture *f)
{
    return &f->nets[f->num - 1];
}

static struct virtio_dev *new_device(struct fixture *f,
                                     const struct vnet_args *args)
{
    struct vdev_env env = {f->d.mem, f->loop, &f->log};
    struct fnet *n = &f->nets[f->num];

    assert_true(f->num < NUM_DEVS);
    fnet_init(n, f->pairs, true, 1500);
    assert_int_equal(vnet_new(&env, &n->base, args, &f->devs[f->num]), 0);
    return f->devs[f->num++];
}

static const struct vnet_args plain = {.id = "a", .mac = {2, 0, 0, 0, 0, 1}};
static const struct vnet_args other = {.id = "a", .mac = {2, 0, 0, 0, 0, 9}};

static struct fixture *make(const struct vnet_args *args, uint16_t pairs,
                            uint64_t features)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    fdrv_init(&f->d, RAM);
    log_init(&f->log, -1, LOG_OFF, "test");
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    f->pairs = pairs;
    f->features = features;
    assert_int_equal(fdrv_attach(&f->d, new_device(f, args), QSIZE, features),
                     0);
    return f;
}

#define FEATURES                                                               \
    (BIT(MRG_RXBUF) | BIT(CTRL_VQ) | BIT(STATUS) | BIT(GUEST_ANNOUNCE) |       \
     EVENT_IDX)

static int setup(void **state)
{
    *state = make(&plain, 1, FEATURES);
    return 0;
}

static int setup_pairs(void **state)
{
    *state = make(&plain, 2,
                  FEATURES | BIT(MQ) | BIT(CTRL_GUEST_OFFLOADS) |
                      BIT(GUEST_CSUM) | BIT(GUEST_TSO4));
    return 0;
}

static int setup_limited(void **state)
{
    static const struct vnet_args args = {.id = "a",
                                          .rx.ops = {2, 0, 7200 * 1000},
                                          .tx.ops = {2, 0, 7200 * 1000}};

    *state = make(&args, 1, FEATURES);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < f->num; i++) {
        f->devs[i]->resting = false;
        f->nets[i].cancel_keeps = false;
        assert_int_equal(f->devs[i]->ops->reset(f->devs[i]), 0);
        f->devs[i]->ops->free(f->devs[i]);
        assert_true(f->nets[i].freed);
        fnet_fini(&f->nets[i]);
    }
    evloop_free(f->loop);
    fdrv_fini(&f->d);
    free(f);
    return 0;
}

/* --- the driver ----------------------------------------------------------- */

static void add_rx(struct fixture *f, uint16_t q, uint32_t bytes)
{
    struct fdrv_seg s = {fdrv_alloc(&f->d, bytes, 64), bytes, true};
    uint16_t head = fdrv_add(&f->d, q, &s, 1);

    f->bufs[q][head] = s;
    f->out[q][head] = true;
}

/* Frame `i` of the guest; a bad one is too short to be one. */
static void add_tx(struct fixture *f, uint16_t q, unsigned i, bool bad)
{
    uint32_t bytes = HDR + (bad ? 5 : 60);
    struct fdrv_seg s = {fdrv_alloc(&f->d, bytes, 64), bytes, false};

    memset(fdrv_ptr(&f->d, s.gpa + HDR, bytes - HDR), (int)i, bytes - HDR);
    (void)fdrv_add(&f->d, q, &s, 1);
}

/* The next used receive buffer, checked to be one of ours; or false. */
static bool take_rx(struct fixture *f, uint16_t q, struct fdrv_seg *out,
                    uint32_t *out_len)
{
    uint32_t head = 0;

    if (!fdrv_used(&f->d, q, &head, out_len))
        return false;
    assert_true(head < QSIZE && f->out[q][head]);
    f->out[q][head] = false;
    *out = f->bufs[q][head];
    return true;
}

static void expect_frame(struct fixture *f, uint16_t q, uint8_t first,
                         uint32_t bytes)
{
    struct fdrv_seg s;
    uint32_t len = 0;
    uint8_t b[2];

    assert_true(take_rx(f, q, &s, &len));
    assert_int_equal(len, HDR + bytes);
    fdrv_read(&f->d, s.gpa + HDR, b, 2);
    assert_int_equal(b[0], first);
}

static void move(struct fixture *f, const struct vnet_args *args)
{
    assert_int_equal(fdrv_move(&f->d, new_device(f, args)), 0);
}

static uint16_t taken(const struct virtio_dev *dev, uint16_t q)
{
    return (uint16_t)(dev->vq[q].next_avail - dev->vq[q].next_used);
}

/* --- rest ----------------------------------------------------------------- */

static void test_vnet_rest_stops_reading_and_keeps_the_buffers(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 8; i++)
        add_rx(f, RX, 2048);
    fdrv_kick(&f->d, RX);
    assert_true(net(f)->num_rx[0] > 0);
    assert_int_equal(fdrv_rest(&f->d), 0);
    assert_int_equal(net(f)->num_rx[0], 0);
    assert_int_equal(f->d.rests, 0);
    fnet_feed(net(f), 0, 60, 1, NULL);
    net(f)->events->readable(net(f)->arg, 0); /* told late */
    fdrv_kick(&f->d, RX);
    fnet_run(net(f));
    assert_int_equal(net(f)->num_in[0], 1); /* stays with the network */
    assert_true(loop_run_is_idle(f->loop));
    fdrv_wake(&f->d);
    fnet_run(net(f));
    expect_frame(f, RX, 1, 60);
}

static void test_vnet_rest_waits_for_frames_that_end_by_themselves(void **state)
{
    struct fixture *f = *state;

    add_rx(f, RX, 2048);
    fdrv_kick(&f->d, RX);
    add_tx(f, TX, 5, false);
    add_tx(f, TX, 6, false);
    fdrv_kick(&f->d, TX);
    net(f)->rest_keeps = true;
    assert_int_equal(fdrv_rest(&f->d), -EINPROGRESS);
    fnet_feed(net(f), 0, 60, 1, NULL);
    assert_true(fnet_step_rx(net(f), 0)); /* brought a frame yet */
    assert_true(fnet_step_tx(net(f)));
    assert_int_equal(f->d.rests, 0);
    assert_true(fnet_step_tx(net(f)));
    assert_int_equal(f->d.rests, 1);
    assert_true(f->d.signals[RX] > 0 && f->d.signals[TX] > 0);
    expect_frame(f, RX, 1, 60);
    assert_int_equal(net(f)->num_out, 2);
    assert_int_equal(taken(f->d.dev, TX), 0);
    fdrv_wake(&f->d);
    assert_int_equal(f->d.rests, 1);
}

static void test_vnet_frames_that_were_not_begun_are_sent_after(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 1; i <= 6; i++)
        add_tx(f, TX, i, i % 3 == 2);
    fdrv_kick(&f->d, TX);
    assert_int_equal(net(f)->num_tx, 4);
    assert_true(fnet_step_tx(net(f)));
    assert_int_equal(fdrv_rest(&f->d), 0);
    assert_int_equal(taken(f->d.dev, TX), 3);
    assert_int_equal(fdrv_used_idx(&f->d, TX), 3);
    move(f, &plain);
    assert_int_equal(taken(f->d.dev, TX), 3);
    fdrv_wake(&f->d);
    fnet_run(net(f));
    assert_int_equal(net(f)->num_out, 3);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(net(f)->out[i].data[0], (i < 2 ? 3 + i : 6));
    assert_int_equal(fdrv_used_idx(&f->d, TX), 6);
}

static void test_vnet_kept_chain_is_checked_anew(void **state)
{
    struct fixture *f = *state;
    struct vring_desc desc;

    add_tx(f, TX, 1, false);
    fdrv_kick(&f->d, TX);
    assert_int_equal(fdrv_rest(&f->d), 0);
    fdrv_get_desc(&f->d, TX, 0, &desc);
    fdrv_set_desc(&f->d, TX, 0, RAM, 72, 0, 0); /* while nobody looks */
    fdrv_wake(&f->d);
    assert_int_equal(net(f)->num_tx, 0);
    assert_int_equal(f->d.needs_resets, 1);
}

static void test_vnet_kept_buffer_is_checked_anew(void **state)
{
    struct fixture *f = *state;

    add_rx(f, RX, 2048);
    fdrv_kick(&f->d, RX);
    assert_int_equal(fdrv_rest(&f->d), 0);
    fdrv_set_desc(&f->d, RX, 0, RAM - 16, 2048, VRING_DESC_F_WRITE, 0);
    fdrv_wake(&f->d);
    assert_int_equal(net(f)->num_rx[0], 0);
    assert_int_equal(f->d.needs_resets, 1);
}

static void test_vnet_wake_before_the_last_frame_is_back(void **state)
{
    struct fixture *f = *state;

    add_tx(f, TX, 5, false);
    fdrv_kick(&f->d, TX);
    for (int i = 0; i < 4; i++)
        add_rx(f, RX, 2048);
    fdrv_kick(&f->d, RX);
    net(f)->rest_keeps = true;
    assert_int_equal(fdrv_rest(&f->d), -EINPROGRESS);
    fdrv_wake(&f->d);
    fnet_feed(net(f), 0, 60, 1, NULL);
    fnet_run(net(f));
    assert_int_equal(f->d.rests, 0);
    expect_frame(f, RX, 1, 60);
    assert_int_equal(net(f)->num_out, 1);
}

static void test_vnet_reset_ends_a_rest(void **state)
{
    struct fixture *f = *state;

    add_tx(f, TX, 5, false);
    fdrv_kick(&f->d, TX);
    net(f)->rest_keeps = true;
    net(f)->cancel_keeps = true;
    assert_int_equal(fdrv_rest(&f->d), -EINPROGRESS);
    f->d.dev->resting = false; /* as the transport does */
    assert_int_equal(fdrv_reset(&f->d), -EINPROGRESS);
    fnet_give_back(net(f), -ECANCELED);
    assert_int_equal(f->d.rests, 0);
    assert_int_equal(f->d.reset_dones, 1);
}

static void test_vnet_reset_forgets_what_was_kept(void **state)
{
    struct fixture *f = *state;

    add_tx(f, TX, 5, false);
    fdrv_kick(&f->d, TX);
    add_rx(f, RX, 2048);
    fdrv_kick(&f->d, RX);
    assert_int_equal(fdrv_rest(&f->d), 0);
    f->d.dev->resting = false;
    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_int_equal(fdrv_attach(&f->d, f->d.dev, QSIZE, FEATURES), 0);
    fdrv_kick(&f->d, TX);
    fdrv_kick(&f->d, RX);
    assert_int_equal(net(f)->num_tx, 0);
    assert_int_equal(net(f)->num_rx[0], 0);
}

static void test_vnet_stopped_queue_keeps_nothing(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 4; i++)
        add_rx(f, RX, 2048);
    fdrv_kick(&f->d, RX);
    vq_stop(&f->d.dev->vq[RX]);
    assert_int_equal(fdrv_rest(&f->d), 0);
    move(f, &plain);
    fdrv_wake(&f->d);
    assert_int_equal(net(f)->num_rx[0], 0);
    assert_int_equal(f->d.needs_resets, 0);
}

static void test_vnet_link_that_goes_while_it_rests(void **state)
{
    struct fixture *f = *state;

    add_tx(f, TX, 5, false);
    fdrv_kick(&f->d, TX);
    assert_int_equal(fdrv_rest(&f->d), 0);
    fnet_link_down(net(f));
    assert_int_equal(f->d.config_changes, 1);
    fdrv_wake(&f->d);
    assert_int_equal(net(f)->num_tx, 0);
    assert_int_equal(fdrv_used_idx(&f->d, TX), 1); /* dropped */
}

/* --- limits --------------------------------------------------------------- */

static void test_BL_037_limits_of_a_snapshot_can_be_taken_off(void **state)
{
    static const struct rate_limit_config none = {0};
    struct fixture *f = *state;

    for (unsigned i = 1; i <= 6; i++)
        add_tx(f, TX, i, false);
    fdrv_kick(&f->d, TX);
    fnet_run(net(f));
    assert_int_equal(net(f)->num_out, 2);
    assert_int_equal(fdrv_rest(&f->d), 0);
    assert_int_equal(taken(f->d.dev, TX), 0); /* they wait in the ring */
    assert_true(loop_run_is_idle(f->loop));
    move(f, &plain);
    fdrv_wake(&f->d);
    fnet_run(net(f));
    assert_int_equal(net(f)->num_out, 0); /* the bucket is as it was */
    assert_int_equal(fdrv_rest(&f->d), 0);
    vnet_set_rate_limits(f->d.dev, NULL, &none); /* at rest */
    fdrv_wake(&f->d);
    fnet_run(net(f));
    assert_int_equal(net(f)->num_out, 4);
}

static void test_vnet_debts_of_received_frames_move_along(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 12; i++)
        add_rx(f, RX, 2048);
    fdrv_kick(&f->d, RX);
    for (uint8_t i = 0; i < 8; i++)
        fnet_feed(net(f), 0, 60, i, NULL);
    fnet_run(net(f));
    /* two for the bucket, and what came before that was known */
    assert_true(net(f)->num_in[0] > 0);
    assert_int_equal(fdrv_rest(&f->d), 0);
    move(f, &plain);
    fdrv_wake(&f->d);
    fnet_feed(net(f), 0, 60, 1, NULL);
    fnet_run(net(f));
    assert_int_equal(net(f)->num_in[0], 1); /* not yet */
}

/* --- save and load -------------------------------------------------------- */

static uint16_t status_of(struct virtio_dev *dev)
{
    uint8_t b[2];

    dev->ops->config_read(dev, 6, b, 2);
    return get_le16(b);
}

static uint8_t ctrl(struct fixture *f, uint16_t q, const void *bytes,
                    uint32_t len)
{
    gpa_t ack = fdrv_alloc(&f->d, 1, 1);
    struct fdrv_seg segs[2] = {{fdrv_put(&f->d, bytes, len, 8), len, false},
                               {ack, 1, true}};
    uint8_t answer = 0xee;
    uint32_t head;
    uint32_t used;

    fdrv_write(&f->d, ack, &answer, 1);
    (void)fdrv_add(&f->d, q, segs, 2);
    fdrv_kick(&f->d, q);
    (void)fdrv_used(&f->d, q, &head, &used);
    fdrv_read(&f->d, ack, &answer, 1);
    return answer;
}

static void test_vnet_control_request_waits_for_the_wake(void **state)
{
    static const uint8_t announced[2] = {VIRTIO_NET_CTRL_ANNOUNCE,
                                         VIRTIO_NET_CTRL_ANNOUNCE_ACK};
    struct fixture *f = *state;

    assert_int_equal(fdrv_rest(&f->d), 0);
    assert_int_equal(ctrl(f, 2, announced, 2), 0xee);
    fdrv_wake(&f->d);
    assert_int_equal(fdrv_used_idx(&f->d, 2), 1);
}

static void test_BL_050_loaded_guest_is_asked_to_announce_itself(void **state)
{
    static const uint8_t announced[2] = {VIRTIO_NET_CTRL_ANNOUNCE,
                                         VIRTIO_NET_CTRL_ANNOUNCE_ACK};
    struct fixture *f = *state;

    assert_int_equal(fdrv_rest(&f->d), 0);
    fdrv_wake(&f->d);
    assert_int_equal(status_of(f->d.dev), VIRTIO_NET_S_LINK_UP);
    assert_int_equal(f->d.config_changes, 0); /* a mere pause */
    assert_int_equal(fdrv_rest(&f->d), 0);
    move(f, &plain);
    assert_int_equal(f->d.config_changes, 0);
    fdrv_wake(&f->d);
    assert_int_equal(f->d.config_changes, 1);
    assert_int_equal(status_of(f->d.dev),
                     VIRTIO_NET_S_LINK_UP | VIRTIO_NET_S_ANNOUNCE);
    /* saved before the guest came to it */
    assert_int_equal(fdrv_rest(&f->d), 0);
    move(f, &plain);
    assert_int_equal(status_of(f->d.dev),
                     VIRTIO_NET_S_LINK_UP | VIRTIO_NET_S_ANNOUNCE);
    fdrv_wake(&f->d);
    assert_int_equal(ctrl(f, 2, announced, 2), VIRTIO_NET_OK);
    assert_int_equal(status_of(f->d.dev), VIRTIO_NET_S_LINK_UP);
}

static void test_vnet_guest_that_cannot_announce_is_not_asked(void **state)
{
    static const uint8_t announced[2] = {VIRTIO_NET_CTRL_ANNOUNCE,
                                         VIRTIO_NET_CTRL_ANNOUNCE_ACK};
    struct fixture *f = make(&plain, 1, BIT(CTRL_VQ) | BIT(STATUS));
    void *s = f;

    (void)state;
    assert_int_equal(fdrv_rest(&f->d), 0);
    move(f, &plain);
    fdrv_wake(&f->d);
    assert_int_equal(status_of(f->d.dev), VIRTIO_NET_S_LINK_UP);
    assert_int_equal(ctrl(f, 2, announced, 2), VIRTIO_NET_ERR);
    (void)teardown(&s);
}

static void test_vnet_loaded_device_has_the_guests_address(void **state)
{
    struct fixture *f = *state;
    uint8_t mac[6];

    assert_int_equal(fdrv_rest(&f->d), 0);
    move(f, &other);
    f->d.dev->ops->config_read(f->d.dev, 0, mac, 6);
    assert_memory_equal(mac, plain.mac, 6);
}

static void test_vnet_pairs_and_offloads_move_along(void **state)
{
    static const uint8_t two[4] = {VIRTIO_NET_CTRL_MQ,
                                   VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, 2, 0};
    uint8_t csum[10] = {VIRTIO_NET_CTRL_GUEST_OFFLOADS,
                        VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET};
    struct fixture *f = *state;

    put_le64(csum + 2, BIT(GUEST_CSUM));
    assert_int_equal(ctrl(f, 4, two, sizeof(two)), VIRTIO_NET_OK);
    assert_int_equal(ctrl(f, 4, csum, sizeof(csum)), VIRTIO_NET_OK);
    add_rx(f, 2, 2048);
    fdrv_kick(&f->d, 2);
    assert_int_equal(fdrv_rest(&f->d), 0);
    move(f, &plain);
    assert_int_equal(net(f)->active_pairs, 2);
    assert_int_equal(net(f)->offloads, NET_OFFLOAD_CSUM);
    assert_int_equal(net(f)->num_rx[1], 0);
    fdrv_wake(&f->d);
    fnet_feed(net(f), 1, 60, 7, NULL);
    fnet_run(net(f));
    expect_frame(f, 2, 7, 60);
}

static void test_vnet_saved_again_before_a_wake_is_the_same(void **state)
{
    struct fixture *f = *state;
    struct state_out a;
    struct state_out b;

    for (int i = 0; i < 5; i++)
        add_rx(f, RX, 2048);
    fdrv_kick(&f->d, RX);
    add_tx(f, TX, 1, false);
    fdrv_kick(&f->d, TX);
    assert_int_equal(fdrv_rest(&f->d), 0);
    fdrv_save(&f->d, &a);
    move(f, &other);
    loop_run_for(f->loop, 5);
    fdrv_save(&f->d, &b);
    assert_int_equal(a.len_bytes, b.len_bytes);
    assert_memory_equal(a.data, b.data, a.len_bytes);
    state_out_fini(&a);
    state_out_fini(&b);
}

/* --- refusals ------------------------------------------------------------- */

/* What save() writes with one pair, 5 receive buffers and one frame to send. */
enum {
    AT_ANNOUNCE = 8,
    AT_PAIRS = 9,
    AT_OFFLOADS = 11,
    AT_LIMIT = 15,
    AT_RX = AT_LIMIT + 160,
    AT_TX = AT_RX + 2 + 10,
    AT_OWED = AT_TX + 2 + 2,
    ALL = AT_OWED + 2,
};

struct forgery {
    size_t at;
    uint64_t value;
    size_t len; /* 0: cut there */
};

static int load_forged(struct fixture *f, const struct state_out *saved,
                       const struct forgery *g)
{
    static const uint8_t id[STATE_ID_BYTES];
    struct state_out bad;
    struct state_file file;
    struct state_in in;
    uint8_t b[512];
    size_t n;
    int rc;

    assert_int_equal(state_open(&file, saved->data, saved->len_bytes, NULL), 0);
    assert_int_equal(state_section(&file, "t", 1, &in, NULL), 0);
    n = (size_t)(in.end - in.at);
    assert_int_equal(n, ALL);
    memcpy(b, in.at, n);
    for (size_t i = 0; i < g->len; i++)
        b[g->at + i] = (uint8_t)(g->value >> (8 * i));
    if (g->len == 0)
        n = g->at;
    state_out_init(&bad);
    state_begin(&bad, "t", 1);
    state_put_bytes(&bad, b, n);
    state_end(&bad);
    assert_int_equal(state_finish(&bad, id), 0);
    rc = fdrv_load(f->d.dev, &bad, NULL);
    state_out_fini(&bad);
    return rc;
}

static void test_vnet_load_refuses_impossible_values(void **state)
{
    static const struct forgery bad[] = {
        {AT_ANNOUNCE, 2, 1},
        {AT_PAIRS, 2, 2}, /* without MQ */
        {AT_PAIRS, 0xffff, 2},
        {AT_OFFLOADS, NET_OFFLOAD_CSUM, 4}, /* never accepted */
        {AT_OFFLOADS, 1u << 31, 4},
        {AT_LIMIT, 1ull << 62, 8},
        {AT_LIMIT + 80 + 24, 1, 8},
        {AT_RX, 4, 2}, /* the device has five of that ring */
        {AT_RX, 6, 2},
        {AT_RX, 0xffff, 2},
        {AT_RX + 2, QSIZE, 2},
        {AT_RX + 10, 0xffff, 2},
        {AT_TX, 0, 2},
        {AT_TX, 2, 2},
        {AT_TX + 2, QSIZE, 2},
        {AT_OWED, 1, 2}, /* cut */
        {AT_OWED, 17, 2},
        {AT_OWED, 0xffff, 2},
        {0, 0, 0},
        {AT_PAIRS, 0, 0},
        {AT_LIMIT + 3, 0, 0},
        {AT_RX, 0, 0},
        {AT_TX, 0, 0},
        {AT_OWED, 0, 0},
        {ALL - 1, 0, 0},
    };
    static const struct forgery good = {AT_RX + 2, QSIZE - 1, 2};
    struct fixture *f = *state;
    struct state_out saved;

    for (int i = 0; i < 5; i++)
        add_rx(f, RX, 320); /* all of them for one read */
    fdrv_kick(&f->d, RX);
    add_tx(f, TX, 1, false);
    fdrv_kick(&f->d, TX);
    assert_int_equal(fdrv_rest(&f->d), 0);
    fdrv_save(&f->d, &saved);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        int rc = load_forged(f, &saved, &bad[i]);

        if (rc != -EBADMSG)
            fail_msg("forgery %zu gives %d", i, rc);
    }
    assert_int_equal(load_forged(f, &saved, &good), 0);
    state_out_fini(&saved);
}

static void test_vnet_load_refuses_an_unfinished_control_request(void **state)
{
    struct fixture *f = *state;
    struct state_out saved;

    assert_int_equal(fdrv_rest(&f->d), 0);
    fdrv_save(&f->d, &saved);
    f->d.dev->vq[2].next_avail++;
    assert_int_equal(fdrv_load(f->d.dev, &saved, NULL), -EBADMSG);
    f->d.dev->vq[2].next_avail--;
    state_out_fini(&saved);
}

/* --- the model: no frame is lost or doubled ------------------------------- */

static uint32_t draw(struct fixture *f, uint32_t below)
{
    f->seed = f->seed * 1664525u + 1013904223u;
    return (f->seed >> 8) % below;
}

/* Frames that the guest has got: all good ones, in order, each once. */
static void look_at_rx(struct fixture *f)
{
    struct fdrv_seg s;
    uint32_t len = 0;
    uint8_t b[HDR + 1];

    while (take_rx(f, RX, &s, &len)) {
        unsigned n;

        fdrv_read(&f->d, s.gpa, b, sizeof(b));
        do
            f->seen++;
        while (f->fed_bad[f->seen]);
        assert_int_equal(b[HDR], (uint8_t)f->seen);
        for (n = get_le16(b + 10); n > 1; n--)
            assert_true(take_rx(f, RX, &s, &len));
    }
}

/* Frames that the network has got, likewise; and the chains that are back. */
static void look_at_tx(struct fixture *f)
{
    struct fnet *n = net(f);
    uint32_t head;
    uint32_t len;

    for (uint32_t i = 0; i < n->num_out; i++) {
        do
            f->arrived++;
        while (f->sent_bad[f->arrived]);
        assert_int_equal(n->out[i].data[0], f->arrived);
        free(n->out[i].data);
    }
    n->num_out = 0;
    while (fdrv_used(&f->d, TX, &head, &len))
        f->tx_used++;
}

static void feed(struct fixture *f)
{
    static const struct virtio_net_hdr_v1 gso = {.gso_type =
                                                     VIRTIO_NET_HDR_GSO_TCPV4};
    unsigned i = f->fed + 1;

    if (i >= MAX || net(f)->num_in[0] > 20)
        return;
    f->fed = i;
    f->fed_bad[i] = draw(f, 5) == 0; /* an offload that it never accepted */
    fnet_feed(net(f), 0, 60 + draw(f, 600), (uint8_t)i,
              f->fed_bad[i] ? &gso : NULL);
}

static void send(struct fixture *f)
{
    unsigned i = f->sent + 1;

    if (i >= MAX || f->d.q[TX].num_free == 0)
        return;
    f->sent = i;
    f->sent_bad[i] = draw(f, 5) == 0;
    add_tx(f, TX, i, f->sent_bad[i]);
}

static void pause_now(struct fixture *f)
{
    struct fnet *old = net(f);

    f->d.rests = 0;
    old->rest_keeps = draw(f, 2);
    if (fdrv_rest(&f->d) == -EINPROGRESS) {
        while (f->d.rests == 0)
            assert_true((draw(f, 2) && fnet_step_tx(old)) ||
                        fnet_step_rx(old, 0) || fnet_step_tx(old));
    }
    look_at_tx(f);
    if (draw(f, 2))
        send(f);
    fdrv_publish(&f->d, TX);
    if (f->num < NUM_DEVS && draw(f, 2)) {
        move(f, &plain);
        /* what waits in the network waits in the other one */
        memcpy(net(f)->in, old->in, sizeof(old->in));
        memcpy(net(f)->num_in, old->num_in, sizeof(old->num_in));
        memset(old->num_in, 0, sizeof(old->num_in));
    }
    fdrv_wake(&f->d);
}

static bool all_there(void *arg)
{
    struct fixture *f = arg;

    while (f->d.q[RX].num_free > 0)
        add_rx(f, RX, 700);
    fdrv_kick(&f->d, RX);
    fdrv_kick(&f->d, TX);
    fnet_run(net(f));
    look_at_rx(f);
    look_at_tx(f);
    return f->tx_used == f->sent && net(f)->num_in[0] == 0;
}

/* Frames of which each takes one buffer, until the driver has all of them. */
static bool all_back(void *arg)
{
    struct fixture *f = arg;

    if (net(f)->num_in[0] == 0 && f->fed + 1 < 2 * MAX) {
        f->fed++;
        fnet_feed(net(f), 0, 60, (uint8_t)f->fed, NULL);
    }
    fnet_run(net(f));
    look_at_rx(f);
    return f->d.q[RX].num_free == QSIZE;
}

static void play_step(struct fixture *f)
{
    switch (draw(f, 12)) {
    case 0:
        pause_now(f);
        break;
    case 1:
    case 2:
        feed(f);
        break;
    case 3:
        send(f);
        fdrv_kick(&f->d, TX);
        break;
    case 4:
        send(f); /* told with the next kick */
        send(f);
        break;
    case 5:
        while (f->d.q[RX].num_free > 0 && draw(f, 4))
            add_rx(f, RX, 100 + draw(f, 1000));
        fdrv_kick(&f->d, RX);
        break;
    case 6:
        loop_run_for(f->loop, 1);
        break;
    case 7:
        if (net(f)->wait[0] && net(f)->num_in[0] > 0) {
            net(f)->wait[0] = false;
            net(f)->events->readable(net(f)->arg, 0);
        }
        break;
    default:
        (void)(draw(f, 2) ? fnet_step_rx(net(f), 0) : fnet_step_tx(net(f)));
        look_at_rx(f);
        look_at_tx(f);
        break;
    }
}

static void play(const struct vnet_args *args, uint32_t seed)
{
    struct fixture *f = make(args, 1, FEATURES);
    void *state = f;

    f->seed = seed;
    for (int step = 0; step < 400; step++)
        play_step(f);
    assert_true(loop_run_until(f->loop, all_there, f));
    assert_true(loop_run_until(f->loop, all_back, f));
    for (unsigned i = 0; i < QSIZE; i++)
        assert_false(f->out[RX][i]);
    while (f->sent_bad[f->sent])
        f->sent--; /* nobody saw these */
    assert_int_equal(f->seen, f->fed);
    assert_int_equal(f->arrived, f->sent);
    assert_int_equal(f->d.needs_resets, 0);
    (void)teardown(&state);
}

static void test_vnet_no_frame_is_lost_or_doubled(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++)
        play(&plain, seed);
}

static void test_vnet_nor_one_that_a_limiter_holds(void **state)
{
    static const struct vnet_args slow = {
        .id = "a", .rx.ops = {3, 0, 1}, .tx.ops = {3, 0, 1}};

    (void)state;
    for (uint32_t seed = 1; seed <= 20; seed++)
        play(&slow, seed);
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
#define P(t) cmocka_unit_test_setup_teardown(t, setup_pairs, teardown)
#define L(t) cmocka_unit_test_setup_teardown(t, setup_limited, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_vnet_rest_stops_reading_and_keeps_the_buffers),
        T(test_vnet_rest_waits_for_frames_that_end_by_themselves),
        T(test_vnet_frames_that_were_not_begun_are_sent_after),
        T(test_vnet_kept_chain_is_checked_anew),
        T(test_vnet_kept_buffer_is_checked_anew),
        T(test_vnet_wake_before_the_last_frame_is_back),
        T(test_vnet_reset_ends_a_rest),
        T(test_vnet_reset_forgets_what_was_kept),
        T(test_vnet_stopped_queue_keeps_nothing),
        T(test_vnet_link_that_goes_while_it_rests),
        L(test_BL_037_limits_of_a_snapshot_can_be_taken_off),
        L(test_vnet_debts_of_received_frames_move_along),
        T(test_vnet_control_request_waits_for_the_wake),
        T(test_BL_050_loaded_guest_is_asked_to_announce_itself),
        cmocka_unit_test(test_vnet_guest_that_cannot_announce_is_not_asked),
        T(test_vnet_loaded_device_has_the_guests_address),
        P(test_vnet_pairs_and_offloads_move_along),
        T(test_vnet_saved_again_before_a_wake_is_the_same),
        T(test_vnet_load_refuses_impossible_values),
        T(test_vnet_load_refuses_an_unfinished_control_request),
        cmocka_unit_test(test_vnet_no_frame_is_lost_or_doubled),
        cmocka_unit_test(test_vnet_nor_one_that_a_limiter_holds),
    };

    return cmocka_run_group_tests_name("virtio_net_state", tests, NULL, NULL);
}
