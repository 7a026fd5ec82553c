/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock_int.h"

#include <linux/virtio_vsock.h>
#include <linux/vm_sockets.h>

/*
 * A virtio-vsock device whose machine pauses, is saved and loaded. thread: io
 *
 * The connections of a machine that goes on live on. Those of a copy do not:
 * their sockets belong to another process. So a copy resets each of them, and
 * tells the driver that the transport was reset (virtio-1.2 5.10.6.7), at which
 * it ends all of its connections, also one that came about after the save.
 * That is why nobody is let in before the driver has seen to it, which shows in
 * the event's buffer being offered anew.
 */

/* --- the gate ------------------------------------------------------------ */

static void vv_gate_open(struct vvsock *vv)
{
    vv->gated = false;
    vv->reset_owed = false;
    vv->gate_waits = false;
    evloop_timer_cancel(vv->dev.env.loop, &vv->gate_timer);
    vq_disable_kicks(&vv->dev.vq[VV_EVENT_QUEUE]);
    vsu_wake(vv->vsu);
}

static void vv_on_gate_late(struct ev_timer *t)
{
    struct vvsock *vv = t->arg;

    log_limited(vv->dev.env.log, &vv->limit, LOG_WARN,
                "vsock: the guest's driver does not see to the event that it "
                "was restored; connections are let in all the same");
    vv_gate_open(vv);
    vv_run(vv);
}

/* Whether it went; a buffer that is too small for it goes back empty. */
static bool vv_send_event(struct vvsock *vv)
{
    const struct virtio_vsock_event event = {
        .id = htole32(VIRTIO_VSOCK_EVENT_TRANSPORT_RESET)};
    struct virtq *vq = &vv->dev.vq[VV_EVENT_QUEUE];
    bool sent = false;
    int rc = 0;

    for (uint32_t i = vq->size; i > 0 && !sent; i--) {
        rc = vq_pop(vq, &vv->chain);
        if (rc <= 0)
            break;
        sent = vv->chain.writable_bytes >= sizeof(event);
        if (sent)
            (void)vq_chain_write(&vv->chain, 0, &event, sizeof(event));
        vq_push(vq, vv->chain.head, sent ? sizeof(event) : 0);
    }
    virtio_signal(&vv->dev, VV_EVENT_QUEUE);
    if (rc < 0)
        vv_broken(vv, "its event queue is broken");
    return sent;
}

void vv_gate_look(struct vvsock *vv)
{
    struct virtq *vq = &vv->dev.vq[VV_EVENT_QUEUE];
    uint16_t offered;

    if (!vv->gated || vv_resting(vv))
        return;
    offered = vq_enable_kicks_behind(vq);
    if (offered == 0) {
        /* It has never offered a buffer: it does not know of events. */
        vv_gate_open(vv);
        return;
    }
    if (vv->reset_owed) {
        if (!vv_send_event(vv))
            return;
        /* One that it had not seen to before comes first. */
        if (!vv->gate_waits || (uint16_t)(vv->gate_target - offered) > vq->size)
            vv->gate_target = offered;
        vv->gate_target++;
        vv->gate_waits = true;
        vv->reset_owed = false;
        offered = vq_enable_kicks_behind(vq);
    }
    if ((int16_t)(offered - vv->gate_target) < 0)
        return;
    vv_gate_open(vv);
    vv_run(vv);
}

/* --- rest ---------------------------------------------------------------- */

int vv_rest(struct virtio_dev *dev)
{
    struct vvsock *vv = vv_of(dev);
    uint64_t now = util_now_ns();

    vv->at_rest = true;
    evloop_timer_cancel(dev->env.loop, &vv->again);
    if (vv->gate_timer.heap_index_ != 0)
        vv->gate_left_ns = vv->gate_timer.deadline_ns > now
                               ? vv->gate_timer.deadline_ns - now
                               : 0;
    evloop_timer_cancel(dev->env.loop, &vv->gate_timer);
    vv_slots_put_back(vv);
    vv_conns_rest(vv);
    vsu_rest(vv->vsu);
    return 0;
}

void vv_wake(struct virtio_dev *dev)
{
    struct vvsock *vv = vv_of(dev);

    vv->at_rest = false;
    vv_conns_wake(vv);
    if (!vv->gated) {
        vsu_wake(vv->vsu);
        return;
    }
    if (evloop_timer_arm(dev->env.loop, &vv->gate_timer,
                         util_now_ns() + vv->gate_left_ns, vv_on_gate_late, vv))
        vv_gate_open(vv);
    else
        vv_gate_look(vv);
}

void vv_start_resting(struct vvsock *vv)
{
    vv->at_rest = true;
    vsu_rest(vv->vsu);
}

void vv_end_rest(struct vvsock *vv)
{
    evloop_timer_cancel(vv->dev.env.loop, &vv->gate_timer);
    vv->gated = false;
    vv->reset_owed = false;
    vv->gate_waits = false;
    if (vv->at_rest)
        vv_conns_wake(vv);
    vv->at_rest = false;
    if (vv->vsu)
        vsu_wake(vv->vsu);
}

/* --- saving -------------------------------------------------------------- */

static void vv_put_reset(struct state_out *out, const struct vv_reset *r)
{
    state_put_u64(out, r->src_cid);
    state_put_u32(out, r->src_port);
    state_put_u32(out, r->dst_port);
    state_put_u16(out, r->type);
}

/* Whether the guest may know of it. */
static bool vv_conn_is_known(const struct vv_conn *c)
{
    return c->hashed && (c->sm.state != VSC_ASKED || c->sm.request_sent);
}

static uint32_t vv_put_conns(const struct vvsock *vv, struct state_out *out)
{
    const struct vv_conn *c;
    uint32_t n = 0;

    TAILQ_FOREACH(c, &vv->conns, link)
    {
        const struct vv_reset r = {.src_cid = VMADDR_CID_HOST,
                                   .src_port = c->host_port,
                                   .dst_port = c->guest_port,
                                   .type = VIRTIO_VSOCK_TYPE_STREAM};

        if (!vv_conn_is_known(c))
            continue;
        if (out)
            vv_put_reset(out, &r);
        n++;
    }
    return n;
}

static uint32_t vv_put_resets(const struct vvsock *vv, struct state_out *out)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < vv->num_resets; i++) {
        const struct vv_reset *r =
            &vv->resets[(vv->resets_first + i) % VV_RESETS_MAX];

        if (r->forgotten)
            continue;
        if (out)
            vv_put_reset(out, r);
        n++;
    }
    return n;
}

/* What a copy has to reset is all that it needs to know of connections. */
void vv_save(struct virtio_dev *dev, struct state_out *out)
{
    struct vvsock *vv = vv_of(dev);

    state_put_u64(out, vv->guest_cid);
    state_put_u32(out, vv->next_port);
    state_put_u8(out, vv->gate_waits);
    state_put_u16(out, vv->gate_target);
    state_put_u32(out, vv_put_resets(vv, NULL) + vv_put_conns(vv, NULL));
    (void)vv_put_resets(vv, out);
    (void)vv_put_conns(vv, out);
}

/* --- loading ------------------------------------------------------------- */

static struct vv_reset vv_get_reset(struct state_in *in)
{
    struct vv_reset r = {.src_cid = state_get_u64(in)};

    r.src_port = state_get_u32(in);
    r.dst_port = state_get_u32(in);
    r.type = state_get_u16(in);
    return r;
}

/*
 * The CID is what this device was made with, whatever the source had: the
 * driver asks for it anew when it sees to the event.
 */
int vv_load(struct virtio_dev *dev, struct state_in *in, struct errmsg *err)
{
    struct vvsock *vv = vv_of(dev);
    uint64_t cid = state_get_u64(in);
    uint32_t next_port = state_get_u32(in);
    bool waits = state_get_bool(in);
    uint16_t target = state_get_u16(in);
    uint32_t num = state_get_u32(in);

    (void)err; /* damage has no more to say */
    if (cid < VV_MIN_CID || cid > VV_MAX_CID || next_port >= VV_PORT_COUNT ||
        num > VV_RESETS_MAX)
        return -EBADMSG;
    /* Nothing of it is sent unless all is well: it rests. */
    for (uint32_t i = 0; i < num; i++)
        vv->resets[i] = vv_get_reset(in);
    if (state_done(in))
        return -EBADMSG;
    vv->resets_first = 0;
    vv->num_resets = num;
    /* Behind those that the guest may still hold open. */
    vv->next_port = next_port;
    vv->gated = true;
    vv->reset_owed = true;
    vv->gate_waits = waits;
    vv->gate_target = target;
    vv->gate_left_ns = VV_GATE_NS;
    return 0;
}
