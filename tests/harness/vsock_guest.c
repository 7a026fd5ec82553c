/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/vsock_guest.h"

#include "vmm/cleanup.h"

#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define VSG_RAM      (32 * MIB)
#define VSG_TX_BYTES 65536u
#define VSG_WAIT_NS  10000000000ull

void vsg_must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "vsock test: %s\n", what);
    abort();
}

/* --- life ---------------------------------------------------------------- */

void vsg_post_rx(struct vsg *g, uint16_t i)
{
    struct fdrv_seg seg = {g->rx_gpa[i], g->opts.rx_bytes, true};
    uint16_t head = fdrv_add(&g->d, VSG_RX, &seg, 1);

    g->rx_of_head[head] = i;
}

void vsg_activate(struct vsg *g)
{
    uint16_t n = g->opts.rx_buffers;

    vsg_must(fdrv_attach(&g->d, g->dev, VSG_MAX_RX, g->opts.features) == 0,
             "activate failed");
    g->tx_busy = 0;
    for (uint16_t i = 0; !g->opts.no_rx && i < n; i++)
        vsg_post_rx(g, i);
    fdrv_kick(&g->d, VSG_RX);
}

static void vsg_init(struct vsg *g, struct evloop *loop,
                     const struct vsg_opts *opts)
{
    struct vdev_env env;
    struct errmsg err = {""};
    const char *tmp = getenv("TMPDIR");
    uint64_t rx_room;

    g->opts = *opts;
    if (g->opts.rx_bytes == 0)
        g->opts.rx_bytes = VSG_RX_BYTES;
    if (g->opts.rx_buffers == 0)
        g->opts.rx_buffers = VSG_MAX_RX;
    fdrv_init(&g->d, VSG_RAM);
    g->loop = loop;
    log_init(&g->log, -1, LOG_OFF, "test");
    (void)snprintf(g->dir, sizeof(g->dir), "%s/vsock.XXXXXX",
                   tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    vsg_must(mkdtemp(g->dir) != NULL, "no temporary directory");
    (void)snprintf(g->path, sizeof(g->path), "%s/v.sock", g->dir);
    env.mem = g->d.mem;
    env.loop = g->loop;
    env.log = &g->log;
    vsg_must(vvsock_new(&env, VSG_CID, g->path, &g->dev, &err) == 0, err.text);
    rx_room = align_up(g->opts.rx_bytes, 64);
    for (uint32_t i = 0; i < g->opts.rx_buffers; i++)
        g->rx_gpa[i] = fdrv_alloc(&g->d, rx_room, 64);
    g->tx_gpa = fdrv_alloc(&g->d, VSG_TX_SLOTS * VSG_TX_BYTES, 4096);
    g->listen_alloc = VSG_SOCK_BUF;
    if (!opts->inactive)
        vsg_activate(g);
}

static void vsg_remove_dir(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    char path[400];

    while (d && (e = readdir(d)) != NULL) {
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        (void)unlink(path);
    }
    if (d)
        (void)closedir(d);
    (void)rmdir(dir);
}

static void vsg_fini(struct vsg *g)
{
    struct vsg_sock *s = g->socks;

    while (s) {
        struct vsg_sock *next = s->next;

        free(s);
        s = next;
    }
    if (g->dev) {
        vsg_must(g->dev->ops->reset(g->dev) == 0, "reset is synchronous");
        g->dev->ops->free(g->dev);
    }
    evloop_free(g->loop);
    vsg_remove_dir(g->dir);
    fdrv_fini(&g->d);
}

struct vsg *vsg_new(enum evloop_backend backend, struct vsg_opts opts)
{
    struct evloop *loop = NULL;
    struct vsg *g;

    if (evloop_new(backend, &loop))
        return NULL;
    g = calloc(1, sizeof(*g));
    vsg_must(g != NULL, "out of memory");
    vsg_init(g, loop, &opts);
    return g;
}

void vsg_free(struct vsg *g)
{
    vsg_fini(g);
    free(g);
}

static void vsg_on_stop(struct ev_timer *t)
{
    evloop_stop(t->arg);
}

static void vsg_on_event(void *arg)
{
    evloop_stop(arg);
}

void vsg_turn(struct vsg *g, uint32_t ms)
{
    struct ev_timer t = {0};

    g->d.on_event = vsg_on_event;
    g->d.on_event_arg = g->loop;
    vsg_must(evloop_timer_arm(g->loop, &t, util_now_ns() + ms * 1000000ull,
                              vsg_on_stop, g->loop) == 0,
             "no timer");
    vsg_must(evloop_run(g->loop) == 0, "the loop failed");
    evloop_timer_cancel(g->loop, &t);
    g->d.on_event = NULL;
}

void vsg_settle(struct vsg *g)
{
    for (int i = 0; i < 5; i++) {
        vsg_turn(g, 1);
        vsg_poll(g);
    }
}

struct vvsock_stats vsg_stats(const struct vsg *g)
{
    struct vvsock_stats st;

    vvsock_get_stats(g->dev, &st);
    return st;
}

/* --- raw packets --------------------------------------------------------- */

struct vsock_pkt vsg_packet(uint16_t op, uint32_t src_port, uint32_t dst_port)
{
    return (struct vsock_pkt){
        .src_cid = VSG_CID,
        .dst_cid = 2,
        .src_port = src_port,
        .dst_port = dst_port,
        .type = VIRTIO_VSOCK_TYPE_STREAM,
        .op = op,
        .buf_alloc = VSG_SOCK_BUF,
    };
}

/* Takes back what the device has used. */
void vsg_reap_tx(struct vsg *g)
{
    uint32_t head;
    uint32_t len;

    while (fdrv_used(&g->d, VSG_TX, &head, &len)) {
        vsg_must(len == 0, "a tx buffer was written to");
        g->tx_busy--;
    }
}

void vsg_send(struct vsg *g, const struct vsock_pkt *pkt, const void *data,
              uint32_t len)
{
    struct virtio_vsock_hdr hdr;
    struct fdrv_seg segs[2];
    gpa_t at = g->tx_gpa + (g->tx_next % VSG_TX_SLOTS) * VSG_TX_BYTES;
    uint64_t end = util_now_ns() + VSG_WAIT_NS;

    for (vsg_reap_tx(g); g->tx_busy == VSG_TX_SLOTS; vsg_reap_tx(g)) {
        vsg_must(util_now_ns() < end, "the tx queue is stuck");
        vsg_turn(g, 1);
    }
    vsg_must(len <= VSG_TX_BYTES - sizeof(hdr), "too long for the harness");
    vsock_pkt_encode(pkt, &hdr);
    fdrv_write(&g->d, at, &hdr, sizeof(hdr));
    segs[0] = (struct fdrv_seg){at, sizeof(hdr), false};
    if (len > 0)
        fdrv_write(&g->d, at + sizeof(hdr), data, len);
    segs[1] = (struct fdrv_seg){at + sizeof(hdr), len, false};
    (void)fdrv_add(&g->d, VSG_TX, segs, len > 0 ? 2 : 1);
    g->tx_next++;
    g->tx_busy++;
    fdrv_kick(&g->d, VSG_TX);
}

bool vsg_recv(struct vsg *g, struct vsock_pkt *out_pkt, void *buf, size_t size)
{
    struct virtio_vsock_hdr hdr;
    uint32_t head;
    uint32_t len;
    uint16_t i;

    if (!fdrv_used(&g->d, VSG_RX, &head, &len))
        return false;
    i = g->rx_of_head[head];
    vsg_must(len >= sizeof(hdr), "a packet without header");
    fdrv_read(&g->d, g->rx_gpa[i], &hdr, sizeof(hdr));
    vsock_pkt_decode(&hdr, out_pkt);
    vsg_must(len == sizeof(hdr) + out_pkt->len, "used length and len differ");
    vsg_must(out_pkt->dst_cid == VSG_CID, "a packet for another guest");
    vsg_must(out_pkt->len <= size || !buf, "a packet too long");
    if (buf)
        fdrv_read(&g->d, g->rx_gpa[i] + sizeof(hdr), buf, out_pkt->len);
    g->last = *out_pkt;
    if (!g->opts.no_rx) {
        vsg_post_rx(g, i);
        fdrv_kick(&g->d, VSG_RX);
    }
    return true;
}

void vsg_expect(struct vsg *g, uint16_t op, struct vsock_pkt *out_pkt)
{
    uint64_t end = util_now_ns() + VSG_WAIT_NS;
    char text[80];

    while (!vsg_recv(g, out_pkt, NULL, 0)) {
        vsg_must(util_now_ns() < end, "no packet came");
        vsg_turn(g, 5);
    }
    (void)snprintf(text, sizeof(text), "expected operation %u, got %u", op,
                   out_pkt->op);
    vsg_must(out_pkt->op == op, text);
}

bool vsg_silent(struct vsg *g)
{
    struct vsock_pkt p;

    for (int i = 0; i < 5; i++) {
        if (vsg_recv(g, &p, NULL, 0))
            return false;
        vsg_turn(g, 1);
    }
    return true;
}

/* --- the host ------------------------------------------------------------ */

static void vsg_addr(struct sockaddr_un *addr, const char *path, uint32_t port)
{
    memset(addr, 0, sizeof(*addr));
    addr->sun_family = AF_UNIX;
    if (port)
        (void)snprintf(addr->sun_path, sizeof(addr->sun_path), "%.90s_%u", path,
                       port);
    else
        (void)snprintf(addr->sun_path, sizeof(addr->sun_path), "%.99s", path);
}

int vsg_host_connect(struct vsg *g)
{
    struct sockaddr_un addr;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    vsg_must(fd >= 0, "no socket");
    vsg_addr(&addr, g->path, 0);
    if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
        drop_fd(&fd);
    return fd;
}

int vsg_host_dial(struct vsg *g, uint32_t port)
{
    char line[40];
    int fd = vsg_host_connect(g);
    int n = snprintf(line, sizeof(line), "CONNECT %u\n", port);

    if (fd >= 0)
        vsg_must(send(fd, line, (size_t)n, MSG_NOSIGNAL) == n, "short send");
    return fd;
}

int vsg_host_listen(struct vsg *g, uint32_t port, int backlog)
{
    struct sockaddr_un addr;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    vsg_addr(&addr, g->path, port);
    vsg_must(fd >= 0 &&
                 bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0 &&
                 listen(fd, backlog) == 0,
             "no listener");
    return fd;
}

bool vsg_host_line(struct vsg *g, int fd, char *buf, size_t size)
{
    uint64_t end = util_now_ns() + VSG_WAIT_NS;
    size_t len = 0;

    while (len < size - 1) {
        ssize_t n = recv(fd, buf + len, 1, MSG_DONTWAIT);

        if (n == 1 && buf[len++] == '\n')
            break;
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return false;
        if (n < 0) {
            vsg_must(util_now_ns() < end, "no line came");
            vsg_turn(g, 1);
            vsg_poll(g);
        }
    }
    buf[len] = '\0';
    return true;
}

ssize_t vsg_host_read(struct vsg *g, int fd, void *buf, size_t size)
{
    uint64_t end = util_now_ns() + VSG_WAIT_NS;

    for (;;) {
        ssize_t n = recv(fd, buf, size, MSG_DONTWAIT);

        if (n >= 0)
            return n;
        if (errno != EAGAIN)
            return neg_errno();
        vsg_must(util_now_ns() < end, "no bytes came");
        vsg_turn(g, 1);
        vsg_poll(g);
    }
}

int vsg_dial(struct vsg *g, uint32_t port, struct vsg_sock **out_s)
{
    char line[40];
    unsigned host_port = 0;
    int fd;

    g->listen_port = port;
    fd = vsg_host_dial(g, port);
    vsg_must(fd >= 0 && vsg_host_line(g, fd, line, sizeof(line)), "no OK");
    vsg_must(sscanf(line, "OK %u\n", &host_port) == 1, "a strange line");
    vsg_must(host_port >= 1u << 30 && host_port < 1u << 31, "a strange port");
    *out_s = vsg_find(g, port, host_port);
    vsg_must(*out_s != NULL, "the guest knows of no connection");
    return fd;
}

uint32_t vsg_count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    uint32_t n = 0;

    vsg_must(d != NULL, "no /proc/self/fd");
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n;
}
