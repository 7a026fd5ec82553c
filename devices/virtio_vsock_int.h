/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_VSOCK_INT_H
#define DEVICES_VIRTIO_VSOCK_INT_H

/*
 * Shared by the files of virtio-vsock; nobody else includes this.
 *   virtio_vsock.c       the device: queues, reset, life
 *   virtio_vsock_conn.c  connections: table, birth, end
 *   virtio_vsock_host.c  their sockets on the host
 *   virtio_vsock_rx.c    packets to the guest
 *   virtio_vsock_tx.c    packets from the guest
 *   virtio_vsock_state.c a machine that pauses, is saved and loaded
 *
 * Threads: io for all of it.
 *
 * A connection is freed by vv_conn_end() only; whoever calls something that
 * may end it gets a bool that says whether it still lives.
 */

#include "devices/virtio_vsock.h"
#include "devices/vsock_buf.h"
#include "devices/vsock_conn.h"
#include "devices/vsock_unix.h"

#include <sys/queue.h>

enum { VV_RX_QUEUE, VV_TX_QUEUE, VV_EVENT_QUEUE, VV_NUM_QUEUES };

/* A driver fills the rx queue while it boots, so a longer one costs time then;
 * a longer event queue has no use. */
#define VV_QUEUE_MAX   128u
#define VV_EVENT_MAX   16u
#define VV_HASH_BITS   10u
#define VV_TURN_CHAINS 256u      /* a queue's chains in one turn of the loop */
#define VV_TURN_BYTES  (2 * MIB) /* from the guest in one turn */

/* A connection's buffer; the small one once VV_PROMISE_BYTES are promised. */
#define VV_BUF_BYTES       (256u * 1024u)
#define VV_BUF_SMALL_BYTES (16u * 1024u)
#define VV_PROMISE_BYTES   (64 * MIB)

/* Resets that wait for a guest buffer; above it no packet is taken from tx. */
#define VV_RESETS_HIGH 256u
/*
 * Those, one turn's worth more, and one for each connection: no more can
 * come, since a connection that the guest knows of took a guest buffer, and
 * the waiting resets go first.
 */
#define VV_RESETS_MAX (VV_RESETS_HIGH + VV_TURN_CHAINS + VVSOCK_MAX_CONNS)

#define VV_ANSWER_NS 20000000000ull /* the guest answers a REQUEST */
#define VV_CLOSE_NS  10000000000ull /* ... and a SHUTDOWN of both sides */
/* A listener with a full backlog is tried so long, so often, and so many at
 * a time. */
#define VV_DIAL_NS       3000000000ull
#define VV_DIAL_PAUSE_NS 2000000ull
#define VV_DIAL_TRIES    64u
/* After a load: what a guest gets to hear of it, before clients are let in. */
#define VV_GATE_NS 10000000000ull

/* Ports that clients of the host appear to come from: above what the guest's
 * programs use, and below the sign bit. */
#define VV_PORT_FIRST (1u << 30)
#define VV_PORT_COUNT (1u << 30)

#define VV_MIN_CID 3u /* below: any, local, host */
#define VV_MAX_CID (VMADDR_CID_ANY - 1u)

/* Guest buffers taken off the rx queue and not used yet. */
#define VV_SLOTS     16u
#define VV_SLOT_SEGS 64u /* the header may need 44 of them */
/* Bytes that one connection may send before the next one gets its turn. */
#define VV_QUANTUM_BYTES (64u * 1024u)

struct vvsock;

struct vv_conn {
    struct vsc sm;
    struct vvsock *vv;
    uint32_t host_port;
    uint32_t guest_port;
    int fd; /* -1: not connected yet, or given up */
    bool by_host;
    bool hashed;     /* in the table; not so once the guest has closed */
    bool queued;     /* in vv->ready */
    bool hung_up;    /* the peer has closed: the fd is not watched any more */
    bool eof;        /* all that the peer sent has been read */
    bool wr_gone;    /* the peer takes no more bytes */
    bool finished;   /* both directions are: the guest's reset is awaited */
    bool dial_waits; /* in vv->dialing */
    uint64_t dial_until_ns;
    uint64_t left_ns;     /* at rest: until its timer ends; 0: not armed */
    struct vsock_buf out; /* guest bytes that the socket did not take */
    struct ev_fd watch;
    struct ev_timer timer;
    struct vv_conn *hash_next;
    TAILQ_ENTRY(vv_conn) link;       /* in vv->conns */
    TAILQ_ENTRY(vv_conn) ready_link; /* in vv->ready */
    TAILQ_ENTRY(vv_conn) dial_link;  /* in vv->dialing */
};

TAILQ_HEAD(vv_conn_list, vv_conn);

/* Where a reset goes. */
struct vv_reset {
    uint64_t src_cid;
    uint32_t src_port;
    uint32_t dst_port;
    uint16_t type;
    bool forgotten; /* not to be sent any more */
};

struct vv_slot {
    uint16_t head;
    uint16_t num_iov;
    uint64_t bytes; /* room, header included; at least the header's */
    struct iovec iov[VV_SLOT_SEGS];
};

struct vvsock {
    struct virtio_dev dev; /* first: the ops get this */
    /* immutable */
    uint64_t guest_cid;
    uint64_t hash_key;
    struct vsu *vsu;
    /* io thread */
    bool active;
    bool at_rest;
    bool tx_held;          /* the tx queue waits until fewer resets wait */
    struct ev_timer again; /* goes on in the next turn */
    uint32_t next_port;    /* of clients of the host */
    uint32_t num_conns;
    uint32_t num_draining;
    uint64_t promised;
    /* A guest that was loaded, until it has seen to its dead connections: no
     * new one comes about, since that would die with them. */
    bool gated;
    bool reset_owed;       /* it has not been told yet */
    bool gate_waits;       /* it was, and gate_target counts */
    uint16_t gate_target;  /* event buffers offered, once it has seen to it */
    uint64_t gate_left_ns; /* at rest */
    struct ev_timer gate_timer;
    struct vv_conn *table[1u << VV_HASH_BITS];
    struct vv_conn_list conns;
    struct vv_conn_list ready;   /* something to send to the guest */
    struct vv_conn_list dialing; /* wait for room in a backlog; in order */
    struct ev_timer dial_timer;
    struct vv_reset *resets; /* ring of VV_RESETS_MAX */
    uint32_t resets_first;
    uint32_t num_resets;
    struct vv_slot slots[VV_SLOTS]; /* ring */
    uint32_t slots_first;
    uint32_t num_slots;
    struct iovec iov[VV_SLOTS * VV_SLOT_SEGS];
    struct vq_chain chain;
    struct vvsock_stats stats;
    struct log_limit limit;
};

/* --- virtio_vsock.c ------------------------------------------------------ */

static inline struct vvsock *vv_of(struct virtio_dev *dev)
{
    return container_of(dev, struct vvsock, dev);
}

/*
 * Ends a callback: serves both queues within the limits of one turn and
 * signals the driver. Connections may end in here.
 */
void vv_run(struct vvsock *vv);
/* Nothing is taken up: the machine pauses. */
static inline bool vv_resting(const struct vvsock *vv)
{
    return vv->dev.resting;
}

/* The driver broke the rules of a queue: all stops until it resets. */
void vv_broken(struct vvsock *vv, const char *why);

/* --- virtio_vsock_conn.c: connections ------------------------------------ */

struct vv_conn *vv_conn_find(const struct vvsock *vv, uint32_t host_port,
                             uint32_t guest_port);
/* A client of the host (takes over fd). */
void vv_conn_from_host(struct vvsock *vv, int fd, uint32_t guest_port);
/* A REQUEST of the guest that meets no connection. */
void vv_conn_from_guest(struct vvsock *vv, const struct vsock_pkt *pkt);
/* Frees it and closes its socket; `reset`: and resets it for the guest. */
void vv_conn_end(struct vv_conn *c, bool reset);
/* All that the guest knows of; those that only drain stay if so told. */
void vv_conn_end_all(struct vvsock *vv, bool draining_too);
/* The guest closed: gone for it, but what it sent is still delivered. */
void vv_conn_closed(struct vv_conn *c);
/* Something is to be sent to the guest; or not any more. */
void vv_conn_ready(struct vv_conn *c);
void vv_conn_unready(struct vv_conn *c);
/* Sets its timer, which means what its state says. False: it has ended. */
bool vv_conn_arm(struct vv_conn *c, uint64_t deadline_ns);

/* All that they wait for stands still, apart from bytes on their way out of
 * here; and goes on. Some may end in the latter. */
void vv_conns_rest(struct vvsock *vv);
void vv_conns_wake(struct vvsock *vv);

/* --- virtio_vsock_host.c: their sockets; a bool: see above --------------- */

/* Watches what is of interest now. */
bool vv_conn_watch(struct vv_conn *c);
/* Whether bytes of the peer may be read at all. */
bool vv_conn_reads(const struct vv_conn *c);
/* The guest has accepted. */
bool vv_conn_opened(struct vv_conn *c);
/* Bytes of the guest, within its credit; changes `iov`. */
bool vv_conn_write(struct vv_conn *c, struct iovec *iov, int num_iov,
                   uint32_t len);
/* The guest sends no more; receives no more; the peer has sent all. */
bool vv_conn_stop_write(struct vv_conn *c);
bool vv_conn_stop_read(struct vv_conn *c);
bool vv_conn_eof(struct vv_conn *c);
/* Idempotent; what waits for the peer is dropped. */
void vv_conn_close_fd(struct vv_conn *c);

/* --- virtio_vsock_rx.c --------------------------------------------------- */

/* Guest buffers at hand go back into their queue. */
void vv_slots_put_back(struct vvsock *vv);
/* Resets a connection, or what is none. */
void vv_reset_push(struct vvsock *vv, const struct vsock_pkt *rst);
/*
 * The guest uses these ports anew: a reset of their last connection that has
 * not been sent yet would hit the new one.
 */
void vv_reset_forget(struct vvsock *vv, uint32_t host_port,
                     uint32_t guest_port);
/*
 * Sends to the guest what waits, as far as it has buffers. True: a turn's
 * worth is done and there is more.
 */
bool vv_rx_run(struct vvsock *vv);

/* --- virtio_vsock_tx.c --------------------------------------------------- */

/* Takes packets from the guest. True: a turn's worth is done, maybe more. */
bool vv_tx_run(struct vvsock *vv);

/* --- virtio_vsock_state.c: struct virtio_ops, and the gate --------------- */

#define VV_STATE_VERSION 1u
int vv_rest(struct virtio_dev *dev);
void vv_wake(struct virtio_dev *dev);
void vv_save(struct virtio_dev *dev, struct state_out *out);
int vv_load(struct virtio_dev *dev, struct state_in *in, struct errmsg *err);

/* Activated for a load; a reset ends rest and gate. */
void vv_start_resting(struct vvsock *vv);
void vv_end_rest(struct vvsock *vv);
/* The event queue was kicked. */
void vv_gate_look(struct vvsock *vv);

#endif
