/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The console's two queues with host input and output. What the guest prints
 * is bounded by what it offers; input goes nowhere but into its buffers.
 */
#include "devices/virtio_console.h"

#include "tests/fuzz/inline_loop.h"
#include "tests/harness/ring_traffic.h"
#include "vmm/cleanup.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define RAM       (256 * KIB)
#define RX        0u
#define TX        1u
#define MAX_STEPS 150u

struct target {
    struct fdrv d;
    struct fring r[2];
    struct evloop *loop;
    struct virtio_dev *dev;
    gpa_t pool;
    int in[2];
    int out[2];
    uint64_t features;
};

static void attach(struct target *t)
{
    t->d.next_free = 4096;
    fuzz_must(fdrv_attach(&t->d, t->dev, 16, t->features) == 0);
    fring_init(&t->r[RX], &t->d, RX);
    fring_init(&t->r[TX], &t->d, TX);
    t->pool = fdrv_alloc(&t->d, 65536, 1);
}

static void add(struct target *t, struct fuzz_in *in, uint16_t q)
{
    struct fdrv_seg segs[FRING_MAX_SEGS];
    uint16_t n = (uint16_t)(1 + fuzz_below(in, FRING_MAX_SEGS));

    for (uint16_t i = 0; i < n; i++)
        segs[i] = (struct fdrv_seg){t->pool + fuzz_below(in, 32768),
                                    fuzz_below(in, 1024),
                                    fuzz_rarely(in, 32) ? q == TX : q == RX};
    fring_add(&t->r[q], in, segs, n, fuzz_below(in, 2));
}

static void step(struct target *t, struct fuzz_in *in)
{
    char buf[4096] = {0};

    switch (fuzz_below(in, 12)) {
    case 0:
    case 1:
        add(t, in, RX);
        break;
    case 2:
    case 3:
        add(t, in, TX);
        break;
    case 4:
    case 5:
        t->dev->ops->queue_kick(t->dev, (uint16_t)fuzz_below(in, 2));
        break;
    case 6:
    case 7:
        inline_loop_turn(t->loop);
        break;
    case 8:
        if (t->in[1] >= 0)
            (void)!write(t->in[1], buf, 1 + fuzz_below(in, sizeof(buf)));
        if (fuzz_rarely(in, 16))
            drop_fd(&t->in[1]);
        break;
    case 9:
        (void)!read(t->out[0], buf, sizeof(buf));
        break;
    case 10:
        if (fuzz_rarely(in, 8)) {
            fuzz_must(fdrv_reset(&t->d) == 0);
            attach(t);
        }
        vcon_resize(t->dev, fuzz_u8(in), fuzz_u8(in));
        break;
    default:
        fring_disturb(&t->r[fuzz_below(in, 2)], in);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target *t = calloc(1, sizeof(*t));
    struct vcon_args args = {.cols = 80, .rows = 25};
    struct vdev_env env = {0};

    fuzz_must(t != NULL);
    fdrv_init(&t->d, RAM);
    fuzz_must(pipe2(t->in, O_CLOEXEC | O_NONBLOCK) == 0);
    fuzz_must(pipe2(t->out, O_CLOEXEC | O_NONBLOCK) == 0);
    fuzz_must(evloop_new(EVLOOP_AUTO, &t->loop) == 0);
    env.mem = t->d.mem;
    env.loop = t->loop;
    args.in_fd = t->in[0];
    args.out_fd = t->out[1];
    fuzz_must(vcon_new(&env, &args, &t->dev, NULL) == 0);
    t->features = (uint64_t)fuzz_below(&in, 4) << VIRTIO_RING_F_INDIRECT_DESC;
    attach(t);
    for (uint32_t i = 0; i < MAX_STEPS && in.left > 0; i++)
        step(t, &in);
    fuzz_must(fdrv_reset(&t->d) == 0);
    t->dev->ops->free(t->dev);
    evloop_free(t->loop);
    for (int i = 0; i < 2; i++) {
        drop_fd(&t->in[i]);
        drop_fd(&t->out[i]);
    }
    fdrv_fini(&t->d);
    free(t);
    return 0;
}
