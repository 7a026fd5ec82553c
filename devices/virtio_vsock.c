/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_vsock_int.h"

#include <linux/virtio_ids.h>
#include <linux/virtio_vsock.h>
#include <linux/vm_sockets.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* virtio-vsock device. spec: virtio-1.2 5.10. thread: io */

static void vv_on_again(struct ev_timer *t)
{
    vv_run(t->arg);
}

void vv_run(struct vvsock *vv)
{
    bool more;

    if (!vv->active || vv_resting(vv))
        return;
    more = !vv->gated && vv_tx_run(vv);
    more = vv_rx_run(vv) || more;
    /* Answers were in the way of the tx queue, and some have gone. */
    if (vv->tx_held && vv->num_resets < VV_RESETS_HIGH)
        more = true;
    if (!vv->active)
        return;
    virtio_signal(&vv->dev, VV_TX_QUEUE);
    virtio_signal(&vv->dev, VV_RX_QUEUE);
    if (more && evloop_timer_arm(vv->dev.env.loop, &vv->again, util_now_ns(),
                                 vv_on_again, vv))
        vv_broken(vv, "out of memory");
}

/* Forgets all that belongs to this life of the driver. */
static void vv_deactivate(struct vvsock *vv)
{
    vv->active = false;
    vv_conn_end_all(vv, false);
    vv_end_rest(vv);
    evloop_timer_cancel(vv->dev.env.loop, &vv->again);
    evloop_timer_cancel(vv->dev.env.loop, &vv->dial_timer);
    vv->num_resets = 0;
    vv->num_slots = 0;
    vv->tx_held = false;
}

void vv_broken(struct vvsock *vv, const char *why)
{
    log_limited(vv->dev.env.log, &vv->limit, LOG_WARN,
                "vsock: the device stops until its driver resets it: %s", why);
    vv_deactivate(vv);
    virtio_needs_reset(&vv->dev);
}

/* Any thread: the CID never changes. */
static void vv_config_read(struct virtio_dev *dev, uint32_t off, void *data,
                           uint32_t len)
{
    struct virtio_vsock_config cfg = {.guest_cid =
                                          htole64(vv_of(dev)->guest_cid)};

    if (off >= sizeof(cfg))
        return;
    memcpy(data, (const char *)&cfg + off, min_u64(len, sizeof(cfg) - off));
}

static int vv_activate(struct virtio_dev *dev)
{
    struct vvsock *vv = vv_of(dev);

    vv->active = true;
    if (vv_resting(vv)) {
        vv_start_resting(vv);
        return 0;
    }
    /* The driver fills it; it is only for the day after a restore. */
    vq_disable_kicks(&dev->vq[VV_EVENT_QUEUE]);
    vv_run(vv);
    return 0;
}

static int vv_reset(struct virtio_dev *dev)
{
    vv_deactivate(vv_of(dev));
    return 0;
}

static void vv_queue_kick(struct virtio_dev *dev, uint16_t q)
{
    if (q != VV_EVENT_QUEUE)
        vv_run(vv_of(dev));
    else
        vv_gate_look(vv_of(dev));
}

static void vv_free(struct virtio_dev *dev)
{
    struct vvsock *vv = vv_of(dev);

    vv_deactivate(vv);
    vv_conn_end_all(vv, true);
    vsu_free(vv->vsu);
    free(vv->resets);
    free(vv);
}

static const struct virtio_ops vv_ops = {
    .config_read = vv_config_read,
    .activate = vv_activate,
    .reset = vv_reset,
    .queue_kick = vv_queue_kick,
    .free = vv_free,
    .rest = vv_rest,
    .wake = vv_wake,
    .save = vv_save,
    .load = vv_load,
    .state_version = VV_STATE_VERSION,
};

static void vv_on_client(void *arg, int fd, uint32_t port)
{
    vv_conn_from_host(arg, fd, port);
}

/* The hash key and where the host's ports start: not to be guessed, and not
 * the same after a restart while the guest still remembers old ports. */
static int vv_init_random(struct vvsock *vv)
{
    uint64_t r[2];

    if (getrandom(r, sizeof(r), 0) != (ssize_t)sizeof(r))
        return neg_errno();
    vv->hash_key = r[0];
    vv->next_port = (uint32_t)(r[1] & 0x3fffffffu);
    return 0;
}

static int vv_init(struct vvsock *vv, const char *uds_path, struct errmsg *err)
{
    const struct vsu_args args = {
        .loop = vv->dev.env.loop,
        .log = vv->dev.env.log,
        .path = uds_path,
        .fn = vv_on_client,
        .arg = vv,
    };
    int rc = vv_init_random(vv);

    if (rc)
        return err_set(err, rc,
                       "vsock: no random numbers: %s; check the "
                       "sandbox's system call filter",
                       err_reason(rc));
    vv->resets = calloc(VV_RESETS_MAX, sizeof(*vv->resets));
    if (!vv->resets)
        return err_set(err, -ENOMEM, "vsock: out of memory; free some");
    return vsu_new(&args, &vv->vsu, err);
}

int vvsock_new(const struct vdev_env *env, uint64_t guest_cid,
               const char *uds_path, struct virtio_dev **out_dev,
               struct errmsg *err)
{
    struct vvsock *vv;
    int rc;

    if (guest_cid < VV_MIN_CID || guest_cid > VV_MAX_CID)
        return err_set(err, -EINVAL,
                       "vsock: guest CID %llu is reserved; choose one from %u "
                       "to %u",
                       (unsigned long long)guest_cid, VV_MIN_CID, VV_MAX_CID);
    vv = calloc(1, sizeof(*vv));
    if (!vv)
        return err_set(err, -ENOMEM, "vsock: out of memory; free some");
    virtio_dev_init(&vv->dev, &vv_ops, env, "vsock", VIRTIO_ID_VSOCK);
    vv->dev.num_queues = VV_NUM_QUEUES;
    vv->dev.queue_max[VV_RX_QUEUE] = VV_QUEUE_MAX;
    vv->dev.queue_max[VV_TX_QUEUE] = VV_QUEUE_MAX;
    vv->dev.queue_max[VV_EVENT_QUEUE] = VV_EVENT_MAX;
    vv->dev.config_len = sizeof(struct virtio_vsock_config);
    vv->guest_cid = guest_cid;
    TAILQ_INIT(&vv->conns);
    TAILQ_INIT(&vv->ready);
    TAILQ_INIT(&vv->dialing);
    rc = vv_init(vv, uds_path, err);
    if (rc) {
        vv_free(&vv->dev);
        return rc;
    }
    *out_dev = &vv->dev;
    return 0;
}

void vvsock_get_stats(const struct virtio_dev *dev,
                      struct vvsock_stats *out_stats)
{
    const struct vvsock *vv = (const struct vvsock *)(const void *)dev;

    *out_stats = vv->stats;
    out_stats->conns = vv->num_conns;
    out_stats->draining = vv->num_draining;
    out_stats->waiting = vsu_num_waiting(vv->vsu);
    out_stats->resets_waiting = vv->num_resets;
    out_stats->promised_bytes = vv->promised;
}
