/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VSOCK_CONN_H
#define DEVICES_VSOCK_CONN_H

/*
 * One stream connection as the vsock protocol sees it: its state, what is to
 * be told to the guest, and the credit of both directions. Pure: no fd, no
 * queue, no allocation; the caller moves the bytes and says what happened.
 *
 * Threads: the caller's. Errors: none; a broken rule is an event.
 * spec: virtio-1.2 5.10.6.3 (credit), 5.10.6.6 (stream sockets)
 */

#include "devices/vsock_pkt.h"

enum vsc_state {
    VSC_DIALING, /* the guest asked; the host side is not connected yet */
    VSC_ASKED,   /* the host asked; the guest has not answered yet */
    VSC_OPEN,
};

/* Packets that wait to be sent to the guest, in order of sending. */
#define VSC_P_REQUEST  0x01u
#define VSC_P_RESPONSE 0x02u
#define VSC_P_CREDIT   0x04u /* CREDIT_REQUEST */
#define VSC_P_SHUTDOWN 0x08u
#define VSC_P_UPDATE   0x10u /* CREDIT_UPDATE */

/* What a packet of the guest means; several may be told at once. */
#define VSC_EV_OPENED     0x01u /* the guest accepted */
#define VSC_EV_DATA       0x02u /* take pkt.len bytes, vsc_forwarded() later */
#define VSC_EV_STOP_READ  0x04u /* the guest will receive no more */
#define VSC_EV_STOP_WRITE 0x08u /* the guest will send no more */
#define VSC_EV_CREDIT     0x10u /* bytes may be sent again */
/* The connection is over for the guest; one of these comes alone. */
#define VSC_EV_CLOSED                                                          \
    0x20u                  /* clean: answer by a reset, deliver what is left   \
                            */
#define VSC_EV_RESET 0x40u /* the guest broke it off */
#define VSC_EV_BAD   0x80u /* a rule is broken: answer by a reset */

struct vsc {
    enum vsc_state state;
    uint32_t wanted;     /* VSC_P_* */
    uint32_t guest_shut; /* VIRTIO_VSOCK_SHUTDOWN_* the guest told */
    uint32_t our_shut;   /* those that we told or are about to tell */
    bool request_sent;
    bool credit_asked;
    /* guest -> host */
    uint32_t buf_alloc; /* our buffer, bytes; a power of two */
    uint32_t rx_cnt;    /* bytes that came, free running */
    uint32_t fwd_cnt;   /* bytes that left the buffer, free running */
    uint32_t fwd_told;  /* fwd_cnt in the last packet sent */
    /* host -> guest */
    uint32_t peer_buf_alloc;
    uint32_t peer_fwd_cnt;
    uint32_t tx_cnt; /* bytes sent, free running */
};

/* For a REQUEST of the guest: DIALING. */
void vsc_init_guest(struct vsc *s, const struct vsock_pkt *request,
                    uint32_t buf_alloc);
/* For a client of the host: ASKED, with a REQUEST to send. */
void vsc_init_host(struct vsc *s, uint32_t buf_alloc);

/* Any packet of the guest but REQUEST. Returns VSC_EV_*. */
uint32_t vsc_on_packet(struct vsc *s, const struct vsock_pkt *pkt);

/* The host side of a DIALING connection stands: OPEN, RESPONSE to send. */
void vsc_host_connected(struct vsc *s);
/* The host will send no more. Idempotent. */
void vsc_host_sent_all(struct vsc *s);
/* The host will receive no more. Idempotent. */
void vsc_host_receives_no_more(struct vsc *s);

/* `n` bytes of the guest have left our buffer. */
void vsc_forwarded(struct vsc *s, uint32_t n);
/* A buffer that was in use is empty: the guest learns what it was not told. */
void vsc_drained(struct vsc *s);

/* Bytes that may be sent to the guest now. */
uint32_t vsc_credit(const struct vsc *s);
/* There is more to send than credit: asks for it, once until some comes. */
void vsc_ask_credit(struct vsc *s);

/*
 * The next waiting packet: fills op, flags, len and the credit fields and
 * takes it off `wanted`. False: none waits.
 */
bool vsc_next_packet(struct vsc *s, struct vsock_pkt *out_pkt);
/* A packet of `len` bytes of data, len <= vsc_credit(). */
void vsc_data_packet(struct vsc *s, uint32_t len, struct vsock_pkt *out_pkt);

#endif
