/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device takes over from a saved machine: any bytes, into each of the
 * devices whose loader is its own, which then goes on for a while. A section is
 * refused whole (-EBADMSG), or what the device saves of it can be loaded again
 * and is saved as the same bytes.
 *
 * Input: the device, decisions up to a length of its own, then the section.
 */
#include "devices/i8042.h"
#include "devices/uart.h"
#include "devices/virtio_balloon.h"
#include "devices/virtio_console.h"
#include "devices/virtio_vsock.h"
#include "tests/fuzz/inline_loop.h"
#include "tests/harness/ring_traffic.h"
#include "tests/harness/state_box.h"
#include "vmm/cleanup.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RAM       (512 * KIB)
#define POOL      65536u
#define MAX_STEPS 60u

enum kind { KIND_UART, KIND_I8042, KIND_BALLOON, KIND_CONSOLE, KIND_VSOCK };
enum { NUM_KINDS = KIND_VSOCK + 1 };

/* --- ports --------------------------------------------------------------- */

static void on_stop(void *arg, enum stop_reason reason, uint32_t detail)
{
    (void)arg;
    (void)reason;
    (void)detail;
}

static void access_ports(const struct bus_ops *ops, void *dev, uint32_t ports,
                         struct fuzz_in *in)
{
    uint8_t v = fuzz_u8(in);

    if (fuzz_below(in, 2))
        ops->write(dev, fuzz_below(in, ports), &v, 1);
    else
        ops->read(dev, fuzz_below(in, ports), &v, 1);
}

static void same_bytes(const struct state_box *a, const struct state_box *b)
{
    fuzz_must(a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0);
}

static void run_uart(struct fuzz_in *in, struct state_in section)
{
    struct state_box box[2];
    struct evloop *loop = NULL;
    struct uart *u = NULL;
    int pipes[2];
    int rc;

    fuzz_must(evloop_new(EVLOOP_AUTO, &loop) == 0);
    fuzz_must(pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0);
    fuzz_must(uart_new(loop, NULL, -1, pipes[0], -1, &u) == 0);
    uart_rest(u);
    rc = uart_load(u, &section);
    fuzz_must(rc == 0 || rc == -EBADMSG);
    for (int i = 0; i < 2; i++) {
        uart_save(u, sbox_begin(&box[i], UART_STATE_VERSION));
        sbox_end(&box[i]);
        section = sbox_in(&box[i]);
        fuzz_must(uart_load(u, &section) == 0);
    }
    same_bytes(&box[0], &box[1]);
    uart_wake(u);
    for (uint32_t i = 0; i < MAX_STEPS && in->left > 0; i++) {
        (void)!write(pipes[1], "text", fuzz_below(in, 5));
        access_ports(&uart_bus_ops, u, UART_NUM_PORTS, in);
        inline_loop_turn(loop);
    }
    uart_free(u);
    evloop_free(loop);
    for (int i = 0; i < 2; i++) {
        drop_fd(&pipes[i]);
        sbox_free(&box[i]);
    }
}

static void run_i8042(struct fuzz_in *in, struct state_in section)
{
    const struct stop_hook hook = {on_stop, NULL};
    struct state_box box[2];
    struct i8042 *k = NULL;
    int rc;

    fuzz_must(i8042_new(&hook, &k) == 0);
    rc = i8042_load(k, &section);
    fuzz_must(rc == 0 || rc == -EBADMSG);
    for (int i = 0; i < 2; i++) {
        i8042_save(k, sbox_begin(&box[i], I8042_STATE_VERSION));
        sbox_end(&box[i]);
        section = sbox_in(&box[i]);
        fuzz_must(i8042_load(k, &section) == 0);
    }
    same_bytes(&box[0], &box[1]);
    for (uint32_t i = 0; i < MAX_STEPS && in->left > 0; i++) {
        (void)i8042_press_ctrl_alt_del(k);
        access_ports(&i8042_bus_ops, k, I8042_NUM_PORTS, in);
    }
    i8042_free(k);
    sbox_free(&box[0]);
    sbox_free(&box[1]);
}

/* --- virtio -------------------------------------------------------------- */

struct target {
    struct fdrv d;
    struct fring r[VIRTIO_MAX_QUEUES];
    struct evloop *loop;
    struct virtio_dev *dev;
    gpa_t pool;
    char path[2][64];
};

static struct virtio_dev *new_device(struct target *t, enum kind kind)
{
    const struct vdev_env env = {t->d.mem, t->loop, NULL};
    const struct vballoon_args balloon = {
        .stats_interval_s = 1, .hinting = true, .reporting = true};
    struct vcon_args console = {
        .in_fd = -1, .out_fd = -1, .cols = 80, .rows = 25, .num_ports = 2};
    struct virtio_dev *dev = NULL;

    console.ports[0] = (struct vcon_port_args){"one", t->path[0]};
    console.ports[1] = (struct vcon_port_args){"two", t->path[1]};
    if (kind == KIND_BALLOON)
        fuzz_must(vballoon_new(&env, &balloon, &dev) == 0);
    else if (kind == KIND_CONSOLE)
        fuzz_must(vcon_new(&env, &console, &dev, NULL) == 0);
    else
        fuzz_must(vvsock_new(&env, 3, t->path[0], &dev, NULL) == 0);
    return dev;
}

static void add(struct target *t, struct fuzz_in *in)
{
    uint16_t q = (uint16_t)fuzz_below(in, t->dev->num_queues);
    struct fdrv_seg seg = {t->pool + fuzz_below(in, POOL - 4096),
                           fuzz_below(in, 512), fuzz_below(in, 2)};

    fring_add(&t->r[q], in, &seg, 1, fuzz_below(in, 2));
}

static void step(struct target *t, struct fuzz_in *in)
{
    switch (fuzz_below(in, 8)) {
    case 0:
    case 1:
    case 2:
        add(t, in);
        break;
    case 3:
    case 4:
        t->dev->ops->queue_kick(t->dev,
                                (uint16_t)fuzz_below(in, t->dev->num_queues));
        break;
    case 5:
        inline_loop_turn(t->loop);
        break;
    case 6:
        if (fdrv_rest(&t->d) == 0)
            inline_loop_turn(t->loop);
        fdrv_wake(&t->d);
        break;
    default:
        fring_disturb(&t->r[fuzz_below(in, t->dev->num_queues)], in);
        break;
    }
}

/* At rest; loaded or not. What is saved loads, and is saved again like that. */
static void check_saves(struct target *t)
{
    struct state_box box[2];

    for (int i = 0; i < 2; i++) {
        struct state_in in;

        sbox_save(&t->d, &box[i]);
        in = sbox_in(&box[i]);
        fuzz_must(t->dev->ops->load(t->dev, &in, NULL) == 0);
    }
    same_bytes(&box[0], &box[1]);
    sbox_free(&box[0]);
    sbox_free(&box[1]);
}

static void run_virtio(enum kind kind, struct fuzz_in *in,
                       struct state_in section)
{
    struct target *t = calloc(1, sizeof(*t));
    uint64_t features = ~(uint64_t)fuzz_u8(in);
    int rc;

    fuzz_must(t != NULL);
    fdrv_init(&t->d, RAM);
    fuzz_must(evloop_new(EVLOOP_AUTO, &t->loop) == 0);
    for (int i = 0; i < 2; i++)
        (void)snprintf(t->path[i], sizeof(t->path[i]),
                       "/tmp/mote-fuzz-load-%d-%d", (int)getpid(), i);
    t->dev = new_device(t, kind);
    t->dev->resting = true;
    fuzz_must(fdrv_attach(&t->d, t->dev, 16, features) == 0);
    for (uint16_t q = 0; q < t->dev->num_queues; q++)
        fring_init(&t->r[q], &t->d, q);
    t->pool = fdrv_alloc(&t->d, POOL, 1);
    for (uint32_t n = fuzz_below(in, 16); n > 0; n--)
        add(t, in);
    rc = t->dev->ops->load(t->dev, &section, NULL);
    fuzz_must(rc == 0 || rc == -EBADMSG);
    check_saves(t);
    inline_loop_turn(t->loop);
    for (uint16_t q = 0; q < t->dev->num_queues; q++)
        fuzz_must(fdrv_used_idx(&t->d, q) == 0); /* it rests */
    fdrv_wake(&t->d);
    for (uint32_t i = 0; i < MAX_STEPS && in->left > 0; i++)
        step(t, in);
    fuzz_must(fdrv_reset(&t->d) == 0);
    t->dev->ops->free(t->dev);
    evloop_free(t->loop);
    fdrv_fini(&t->d);
    free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    enum kind kind = (enum kind)fuzz_below(&in, NUM_KINDS);
    size_t decisions = fuzz_u8(&in);
    struct state_in section = {.version = 1};

    (void)signal(SIGPIPE, SIG_IGN);
    decisions = min_u64(decisions, in.left);
    section.at = in.p + decisions;
    section.end = in.p + in.left;
    in.left = decisions;
    if (kind == KIND_UART)
        run_uart(&in, section);
    else if (kind == KIND_I8042)
        run_i8042(&in, section);
    else
        run_virtio(kind, &in, section);
    return 0;
}
