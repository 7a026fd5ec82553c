/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk or a network is used, brought to rest and saved; then what was saved
 * is changed in places, or replaced, and loaded into another one. Whatever it
 * says, the load is refused or the device goes on: no memory but the guest's is
 * touched, no request goes past the disk, the device can be shut down.
 */
#include "devices/virtio_blk.h"
#include "devices/virtio_mmio.h"
#include "devices/virtio_net.h"

#include "tests/fuzz/inline_loop.h"
#include "tests/harness/fake_net.h"
#include "tests/harness/mem_disk.h"
#include "tests/harness/ring_traffic.h"
#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <string.h>

#define RAM       (256 * KIB)
#define QSIZE     16u
#define MAX_STEPS 60u
#define SECTORS   64u
#define POOL      (32 * KIB)
#define SECTION   4096u

/* One device behind its transport. */
struct side {
    struct virtio_dev *dev;
    struct virtio_mmio *m;
    struct mem_disk disk;
    struct fnet net;
    int irq_fd;
    bool down;
    bool rested;
};

struct target {
    struct fdrv d;
    struct fring r[VIRTIO_MAX_QUEUES];
    struct evloop *loop;
    struct side a; /* is saved */
    struct side b; /* is loaded */
    bool is_net;
    gpa_t pool;
};

/* --- devices -------------------------------------------------------------- */

static void side_new(struct target *t, struct side *s, const uint8_t *how)
{
    const struct rate_limit_config limit = {.ops = {how[1] & 1 ? 3 : 0, 1, 9}};
    const struct vblk_args blk = {.id = "a", .num_queues = 2, .limit = limit};
    const struct vnet_args net = {.id = "a", .rx = limit, .tx = limit};
    struct vdev_env env = {.mem = t->d.mem, .loop = t->loop};

    s->irq_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    fuzz_must(s->irq_fd >= 0);
    if (t->is_net) {
        fnet_init(&s->net, (uint16_t)(1 + how[2] % 2), true, 1500);
        s->net.rest_keeps = how[1] & 2;
        fuzz_must(vnet_new(&env, &s->net.base, &net, &s->dev) == 0);
    } else {
        mem_disk_init(&s->disk, NULL, SECTORS * 512);
        fuzz_must(vblk_new(&env, &s->disk.base, &blk, &s->dev) == 0);
    }
    fuzz_must(virtio_mmio_new(s->dev, s->irq_fd, &s->m) == 0);
}

/* What the world does to a device: requests end, frames come. */
static void side_turn(struct target *t, struct side *s, struct fuzz_in *in)
{
    if (!t->is_net) {
        if (s->disk.num_held > 0)
            mem_disk_complete(&s->disk, fuzz_below(in, s->disk.num_held),
                              fuzz_rarely(in, 8) ? -EIO : 0);
    } else if (fuzz_below(in, 2)) {
        (void)fnet_step_tx(&s->net);
        while (s->net.num_out > 0)
            free(s->net.out[--s->net.num_out].data);
    } else {
        if (s->net.num_in[0] < 4)
            fnet_feed(&s->net, 0, 14u + fuzz_below(in, 300), 1, NULL);
        (void)fnet_step_rx(&s->net, 0);
    }
    inline_loop_turn(t->loop);
}

static void end_all(struct side *s)
{
    mem_disk_complete_all(&s->disk);
    fnet_give_back(&s->net, -ECANCELED);
}

static void on_down(void *arg)
{
    ((struct side *)arg)->down = true;
}

static void side_end(struct side *s)
{
    virtio_mmio_cancel_waits(s->m);
    virtio_mmio_shutdown(s->m, on_down, s);
    end_all(s);
    fuzz_must(s->down);
    virtio_mmio_free(s->m);
    fnet_fini(&s->net);
    (void)close(s->irq_fd);
}

static void on_rested(void *arg)
{
    ((struct side *)arg)->rested = true;
}

static void side_rest(struct target *t, struct side *s)
{
    s->rested = false;
    virtio_mmio_rest(s->m, on_rested, s);
    for (int i = 0; i < 600 && !s->rested; i++) {
        if (s->disk.num_held > 0)
            mem_disk_complete(&s->disk, 0, 0);
        (void)fnet_step_tx(&s->net);
        for (uint16_t p = 0; p < 2; p++)
            (void)fnet_step_rx(&s->net, p);
        inline_loop_turn(t->loop);
    }
    fuzz_must(s->rested);
    fuzz_must(s->disk.num_held == 0 && s->net.num_tx == 0);
}

/* --- the driver ----------------------------------------------------------- */

static void wr(struct side *s, uint32_t off, uint32_t v)
{
    uint8_t b[4];

    put_le32(b, v);
    virtio_mmio_bus_ops.write(s->m, off, b, sizeof(b));
}

static void set_queue(struct target *t, uint16_t q)
{
    const uint64_t a[3] = {t->d.q[q].desc, t->d.q[q].avail, t->d.q[q].used};

    wr(&t->a, VIRTIO_MMIO_QUEUE_SEL, q);
    wr(&t->a, VIRTIO_MMIO_QUEUE_NUM, QSIZE);
    for (uint32_t i = 0; i < 3; i++) {
        wr(&t->a, VIRTIO_MMIO_QUEUE_DESC_LOW + 16 * i, (uint32_t)a[i]);
        wr(&t->a, VIRTIO_MMIO_QUEUE_DESC_LOW + 16 * i + 4, 0);
    }
    wr(&t->a, VIRTIO_MMIO_QUEUE_READY, 1);
}

static void start(struct target *t, struct fuzz_in *in)
{
    uint64_t f = (t->a.dev->offered & ~(uint64_t)fuzz_u32(in)) |
                 1ull << VIRTIO_F_VERSION_1 |
                 (uint64_t)fuzz_below(in, 2) << VIRTIO_RING_F_EVENT_IDX;

    wr(&t->a, VIRTIO_MMIO_STATUS, 1);
    wr(&t->a, VIRTIO_MMIO_STATUS, 3);
    wr(&t->a, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
    wr(&t->a, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)f);
    wr(&t->a, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
    wr(&t->a, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)(f >> 32));
    wr(&t->a, VIRTIO_MMIO_STATUS, 11);
    for (uint16_t q = 0; q < t->a.dev->num_queues; q++) {
        fdrv_queue_init(&t->d, q, QSIZE, false);
        fring_init(&t->r[q], &t->d, q);
        set_queue(t, q);
    }
    t->pool = fdrv_alloc(&t->d, POOL, 16);
    if (!fuzz_rarely(in, 16))
        wr(&t->a, VIRTIO_MMIO_STATUS, 15);
}

static void add_blk(struct target *t, struct fuzz_in *in, uint16_t q)
{
    bool out = fuzz_below(in, 2);
    gpa_t h = t->pool + 16u * fuzz_below(in, 64);
    struct fdrv_seg segs[3] = {
        {h, 16, false},
        {t->pool + 4096, 512u * (1 + fuzz_below(in, 8)), !out},
        {t->pool + 2048 + fuzz_below(in, 256), 1, true},
    };
    uint8_t b[16] = {0};

    put_le32(b, out ? VIRTIO_BLK_T_OUT : VIRTIO_BLK_T_IN);
    put_le64(b + 8, fuzz_below(in, SECTORS));
    fdrv_write(&t->d, h, b, sizeof(b));
    fring_add(&t->r[q], in, segs, 3, false);
}

static void add_net(struct target *t, struct fuzz_in *in, uint16_t q)
{
    bool rx = q % 2 == 0;
    struct fdrv_seg seg = {t->pool + 1024u * fuzz_below(in, 16),
                           12u + 7u * fuzz_below(in, 256), rx};

    fring_add(&t->r[q], in, &seg, 1, false);
}

static void use(struct target *t, struct side *s, struct fuzz_in *in)
{
    uint16_t q = (uint16_t)fuzz_below(in, s->dev->num_queues);

    switch (fuzz_below(in, 6)) {
    case 0:
    case 1:
    case 2:
        if (t->is_net)
            add_net(t, in, q);
        else
            add_blk(t, in, q);
        wr(s, VIRTIO_MMIO_QUEUE_NOTIFY, q);
        inline_loop_turn(t->loop);
        break;
    case 3:
        if (fuzz_rarely(in, 16)) {
            wr(s, VIRTIO_MMIO_QUEUE_SEL, q);
            wr(s, VIRTIO_MMIO_QUEUE_READY, 0);
        }
        if (fuzz_rarely(in, 16))
            fring_disturb(&t->r[q], in);
        break;
    default:
        side_turn(t, s, in);
        break;
    }
}

/* --- what was saved, changed ---------------------------------------------- */

static void copy_section(struct state_out *to, const struct state_file *from,
                         const char *name, struct fuzz_in *in, uint32_t changes)
{
    uint8_t b[SECTION];
    struct state_in sect;
    size_t n;

    if (state_section(from, name, 1, &sect, NULL))
        return;
    n = (size_t)(sect.end - sect.at);
    fuzz_must(n <= sizeof(b));
    memcpy(b, sect.at, n);
    while (changes-- > 0 && n >= 8) {
        uint8_t v[8];
        size_t at = fuzz_below(in, (uint32_t)n);
        size_t len = 1u << fuzz_below(in, 4);

        put_le64(v, fuzz_edge(in, fuzz_u8(in)));
        memcpy(b + at, v, min_u64(len, n - at));
    }
    if (fuzz_rarely(in, 32))
        n = fuzz_below(in, SECTION);
    state_begin(to, name, 1);
    state_put_bytes(to, b, n);
    state_end(to);
}

/* True: the device is loaded as it was saved. */
static bool carry(struct target *t, struct fuzz_in *in)
{
    static const uint8_t id[STATE_ID_BYTES];
    uint32_t changes = fuzz_below(in, 4);
    bool same = changes == 0;
    struct state_out saved;
    struct state_out bad;
    struct state_file f;
    struct errmsg err;
    int rc;

    state_out_init(&saved);
    virtio_mmio_save(t->a.m, "t", &saved);
    fuzz_must(state_finish(&saved, id) == 0);
    fuzz_must(state_open(&f, saved.data, saved.len_bytes, &err) == 0);
    state_out_init(&bad);
    copy_section(&bad, &f, "t", in, same ? 0 : fuzz_below(in, 4));
    copy_section(&bad, &f, "t/state", in, changes);
    fuzz_must(state_finish(&bad, id) == 0);
    same = bad.len_bytes == saved.len_bytes &&
           memcmp(bad.data, saved.data, bad.len_bytes) == 0;
    fuzz_must(state_open(&f, bad.data, bad.len_bytes, &err) == 0);
    err.text[0] = '\0';
    rc = virtio_mmio_load(t->b.m, "t", &f, &err);
    fuzz_must(rc == 0 || err.text[0] != '\0');
    state_out_fini(&saved);
    if (rc == 0 && same) {
        state_out_init(&saved);
        virtio_mmio_save(t->b.m, "t", &saved);
        fuzz_must(state_finish(&saved, id) == 0);
        fuzz_must(bad.len_bytes == saved.len_bytes &&
                  memcmp(bad.data, saved.data, bad.len_bytes) == 0);
        state_out_fini(&saved);
    }
    state_out_fini(&bad);
    return rc == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target *t = calloc(1, sizeof(*t));
    uint8_t how[3];

    fuzz_must(t != NULL);
    for (size_t i = 0; i < sizeof(how); i++)
        how[i] = fuzz_u8(&in);
    fdrv_init(&t->d, RAM);
    fuzz_must(evloop_new(EVLOOP_AUTO, &t->loop) == 0);
    t->is_net = how[0] & 1;
    side_new(t, &t->a, how);
    side_new(t, &t->b, how);
    start(t, &in);
    for (uint32_t n = fuzz_below(&in, 24); n > 0; n--)
        use(t, &t->a, &in);
    side_rest(t, &t->a);
    if (carry(t, &in)) {
        virtio_mmio_wake(t->b.m);
        for (uint32_t i = 0; i < MAX_STEPS && in.left > 0; i++)
            use(t, &t->b, &in);
        side_rest(t, &t->b);
        virtio_mmio_wake(t->b.m);
    }
    side_end(&t->b);
    side_end(&t->a);
    evloop_free(t->loop);
    fdrv_fini(&t->d);
    free(t);
    return 0;
}
