/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_NET_INT_H
#define DEVICES_VIRTIO_NET_INT_H

/*
 * Between the files of the network device: virtio_net.c (life, features,
 * configuration), _rx.c, _tx.c, _ctrl.c, _mmds.c and _state.c (a machine that
 * pauses). Nobody else includes this.
 * Threads: the loop's, apart from what is said to be atomic or immutable.
 */

#include "devices/mmds_net.h"
#include "devices/virtio_net.h"
#include "devices/virtio_net_req.h"

#include <stdatomic.h>

#define VNET_QUEUE_SIZE 256u
#define VNET_CTRL_SIZE  64u
/* Frames handed to the back end at a time, each way and for each pair. */
#define VNET_MAX_READS  16u
#define VNET_MAX_WRITES 64u
/* Buffers of a receive chain that are used; a longer chain's rest is not. */
#define VNET_BUF_SEGS  20u
#define VNET_READ_SEGS 128u

/* A chain of a receive queue, taken from the ring and not given back yet. */
struct vnet_buf {
    struct vnet_buf *next;
    uint16_t head;
    uint16_t num_segs;
    uint32_t bytes; /* of segs[] */
    struct iovec segs[VNET_BUF_SEGS];
};

/* In the order of the ring; empty: last is NULL. */
struct vnet_buf_list {
    struct vnet_buf *first;
    struct vnet_buf *last;
};

/*
 * Heads of chains that were taken from a ring, in its order, before the device
 * rested, and are neither used nor looked at: that comes anew with their use.
 */
struct vnet_kept {
    uint16_t next; /* heads[next .. num) */
    uint16_t num;
    uint16_t heads[VNET_QUEUE_SIZE];
};

struct vnet_pair;

struct vnet_read {
    struct net_frame frame;
    struct vnet_pair *pair;
    struct vnet_buf_list bufs; /* the frame goes here */
    struct iovec iov[VNET_READ_SEGS + 2];
};

struct vnet_write {
    struct net_frame frame;
    struct vnet_pair *pair;
    struct vnet_write *next_free;
    uint16_t head;
    /* Of the frame, where it was looked at: what was checked is what leaves. */
    uint8_t first[MMDS_HEAD_BYTES];
    struct iovec iov[VQ_MAX_SEGS + 3];
};

struct vnet_rx {
    struct vnet_buf bufs[VNET_QUEUE_SIZE];
    struct vnet_buf *free_bufs;
    uint32_t bufs_made;            /* the others were never used */
    struct vnet_kept kept;         /* come after the stock, before the ring */
    struct vnet_buf_list stock;    /* taken from the ring, for coming frames */
    struct vnet_buf_list returned; /* by this batch's reads, before the stock */
    struct vnet_read reads[VNET_MAX_READS];
    uint32_t batch;     /* reads to begin at a time */
    uint32_t in_flight; /* of the batch under way */
    uint32_t begun;     /* reads of that batch */
    uint32_t filled;    /* frames that it has brought */
    bool dry;           /* it came to the end of what waits */
    bool hungry;        /* waits for buffers of the guest */
    bool meagre;        /* it waited in vain: what there is has to do */
    /* Frames that were delivered and not paid for, oldest first. */
    uint32_t owed_bytes[VNET_MAX_READS];
    uint32_t num_owed;
    struct ev_timer later; /* goes on after the limiter, or when hungry */
};

struct vnet_tx {
    struct vnet_write writes[VNET_MAX_WRITES];
    struct vnet_write *free_writes;
    uint32_t writes_made; /* the others were never used */
    uint32_t in_flight;
    struct vnet_kept kept; /* come before the ring; the limiter knows them */
    uint16_t num_returned; /* of this batch, at the front of them */
    struct ev_timer later; /* goes on after the limiter, or with bad frames */
};

struct vnet_pair {
    struct vnet *v;
    uint16_t index;
    bool running;
    struct vnet_rx rx;
    struct vnet_tx tx;
    struct ev_later signal; /* one decision a turn, for both queues */
};

struct vnet_mmds;

struct vnet {
    struct virtio_dev dev; /* first */
    /* immutable */
    struct net_back *back;
    struct vnet_mmds *mmds; /* NULL: no metadata service on this link */
    char name[64];
    struct virtio_net_config config; /* apart from .status */
    /* atomic: read by vCPUs */
    _Atomic uint16_t status;
    /* io thread */
    bool active;
    bool resetting;      /* virtio_reset_done() is owed */
    bool rest_begins;    /* inside of vnet_rest() */
    bool loaded;         /* and not woken */
    uint16_t num_pairs;  /* that the guest uses, 0 while not active */
    uint16_t ctrl_queue; /* its index; 0: none */
    uint32_t offloads;   /* NET_OFFLOAD_* in force towards the guest */
    struct vnet_pair *pairs[NET_MAX_PAIRS]; /* [0 .. back->max_pairs) */
    struct rate_limit rx_limit;
    struct rate_limit tx_limit;
    struct ev_timer ctrl_later; /* goes on with a long control queue */
    struct vnet_stats stats;
    struct vq_chain chain; /* scratch */
    struct log_limit log_limit;
};

static inline struct vnet *vnet_of(struct virtio_dev *dev)
{
    return container_of(dev, struct vnet, dev);
}

static inline struct virtq *vnet_rxq(struct vnet_pair *p)
{
    return &p->v->dev.vq[2 * p->index];
}

static inline struct virtq *vnet_txq(struct vnet_pair *p)
{
    return &p->v->dev.vq[2 * p->index + 1];
}

/* --- virtio_net.c -------------------------------------------------------- */

bool vnet_link_is_up(const struct vnet *v);
/* Asks for an interrupt decision at the end of this turn. */
void vnet_signal_later(struct vnet_pair *p);
/* The driver broke a rule: all stops until it resets the device. */
void vnet_break(struct vnet *v);
/* A frame came back after a reset: the last one ends it. */
void vnet_frame_is_back(struct vnet *v);
uint32_t vnet_in_flight(const struct vnet *v);
/* Takes the interrupt decisions of this turn now. */
void vnet_signal_now(struct vnet_pair *p);
/* Offers frames on pairs [0, n) only; 0 or -errno. */
int vnet_set_pairs(struct vnet *v, uint16_t n) MUST_CHECK;
int vnet_set_offloads(struct vnet *v, uint32_t offloads) MUST_CHECK;

/* --- virtio_net_rx.c ----------------------------------------------------- */

void vnet_rx_init(struct vnet_pair *p); /* also after a reset */
/* Receives if there is room and nothing is under way. */
void vnet_rx_run(struct vnet_pair *p);
/* The guest has put buffers into the ring. */
void vnet_rx_kick(struct vnet_pair *p);
void vnet_rx_stop(struct vnet_pair *p);
/* At rest: what was taken from the ring is kept as heads. */
void vnet_rx_keep(struct vnet_pair *p);
/*
 * Collects the room for one frame of `need` bytes behind its header: 1; 0: the
 * guest has given too little (what there is stays in the stock); -EPROTO. Where
 * chains are not merged it is one chain, of any size. `anything`: less will do
 * as well.
 */
int vnet_rx_reserve(struct vnet_pair *p, struct vnet_read *r, uint32_t need,
                    bool anything) MUST_CHECK;
/* A frame of `bytes` lies in the room: it is the guest's. The room that it did
 * not take has to be put back. */
void vnet_rx_deliver(struct vnet_pair *p, struct vnet_read *r, uint32_t bytes);
void vnet_rx_put_back(struct vnet_pair *p, struct vnet_read *r);

/* --- virtio_net_tx.c ----------------------------------------------------- */

void vnet_tx_init(struct vnet_pair *p);
void vnet_tx_run(struct vnet_pair *p);
void vnet_tx_stop(struct vnet_pair *p);

/* --- virtio_net_ctrl.c --------------------------------------------------- */

void vnet_ctrl_run(struct vnet *v);
void vnet_ctrl_stop(struct vnet *v);

/* --- virtio_net_state.c -------------------------------------------------- */

/* While it rests a frame came back: the last one ends that. */
void vnet_rest_step(struct vnet *v);
/* Puts a head behind the first `at` of those that are left. */
void vnet_keep(struct vnet_kept *k, uint16_t at, uint16_t head);
/* The first of those, which is taken away, or false. */
bool vnet_take_kept(struct vnet_kept *k, uint16_t *out_head);

/* What struct virtio_ops asks for. */
int vnet_rest(struct virtio_dev *dev);
void vnet_wake(struct virtio_dev *dev);
void vnet_save(struct virtio_dev *dev, struct state_out *out);
int vnet_load(struct virtio_dev *dev, struct state_in *in, struct errmsg *err);

/* --- virtio_net_mmds.c; all of it does nothing without the service ------- */

int vnet_mmds_new(struct vnet *v,
                  const struct mmds_service *service) MUST_CHECK;
void vnet_mmds_free(struct vnet *v);
/*
 * The frame of v->chain, as vnet_parse_tx() measured it. True: it was for the
 * service and is dealt with; else w->first of vnet_mmds_slice() will hold what
 * was looked at.
 */
bool vnet_mmds_take(struct vnet *v, const struct virtio_net_hdr_v1 *hdr,
                    uint32_t bytes);
/* The frame of v->chain into w->iov[1..]; their number. */
int vnet_mmds_slice(struct vnet *v, struct vnet_write *w, uint32_t bytes);
/* There may be room for answers. */
void vnet_mmds_rx_room(struct vnet_pair *p);
/* Sends nothing more: at a reset, and while the device rests. */
void vnet_mmds_stop(struct vnet *v);
/* Goes on after a rest, with what is owed. */
void vnet_mmds_wake(struct vnet *v);
/* Connections go with the driver that had them. */
void vnet_mmds_reset(struct vnet *v);

#endif
