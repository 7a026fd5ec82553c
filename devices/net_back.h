/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_NET_BACK_H
#define DEVICES_NET_BACK_H

/*
 * A network as its device sees it: Ethernet frames that are sent and received
 * asynchronously on one or several pairs of queues. What carries them is a
 * back end's matter (net_tap.c, net_stream.c); no back end knows of queues in
 * guest memory.
 *
 * Ownership: whoever holds the back end frees it by ops->free, with no frame
 * handed over. A frame is the caller's and stays valid until `done` ran.
 * Threads: the loop's thread, apart from opening.
 * Errors: `done` gets them; see struct net_back_ops.
 */

#include "vmm/evloop.h"

#include <linux/virtio_net.h>

#define NET_MAX_PAIRS 4u
#define NET_HDR_BYTES 12u /* struct virtio_net_hdr_v1 */
#define NET_MIN_FRAME 14u /* an Ethernet header */
/* The largest frame: a segmentation offload's. spec: virtio-1.2 5.1.6.3.1 */
#define NET_MAX_FRAME 65550u

/* What a receiver takes; each is TUN_F_* of the same name in another order. */
#define NET_OFFLOAD_CSUM                                                       \
    (1u << 0)                      /* frames whose checksum is not filled in   \
                                    */
#define NET_OFFLOAD_TSO4 (1u << 1) /* frames that are to be segmented */
#define NET_OFFLOAD_TSO6 (1u << 2)
#define NET_OFFLOAD_ECN  (1u << 3)

_Static_assert(sizeof(struct virtio_net_hdr_v1) == NET_HDR_BYTES, "wire");

struct net_back;
struct net_frame;
typedef void (*net_done_fn)(struct net_frame *f, int32_t result);

struct net_frame {
    /* Sending: checked by the device. Receiving: the back end's word, with
     * num_buffers left alone. Only where net_back.vnet_hdr; else all zero. */
    struct virtio_net_hdr_v1 hdr;
    /* iov[1 .. iovcnt] are the frame or the room for one, `bytes` in all;
     * iov[0] and iov[iovcnt + 1] are there for the back end to use. */
    struct iovec *iov;
    uint32_t iovcnt;
    uint32_t bytes;
    net_done_fn done;
    void *arg;
    /* the back end's, while it has the frame */
    struct net_back *back_;
    uint16_t pair_;
    uint8_t wire_[4];
    struct net_frame *next_;
    struct ev_io ev_;
};

/* The device's ears; called on the loop's thread. */
struct net_events {
    /* After rx_wait(): there may be frames to receive. Once per rx_wait(). */
    void (*readable)(void *arg, uint16_t pair);
    /* The network is gone for good; told once. Frames still come back. */
    void (*link_down)(void *arg, const char *why);
};

/*
 * `done` runs exactly once for each frame, never inside rx() or tx(). After
 * link_down() no more frames are handed over.
 */
struct net_back_ops {
    int (*start)(struct net_back *b, struct evloop *loop,
                 const struct net_events *events, void *arg);
    void (*rx_wait)(struct net_back *b, uint16_t pair);
    /*
     * Receives one frame into `f`; frames are filled in the order of the
     * calls. `done`: the frame's bytes; -EAGAIN when none waits; -EMSGSIZE
     * when one came that is larger than f->bytes, and is lost; -ENETDOWN;
     * -ECANCELED.
     */
    void (*rx)(struct net_back *b, uint16_t pair, struct net_frame *f);
    /* Sends `f`. `done`: 0, or -errno when it was dropped. */
    void (*tx)(struct net_back *b, uint16_t pair, struct net_frame *f);
    /* No more tx() follows for now: what was handed over may leave. */
    void (*tx_flush)(struct net_back *b, uint16_t pair);
    /*
     * Gives every frame back soon, most of them from inside, and forgets any
     * rx_wait(). Nothing reads or writes a frame's memory once it is back.
     */
    void (*cancel)(struct net_back *b);
    /*
     * The same, but nothing is lost: a frame that came in part goes on with the
     * next rx(); one that was sent in part counts as sent, and its end leaves
     * with the next tx_flush(). One that is not begun comes back with
     * -ECANCELED, both ways, in the order of the calls.
     */
    void (*rest)(struct net_back *b);
    int (*set_offloads)(struct net_back *b, uint32_t offloads);
    /* Frames are to come on pairs [0, n) only. */
    int (*set_pairs)(struct net_back *b, uint16_t n);
    void (*free)(struct net_back *b);
};

struct net_back {
    const struct net_back_ops *ops;
    uint16_t max_pairs; /* 1 .. NET_MAX_PAIRS */
    bool vnet_hdr;      /* carries headers, so offloads can be offered */
    uint32_t mtu;       /* 0: unknown */
};

#endif
