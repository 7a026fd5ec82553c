/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_console_int.h"

#include "vmm/le.h"

#include <linux/virtio_console.h>
#include <stdatomic.h>
#include <string.h>

/*
 * The control queues of a console with several ports.
 * spec: virtio-1.2 5.3.6. thread: io
 *
 * What the driver is to be told is kept as a few bits for each port and put
 * into words when it has offered a buffer: however often it asks, nothing
 * piles up.
 */

#define VCON_CTL_BYTES sizeof(struct virtio_console_control)
/* The longest message: the port's name. */
#define VCON_CTL_MAX (VCON_CTL_BYTES + VCON_NAME_MAX)

_Static_assert(VCON_CTL_BYTES == 8, "wire format");

static void vcon_ctl_later(struct vcon *v);

/* --- to the driver ------------------------------------------------------- */

static bool vcon_is_open(const struct vcon_port *p)
{
    return p->id == 0 || (p->client >= 0 && !p->tell_closed);
}

/* Returns the message's length. */
static size_t vcon_ctl_build(const struct vcon_port *p, enum vcon_message msg,
                             uint8_t out[VCON_CTL_MAX])
{
    static const uint16_t events[VCON_NUM_MSGS] = {
        [VCON_MSG_ADD] = VIRTIO_CONSOLE_PORT_ADD,
        [VCON_MSG_CONSOLE] = VIRTIO_CONSOLE_CONSOLE_PORT,
        [VCON_MSG_NAME] = VIRTIO_CONSOLE_PORT_NAME,
        [VCON_MSG_RESIZE] = VIRTIO_CONSOLE_RESIZE,
        [VCON_MSG_OPEN] = VIRTIO_CONSOLE_PORT_OPEN,
    };
    size_t len = VCON_CTL_BYTES;

    put_le32(out, p->id);
    put_le16(out + 4, events[msg]);
    put_le16(out + 6, msg == VCON_MSG_OPEN ? vcon_is_open(p) : 1);
    if (msg == VCON_MSG_RESIZE) {
        /* cols, then rows. spec: virtio-1.2 5.3.6.2 */
        put_le32(out + len, atomic_load(&p->size));
        len += 4;
    }
    if (msg == VCON_MSG_NAME) {
        size_t n = strlen(p->name); /* goes without its NUL */

        memcpy(out + len, p->name, n);
        len += n;
    }
    return len;
}

/* Whether it went: a buffer too small for it goes back empty. */
static bool vcon_ctl_send(struct vcon *v, const struct vcon_port *p,
                          enum vcon_message msg)
{
    uint8_t text[VCON_CTL_MAX];
    size_t len = vcon_ctl_build(p, msg, text);
    bool fits = v->chain.writable_bytes >= len;

    if (fits)
        (void)vq_chain_write(&v->chain, 0, text, len);
    else
        vcon_complain(v, "offered a control buffer that is too small");
    vq_push(&v->dev.vq[VCON_CTL_RX], v->chain.head, fits ? (uint32_t)len : 0);
    return fits;
}

/* The next thing to say; false: all is said. */
static bool vcon_ctl_next(struct vcon *v, struct vcon_port **out_port,
                          enum vcon_message *out_msg)
{
    for (uint32_t i = 0; i < v->num_ports; i++) {
        struct vcon_port *p = &v->port[i];

        for (int m = 0; m < VCON_NUM_MSGS; m++) {
            if (!(p->pending & 1u << m))
                continue;
            *out_port = p;
            *out_msg = (enum vcon_message)m;
            return true;
        }
    }
    return false;
}

static void vcon_ctl_said(struct vcon_port *p, enum vcon_message msg)
{
    p->pending &= ~(1u << msg);
    if (msg != VCON_MSG_OPEN || !p->tell_closed)
        return;
    p->tell_closed = false;
    if (vcon_is_open(p))
        p->pending |= 1u << VCON_MSG_OPEN; /* a new client, meanwhile */
    vcon_port_watch(p);
}

void vcon_ctl_flush(struct vcon *v)
{
    struct virtq *vq = &v->dev.vq[VCON_CTL_RX];
    uint32_t budget = vq->size;
    struct vcon_port *p = NULL;
    enum vcon_message msg = VCON_MSG_ADD;
    int rc = 0;

    if (!v->active || vcon_resting(v) || !vcon_multiport(v) || vq->size == 0)
        return; /* nobody listens, or not yet */
    do {
        while (budget > 0 && vcon_ctl_next(v, &p, &msg) &&
               (rc = vq_pop(vq, &v->chain)) > 0) {
            budget--;
            if (vcon_ctl_send(v, p, msg))
                vcon_ctl_said(p, msg);
        }
    } while (rc == 0 && budget > 0 && vcon_ctl_next(v, &p, &msg) &&
             vq_enable_kicks(vq));
    virtio_signal(&v->dev, VCON_CTL_RX);
    if (rc < 0)
        virtio_needs_reset(&v->dev);
    else if (budget == 0)
        vcon_ctl_later(v);
}

void vcon_ctl_tell(struct vcon_port *p, enum vcon_message msg)
{
    if (!p->ready)
        return; /* told when the driver is ready for the port */
    p->pending |= 1u << msg;
    vcon_ctl_flush(p->v);
}

/* --- from the driver ----------------------------------------------------- */

static void vcon_on_device_ready(struct vcon *v, uint16_t g_value)
{
    if (g_value != 1 || v->driver_ready)
        return; /* it cannot use the device, or says so again */
    v->driver_ready = true;
    for (uint32_t i = 0; i < v->num_ports; i++)
        v->port[i].pending |= 1u << VCON_MSG_ADD;
}

static void vcon_on_port_ready(struct vcon_port *p, uint16_t g_value)
{
    p->ready = g_value == 1;
    if (!p->ready)
        return;
    if (p->id == 0)
        p->pending |= 1u << VCON_MSG_CONSOLE;
    if (p->name[0])
        p->pending |= 1u << VCON_MSG_NAME;
    if (atomic_load(&p->size))
        p->pending |= 1u << VCON_MSG_RESIZE;
    p->pending |= 1u << VCON_MSG_OPEN;
}

static void vcon_on_message(struct vcon *v)
{
    uint8_t g_msg[VCON_CTL_BYTES];
    struct vcon_port *p;
    uint32_t id;

    if (vq_chain_read(&v->chain, 0, g_msg, sizeof(g_msg)) != sizeof(g_msg)) {
        vcon_complain(v, "sent a control message that is too short");
        return;
    }
    id = get_le32(g_msg);
    if (get_le16(g_msg + 4) == VIRTIO_CONSOLE_DEVICE_READY) {
        vcon_on_device_ready(v, get_le16(g_msg + 6));
        return;
    }
    if (id >= v->num_ports) {
        vcon_complain(v, "named a port that is not there");
        return;
    }
    p = &v->port[id];
    switch (get_le16(g_msg + 4)) {
    case VIRTIO_CONSOLE_PORT_READY:
        vcon_on_port_ready(p, get_le16(g_msg + 6));
        break;
    case VIRTIO_CONSOLE_PORT_OPEN:
        p->guest_open = get_le16(g_msg + 6) != 0;
        vcon_port_watch(p);
        break;
    default:
        vcon_complain(v, "sent a control message of an unknown kind");
    }
}

void vcon_ctl_receive(struct vcon *v)
{
    struct virtq *vq = &v->dev.vq[VCON_CTL_TX];
    uint32_t budget = vq->size;
    int rc = 0;

    if (vq->size == 0) {
        vcon_ctl_flush(v); /* a driver that only listens */
        return;
    }
    do {
        vq_disable_kicks(vq);
        while (budget > 0 && (rc = vq_pop(vq, &v->chain)) > 0) {
            /* What follows from a message may be a message of ours, which
             * needs the scratch chain. */
            uint16_t head = v->chain.head;

            budget--;
            vcon_on_message(v);
            vq_push(vq, head, 0);
        }
    } while (rc == 0 && budget > 0 && vq_enable_kicks(vq));
    virtio_signal(&v->dev, VCON_CTL_TX);
    if (rc < 0) {
        virtio_needs_reset(&v->dev);
        return;
    }
    vcon_ctl_flush(v);
    if (budget == 0)
        vcon_ctl_later(v);
}

static void vcon_ctl_on_again(struct ev_timer *t)
{
    vcon_ctl_receive(t->arg);
}

static void vcon_ctl_later(struct vcon *v)
{
    if (evloop_timer_arm(v->dev.env.loop, &v->ctl_again, 0, vcon_ctl_on_again,
                         v))
        virtio_needs_reset(&v->dev);
}
