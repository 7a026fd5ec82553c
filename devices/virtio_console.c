/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_console.h"

#include "devices/virtio_console_int.h"
#include "vmm/le.h"

#include <fcntl.h>
#include <linux/virtio_console.h>
#include <linux/virtio_ids.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* virtio console. spec: virtio-1.2 5.3. thread: io */

#define VCON_QUEUE_SIZE   64u
#define VCON_FLUSH_MS     500
#define VCON_CONFIG_BYTES sizeof(struct virtio_console_config)

#define F_SIZE  (1ull << VIRTIO_CONSOLE_F_SIZE)
#define F_MULTI (1ull << VIRTIO_CONSOLE_F_MULTIPORT)
#define F_EMERG (1ull << VIRTIO_CONSOLE_F_EMERG_WRITE)

_Static_assert(VCON_CONFIG_BYTES == 12, "wire format");
_Static_assert(4 + 2 * VCON_MAX_PORTS <= VIRTIO_MAX_QUEUES, "queues");

void vcon_complain(struct vcon *v, const char *what)
{
    log_limited(v->dev.env.log, &v->log_limit, LOG_WARN,
                "console: the guest's driver %s", what);
}

/* --- configuration space ------------------------------------------------- */

/* thread: vcpu */
static void vcon_config_read(struct virtio_dev *dev, uint32_t off, void *data,
                             uint32_t len)
{
    struct vcon *v = vcon_of(dev);
    uint8_t config[VCON_CONFIG_BYTES] = {0};

    /* pairs with: vcon_set_size() */
    put_le32(config,
             atomic_load_explicit(&v->port[0].size, memory_order_acquire));
    put_le32(config + offsetof(struct virtio_console_config, max_nr_ports),
             v->num_ports);
    memcpy(data, config + off, len);
}

/*
 * A byte that a guest in trouble prints without any queue, before it has a
 * driver even. spec: virtio-1.2 5.3.4. thread: vcpu
 */
static void vcon_config_write(struct virtio_dev *dev, uint32_t off,
                              const void *data, uint32_t len)
{
    struct vcon *v = vcon_of(dev);

    if (off == offsetof(struct virtio_console_config, emerg_wr) && len == 4 &&
        v->port[0].out)
        char_out_write(v->port[0].out, data, 1);
}

static void vcon_set_size(struct virtio_dev *dev, void *arg)
{
    const uint32_t *size = arg;

    /* pairs with: vcon_config_read() */
    atomic_store_explicit(&vcon_of(dev)->port[0].size, *size,
                          memory_order_release);
}

void vcon_resize(struct virtio_dev *dev, uint16_t cols, uint16_t rows)
{
    struct vcon *v = vcon_of(dev);
    uint32_t size = cols | (uint32_t)rows << 16;

    if (!v->active || !(dev->features & F_SIZE))
        vcon_set_size(dev, &size);
    else
        virtio_config_update(dev, vcon_set_size, &size);
    /* With several ports drivers heed the message alone. */
    vcon_ctl_tell(&v->port[0], VCON_MSG_RESIZE);
}

/* --- the device ---------------------------------------------------------- */

static int vcon_activate(struct virtio_dev *dev)
{
    struct vcon *v = vcon_of(dev);

    v->active = true;
    v->driver_ready = false;
    if (vcon_resting(v)) {
        (void)vcon_rest(dev); /* never in flight */
        return 0;
    }
    for (uint32_t i = 0; i < v->num_ports; i++) {
        if (dev->vq[vcon_rxq(&v->port[i])].size != 0)
            vcon_port_room(&v->port[i]);
    }
    return 0;
}

static int vcon_reset(struct virtio_dev *dev)
{
    struct vcon *v = vcon_of(dev);

    v->active = false;
    evloop_timer_cancel(dev->env.loop, &v->ctl_again);
    for (uint32_t i = 0; i < v->num_ports; i++)
        vcon_port_reset(&v->port[i]);
    return 0;
}

static void vcon_queue_kick(struct virtio_dev *dev, uint16_t q)
{
    struct vcon *v = vcon_of(dev);
    struct vcon_port *p = &v->port[q < 2 ? 0 : q / 2 - 1];

    if (q >= 2 && !vcon_multiport(v))
        return; /* a queue that such a driver does not have */
    if (q == VCON_CTL_RX)
        vcon_ctl_flush(v);
    else if (q == VCON_CTL_TX)
        vcon_ctl_receive(v);
    else if (q == vcon_rxq(p))
        vcon_port_room(p);
    else
        vcon_port_tx(p);
}

static void vcon_free(struct virtio_dev *dev)
{
    struct vcon *v = vcon_of(dev);

    for (uint32_t i = 0; i < v->num_ports; i++) {
        vcon_sock_close(&v->port[i]);
        char_out_free(v->port[i].out);
    }
    free(v);
}

static const struct virtio_ops vcon_ops = {
    .config_read = vcon_config_read,
    .config_write = vcon_config_write,
    .activate = vcon_activate,
    .reset = vcon_reset,
    .queue_kick = vcon_queue_kick,
    .free = vcon_free,
    .rest = vcon_rest,
    .wake = vcon_wake,
    .save = vcon_save,
    .load = vcon_load,
    .state_version = VCON_STATE_VERSION,
};

void vcon_flush(struct virtio_dev *dev)
{
    if (vcon_of(dev)->port[0].out)
        char_out_flush(vcon_of(dev)->port[0].out, VCON_FLUSH_MS);
}

/* --- making one ---------------------------------------------------------- */

static struct vcon_port *vcon_add_port(struct vcon *v)
{
    struct vcon_port *p = &v->port[v->num_ports];

    p->v = v;
    p->id = (uint16_t)v->num_ports;
    p->in_fd = -1;
    p->in_gone = true;
    p->client = -1;
    p->listen.fd = -1;
    v->num_ports++;
    return p;
}

static int vcon_add_console(struct vcon *v, const struct vcon_args *args,
                            struct errmsg *err)
{
    struct vcon_port *p = vcon_add_port(v);
    int rc = 0;

    p->in_fd = args->in_fd;
    p->in_gone = args->in_fd < 0 || fcntl(args->in_fd, F_GETFD) < 0;
    atomic_init(&p->size, args->cols | (uint32_t)args->rows << 16);
    if (args->out_fd >= 0)
        rc = char_out_new(v->dev.env.loop, v->dev.env.log, "virtio console",
                          args->out_fd, &p->out);
    return rc ? err_set(err, rc, "virtio console: %s", err_reason(rc)) : 0;
}

static int vcon_add_ports(struct vcon *v, const struct vcon_args *args,
                          struct errmsg *err)
{
    int rc = 0;

    if (args->num_ports > VCON_MAX_PORTS)
        return err_set(err, -EINVAL, "virtio console: %u ports, %u at most",
                       args->num_ports, VCON_MAX_PORTS);
    for (uint32_t i = 0; rc == 0 && i < args->num_ports; i++) {
        const struct vcon_port_args *a = &args->ports[i];
        struct vcon_port *p = vcon_add_port(v);

        if (strlen(a->name) > VCON_NAME_MAX)
            return err_set(err, -EINVAL,
                           "console port %s: the name takes %u bytes", a->name,
                           VCON_NAME_MAX);
        memcpy(p->name, a->name, strlen(a->name));
        rc = vcon_sock_open(p, a, err);
    }
    return rc;
}

static void vcon_offer(struct vcon *v, const struct vcon_args *args)
{
    struct virtio_dev *dev = &v->dev;

    dev->offered = F_EMERG;
    if (args->cols && args->rows)
        dev->offered |= F_SIZE;
    if (args->num_ports)
        dev->offered |= F_MULTI;
    dev->config_len = VCON_CONFIG_BYTES;
    dev->num_queues = args->num_ports ? (uint16_t)(4 + 2 * args->num_ports) : 2;
    for (uint16_t q = 0; q < dev->num_queues; q++)
        dev->queue_max[q] = VCON_QUEUE_SIZE;
}

int vcon_new(const struct vdev_env *env, const struct vcon_args *args,
             struct virtio_dev **out_dev, struct errmsg *err)
{
    struct vcon *v = calloc(1, sizeof(*v));
    int rc;

    if (!v)
        return err_set(err, -ENOMEM, "out of memory");
    virtio_dev_init(&v->dev, &vcon_ops, env, "console", VIRTIO_ID_CONSOLE);
    rc = vcon_add_console(v, args, err);
    if (rc == 0)
        rc = vcon_add_ports(v, args, err);
    if (rc) {
        vcon_free(&v->dev);
        return rc;
    }
    vcon_offer(v, args);
    *out_dev = &v->dev;
    return 0;
}
