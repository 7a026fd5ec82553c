/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_CONSOLE_INT_H
#define DEVICES_VIRTIO_CONSOLE_INT_H

/*
 * Between the console's files: virtio_console.c (the device),
 * virtio_console_ctl.c (control queues), virtio_console_port.c (a port's
 * bytes), virtio_console_sock.c (a port's socket) and virtio_console_state.c (a
 * machine that pauses, is saved and loaded). thread: io
 */

#include "devices/char_out.h"
#include "devices/virtio_console.h"
#include "vmm/unix_listen.h"

#include <linux/virtio_console.h>

#define VCON_CTL_RX 2u /* queues; without MULTIPORT there are only 0 and 1 */
#define VCON_CTL_TX 3u

/* What the driver still has to be told of a port, in this order. */
enum vcon_message {
    VCON_MSG_ADD,
    VCON_MSG_CONSOLE,
    VCON_MSG_NAME,
    VCON_MSG_RESIZE,
    VCON_MSG_OPEN, /* or closed: what holds when it is sent */
    VCON_NUM_MSGS,
};

struct vcon_port {
    /* immutable */
    struct vcon *v;
    uint16_t id; /* its number */
    char name[VCON_NAME_MAX + 1];
    int in_fd;            /* borrowed; -1: none, or the port has a socket */
    struct char_out *out; /* NULL: nowhere, or the port has a socket */
    struct unix_listen listen;

    /* io thread */
    struct ev_fd accept; /* watched while there is no client */
    struct ev_timer accept_again;
    int client;      /* -1: none */
    bool client_eof; /* it has sent all that it will */
    bool client_hup; /* gone, with bytes that the guest may still want */
    struct ev_fd in; /* of in_fd or the client */
    bool in_gone;    /* in_fd has ended */
    bool room;       /* the guest has offered buffers */
    bool ready;      /* the driver knows the port */
    bool guest_open;
    uint32_t pending; /* bits of enum vcon_message */
    /* After a load: the guest takes it for open towards a client that is no
     * more. Until it has heard that, a new one is kept apart from it. */
    bool tell_closed;
    struct ev_timer again;
    bool held; /* `tx` waits for the client */
    uint64_t sent_bytes;
    uint64_t begun_bytes; /* sent of the next request, before it was put back */
    struct vq_chain tx;
    /* atomic */
    _Atomic uint32_t size; /* cols in the low half, rows in the high one */
};

struct vcon {
    struct virtio_dev dev; /* first */
    uint32_t num_ports;    /* with port 0; immutable */
    /* io thread */
    bool active;
    bool driver_ready;
    struct ev_timer ctl_again;
    struct vq_chain chain; /* scratch of the handlers */
    struct log_limit log_limit;
    struct vcon_port port[1 + VCON_MAX_PORTS];
};

static inline struct vcon *vcon_of(struct virtio_dev *dev)
{
    return container_of(dev, struct vcon, dev);
}

/* Nothing is taken up: the machine pauses. */
static inline bool vcon_resting(const struct vcon *v)
{
    return v->dev.resting;
}

static inline bool vcon_multiport(const struct vcon *v)
{
    return v->dev.features & (1ull << VIRTIO_CONSOLE_F_MULTIPORT);
}

/* The driver sent something that it should not have. */
void vcon_complain(struct vcon *v, const char *what);

/* --- virtio_console_port.c ----------------------------------------------- */

static inline uint16_t vcon_rxq(const struct vcon_port *p)
{
    return p->id == 0 ? 0 : (uint16_t)(2 + 2 * p->id);
}

static inline uint16_t vcon_txq(const struct vcon_port *p)
{
    return (uint16_t)(vcon_rxq(p) + 1);
}

void vcon_port_tx(struct vcon_port *p);   /* serves the guest's output */
void vcon_port_room(struct vcon_port *p); /* the guest offers buffers */
/* One buffer from the host's bytes. 0, or -errno that ends the input. */
int vcon_port_rx(struct vcon_port *p, int fd) MUST_CHECK;
/* Looks at what is wanted of the host's side, after any change. */
void vcon_port_watch(struct vcon_port *p);
void vcon_port_reset(struct vcon_port *p);

/* --- virtio_console_sock.c ----------------------------------------------- */

static inline bool vcon_has_socket(const struct vcon_port *p)
{
    return p->listen.fd >= 0;
}

int vcon_sock_open(struct vcon_port *p, const struct vcon_port_args *args,
                   struct errmsg *err) MUST_CHECK;
void vcon_sock_close(struct vcon_port *p);
void vcon_sock_watch(struct vcon_port *p);
/* The client goes; the next one is let in. */
void vcon_sock_drop(struct vcon_port *p);
/* Sends on with p->tx. 1: all of it went, or nobody wants it. 0: later. */
int vcon_sock_send(struct vcon_port *p, uint64_t *budget_bytes);

/* --- virtio_console_ctl.c ------------------------------------------------ */

void vcon_ctl_receive(struct vcon *v); /* the driver has sent messages */
void vcon_ctl_flush(struct vcon *v);   /* sends what is pending, or later */
void vcon_ctl_tell(struct vcon_port *p, enum vcon_message msg);

/* --- virtio_console_state.c: struct virtio_ops --------------------------- */

#define VCON_STATE_VERSION 1u
int vcon_rest(struct virtio_dev *dev);
void vcon_wake(struct virtio_dev *dev);
void vcon_save(struct virtio_dev *dev, struct state_out *out);
int vcon_load(struct virtio_dev *dev, struct state_in *in, struct errmsg *err);

#endif
