/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_console_int.h"

#include <stdatomic.h>
#include <string.h>

/*
 * A console whose machine pauses, is saved and loaded. thread: io
 *
 * At rest the guest's output that a client has not taken yet goes back into its
 * queue, with a note of how far it was sent. A copy has none of the source's
 * clients: that output is dropped there, as any without a client, and the guest
 * is told that the port is closed.
 */

#define VCON_MSG_BITS ((1u << VCON_NUM_MSGS) - 1)

/* --- rest ---------------------------------------------------------------- */

static void vcon_port_rest(struct vcon_port *p)
{
    struct evloop *loop = p->v->dev.env.loop;
    struct virtq *vq = &p->v->dev.vq[vcon_txq(p)];

    evloop_timer_cancel(loop, &p->again);
    evloop_timer_cancel(loop, &p->accept_again);
    if (p->held && !vq->stopped) {
        vq_unpop(vq); /* the last that was taken, and the only one */
        p->begun_bytes = p->sent_bytes;
    }
    p->held = false;
    vcon_port_watch(p);
}

int vcon_rest(struct virtio_dev *dev)
{
    struct vcon *v = vcon_of(dev);

    evloop_timer_cancel(dev->env.loop, &v->ctl_again);
    for (uint32_t i = 0; i < v->num_ports; i++)
        vcon_port_rest(&v->port[i]);
    return 0;
}

void vcon_wake(struct virtio_dev *dev)
{
    struct vcon *v = vcon_of(dev);

    for (uint32_t i = 0; i < v->num_ports; i++) {
        if (v->port[i].tell_closed)
            v->port[i].pending |= 1u << VCON_MSG_OPEN;
        vcon_port_watch(&v->port[i]);
    }
}

/* --- saving -------------------------------------------------------------- */

void vcon_save(struct virtio_dev *dev, struct state_out *out)
{
    struct vcon *v = vcon_of(dev);

    state_put_u8(out, v->driver_ready);
    state_put_u8(out, (uint8_t)v->num_ports);
    for (uint32_t i = 0; i < v->num_ports; i++) {
        const struct vcon_port *p = &v->port[i];

        state_put_str(out, p->name);
        state_put_u8(out, p->ready);
        state_put_u8(out, p->guest_open);
        state_put_u8(out, p->ready && (p->client >= 0 || p->tell_closed));
        state_put_u8(out, (uint8_t)p->pending);
        state_put_u32(out, atomic_load(&p->size));
    }
}

/* --- loading ------------------------------------------------------------- */

struct vcon_port_saved {
    char name[VCON_NAME_MAX + 1];
    bool ready;
    bool guest_open;
    bool had_client;
    uint32_t pending;
    uint32_t size;
};

static int vcon_get_port(const struct vcon_port *p, struct vcon_port_saved *s,
                         struct state_in *in, struct errmsg *err)
{
    state_get_str(in, s->name, sizeof(s->name));
    s->ready = state_get_bool(in);
    s->guest_open = state_get_bool(in);
    s->had_client = state_get_bool(in);
    s->pending = state_get_u8(in);
    s->size = state_get_u32(in);
    if (in->bad || (s->pending & ~VCON_MSG_BITS))
        return -EBADMSG;
    if (strcmp(s->name, p->name) != 0)
        return err_set(err, -EBADMSG,
                       "console port %u was not called \"%s\" when it was "
                       "saved",
                       p->id, p->name);
    return 0;
}

static void vcon_take_port(struct vcon_port *p, const struct vcon_port_saved *s)
{
    p->ready = s->ready;
    p->guest_open = s->guest_open;
    p->pending = s->pending;
    p->tell_closed = s->ready && s->had_client;
    atomic_store(&p->size, s->size);
}

int vcon_load(struct virtio_dev *dev, struct state_in *in, struct errmsg *err)
{
    struct vcon *v = vcon_of(dev);
    struct vcon_port_saved s[ARRAY_SIZE(v->port)];
    bool driver_ready = state_get_bool(in);
    uint32_t num_ports = state_get_u8(in);
    int rc = 0;

    if (in->bad || num_ports != v->num_ports)
        return -EBADMSG;
    for (uint32_t i = 0; i < num_ports && rc == 0; i++)
        rc = vcon_get_port(&v->port[i], &s[i], in, err);
    if (rc == 0)
        rc = state_done(in);
    if (rc)
        return rc;
    v->driver_ready = driver_ready;
    for (uint32_t i = 0; i < num_ports; i++)
        vcon_take_port(&v->port[i], &s[i]);
    return 0;
}
