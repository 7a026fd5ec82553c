/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_console_int.h"

#include "vmm/errmsg.h"

#include <linux/virtio_console.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/*
 * The bytes of one port of the console. Port 0 has two descriptors, the others
 * a socket (virtio_console_sock.c). spec: virtio-1.2 5.3.6. thread: io
 */

#define VCON_RX_BYTES   4096u /* read from the host at a time */
#define VCON_RX_SEGS    16u
#define VCON_TURN_BYTES (256 * KIB) /* sent to a client in one turn */

/* --- output -------------------------------------------------------------- */

/* More than the buffer holds could only be dropped: it is not even copied. */
static void vcon_port_print(struct vcon_port *p)
{
    uint64_t left = min_u64(p->tx.readable_bytes, CHAR_OUT_BUFFER_BYTES);

    for (uint16_t i = 0; p->out && i < p->tx.num_readable && left > 0; i++) {
        size_t len = min_u64(p->tx.iov[i].iov_len, left);

        char_out_write(p->out, p->tx.iov[i].iov_base, len);
        left -= len;
    }
}

/* False: the request waits for the client, or for the next turn. */
static bool vcon_port_send(struct vcon_port *p, uint64_t *budget_bytes)
{
    if (!vcon_has_socket(p)) {
        vcon_port_print(p);
        return true;
    }
    return vcon_sock_send(p, budget_bytes) != 0;
}

static void vcon_port_on_again(struct ev_timer *t)
{
    vcon_port_tx(t->arg);
}

void vcon_port_tx(struct vcon_port *p)
{
    struct vcon *v = p->v;
    struct virtq *vq = &v->dev.vq[vcon_txq(p)];
    uint32_t heads = vq->size;
    uint64_t bytes = VCON_TURN_BYTES;
    int rc = 0;

    if (!v->active || vcon_resting(v) || vq->size == 0)
        return;              /* the driver has not set this queue up */
    p->held &= !vq->stopped; /* else what waits is the driver's again */
    do {
        vq_disable_kicks(vq);
        while (p->held || (heads > 0 && (rc = vq_pop(vq, &p->tx)) > 0)) {
            if (!p->held) {
                heads--;
                p->sent_bytes = p->begun_bytes;
                p->begun_bytes = 0;
                p->held = true;
            }
            if (!vcon_port_send(p, &bytes))
                break;
            p->held = false;
            vq_push(vq, p->tx.head, 0);
        }
    } while (rc == 0 && !p->held && heads > 0 && vq_enable_kicks(vq));
    virtio_signal(&v->dev, vcon_txq(p));
    if (rc >= 0 && (heads == 0 || bytes == 0))
        rc = evloop_timer_arm(v->dev.env.loop, &p->again, 0, vcon_port_on_again,
                              p);
    if (rc < 0)
        virtio_needs_reset(&v->dev);
    vcon_port_watch(p);
}

/* --- input --------------------------------------------------------------- */

/* Bytes read into the guest's buffer, 0 at the end of input, or -errno. */
static ssize_t vcon_receive(struct vcon *v, int fd)
{
    const struct iovec *src = v->chain.iov + v->chain.num_readable;
    struct iovec iov[VCON_RX_SEGS];
    size_t left = VCON_RX_BYTES;
    int n = 0;
    ssize_t got;

    while (n < (int)VCON_RX_SEGS && n < v->chain.num_writable && left > 0) {
        iov[n].iov_base = src[n].iov_base;
        iov[n].iov_len = min_u64(src[n].iov_len, left);
        left -= iov[n].iov_len;
        n++;
    }
    got = readv(fd, iov, n);
    return got < 0 ? neg_errno() : got;
}

int vcon_port_rx(struct vcon_port *p, int fd)
{
    struct vcon *v = p->v;
    struct virtq *vq = &v->dev.vq[vcon_rxq(p)];
    ssize_t got;
    int rc;

    vq_disable_kicks(vq);
    rc = vq_pop(vq, &v->chain);
    if (rc == 0 && vq_enable_kicks(vq))
        return 0; /* buffers came meanwhile: the watch calls again */
    if (rc <= 0) {
        p->room = false; /* until the next kick */
        if (rc < 0)
            virtio_needs_reset(&v->dev);
        return 0;
    }
    /* A buffer without room for a byte goes back as it came. */
    got = v->chain.writable_bytes > 0 ? vcon_receive(v, fd) : 0;
    if (got > 0 || v->chain.writable_bytes == 0) {
        vq_push(vq, v->chain.head, (uint32_t)got);
        virtio_signal(&v->dev, vcon_rxq(p));
        return 0;
    }
    vq_unpop(vq);
    if (got == -EINTR || got == -EAGAIN)
        return 0;
    return got == 0 ? -ENODATA : (int)got;
}

static void vcon_port_end_input(struct vcon_port *p, int rc)
{
    p->in_gone = true;
    if (rc != -ENODATA)
        log_msg(p->v->dev.env.log, LOG_INFO, "console input ended: %s",
                err_reason(rc));
}

static void vcon_port_on_input(struct ev_fd *w, uint32_t revents)
{
    struct vcon_port *p = w->arg;
    int rc = vcon_port_rx(p, p->in_fd);

    (void)revents; /* a hang-up reads as end of file or as an error */
    if (rc)
        vcon_port_end_input(p, rc);
    vcon_port_watch(p);
}

/* --- what the port waits for --------------------------------------------- */

void vcon_port_watch(struct vcon_port *p)
{
    struct evloop *loop = p->v->dev.env.loop;
    int rc;

    if (vcon_has_socket(p)) {
        vcon_sock_watch(p);
        return;
    }
    if (!p->v->active || vcon_resting(p->v) || !p->room || p->in_gone) {
        evloop_fd_del(loop, &p->in);
        return;
    }
    if (p->in.slot_ != 0)
        return;
    rc = evloop_fd_add(loop, &p->in, p->in_fd, POLLIN, vcon_port_on_input, p);
    if (rc)
        vcon_port_end_input(p, rc);
}

void vcon_port_room(struct vcon_port *p)
{
    p->room = true;
    vcon_port_watch(p);
}

void vcon_port_reset(struct vcon_port *p)
{
    p->room = false;
    p->ready = false;
    p->guest_open = false;
    p->pending = 0;
    p->tell_closed = false;
    p->held = false;
    p->begun_bytes = 0;
    evloop_timer_cancel(p->v->dev.env.loop, &p->again);
    vcon_port_watch(p);
}
