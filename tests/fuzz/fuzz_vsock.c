/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock.h"
#include "devices/vsock_pkt.h"
#include "tests/harness/fake_driver.h"
#include "vmm/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/*
 * The whole device: a guest that mostly keeps the rules and now and then
 * breaks one, a host that does what it likes, on real Unix sockets. The input
 * is a script: one byte says what happens next, the following ones how.
 */

#define CID       3u
#define RAM       (4 * MIB)
#define RX_BYTES  8192u
#define RX_COUNT  64u
#define TX_BYTES  (65536u + 64u)
#define HOST_FDS  8u
#define NUM_PORTS 16u
#define MAX_STEPS 400

struct world {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct virtio_dev *dev;
    char path[100];
    gpa_t rx;
    gpa_t tx;
    uint32_t rx_next;
    int listen_fd[2];
    int fds[HOST_FDS];
    uint32_t host_ports[NUM_PORTS]; /* seen in packets of the device */
    uint32_t num_ports;
    uint32_t fwd[NUM_PORTS]; /* bytes that came on them */
};

struct input {
    const uint8_t *p;
    size_t left;
};

static void must(bool ok)
{
    if (!ok)
        abort();
}

static uint8_t take(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->p++;
}

static uint32_t take16(struct input *in)
{
    uint32_t v = take(in);

    return v << 8 | take(in);
}

static uint32_t take32(struct input *in)
{
    uint32_t v = take16(in);

    return v << 16 | take16(in);
}

/* --- the world ----------------------------------------------------------- */

static const char *work_dir(void)
{
    static char dir[64];

    if (!dir[0]) {
        (void)snprintf(dir, sizeof(dir), "/tmp/fuzz_vsock.XXXXXX");
        must(mkdtemp(dir) != NULL);
    }
    return dir;
}

static void addr_of(const struct world *w, uint32_t port,
                    struct sockaddr_un *out)
{
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    if (port)
        (void)snprintf(out->sun_path, sizeof(out->sun_path), "%s_%u", w->path,
                       port);
    else
        (void)snprintf(out->sun_path, sizeof(out->sun_path), "%s", w->path);
}

static int host_listen(const struct world *w, uint32_t port)
{
    struct sockaddr_un addr;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    addr_of(w, port, &addr);
    (void)unlink(addr.sun_path);
    must(bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0);
    must(listen(fd, 2) == 0);
    return fd;
}

static void activate(struct world *w, uint8_t how)
{
    uint64_t f = 0;

    if (how & 1)
        f |= 1ull << VIRTIO_RING_F_EVENT_IDX;
    if (how & 2)
        f |= 1ull << VIRTIO_RING_F_INDIRECT_DESC;
    w->d.next_free = align_up(w->tx + TX_BYTES, 4096);
    must(fdrv_attach(&w->d, w->dev, how & 4 ? 64 : 8, f) == 0);
}

/* Once: sockets, mappings and the loop cost more than a whole script. */
static void world_init(struct world *w)
{
    struct vdev_env env;

    memset(w, 0, sizeof(*w));
    fdrv_init(&w->d, RAM);
    must(evloop_new(EVLOOP_EPOLL, &w->loop) == 0);
    log_init(&w->log, -1, LOG_OFF, "fuzz");
    (void)snprintf(w->path, sizeof(w->path), "%s/v", work_dir());
    env.mem = w->d.mem;
    env.loop = w->loop;
    env.log = &w->log;
    must(vvsock_new(&env, CID, w->path, &w->dev, NULL) == 0);
    for (size_t i = 0; i < HOST_FDS; i++)
        w->fds[i] = -1;
    for (uint32_t i = 0; i < 2; i++)
        w->listen_fd[i] = host_listen(w, i + 1);
    w->rx = fdrv_alloc(&w->d, RX_BYTES * RX_COUNT, 64);
    w->tx = fdrv_alloc(&w->d, TX_BYTES, 64);
}

static void on_stop(struct ev_timer *t)
{
    evloop_stop(t->arg);
}

static void turn(struct world *w)
{
    struct ev_timer t = {0};

    must(evloop_timer_arm(w->loop, &t, 0, on_stop, w->loop) == 0);
    must(evloop_run(w->loop) == 0);
}

/* --- the guest ----------------------------------------------------------- */

static uint32_t pick_host_port(const struct world *w, struct input *in)
{
    uint8_t k = take(in);

    if (w->num_ports > 0 && (k & 3))
        return w->host_ports[k % w->num_ports];
    return k >> 2; /* 1 and 2 are listened on */
}

static struct vsock_pkt make_packet(struct world *w, struct input *in)
{
    static const uint32_t allocs[] = {0, 1, 4096, 262144, UINT32_MAX};
    struct vsock_pkt p = {
        .src_cid = CID, .dst_cid = 2, .type = VIRTIO_VSOCK_TYPE_STREAM};
    uint8_t how = take(in);

    p.op = how % 8;
    p.src_port = 50 + take(in) % 4u;
    p.dst_port = pick_host_port(w, in);
    p.buf_alloc = allocs[take(in) % ARRAY_SIZE(allocs)];
    for (uint32_t i = 0; i < w->num_ports; i++) {
        if (w->host_ports[i] == p.dst_port)
            p.fwd_cnt = w->fwd[i];
    }
    if (p.op == VIRTIO_VSOCK_OP_SHUTDOWN)
        p.flags = take(in);
    if (p.op == VIRTIO_VSOCK_OP_RW)
        p.len = take16(in) >> (how >> 5);
    if ((how & 0x18) == 0x18) {
        switch (take(in) % 8) { /* one rule is broken */
        case 0:
            p.src_cid = take32(in);
            break;
        case 1:
            p.dst_cid = take32(in);
            break;
        case 2:
            p.type = (uint16_t)take16(in);
            break;
        case 3:
            p.op = (uint16_t)take16(in);
            break;
        case 4:
            p.len = take32(in);
            break;
        case 5:
            p.fwd_cnt = take32(in);
            break;
        case 6:
            p.dst_port = take32(in);
            break;
        default:
            p.flags = take32(in);
            break;
        }
    }
    return p;
}

static void reap(struct world *w, uint16_t q)
{
    uint32_t head;
    uint32_t len;

    while (w->d.q[q].num_free < w->d.q[q].size &&
           fdrv_used(&w->d, q, &head, &len))
        continue;
}

static void guest_send(struct world *w, struct input *in)
{
    struct vsock_pkt p = make_packet(w, in);
    struct virtio_vsock_hdr hdr;
    struct fdrv_seg segs[8];
    uint8_t cut = take(in);
    uint32_t total = (uint32_t)min_u64(44 + (uint64_t)p.len, TX_BYTES);
    uint32_t at = 0;
    uint16_t n = 0;

    if (cut & 0x80)
        total = total * (cut & 7) / 8; /* shorter than it says */
    vsock_pkt_encode(&p, &hdr);
    fdrv_write(&w->d, w->tx, &hdr, sizeof(hdr));
    reap(w, 1);
    while ((at < total || n == 0) && n < 8 && n < w->d.q[1].num_free) {
        uint32_t part = n < 7 && (cut & 0x40) ? (cut & 63u) + 1 : total - at;

        if (part > total - at)
            part = total - at;
        segs[n++] = (struct fdrv_seg){w->tx + at, part, false};
        at += part;
    }
    if (n > 0)
        (void)fdrv_add(&w->d, 1, segs, n);
    fdrv_kick(&w->d, 1);
}

static void guest_post(struct world *w, struct input *in)
{
    static const uint32_t sizes[] = {43, 44, 45, 100, 1500, 4096, RX_BYTES};
    uint8_t how = take(in);
    uint32_t size = sizes[how % ARRAY_SIZE(sizes)];

    for (uint32_t i = 0; i < how / 8u + 1 && w->d.q[0].num_free >= 2; i++) {
        gpa_t at = w->rx + RX_BYTES * (w->rx_next++ % RX_COUNT);
        struct fdrv_seg segs[2] = {{at, size / 3, true},
                                   {at + size / 3, size - size / 3, true}};

        (void)fdrv_add(&w->d, 0, segs, 2);
    }
    fdrv_kick(&w->d, 0);
}

static void learn(struct world *w, const struct vsock_pkt *p)
{
    uint32_t i = 0;

    while (i < w->num_ports && w->host_ports[i] != p->src_port)
        i++;
    if (i == NUM_PORTS)
        return;
    if (i == w->num_ports) {
        w->host_ports[w->num_ports++] = p->src_port;
        w->fwd[i] = 0;
    }
    if (p->op == VIRTIO_VSOCK_OP_REQUEST || p->op == VIRTIO_VSOCK_OP_RESPONSE)
        w->fwd[i] = 0;
    w->fwd[i] += p->len;
}

static void guest_receive(struct world *w)
{
    struct virtio_vsock_hdr hdr;
    struct vring_desc desc;
    struct vsock_pkt p;
    uint32_t head;
    uint32_t len;

    while (w->d.q[0].num_free < w->d.q[0].size) {
        struct fdrv d = w->d; /* the descriptor is freed by looking */
        gpa_t at;

        if (!fdrv_used(&w->d, 0, &head, &len))
            return;
        fdrv_get_desc(&d, 0, (uint16_t)head, &desc);
        at = desc.addr;
        if (len == 0)
            continue;
        must(len >= 44);
        fdrv_read(&w->d, at, &hdr, sizeof(hdr));
        vsock_pkt_decode(&hdr, &p);
        must(len == 44 + p.len && p.dst_cid == CID);
        must(p.op >= VIRTIO_VSOCK_OP_REQUEST &&
             p.op <= VIRTIO_VSOCK_OP_CREDIT_REQUEST);
        learn(w, &p);
    }
}

/* --- the host ------------------------------------------------------------ */

static void host_dial(struct world *w, struct input *in)
{
    uint8_t how = take(in);
    int *fd = &w->fds[how % HOST_FDS];
    struct sockaddr_un addr;
    char line[48];
    int n =
        snprintf(line, sizeof(line), "CONNECT %u\nabc", 50 + (how >> 3) % 4);

    drop_fd(fd);
    addr_of(w, 0, &addr);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connect(*fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0) {
        drop_fd(fd);
        return;
    }
    if (how & 0x80) {
        n = (int)(take(in) % sizeof(line));
        for (int i = 0; i < n; i++)
            line[i] = (char)take(in);
    }
    (void)!send(*fd, line, (size_t)n, MSG_NOSIGNAL);
}

static void host_act(struct world *w, struct input *in)
{
    static uint8_t buf[65536];
    uint8_t how = take(in);
    int *fd = &w->fds[how % HOST_FDS];
    size_t n = take16(in);

    switch (how >> 5) {
    case 0:
    case 1:
        if (*fd >= 0)
            (void)!send(*fd, buf, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    case 2:
    case 3:
        if (*fd >= 0)
            (void)!recv(*fd, buf, n, MSG_DONTWAIT);
        break;
    case 4:
        if (*fd >= 0)
            (void)shutdown(*fd, (int)(n % 3));
        break;
    case 5:
        drop_fd(fd);
        break;
    default:
        drop_fd(fd);
        *fd = accept4(w->listen_fd[n & 1], NULL, NULL,
                      SOCK_CLOEXEC | SOCK_NONBLOCK);
        break;
    }
}

static void mischief(struct world *w, struct input *in)
{
    uint8_t how = take(in);
    uint16_t q = how & 1;

    if (how & 0x80) {
        must(fdrv_reset(&w->d) == 0);
        w->num_ports = 0;
        activate(w, how >> 1);
        return;
    }
    if ((how & 0x70) == 0x30) {
        must(fdrv_rest(&w->d) == 0);
        turn(w);
        fdrv_wake(&w->d);
    }
    if (how != 77 && how != 78)
        return;
    if (how == 77) {
        fdrv_set_avail_idx(&w->d, q, (uint16_t)take16(in));
    } else {
        uint16_t i = (uint16_t)(take(in) % w->d.q[q].size);
        uint32_t addr = take32(in);
        uint32_t len = take16(in);
        uint16_t flags = take(in) & 7;

        fdrv_set_desc(&w->d, q, i, addr, len, flags, take(in));
    }
    w->dev->ops->queue_kick(w->dev, q);
    /* Its own bookkeeping is void now: start over. */
    must(fdrv_reset(&w->d) == 0);
    w->num_ports = 0;
    activate(w, how);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct world world;

static void world_fini(void)
{
    struct sockaddr_un addr;

    for (uint32_t i = 0; i < 2; i++) {
        addr_of(&world, i + 1, &addr);
        drop_fd(&world.listen_fd[i]);
        (void)unlink(addr.sun_path);
    }
    world.dev->ops->free(world.dev);
    evloop_free(world.loop);
    fdrv_fini(&world.d);
    (void)rmdir(work_dir());
}

/* Whatever happened: after a reset and without peers nothing is left. */
static void end_script(struct world *w)
{
    struct vvsock_stats st;
    int fd;

    turn(w);
    vvsock_get_stats(w->dev, &st);
    /* A step asks for one connection at most. */
    must(st.conns <= MAX_STEPS && st.draining <= st.conns);
    must(fdrv_reset(&w->d) == 0);
    for (size_t i = 0; i < HOST_FDS; i++)
        drop_fd(&w->fds[i]);
    for (uint32_t i = 0; i < 2; i++) {
        while ((fd = accept4(w->listen_fd[i], NULL, NULL, SOCK_CLOEXEC)) >= 0)
            drop_fd(&fd);
    }
    for (int i = 0; i < 12; i++) /* 64 clients are taken in one */
        turn(w);
    vvsock_get_stats(w->dev, &st);
    must(st.conns == 0 && st.draining == 0 && st.waiting == 0);
    must(st.promised_bytes == 0 && st.resets_waiting == 0);
    w->num_ports = 0;
    w->rx_next = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world *w = &world;
    struct input in = {data, size};

    if (!w->dev) {
        world_init(w);
        must(atexit(world_fini) == 0);
    }
    activate(w, take(&in));
    for (int i = 0; i < MAX_STEPS && in.left > 0; i++) {
        switch (take(&in) % 12) {
        case 0:
        case 1:
        case 2:
        case 3:
            guest_send(w, &in);
            break;
        case 4:
        case 5:
            guest_post(w, &in);
            break;
        case 6:
            guest_receive(w);
            break;
        case 7:
            host_dial(w, &in);
            break;
        case 8:
        case 9:
            host_act(w, &in);
            break;
        case 10:
            mischief(w, &in);
            break;
        default:
            turn(w);
            break;
        }
    }
    end_script(w);
    return 0;
}
