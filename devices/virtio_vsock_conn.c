/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock_int.h"

#include <linux/vm_sockets.h>
#include <stdlib.h>
#include <sys/socket.h>

/* virtio-vsock: connections, from their birth to their end. thread: io */

static void vv_on_timer(struct ev_timer *t);
static void vv_dial_later(struct vvsock *vv);

/* --- the table ----------------------------------------------------------- */

/* Keyed, since the guest chooses the ports: it cannot aim at one bucket. */
static uint32_t vv_hash(const struct vvsock *vv, uint32_t host_port,
                        uint32_t guest_port)
{
    uint64_t x = (((uint64_t)host_port << 32) | guest_port) ^ vv->hash_key;

    x *= (vv->hash_key << 1) | 1;
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15ull;
    return (uint32_t)(x >> (64 - VV_HASH_BITS));
}

struct vv_conn *vv_conn_find(const struct vvsock *vv, uint32_t host_port,
                             uint32_t guest_port)
{
    struct vv_conn *c = vv->table[vv_hash(vv, host_port, guest_port)];

    while (c && (c->host_port != host_port || c->guest_port != guest_port))
        c = c->hash_next;
    return c;
}

static void vv_conn_unhash(struct vv_conn *c)
{
    struct vvsock *vv = c->vv;
    struct vv_conn **at = &vv->table[vv_hash(vv, c->host_port, c->guest_port)];

    if (!c->hashed)
        return;
    while (*at != c)
        at = &(*at)->hash_next;
    *at = c->hash_next;
    c->hashed = false;
}

/* --- birth and end ------------------------------------------------------- */

/* What the guest may send ahead: less once many connections have a claim. */
static uint32_t vv_buf_bytes(const struct vvsock *vv)
{
    return vv->promised + VV_BUF_BYTES <= VV_PROMISE_BYTES ? VV_BUF_BYTES
                                                           : VV_BUF_SMALL_BYTES;
}

/* NULL: too many, or no memory. The caller fills `sm` first of all. */
static struct vv_conn *vv_conn_new(struct vvsock *vv, uint32_t host_port,
                                   uint32_t guest_port)
{
    struct vv_conn *c = NULL;
    uint32_t h = vv_hash(vv, host_port, guest_port);

    if (vv->num_conns < VVSOCK_MAX_CONNS)
        c = calloc(1, sizeof(*c));
    if (!c) {
        vv->stats.refused++;
        log_limited(vv->dev.env.log, &vv->limit, LOG_WARN,
                    "vsock: a connection is refused: there are %u already",
                    vv->num_conns);
        return NULL;
    }
    c->vv = vv;
    c->host_port = host_port;
    c->guest_port = guest_port;
    c->fd = -1;
    c->sm.buf_alloc = vv_buf_bytes(vv);
    c->hash_next = vv->table[h];
    vv->table[h] = c;
    c->hashed = true;
    TAILQ_INSERT_TAIL(&vv->conns, c, link);
    vv->num_conns++;
    counter_add(&vv->stats.begun, 1);
    vv->promised += c->sm.buf_alloc;
    return c;
}

static void vv_conn_push_reset(const struct vv_conn *c)
{
    struct vsock_pkt rst = {
        .src_cid = VMADDR_CID_HOST,
        .src_port = c->host_port,
        .dst_port = c->guest_port,
        .type = VIRTIO_VSOCK_TYPE_STREAM,
    };

    /* The guest has never heard of it. */
    if (c->sm.state == VSC_ASKED && !c->sm.request_sent)
        return;
    vv_reset_push(c->vv, &rst);
}

static void vv_conn_undial(struct vv_conn *c)
{
    if (c->dial_waits)
        TAILQ_REMOVE(&c->vv->dialing, c, dial_link);
    c->dial_waits = false;
}

void vv_conn_end(struct vv_conn *c, bool reset)
{
    struct vvsock *vv = c->vv;

    if (reset && c->hashed) {
        counter_add(&vv->stats.cut, 1);
        vv_conn_push_reset(c);
    }
    if (!c->hashed)
        vv->num_draining--;
    vv_conn_unhash(c);
    vv_conn_unready(c);
    vv_conn_undial(c);
    vv_conn_close_fd(c);
    evloop_timer_cancel(vv->dev.env.loop, &c->timer);
    TAILQ_REMOVE(&vv->conns, c, link);
    vv->num_conns--;
    counter_add(&vv->stats.ended, 1);
    vv->promised -= c->sm.buf_alloc;
    free(c);
}

void vv_conn_end_all(struct vvsock *vv, bool draining_too)
{
    struct vv_conn *c = TAILQ_FIRST(&vv->conns);

    while (c) {
        struct vv_conn *next = TAILQ_NEXT(c, link);

        if (c->hashed || draining_too)
            vv_conn_end(c, false);
        c = next;
    }
}

void vv_conn_ready(struct vv_conn *c)
{
    if (c->queued || !c->hashed)
        return;
    TAILQ_INSERT_TAIL(&c->vv->ready, c, ready_link);
    c->queued = true;
}

void vv_conn_unready(struct vv_conn *c)
{
    if (!c->queued)
        return;
    TAILQ_REMOVE(&c->vv->ready, c, ready_link);
    c->queued = false;
}

void vv_conn_closed(struct vv_conn *c)
{
    vv_conn_push_reset(c);
    if (c->out.len == 0) {
        vv_conn_end(c, false);
        return;
    }
    vv_conn_unhash(c);
    vv_conn_unready(c);
    c->vv->num_draining++;
    evloop_timer_cancel(c->vv->dev.env.loop, &c->timer);
    (void)shutdown(c->fd, SHUT_RD); /* fails where the peer has gone */
    (void)vv_conn_watch(c);         /* c is not used any more */
}

/* --- clients of the host ------------------------------------------------- */

static uint32_t vv_pick_port(struct vvsock *vv, uint32_t guest_port)
{
    uint32_t port;

    /* Ends: there are far more ports than connections. */
    do {
        port = VV_PORT_FIRST + vv->next_port;
        vv->next_port = (vv->next_port + 1) % VV_PORT_COUNT;
    } while (vv_conn_find(vv, port, guest_port));
    return port;
}

void vv_conn_from_host(struct vvsock *vv, int fd, uint32_t guest_port)
{
    struct vv_conn *c = NULL;

    if (vv->active)
        c = vv_conn_new(vv, vv_pick_port(vv, guest_port), guest_port);
    if (!c) {
        vsu_close(&fd);
        return;
    }
    vsc_init_host(&c->sm, c->sm.buf_alloc);
    c->by_host = true;
    c->fd = fd;
    if (!vv_conn_arm(c, util_now_ns() + VV_ANSWER_NS))
        return;
    vv_conn_ready(c);
    if (vv_conn_watch(c))
        vv_run(vv);
}

/* --- clients of the guest ------------------------------------------------ */

static void vv_conn_refuse(struct vv_conn *c, int rc)
{
    struct vvsock *vv = c->vv;

    vv->stats.refused++;
    if (rc == -ENAMETOOLONG)
        log_limited(vv->dev.env.log, &vv->limit, LOG_WARN,
                    "vsock: guest connection to port %u is refused: the "
                    "socket's path would be longer than %u bytes",
                    c->host_port, VSU_PATH_MAX);
    else
        log_limited(vv->dev.env.log, &vv->limit, LOG_DEBUG,
                    "vsock: guest connection to port %u is refused: %s",
                    c->host_port, err_reason(rc));
    vv_conn_end(c, true);
}

/* -EAGAIN: to be tried again; else c is not to be used any more. */
static int vv_conn_dial(struct vv_conn *c)
{
    struct vvsock *vv = c->vv;
    int rc = vsu_dial(vv->vsu, c->host_port, &c->fd);

    if (rc == -EAGAIN)
        return rc;
    vv_conn_undial(c);
    if (rc) {
        vv_conn_refuse(c, rc);
        return 0;
    }
    vv->stats.opened++;
    vsc_host_connected(&c->sm);
    vv_conn_ready(c);
    (void)vv_conn_watch(c); /* it may have ended */
    return 0;
}

/* Whether others wait for the same listener. */
static bool vv_dial_is_crowded(const struct vvsock *vv, uint32_t host_port)
{
    const struct vv_conn *c = TAILQ_FIRST(&vv->dialing);

    while (c && c->host_port != host_port)
        c = TAILQ_NEXT(c, dial_link);
    return c != NULL;
}

/* Listeners that were found full in this round need no second try. */
struct vv_full {
    uint32_t num;
    uint32_t ports[8];
};

static bool vv_full_has(const struct vv_full *f, uint32_t host_port)
{
    for (uint32_t i = 0; i < f->num; i++) {
        if (f->ports[i] == host_port)
            return true;
    }
    return false;
}

static void vv_on_dial(struct ev_timer *t)
{
    struct vvsock *vv = t->arg;
    struct vv_conn *c = TAILQ_FIRST(&vv->dialing);
    struct vv_full full = {0};
    uint64_t now = util_now_ns();
    uint32_t tries = VV_DIAL_TRIES;

    while (c) {
        struct vv_conn *next = TAILQ_NEXT(c, dial_link);
        uint32_t port = c->host_port;

        if (now >= c->dial_until_ns) {
            vv_conn_undial(c);
            vv_conn_refuse(c, -EAGAIN);
        } else if (tries > 0 && !vv_full_has(&full, port)) {
            tries--;
            if (vv_conn_dial(c) == -EAGAIN && full.num < ARRAY_SIZE(full.ports))
                full.ports[full.num++] = port;
        }
        c = next;
    }
    vv_dial_later(vv);
    vv_run(vv);
}

/*
 * A Unix socket connects at once or fails. Where the listener's backlog is
 * full there is no event to wait for; so those who wait are tried every now
 * and then, in the order in which they came.
 */
static void vv_dial_later(struct vvsock *vv)
{
    struct vv_conn *c;

    if (TAILQ_EMPTY(&vv->dialing) || vv->dial_timer.heap_index_)
        return;
    if (evloop_timer_arm(vv->dev.env.loop, &vv->dial_timer,
                         util_now_ns() + VV_DIAL_PAUSE_NS, vv_on_dial, vv) == 0)
        return;
    c = TAILQ_FIRST(&vv->dialing);
    while (c) {
        struct vv_conn *next = TAILQ_NEXT(c, dial_link);

        vv_conn_undial(c);
        vv_conn_refuse(c, -ENOMEM);
        c = next;
    }
}

void vv_conn_from_guest(struct vvsock *vv, const struct vsock_pkt *pkt)
{
    struct vv_conn *c = vv_conn_new(vv, pkt->dst_port, pkt->src_port);
    bool crowded = vv_dial_is_crowded(vv, pkt->dst_port);
    struct vsock_pkt rst;

    if (!c) {
        rst = vsock_pkt_reset_for(pkt);
        vv_reset_push(vv, &rst);
        return;
    }
    vsc_init_guest(&c->sm, pkt, c->sm.buf_alloc);
    if (!crowded && vv_conn_dial(c) == 0)
        return;
    c->dial_until_ns = util_now_ns() + VV_DIAL_NS;
    c->dial_waits = true;
    TAILQ_INSERT_TAIL(&vv->dialing, c, dial_link);
    vv_dial_later(vv);
}

/* --- time --------------------------------------------------------------- */

static uint64_t vv_left_ns(uint64_t deadline_ns, uint64_t now)
{
    return deadline_ns > now ? deadline_ns - now : 1;
}

bool vv_conn_arm(struct vv_conn *c, uint64_t deadline_ns)
{
    if (vv_resting(c->vv)) {
        c->left_ns = vv_left_ns(deadline_ns, util_now_ns());
        return true;
    }
    if (evloop_timer_arm(c->vv->dev.env.loop, &c->timer, deadline_ns,
                         vv_on_timer, c) == 0)
        return true;
    vv_conn_end(c, true);
    return false;
}

static void vv_on_timer(struct ev_timer *t)
{
    struct vv_conn *c = t->arg;
    struct vvsock *vv = c->vv;

    /* No answer to a REQUEST, or none to a SHUTDOWN. */
    if (c->sm.state == VSC_ASKED)
        vv->stats.refused++;
    vv_conn_end(c, true);
    vv_run(vv);
}

/* --- rest ---------------------------------------------------------------- */

void vv_conns_rest(struct vvsock *vv)
{
    struct vv_conn *c = TAILQ_FIRST(&vv->conns);
    uint64_t now = util_now_ns();

    evloop_timer_cancel(vv->dev.env.loop, &vv->dial_timer);
    while (c) {
        struct vv_conn *next = TAILQ_NEXT(c, link);

        c->left_ns = 0;
        if (c->timer.heap_index_ != 0)
            c->left_ns = vv_left_ns(c->timer.deadline_ns, now);
        evloop_timer_cancel(vv->dev.env.loop, &c->timer);
        if (c->dial_waits)
            c->dial_until_ns = vv_left_ns(c->dial_until_ns, now);
        (void)vv_conn_watch(c); /* c is not used any more */
        c = next;
    }
}

void vv_conns_wake(struct vvsock *vv)
{
    struct vv_conn *c = TAILQ_FIRST(&vv->conns);
    uint64_t now = util_now_ns();

    while (c) {
        struct vv_conn *next = TAILQ_NEXT(c, link);
        uint64_t left_ns = c->left_ns;

        c->left_ns = 0;
        if (c->dial_waits)
            c->dial_until_ns += now;
        if (left_ns == 0 || vv_conn_arm(c, now + left_ns))
            (void)vv_conn_watch(c); /* c is not used any more */
        c = next;
    }
    vv_dial_later(vv);
}
