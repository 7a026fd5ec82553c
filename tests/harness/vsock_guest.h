/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_VSOCK_GUEST_H
#define TESTS_HARNESS_VSOCK_GUEST_H

/*
 * A guest's vsock driver on top of the fake driver, with a real event loop
 * and real Unix sockets in a directory of its own. Two levels: raw packets,
 * for breaking rules, and stream sockets that keep the rules the way Linux
 * does.
 *
 * Threads: one. Errors: misuse by a test aborts.
 */

#include "devices/virtio_vsock.h"
#include "devices/vsock_pkt.h"
#include "tests/harness/fake_driver.h"

#define VSG_CID      3u
#define VSG_RX_BYTES 3776u /* about what today's Linux offers per buffer */
#define VSG_MAX_RX   128u
#define VSG_SOCK_BUF (256u * 1024u)
#define VSG_TX_SLOTS 64u /* packets under way at most */

enum { VSG_RX, VSG_TX, VSG_EVENT };

/* A stream socket of the guest. */
struct vsg_sock {
    struct vsg_sock *next;
    uint32_t port;
    uint32_t peer_port;
    bool connected;
    bool reset;         /* the device reset it */
    uint32_t peer_shut; /* VIRTIO_VSOCK_SHUTDOWN_* told by the device */
    uint32_t shut;      /* those we told */
    uint32_t peer_alloc;
    uint32_t peer_fwd;
    uint32_t tx_cnt;
    uint32_t rx_cnt;
    uint32_t fwd_cnt;
    uint32_t fwd_told;
    uint32_t buf_alloc;
    uint32_t overruns; /* bytes that came without credit */
    uint32_t head;     /* of the unread bytes */
    uint8_t buf[VSG_SOCK_BUF];
};

struct vsg_opts {
    uint64_t features;   /* ring features */
    uint32_t rx_bytes;   /* of each rx buffer; 0: VSG_RX_BYTES */
    uint16_t rx_buffers; /* posted; 0: as many as fit */
    bool no_rx;          /* post none */
    bool inactive;       /* no driver yet: vsg_activate() later */
};

struct vsg {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct virtio_dev *dev;
    struct vsg_opts opts;
    char dir[64];
    char path[108];
    gpa_t rx_gpa[VSG_MAX_RX];
    uint16_t rx_of_head[VQ_MAX_SIZE];
    gpa_t tx_gpa;     /* 64 KiB slots of a ring */
    uint32_t tx_next; /* slot */
    uint32_t tx_busy; /* packets not yet used by the device */
    struct vsg_sock *socks;
    uint32_t listen_port; /* 0: none; REQUESTs to others are refused */
    uint32_t listen_alloc;
    uint32_t accepted;
    uint32_t strays; /* resets for sockets that are none */
    struct vsock_pkt last;
};

/* NULL where this host forbids the back end (io_uring). */
struct vsg *vsg_new(enum evloop_backend backend, struct vsg_opts opts);
void vsg_free(struct vsg *g);
void vsg_activate(struct vsg *g);
/* One turn of the loop, waiting up to `ms` for something to happen. */
void vsg_turn(struct vsg *g, uint32_t ms);
/* A few turns, handling what comes. */
void vsg_settle(struct vsg *g);
struct vvsock_stats vsg_stats(const struct vsg *g);

/* Ends the test program: the harness itself, or the device's basics, fail. */
void vsg_must(bool ok, const char *what);

/* --- raw packets --------------------------------------------------------- */

struct vsock_pkt vsg_packet(uint16_t op, uint32_t src_port, uint32_t dst_port);
/* Sends; waits for a free descriptor if need be. */
void vsg_send(struct vsg *g, const struct vsock_pkt *pkt, const void *data,
              uint32_t len);
/* Takes back what the device has used. */
void vsg_reap_tx(struct vsg *g);
/* The next packet of the device, without waiting; data goes to `buf`. */
bool vsg_recv(struct vsg *g, struct vsock_pkt *out_pkt, void *buf, size_t size);
/* The same, waiting; aborts when none comes within ten seconds. */
void vsg_expect(struct vsg *g, uint16_t op, struct vsock_pkt *out_pkt);
/* Nothing comes in some turns of the loop. */
bool vsg_silent(struct vsg *g);
/* Posts one more rx buffer. */
void vsg_post_rx(struct vsg *g, uint16_t i);

/* --- stream sockets ------------------------------------------------------ */

struct vsg_sock *vsg_socket(struct vsg *g, uint32_t port, uint32_t peer_port);
void vsg_connect(struct vsg *g, struct vsg_sock *s);
/* Handles what the device sent. */
void vsg_poll(struct vsg *g);
/* As much as credit and ring take; returns the bytes. */
size_t vsg_write(struct vsg *g, struct vsg_sock *s, const void *data,
                 size_t len);
size_t vsg_read(struct vsg *g, struct vsg_sock *s, void *buf, size_t size);
size_t vsg_unread(const struct vsg_sock *s);
void vsg_shutdown(struct vsg *g, struct vsg_sock *s, uint32_t flags);
/* As close(): both directions, and frees the socket without waiting. */
void vsg_drop(struct vsg *g, struct vsg_sock *s);
struct vsg_sock *vsg_find(struct vsg *g, uint32_t port, uint32_t peer_port);

/* --- the host ------------------------------------------------------------ */

/* A client on the device's socket; non-blocking. -1: refused. */
int vsg_host_connect(struct vsg *g);
/* The same, having said CONNECT. */
int vsg_host_dial(struct vsg *g, uint32_t port);
/* A listener for guest connections to `port`; non-blocking. */
int vsg_host_listen(struct vsg *g, uint32_t port, int backlog);
/* Reads a line of at most size-1 bytes, waiting; false: closed before. */
bool vsg_host_line(struct vsg *g, int fd, char *buf, size_t size);
/* Reads up to `size` bytes, waiting for the first; 0: EOF, < 0: -errno. */
ssize_t vsg_host_read(struct vsg *g, int fd, void *buf, size_t size);
/*
 * A guest that listens on `port` and a client of the host connected to it;
 * returns the client's fd.
 */
int vsg_dial(struct vsg *g, uint32_t port, struct vsg_sock **out_s);
/* Open fds of the process. */
uint32_t vsg_count_fds(void);

#endif
