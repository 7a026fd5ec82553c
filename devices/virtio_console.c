/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_console.h"

#include "devices/char_out.h"
#include "vmm/errmsg.h"
#include "vmm/le.h"

#include <fcntl.h>
#include <linux/virtio_console.h>
#include <linux/virtio_ids.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* virtio console, one port. spec: virtio-1.2 5.3. thread: io */

#define VCON_RX         0u
#define VCON_TX         1u
#define VCON_QUEUE_SIZE 64u
#define VCON_RX_BYTES   4096u /* read from the host at a time */
#define VCON_RX_SEGS    16u
#define VCON_FLUSH_MS   500
#define VCON_CONFIG_BYTES                                                      \
    4u /* cols and rows; the rest needs other features                         \
        */

struct vcon {
    struct virtio_dev dev; /* first */
    /* immutable */
    int in_fd;            /* borrowed */
    struct char_out *out; /* NULL: nowhere */
    /* io thread */
    struct ev_fd in; /* watched while the guest has buffers */
    bool in_gone;
    bool active;
    struct ev_timer again;
    struct vq_chain chain; /* scratch of the handlers */
    /* atomic */
    _Atomic uint32_t size; /* cols in the low half, rows in the high one */
};

static struct vcon *vcon_of(struct virtio_dev *dev)
{
    return container_of(dev, struct vcon, dev);
}

/* --- output -------------------------------------------------------------- */

/* More than the buffer holds could only be dropped: it is not even copied. */
static void vcon_send(struct vcon *v)
{
    uint64_t left = min_u64(v->chain.readable_bytes, CHAR_OUT_BUFFER_BYTES);

    for (uint16_t i = 0; v->out && i < v->chain.num_readable && left > 0; i++) {
        size_t len = min_u64(v->chain.iov[i].iov_len, left);

        char_out_write(v->out, v->chain.iov[i].iov_base, len);
        left -= len;
    }
}

static void vcon_again(struct ev_timer *t);

static void vcon_handle_tx(struct vcon *v)
{
    struct virtq *vq = &v->dev.vq[VCON_TX];
    uint32_t budget = vq->size;
    int rc = 0;

    do {
        vq_disable_kicks(vq);
        while (budget > 0 && (rc = vq_pop(vq, &v->chain)) > 0) {
            budget--;
            vcon_send(v);
            vq_push(vq, v->chain.head, 0);
        }
    } while (rc == 0 && budget > 0 && vq_enable_kicks(vq));
    virtio_signal(&v->dev, VCON_TX);
    if (rc >= 0 && budget == 0)
        rc = evloop_timer_arm(v->dev.env.loop, &v->again, 0, vcon_again, v);
    if (rc < 0)
        virtio_needs_reset(&v->dev);
}

static void vcon_again(struct ev_timer *t)
{
    vcon_handle_tx(t->arg);
}

/* --- input --------------------------------------------------------------- */

static void vcon_end_input(struct vcon *v, int rc)
{
    evloop_fd_del(v->dev.env.loop, &v->in);
    v->in_gone = true;
    if (rc)
        log_msg(v->dev.env.log, LOG_INFO, "console input ended: %s",
                err_reason(rc));
}

/* Bytes read into the guest's buffer, 0 at the end of input, or -errno. */
static ssize_t vcon_receive(struct vcon *v)
{
    const struct iovec *src = v->chain.iov + v->chain.num_readable;
    struct iovec iov[VCON_RX_SEGS];
    size_t left = VCON_RX_BYTES;
    int n = 0;
    ssize_t got;

    while (n < (int)VCON_RX_SEGS && n < v->chain.num_writable && left > 0) {
        iov[n].iov_base = src[n].iov_base;
        iov[n].iov_len = min_u64(src[n].iov_len, left);
        left -= iov[n].iov_len;
        n++;
    }
    got = readv(v->in_fd, iov, n);
    return got < 0 ? neg_errno() : got;
}

static void vcon_on_input(struct ev_fd *w, uint32_t revents)
{
    struct vcon *v = w->arg;
    struct virtq *vq = &v->dev.vq[VCON_RX];
    ssize_t got;
    int rc;

    (void)revents; /* a hang-up reads as end of file or as an error */
    vq_disable_kicks(vq);
    rc = vq_pop(vq, &v->chain);
    if (rc == 0 && vq_enable_kicks(vq))
        return; /* buffers came meanwhile: the watch calls again */
    if (rc <= 0) {
        evloop_fd_del(v->dev.env.loop, &v->in); /* until the next kick */
        if (rc < 0)
            virtio_needs_reset(&v->dev);
        return;
    }
    /* A buffer without room for a byte goes back as it came. */
    got = v->chain.writable_bytes > 0 ? vcon_receive(v) : 0;
    if (got > 0 || v->chain.writable_bytes == 0) {
        vq_push(vq, v->chain.head, (uint32_t)got);
        virtio_signal(&v->dev, VCON_RX);
        return;
    }
    vq_unpop(vq);
    if (got != -EINTR && got != -EAGAIN)
        vcon_end_input(v, (int)got);
}

static void vcon_watch_input(struct vcon *v)
{
    int rc;

    if (v->in_gone || v->in.slot_ != 0)
        return;
    rc = evloop_fd_add(v->dev.env.loop, &v->in, v->in_fd, POLLIN, vcon_on_input,
                       v);
    if (rc)
        vcon_end_input(v, rc);
}

/* --- the device ---------------------------------------------------------- */

/* thread: vcpu */
static void vcon_config_read(struct virtio_dev *dev, uint32_t off, void *data,
                             uint32_t len)
{
    uint8_t config[VCON_CONFIG_BYTES];

    /* pairs with: vcon_resize() */
    put_le32(config,
             atomic_load_explicit(&vcon_of(dev)->size, memory_order_acquire));
    memcpy(data, config + off, len);
}

static int vcon_activate(struct virtio_dev *dev)
{
    struct vcon *v = vcon_of(dev);

    v->active = true;
    if (dev->vq[VCON_RX].size != 0)
        vcon_watch_input(v);
    return 0;
}

static int vcon_reset(struct virtio_dev *dev)
{
    struct vcon *v = vcon_of(dev);

    v->active = false;
    evloop_fd_del(dev->env.loop, &v->in);
    evloop_timer_cancel(dev->env.loop, &v->again);
    return 0;
}

static void vcon_queue_kick(struct virtio_dev *dev, uint16_t q)
{
    if (q == VCON_RX)
        vcon_watch_input(vcon_of(dev));
    else
        vcon_handle_tx(vcon_of(dev));
}

static void vcon_free(struct virtio_dev *dev)
{
    struct vcon *v = vcon_of(dev);

    evloop_fd_del(dev->env.loop, &v->in);
    char_out_free(v->out);
    free(v);
}

static const struct virtio_ops vcon_ops = {
    .config_read = vcon_config_read,
    .activate = vcon_activate,
    .reset = vcon_reset,
    .queue_kick = vcon_queue_kick,
    .free = vcon_free,
};

void vcon_resize(struct virtio_dev *dev, uint16_t cols, uint16_t rows)
{
    struct vcon *v = vcon_of(dev);

    /* pairs with: vcon_config_read() */
    atomic_store_explicit(&v->size, cols | (uint32_t)rows << 16,
                          memory_order_release);
    if (v->active && (dev->features & (1ull << VIRTIO_CONSOLE_F_SIZE)))
        virtio_config_changed(dev);
}

void vcon_flush(struct virtio_dev *dev)
{
    if (vcon_of(dev)->out)
        char_out_flush(vcon_of(dev)->out, VCON_FLUSH_MS);
}

int vcon_new(const struct vdev_env *env, const struct vcon_args *args,
             struct virtio_dev **out_dev)
{
    struct vcon *v = calloc(1, sizeof(*v));
    int rc = 0;

    if (!v)
        return -ENOMEM;
    virtio_dev_init(&v->dev, &vcon_ops, env, "console", VIRTIO_ID_CONSOLE);
    v->dev.num_queues = 2;
    v->dev.queue_max[VCON_RX] = VCON_QUEUE_SIZE;
    v->dev.queue_max[VCON_TX] = VCON_QUEUE_SIZE;
    v->in_fd = args->in_fd;
    v->in_gone = args->in_fd < 0 || fcntl(args->in_fd, F_GETFD) < 0;
    atomic_init(&v->size, args->cols | (uint32_t)args->rows << 16);
    if (args->cols && args->rows) {
        v->dev.offered = 1ull << VIRTIO_CONSOLE_F_SIZE;
        v->dev.config_len = VCON_CONFIG_BYTES;
    }
    if (args->out_fd >= 0)
        rc = char_out_new(env->loop, env->log, "virtio console", args->out_fd,
                          &v->out);
    if (rc) {
        free(v);
        return rc;
    }
    *out_dev = &v->dev;
    return 0;
}
