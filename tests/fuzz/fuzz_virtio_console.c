/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The console with host input and output, and with up to two more ports whose
 * clients come and go. What the guest prints is bounded by what it offers,
 * input goes nowhere but into its buffers, and control messages do not pile
 * up.
 */
#include "devices/virtio_console.h"

#include "tests/fuzz/inline_loop.h"
#include "tests/harness/ring_traffic.h"
#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define RAM        (256 * KIB)
#define CTL_TX     3u
#define MAX_PORTS  2u
#define MAX_QUEUES (4 + 2 * MAX_PORTS)
#define MAX_STEPS  150u

struct target {
    struct fdrv d;
    struct fring r[MAX_QUEUES];
    struct evloop *loop;
    struct virtio_dev *dev;
    gpa_t pool;
    int in[2];
    int out[2];
    uint64_t features;
    uint32_t ports;
    char path[MAX_PORTS][64];
    int client[MAX_PORTS];
};

static void attach(struct target *t)
{
    t->d.next_free = 4096;
    fuzz_must(fdrv_attach(&t->d, t->dev, 16, t->features) == 0);
    for (uint16_t q = 0; q < t->dev->num_queues; q++)
        fring_init(&t->r[q], &t->d, q);
    t->pool = fdrv_alloc(&t->d, 65536, 1);
}

static void add(struct target *t, struct fuzz_in *in, uint16_t q)
{
    struct fdrv_seg segs[FRING_MAX_SEGS];
    uint16_t n = (uint16_t)(1 + fuzz_below(in, FRING_MAX_SEGS));
    bool to_guest = q % 2 == 0;

    for (uint16_t i = 0; i < n; i++)
        segs[i] = (struct fdrv_seg){t->pool + fuzz_below(in, 32768),
                                    fuzz_below(in, 1024),
                                    fuzz_rarely(in, 32) ? !to_guest : to_guest};
    fring_add(&t->r[q], in, segs, n, fuzz_below(in, 2));
}

static void add_control(struct target *t, struct fuzz_in *in)
{
    struct fdrv_seg seg = {t->pool + fuzz_below(in, 32768), 8, false};
    uint8_t m[8];

    if (t->ports == 0)
        return;
    put_le32(m, fuzz_rarely(in, 16) ? fuzz_u32(in) : fuzz_below(in, 4));
    put_le16(m + 4, (uint16_t)(fuzz_below(in, 9)));
    put_le16(m + 6, (uint16_t)(fuzz_below(in, 3)));
    if (fuzz_rarely(in, 16))
        seg.len = fuzz_below(in, 32);
    fdrv_write(&t->d, seg.gpa, m, sizeof(m));
    fring_add(&t->r[CTL_TX], in, &seg, 1, false);
    t->dev->ops->queue_kick(t->dev, CTL_TX);
}

static void dial(struct target *t, uint32_t i)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    drop_fd(&t->client[i]);
    memcpy(a.sun_path, t->path[i], sizeof(t->path[i]));
    t->client[i] =
        socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* The backlog may be full of ones that gave up. */
    (void)!connect(t->client[i], (struct sockaddr *)&a, sizeof(a));
}

static void client_step(struct target *t, struct fuzz_in *in)
{
    char buf[4096] = {0};
    uint32_t i;

    if (t->ports == 0)
        return;
    i = fuzz_below(in, t->ports);
    switch (fuzz_below(in, 6)) {
    case 0:
        dial(t, i);
        break;
    case 1:
        drop_fd(&t->client[i]);
        break;
    case 2:
        (void)shutdown(t->client[i], SHUT_WR);
        break;
    case 3:
        (void)!recv(t->client[i], buf, sizeof(buf), MSG_DONTWAIT);
        break;
    default:
        (void)!send(t->client[i], buf, 1 + fuzz_below(in, sizeof(buf)),
                    MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
    }
}

static void host_step(struct target *t, struct fuzz_in *in)
{
    char buf[4096] = {0};

    if (fuzz_below(in, 2)) {
        (void)!read(t->out[0], buf, sizeof(buf));
        return;
    }
    if (t->in[1] >= 0)
        (void)!write(t->in[1], buf, 1 + fuzz_below(in, sizeof(buf)));
    if (fuzz_rarely(in, 16))
        drop_fd(&t->in[1]);
}

static void config_step(struct target *t, struct fuzz_in *in)
{
    uint32_t off = fuzz_below(in, t->dev->config_len);
    uint32_t len = 1u << fuzz_below(in, 4);
    uint8_t b[8] = {0};

    if (len > t->dev->config_len - off)
        return;
    if (fuzz_below(in, 2))
        t->dev->ops->config_write(t->dev, off, b, len);
    else
        t->dev->ops->config_read(t->dev, off, b, len);
}

static void step(struct target *t, struct fuzz_in *in)
{
    uint32_t queues = t->dev->num_queues;

    switch (fuzz_below(in, 14)) {
    case 0:
    case 1:
    case 2:
        add(t, in, (uint16_t)fuzz_below(in, queues));
        break;
    case 3:
    case 4:
        t->dev->ops->queue_kick(t->dev, (uint16_t)fuzz_below(in, queues));
        break;
    case 5:
        inline_loop_turn(t->loop);
        break;
    case 6: /* a pause */
        fuzz_must(fdrv_rest(&t->d) == 0);
        inline_loop_turn(t->loop);
        fdrv_wake(&t->d);
        break;
    case 7:
    case 8:
        add_control(t, in);
        break;
    case 9:
        client_step(t, in);
        break;
    case 10:
        host_step(t, in);
        break;
    case 11:
        if (fuzz_rarely(in, 8)) {
            fuzz_must(fdrv_reset(&t->d) == 0);
            attach(t);
        }
        vcon_resize(t->dev, fuzz_u8(in), fuzz_u8(in));
        break;
    case 12:
        config_step(t, in);
        break;
    default:
        fring_disturb(&t->r[fuzz_below(in, queues)], in);
        break;
    }
}

static void start(struct target *t, struct fuzz_in *in)
{
    struct vcon_args args = {.cols = 80, .rows = 25};
    struct vdev_env env = {0};

    fdrv_init(&t->d, RAM);
    fuzz_must(pipe2(t->in, O_CLOEXEC | O_NONBLOCK) == 0);
    fuzz_must(pipe2(t->out, O_CLOEXEC | O_NONBLOCK) == 0);
    fuzz_must(evloop_new(EVLOOP_AUTO, &t->loop) == 0);
    env.mem = t->d.mem;
    env.loop = t->loop;
    args.in_fd = t->in[0];
    args.out_fd = t->out[1];
    t->ports = fuzz_below(in, MAX_PORTS + 1);
    for (uint32_t i = 0; i < MAX_PORTS; i++) {
        t->client[i] = -1;
        (void)snprintf(t->path[i], sizeof(t->path[i]),
                       "/tmp/mote-fuzz-con-%d-%u", (int)getpid(), i);
        if (i < t->ports)
            args.ports[args.num_ports++] =
                (struct vcon_port_args){i ? "one" : "zero", t->path[i]};
    }
    fuzz_must(vcon_new(&env, &args, &t->dev, NULL) == 0);
    t->features = (uint64_t)fuzz_below(in, 4) << VIRTIO_RING_F_INDIRECT_DESC;
    if (!fuzz_rarely(in, 8))
        t->features |= t->dev->offered;
    attach(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target *t = calloc(1, sizeof(*t));

    fuzz_must(t != NULL);
    start(t, &in);
    for (uint32_t i = 0; i < MAX_STEPS && in.left > 0; i++)
        step(t, &in);
    fuzz_must(fdrv_reset(&t->d) == 0);
    t->dev->ops->free(t->dev);
    evloop_free(t->loop);
    for (int i = 0; i < 2; i++) {
        drop_fd(&t->in[i]);
        drop_fd(&t->out[i]);
        drop_fd(&t->client[i]);
    }
    fdrv_fini(&t->d);
    free(t);
    return 0;
}
