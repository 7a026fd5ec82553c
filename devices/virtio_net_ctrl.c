/* SPDX-License-Identifier: Apache-2.0 */
/* The control queue: queue pairs in use, offloads, announcements that were
 * made. spec: virtio-1.2 5.1.6.5 */
#include "devices/virtio_net_int.h"

static int vnet_ctrl_execute(struct vnet *v, const struct vnet_ctrl *req)
{
    switch (req->op) {
    case VNET_CTRL_SET_PAIRS:
        return vnet_set_pairs(v, req->pairs);
    case VNET_CTRL_ANNOUNCED:
        (void)atomic_fetch_and_explicit(
            &v->status, (uint16_t)~VIRTIO_NET_S_ANNOUNCE, memory_order_release);
        return 0;
    default:
        return vnet_set_offloads(v, req->offloads);
    }
}

/* The only place where a control chain goes back. */
static void vnet_ctrl_one(struct vnet *v, struct virtq *vq)
{
    struct vnet_ctrl req;
    int rc =
        vnet_parse_ctrl(&v->chain, v->dev.features, v->back->max_pairs, &req);
    uint16_t head = v->chain.head;

    if (rc == 0)
        rc = vnet_ctrl_execute(v, &req);
    if (rc)
        v->stats.ctrl_bad++;
    if (rc == -EPROTO) {
        vq_push(vq, head, 0); /* nowhere to put an answer */
        return;
    }
    *(uint8_t *)req.ack.iov_base = rc ? VIRTIO_NET_ERR : VIRTIO_NET_OK;
    vq_push(vq, head, 1);
}

static void vnet_ctrl_later(struct ev_timer *t)
{
    vnet_ctrl_run(t->arg);
}

/* At most a ring's worth in one turn. */
void vnet_ctrl_run(struct vnet *v)
{
    struct virtq *vq = &v->dev.vq[v->ctrl_queue];
    uint32_t budget = vq->size;
    int rc = 0;

    if (v->dev.resting)
        return;
    do {
        vq_disable_kicks(vq);
        while (budget > 0 && (rc = vq_pop(vq, &v->chain)) > 0) {
            budget--;
            vnet_ctrl_one(v, vq);
        }
    } while (rc == 0 && budget > 0 && vq_enable_kicks(vq));
    virtio_signal(&v->dev, v->ctrl_queue);
    if (rc >= 0 && budget == 0)
        rc = evloop_timer_arm(v->dev.env.loop, &v->ctrl_later, 0,
                              vnet_ctrl_later, v);
    if (rc < 0)
        vnet_break(v);
}

void vnet_ctrl_stop(struct vnet *v)
{
    evloop_timer_cancel(v->dev.env.loop, &v->ctrl_later);
}
