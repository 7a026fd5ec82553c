/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_H
#define DEVICES_VIRTIO_H

/*
 * What a virtio device is to its transport and the transport to a device. A
 * device embeds `struct virtio_dev` as its first member, fills it by
 * virtio_dev_init() and knows nothing of MMIO; virtio_mmio.c knows nothing of
 * disks or sockets.
 *
 * Threads: vCPU threads reach the transport's registers (its lock). All ops of
 * a device run on the loop's thread, apart from config_read and config_write,
 * which run on a vCPU thread under the transport's lock: what they touch is
 * immutable, atomic or behind the device's own lock.
 */

#include "devices/virtq.h"
#include "vmm/counter.h"
#include "vmm/evloop.h"
#include "vmm/log.h"
#include "vmm/state.h"

#define VIRTIO_MAX_QUEUES 16u

struct virtio_dev;

/* What a device gets from the machine. All borrowed. */
struct vdev_env {
    const struct guest_mem *mem;
    struct evloop *loop;
    struct log *log;
};

struct virtio_ops {
    /* Reads `len` bytes of the configuration space at `off`; comes zeroed. */
    void (*config_read)(struct virtio_dev *dev, uint32_t off, void *data,
                        uint32_t len);
    /* NULL when nothing in it is writable. */
    void (*config_write)(struct virtio_dev *dev, uint32_t off, const void *data,
                         uint32_t len);
    /*
     * The driver set DRIVER_OK: dev->features and dev->vq[] are final, rings
     * checked. A negative value sets NEEDS_RESET.
     */
    int (*activate)(struct virtio_dev *dev);
    /*
     * Back to the state before activate; also called after an activate that
     * failed. 0 when nothing is in flight; else -EINPROGRESS, and
     * virtio_reset_done() when the last request has ended. No request is
     * completed to the guest after reset was called: the rings are gone then.
     */
    int (*reset)(struct virtio_dev *dev);
    /* The driver kicked queue `q`. Runs only between activate and reset. */
    void (*queue_kick)(struct virtio_dev *dev, uint16_t q);
    /* Frees the device; called once, after a finished reset. */
    void (*free)(struct virtio_dev *dev);

    /* --- a machine that pauses; between activate and reset --------------- */

    /*
     * From now on the device takes up nothing: it pops no chain, touches no
     * guest memory, reads nothing of the host's and accepts nobody; what it has
     * begun it ends. dev->resting is set. 0 when nothing is in flight; else
     * -EINPROGRESS, and virtio_rested() when the last of it has ended. At rest
     * each popped chain was pushed or put back, or is in what save() writes.
     * A reset ends the rest, and then there is no virtio_rested().
     */
    int (*rest)(struct virtio_dev *dev);
    /*
     * Goes on; dev->resting is clear. A kick of each queue follows. Also called
     * for a device that was activated resting, after its load().
     */
    void (*wake)(struct virtio_dev *dev);
    /* Writes what is beside the rings, of a version `state_version`; at rest.
     * NULL: there is nothing. The section is the transport's. */
    void (*save)(struct virtio_dev *dev, struct state_out *out);
    /*
     * Takes over what save() wrote, after an activate with dev->resting set.
     * All of it is hostile. 0, -EBADMSG or -errno; a line in `err` where there
     * is more to say than that the section is no good.
     */
    int (*load)(struct virtio_dev *dev, struct state_in *in,
                struct errmsg *err);
    uint16_t state_version; /* of what save() writes, from 1 */
};

typedef void (*virtio_change_fn)(struct virtio_dev *dev, void *arg);

/* The transport's side of a device; the hooks run on the loop's thread. */
struct virtio_transport_ops {
    void (*signal_queue)(void *transport, uint16_t q);
    void (*config_changed)(void *transport);
    void (*config_update)(void *transport, virtio_change_fn change, void *arg);
    void (*needs_reset)(void *transport);
    void (*reset_done)(void *transport);
    void (*rested)(void *transport);
};

/* What every device counts. thread: io, apart from cfg_fails */
struct virtio_stats {
    uint64_t activate_fails;
    uint64_t broken;         /* times that the driver broke the protocol */
    uint64_t interrupts;     /* asked for: several become one in a turn */
    uint64_t config_updates; /* of the configuration space, by us */
    uint64_t cfg_fails; /* accesses of no such register or field; thread: vcpu,
                           under the transport's lock */
    uint64_t kicks[VIRTIO_MAX_QUEUES];
};

struct virtio_dev {
    const struct virtio_ops *ops;
    struct vdev_env env;
    const char *name;   /* for log lines; borrowed, e.g. "blk/rootfs" */
    uint32_t device_id; /* VIRTIO_ID_* */
    uint64_t offered;   /* device features; the transport adds VERSION_1,
                           RING_EVENT_IDX, RING_INDIRECT_DESC */
    uint64_t
        loadable; /* beside `offered`: what a driver may use that comes with
                     a saved machine, though this host offers it to none */
    uint64_t features; /* accepted, of these; from activate on */
    uint16_t num_queues;
    uint16_t queue_max[VIRTIO_MAX_QUEUES]; /* powers of two <= VQ_MAX_SIZE */
    uint32_t config_len;                   /* bytes of configuration space */
    bool resting; /* io thread; the transport's to set */
    struct virtq vq[VIRTIO_MAX_QUEUES];
    struct virtio_stats counts;
    const struct virtio_transport_ops *transport_ops;
    void *transport;
};

void virtio_dev_init(struct virtio_dev *dev, const struct virtio_ops *ops,
                     const struct vdev_env *env, const char *name,
                     uint32_t device_id);

/* Signals the driver if it wants it after pushes to queue `q`. */
void virtio_signal(struct virtio_dev *dev, uint16_t q);
/*
 * The configuration space changed: generation count and interrupt. Only for a
 * change of one aligned word of at most 32 bits; anything wider is read in
 * pieces, and those need virtio_config_update().
 */
void virtio_config_changed(struct virtio_dev *dev);
/*
 * Runs `change`, which alters what config_read returns, in such a way that a
 * driver that reads a field in two halves around it sees the generation count
 * change. Then the interrupt. Called by the device, thread: io.
 */
void virtio_config_update(struct virtio_dev *dev, virtio_change_fn change,
                          void *arg);
/* The driver broke a rule: NEEDS_RESET; the device's queues are stopped. */
void virtio_needs_reset(struct virtio_dev *dev);
void virtio_reset_done(struct virtio_dev *dev);
/* After a rest() of -EINPROGRESS: nothing is in flight any more. */
void virtio_rested(struct virtio_dev *dev);

#endif
