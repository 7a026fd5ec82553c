/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network device over a network in memory: frames come and go, end in any
 * way, also across resets, with several queue pairs and the control queue. No
 * frame is larger than its room, no offload reaches a guest that declined it,
 * each popped chain goes back once or not at all. With a metadata service (an
 * input of odd length) no frame to its address reaches the network.
 */
#include "devices/virtio_net.h"

#include "tests/fuzz/inline_loop.h"
#include "tests/harness/fake_net.h"
#include "tests/harness/mmds_peer.h"
#include "tests/harness/ring_traffic.h"
#include "vmm/le.h"

#include <string.h>

#define RAM       (512 * KIB)
#define QSIZE     16u
#define MAX_STEPS 150u
#define POOL      (128 * KIB)

struct target {
    struct fdrv d;
    struct fring r[VIRTIO_MAX_QUEUES];
    struct evloop *loop;
    struct fnet net;
    struct virtio_dev *dev;
    struct mmds_counts counts;
    struct mmds_service service;
    gpa_t pool;
    uint64_t features;
    bool indirect;
};

static const uint8_t bits[] = {
    VIRTIO_NET_F_CSUM,       VIRTIO_NET_F_GUEST_CSUM,
    VIRTIO_NET_F_HOST_TSO4,  VIRTIO_NET_F_HOST_TSO6,
    VIRTIO_NET_F_HOST_ECN,   VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_ECN,
    VIRTIO_NET_F_MRG_RXBUF,  VIRTIO_NET_F_CTRL_VQ,
    VIRTIO_NET_F_MQ,         VIRTIO_NET_F_CTRL_GUEST_OFFLOADS,
    VIRTIO_NET_F_STATUS,     VIRTIO_RING_F_EVENT_IDX,
};

static int32_t respond(void *arg, const char *data, size_t len, bool full,
                       struct mmds_response *out)
{
    (void)arg;
    (void)data;
    (void)full;
    out->len = 4000;
    out->data = calloc(1, out->len);
    fuzz_must(out->data != NULL);
    return (int32_t)len;
}

/* What opens a connection to the service, as one of the guest's frames. */
static void put_syn(struct target *t, gpa_t gpa)
{
    const struct mp_out syn = {
        .port = 7, .flags = MP_SYN, .window = 9000, .mss = 1000};
    uint8_t frame[MP_FRAME];

    fdrv_write(&t->d, gpa, frame, mp_put(frame, &syn));
}

static void attach(struct target *t)
{
    t->d.next_free = 4096;
    /* Features that do not go together are refused; that ends in a reset. */
    (void)fdrv_attach(&t->d, t->dev, QSIZE, t->features);
    for (uint16_t q = 0; q < t->dev->num_queues; q++)
        fring_init(&t->r[q], &t->d, q);
    t->pool = fdrv_alloc(&t->d, POOL, 16);
}

static void reset(struct target *t)
{
    uint32_t before = t->d.reset_dones;

    if (fdrv_reset(&t->d) == -EINPROGRESS) {
        fnet_give_back(&t->net, -ECANCELED);
        fuzz_must(t->d.reset_dones == before + 1);
    }
    for (uint16_t p = 0; p < NET_MAX_PAIRS; p++)
        fuzz_must(t->net.num_rx[p] == 0);
    fuzz_must(t->net.num_tx == 0 && t->net.offloads == 0);
}

static void header(struct target *t, struct fuzz_in *in, gpa_t gpa)
{
    static const uint8_t types[] = {0, 1, 4, 0x81};
    struct virtio_net_hdr_v1 h = {0};

    h.flags = (uint8_t)fuzz_below(in, 2);
    h.gso_type = fuzz_rarely(in, 16) ? fuzz_u8(in) : types[fuzz_below(in, 4)];
    h.hdr_len = htole16(54);
    h.gso_size = htole16((uint16_t)fuzz_below(in, 3));
    h.csum_start = htole16((uint16_t)(fuzz_rarely(in, 8) ? fuzz_u16(in) : 34));
    h.csum_offset = htole16((uint16_t)(fuzz_rarely(in, 8) ? fuzz_u16(in) : 16));
    fdrv_write(&t->d, gpa, &h, sizeof(h));
}

static void add_data(struct target *t, struct fuzz_in *in, uint16_t q)
{
    struct fdrv_seg segs[FRING_MAX_SEGS];
    bool rx = q % 2 == 0;
    uint16_t n = 0;

    if (!rx) {
        gpa_t h = t->pool + 16u * fuzz_below(in, 64);

        header(t, in, h);
        segs[n++] = (struct fdrv_seg){h, 12, false};
    }
    if (!rx && t->service.arg && fuzz_below(in, 2)) {
        put_syn(t, t->pool + 1024);
        segs[n++] = (struct fdrv_seg){t->pool + 1024, 62, false};
    }
    for (uint32_t k = 1 + fuzz_below(in, 4); k > 0; k--)
        segs[n++] = (struct fdrv_seg){t->pool + 1024 + fuzz_below(in, 4096),
                                      1u + 97u * fuzz_below(in, 256), rx};
    fring_add(&t->r[q], in, segs, n, t->indirect);
}

static void add_ctrl(struct target *t, struct fuzz_in *in)
{
    uint16_t q = t->features & (1ull << VIRTIO_NET_F_MQ)
                     ? (uint16_t)(t->dev->num_queues - 1)
                     : 2;
    struct fdrv_seg segs[2] = {{t->pool, 0, false}, {t->pool + 64, 1, true}};
    uint8_t m[10] = {0};

    if (fuzz_below(in, 2)) {
        m[0] = VIRTIO_NET_CTRL_MQ;
        m[2] = (uint8_t)fuzz_below(in, 6);
        segs[0].len = 4;
    } else {
        m[0] = VIRTIO_NET_CTRL_GUEST_OFFLOADS;
        put_le64(m + 2, fuzz_rarely(in, 8) ? fuzz_u64(in)
                                           : 1ull << fuzz_below(in, 12));
        segs[0].len = 10;
    }
    if (fuzz_rarely(in, 16))
        m[fuzz_below(in, 2)] = fuzz_u8(in);
    fdrv_write(&t->d, t->pool, m, sizeof(m));
    fring_add(&t->r[q], in, segs, 2, t->indirect);
    t->net.set_result = fuzz_rarely(in, 16) ? -EINVAL : 0;
    t->dev->ops->queue_kick(t->dev, q);
    t->net.set_result = 0;
}

static void feed(struct target *t, struct fuzz_in *in)
{
    static const uint8_t types[] = {0, 0, 1, 4};
    uint16_t p = (uint16_t)fuzz_below(in, t->net.base.max_pairs);
    struct virtio_net_hdr_v1 h = {.flags = (uint8_t)fuzz_below(in, 3),
                                  .gso_type = types[fuzz_below(in, 4)]};
    uint32_t bytes = fuzz_rarely(in, 4) ? fuzz_below(in, NET_MAX_FRAME - 1)
                                        : 60 + fuzz_below(in, 256);

    if (t->net.num_in[p] < 8)
        fnet_feed(&t->net, p, bytes, 1, &h);
}

/* Sent frames are only looked at, so that the list does not fill up. */
static void forget_sent(struct target *t)
{
    for (uint32_t i = 0; i < t->net.num_out; i++) {
        const struct virtio_net_hdr_v1 *h = &t->net.out[i].hdr;

        fuzz_must(t->net.out[i].bytes <= NET_MAX_FRAME);
        fuzz_must(!t->service.arg ||
                  !mmds_frame_is_ours(
                      t->net.out[i].data,
                      min_u64(t->net.out[i].bytes, MMDS_HEAD_BYTES), MP_IP));
        fuzz_must(h->gso_type == 0 ||
                  (t->features & (1ull << VIRTIO_NET_F_CSUM)));
        free(t->net.out[i].data);
    }
    t->net.num_out = 0;
}

static void network(struct target *t, struct fuzz_in *in)
{
    uint16_t p = (uint16_t)fuzz_below(in, t->net.base.max_pairs);

    t->net.tx_result = fuzz_rarely(in, 8) ? -EIO : 0;
    switch (fuzz_below(in, 4)) {
    case 0:
        feed(t, in);
        break;
    case 1:
        (void)fnet_step_rx(&t->net, p);
        break;
    case 2:
        (void)fnet_step_tx(&t->net);
        break;
    default:
        if (t->net.wait[p]) {
            t->net.wait[p] = false;
            t->net.events->readable(t->net.arg, p);
        }
        break;
    }
    forget_sent(t);
}

static void rest(struct target *t)
{
    uint32_t before = t->d.rests;
    bool held = fdrv_rest(&t->d) == -EINPROGRESS;

    while (held && t->d.rests == before) {
        bool moved = fnet_step_tx(&t->net);

        for (uint16_t p = 0; p < t->net.base.max_pairs; p++)
            moved |= fnet_step_rx(&t->net, p);
        fuzz_must(moved);
        forget_sent(t);
    }
    fuzz_must(t->net.num_tx == 0 && t->net.num_rx[0] == 0);
    fdrv_wake(&t->d);
}

static void step(struct target *t, struct fuzz_in *in)
{
    uint16_t q = (uint16_t)fuzz_below(in, t->dev->num_queues);
    const struct rate_limit_config tight = {.ops = {2, 0, 1000}};
    const struct rate_limit_config none = {{0, 0, 0}, {0, 0, 0}};

    switch (fuzz_below(in, 16)) {
    case 0:
    case 1:
    case 2:
    case 3:
        add_data(t, in, q);
        break;
    case 4:
    case 5:
        t->dev->ops->queue_kick(t->dev, q);
        break;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
        network(t, in);
        break;
    case 11:
        add_ctrl(t, in);
        break;
    case 12:
        inline_loop_turn(t->loop);
        break;
    case 13:
        if (fuzz_rarely(in, 4)) {
            t->net.cancel_keeps = fuzz_below(in, 2);
            reset(t);
            attach(t);
        } else if (fuzz_rarely(in, 4)) {
            t->net.rest_keeps = fuzz_below(in, 2);
            rest(t);
        }
        break;
    case 14:
        if (fuzz_rarely(in, 8))
            vnet_set_rate_limits(t->dev, fuzz_below(in, 2) ? &tight : NULL,
                                 fuzz_below(in, 2) ? &tight : &none);
        if (fuzz_rarely(in, 32))
            fnet_link_down(&t->net);
        break;
    default:
        fring_disturb(&t->r[q], in);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target *t = calloc(1, sizeof(*t));
    struct vnet_args args = {.id = "fuzz"};
    struct vdev_env env = {0};
    uint32_t pick;

    fuzz_must(t != NULL);
    fdrv_init(&t->d, RAM);
    fuzz_must(evloop_new(EVLOOP_AUTO, &t->loop) == 0);
    env.mem = t->d.mem;
    env.loop = t->loop;
    fnet_init(&t->net, (uint16_t)(1 + fuzz_below(&in, NET_MAX_PAIRS)),
              fuzz_below(&in, 4) != 1, 1500);
    if (len % 2) {
        t->service =
            (struct mmds_service){MP_IP, &t->counts, respond, &t->counts};
        args.mmds = &t->service;
    }
    fuzz_must(vnet_new(&env, &t->net.base, &args, &t->dev) == 0);
    pick = ~fuzz_u16(&in); /* by default all */
    for (uint32_t i = 0; i < sizeof(bits); i++) {
        if (pick & (1u << i))
            t->features |= 1ull << bits[i];
    }
    t->indirect = fuzz_below(&in, 2);
    if (t->indirect)
        t->features |= 1ull << VIRTIO_RING_F_INDIRECT_DESC;
    attach(t);
    for (uint32_t i = 0; i < MAX_STEPS && in.left > 0; i++)
        step(t, &in);
    t->net.cancel_keeps = false;
    reset(t);
    t->dev->ops->free(t->dev);
    fnet_fini(&t->net);
    evloop_free(t->loop);
    fdrv_fini(&t->d);
    free(t);
    return 0;
}
