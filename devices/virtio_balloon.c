/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_balloon.h"

#include "devices/virtio_balloon_int.h"
#include "vmm/le.h"

#include <linux/virtio_balloon.h>
#include <linux/virtio_ids.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* virtio balloon device. spec: virtio-1.2 5.5. thread: io */

#define VBALLOON_QUEUE_SIZE 64u
/* A driver frees what it cannot name at once: the more it can, the better. */
#define VBALLOON_HINT_QUEUE_SIZE 256u
#define VBALLOON_CONFIG_BYTES    sizeof(struct virtio_balloon_config)

#define F_STATS  (1ull << VIRTIO_BALLOON_F_STATS_VQ)
#define F_OOM    (1ull << VIRTIO_BALLOON_F_DEFLATE_ON_OOM)
#define F_HINT   (1ull << VIRTIO_BALLOON_F_FREE_PAGE_HINT)
#define F_POISON (1ull << VIRTIO_BALLOON_F_PAGE_POISON)
#define F_REPORT (1ull << VIRTIO_BALLOON_F_REPORTING)
/*
 * VIRTIO_BALLOON_F_MUST_TELL_HOST is not offered: a page may be used again as
 * soon as its inflate request has completed, told or not.
 */

_Static_assert(VBALLOON_CONFIG_BYTES == 16, "wire format");

void vballoon_bad_request(struct vballoon *b, const char *what)
{
    counter_add(&b->counts.bad_requests, 1);
    log_limited(b->dev.env.log, &b->log_limit, LOG_WARN,
                "balloon: the guest's driver sent %s", what);
}

static void vballoon_tell(struct vballoon *b)
{
    if (b->active)
        virtio_config_changed(&b->dev);
}

/* --- statistics ---------------------------------------------------------- */

/*
 * The driver's buffer is held; giving it back asks for new figures.
 * spec: virtio-1.2 5.5.6.3
 */
static void vballoon_ask_stats(struct vballoon *b)
{
    struct vballoon_work *w = &b->work[VBALLOON_STATS];
    struct virtq *vq = b->vq[VBALLOON_STATS];

    if (!w->held)
        return;
    w->held = false;
    vq_push(vq, w->chain.head, 0);
    virtio_signal(&b->dev, (uint16_t)(vq - b->dev.vq));
}

static void vballoon_handle_stats(struct vballoon *b)
{
    struct vballoon_work *w = &b->work[VBALLOON_STATS];
    struct virtq *vq = b->vq[VBALLOON_STATS];
    uint32_t budget = vq->size;
    int rc = 0;

    do {
        while (budget > 0) {
            /* One buffer is all that a driver has; of more, the last stays. */
            bool had = w->held;
            uint16_t head = w->chain.head;

            rc = vq_pop(vq, &w->chain);
            if (rc <= 0)
                break;
            budget--;
            w->held = true;
            vballoon_parse_stats(&w->chain, &b->stats);
            counter_add(&b->counts.stats_updates, 1);
            if (had)
                vq_push(vq, head, 0);
        }
    } while (rc == 0 && budget > 0 && vq_enable_kicks(vq));
    virtio_signal(&b->dev, (uint16_t)(vq - b->dev.vq));
    b->pending[VBALLOON_STATS] = rc >= 0 && budget == 0;
    if (rc < 0)
        virtio_needs_reset(&b->dev);
}

static void vballoon_on_stats_timer(struct ev_timer *t);

int vballoon_arm_stats(struct vballoon *b, uint64_t wait_ns)
{
    return evloop_timer_arm(b->dev.env.loop, &b->stats_timer,
                            util_now_ns() + wait_ns, vballoon_on_stats_timer,
                            b);
}

static void vballoon_on_stats_timer(struct ev_timer *t)
{
    struct vballoon *b = t->arg;

    vballoon_ask_stats(b);
    if (vballoon_arm_stats(b, vballoon_stats_ns(b)))
        log_msg(b->dev.env.log, LOG_WARN,
                "balloon: out of memory; no more statistics");
}

/* --- hinting ------------------------------------------------------------- */

static void vballoon_set_hint_cmd(struct vballoon *b, uint32_t cmd)
{
    b->hinting.host_cmd = cmd;
    atomic_store_explicit(&b->hint_cmd, cmd, memory_order_release);
    vballoon_tell(b);
}

void vballoon_on_hint_cmd(struct vballoon *b, uint32_t g_cmd)
{
    bool was_at_it =
        b->hinting.guest_said && b->hinting.guest_cmd == b->hinting.host_cmd;

    b->hinting.guest_cmd = g_cmd;
    b->hinting.guest_said = true;
    /* Only the end of the run that we asked for is worth an answer. */
    if (g_cmd == VIRTIO_BALLOON_CMD_ID_STOP && was_at_it &&
        b->hinting.host_cmd > VIRTIO_BALLOON_CMD_ID_DONE &&
        b->acknowledge_on_stop)
        vballoon_set_hint_cmd(b, VIRTIO_BALLOON_CMD_ID_DONE);
}

static int vballoon_hinting_usable(const struct vballoon *b)
{
    if (!(b->dev.offered & F_HINT))
        return -ENODEV;
    return b->active && (b->dev.features & F_HINT) ? 0 : -ENOTCONN;
}

int vballoon_hinting_start(struct virtio_dev *dev, bool acknowledge_on_stop)
{
    struct vballoon *b = vballoon_of(dev);
    int rc = vballoon_hinting_usable(b);

    if (rc)
        return rc;
    b->acknowledge_on_stop = acknowledge_on_stop;
    b->last_run++;
    if (b->last_run <= VIRTIO_BALLOON_CMD_ID_DONE)
        b->last_run = VIRTIO_BALLOON_CMD_ID_DONE + 1;
    vballoon_set_hint_cmd(b, b->last_run);
    return 0;
}

int vballoon_hinting_stop(struct virtio_dev *dev)
{
    struct vballoon *b = vballoon_of(dev);
    int rc = vballoon_hinting_usable(b);

    if (rc == 0)
        vballoon_set_hint_cmd(b, VIRTIO_BALLOON_CMD_ID_DONE);
    return rc;
}

int vballoon_hinting_status(struct virtio_dev *dev,
                            struct vballoon_hinting *out)
{
    struct vballoon *b = vballoon_of(dev);

    if (!(dev->offered & F_HINT))
        return -ENODEV;
    *out = b->hinting;
    return 0;
}

/* --- queues -------------------------------------------------------------- */

static void vballoon_again(struct ev_timer *t);

static void vballoon_serve(struct vballoon *b, enum vballoon_role role)
{
    if (role == VBALLOON_STATS)
        vballoon_handle_stats(b);
    else
        vballoon_handle(b, role);
    if (b->pending[role] &&
        evloop_timer_arm(b->dev.env.loop, &b->again, 0, vballoon_again, b))
        virtio_needs_reset(&b->dev);
}

static void vballoon_again(struct ev_timer *t)
{
    struct vballoon *b = t->arg;

    for (int r = 0; r < VBALLOON_NUM_ROLES; r++) {
        if (b->pending[r])
            vballoon_serve(b, (enum vballoon_role)r);
    }
}

static void vballoon_queue_kick(struct virtio_dev *dev, uint16_t q)
{
    struct vballoon *b = vballoon_of(dev);

    for (int r = 0; r < VBALLOON_NUM_ROLES; r++) {
        if (b->vq[r] == &dev->vq[q])
            vballoon_serve(b, (enum vballoon_role)r);
    }
}

/*
 * Queues of features that were not negotiated have no number: the ones behind
 * them move up, as Linux numbers them.
 */
static void vballoon_assign_queues(struct vballoon *b)
{
    static const struct {
        enum vballoon_role role;
        uint64_t feature; /* 0: always there */
    } order[] = {{VBALLOON_INFLATE, 0},
                 {VBALLOON_DEFLATE, 0},
                 {VBALLOON_STATS, F_STATS},
                 {VBALLOON_HINT, F_HINT},
                 {VBALLOON_REPORT, F_REPORT}};
    uint16_t q = 0;

    memset(b->vq, 0, sizeof(b->vq));
    for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
        if (order[i].feature && !(b->dev.features & order[i].feature))
            continue;
        b->vq[order[i].role] = &b->dev.vq[q++];
    }
}

/* --- the device ---------------------------------------------------------- */

/* thread: vcpu */
static void vballoon_config_read(struct virtio_dev *dev, uint32_t off,
                                 void *data, uint32_t len)
{
    struct vballoon *b = vballoon_of(dev);
    uint8_t c[VBALLOON_CONFIG_BYTES];

    put_le32(c, atomic_load_explicit(&b->num_pages, memory_order_acquire));
    put_le32(c + 4, atomic_load_explicit(&b->actual, memory_order_relaxed));
    put_le32(c + 8, atomic_load_explicit(&b->hint_cmd, memory_order_acquire));
    put_le32(c + 12, atomic_load_explicit(&b->poison, memory_order_relaxed));
    memcpy(data, c + off, len);
}

/* thread: vcpu. Fields of 32 bits are written whole: virtio-1.2 4.2.2.2 */
static void vballoon_config_write(struct virtio_dev *dev, uint32_t off,
                                  const void *data, uint32_t len)
{
    struct vballoon *b = vballoon_of(dev);

    if (len != 4)
        return;
    if (off == offsetof(struct virtio_balloon_config, actual))
        atomic_store_explicit(&b->actual, get_le32(data), memory_order_relaxed);
    else if (off == offsetof(struct virtio_balloon_config, poison_val))
        atomic_store_explicit(&b->poison, get_le32(data), memory_order_relaxed);
}

static int vballoon_activate(struct virtio_dev *dev)
{
    struct vballoon *b = vballoon_of(dev);

    b->active = true;
    vballoon_assign_queues(b);
    b->stats_left_ns = vballoon_stats_ns(b);
    if (dev->resting || !(dev->features & F_STATS))
        return 0;
    return vballoon_arm_stats(b, b->stats_left_ns);
}

static int vballoon_reset(struct virtio_dev *dev)
{
    struct vballoon *b = vballoon_of(dev);

    b->active = false;
    evloop_timer_cancel(dev->env.loop, &b->again);
    evloop_timer_cancel(dev->env.loop, &b->stats_timer);
    memset(b->vq, 0, sizeof(b->vq));
    memset(b->pending, 0, sizeof(b->pending));
    for (int r = 0; r < VBALLOON_NUM_ROLES; r++)
        b->work[r].held = false;
    memset(&b->stats, 0, sizeof(b->stats));
    memset(&b->hinting, 0, sizeof(b->hinting));
    atomic_store_explicit(&b->hint_cmd, VIRTIO_BALLOON_CMD_ID_STOP,
                          memory_order_relaxed);
    /* A driver that goes without a word has forgotten its balloon. */
    atomic_store_explicit(&b->actual, 0, memory_order_relaxed);
    atomic_store_explicit(&b->poison, 0, memory_order_relaxed);
    return 0;
}

static void vballoon_free(struct virtio_dev *dev)
{
    free(vballoon_of(dev));
}

static const struct virtio_ops vballoon_ops = {
    .config_read = vballoon_config_read,
    .config_write = vballoon_config_write,
    .activate = vballoon_activate,
    .reset = vballoon_reset,
    .queue_kick = vballoon_queue_kick,
    .free = vballoon_free,
    .rest = vballoon_rest,
    .wake = vballoon_wake,
    .save = vballoon_save,
    .load = vballoon_load,
    .state_version = VBALLOON_STATE_VERSION,
};

/* --- the host's side ----------------------------------------------------- */

int vballoon_set_target(struct virtio_dev *dev, uint64_t bytes)
{
    struct vballoon *b = vballoon_of(dev);

    if (bytes > gm_ram_bytes(dev->env.mem))
        return -EINVAL;
    /* pairs with: vballoon_config_read() */
    atomic_store_explicit(&b->num_pages, (uint32_t)(bytes / VBALLOON_PAGE),
                          memory_order_release);
    vballoon_tell(b);
    return 0;
}

void vballoon_get(struct virtio_dev *dev, struct vballoon_info *out)
{
    struct vballoon *b = vballoon_of(dev);

    memset(out, 0, sizeof(*out));
    out->target_bytes = (uint64_t)atomic_load(&b->num_pages) * VBALLOON_PAGE;
    out->actual_bytes =
        min_u64((uint64_t)atomic_load(&b->actual) * VBALLOON_PAGE,
                gm_ram_bytes(dev->env.mem));
    out->stats_valid = b->stats.valid;
    memcpy(out->stats, b->stats.value, sizeof(out->stats));
    out->discarded_bytes = b->counts.discarded_bytes;
    out->bad_requests = b->counts.bad_requests;
}

void vballoon_get_counts(const struct virtio_dev *dev,
                         struct vballoon_counts *out)
{
    /* dev is its first member */
    *out = ((const struct vballoon *)dev)->counts;
}

int vballoon_set_stats_interval(struct virtio_dev *dev, uint32_t seconds)
{
    struct vballoon *b = vballoon_of(dev);

    if (!(dev->offered & F_STATS))
        return -ENODEV;
    if (seconds == 0 || seconds > VBALLOON_MAX_INTERVAL_S)
        return -EINVAL;
    b->stats_interval_s = seconds;
    b->stats_left_ns = vballoon_stats_ns(b);
    if (!b->active || dev->resting || !(dev->features & F_STATS))
        return 0;
    return vballoon_arm_stats(b, b->stats_left_ns);
}

static void vballoon_offer(struct vballoon *b, const struct vballoon_args *args)
{
    struct virtio_dev *dev = &b->dev;

    if (args->deflate_on_oom)
        dev->offered |= F_OOM;
    dev->queue_max[dev->num_queues++] = VBALLOON_QUEUE_SIZE;
    dev->queue_max[dev->num_queues++] = VBALLOON_QUEUE_SIZE;
    if (args->stats_interval_s) {
        dev->offered |= F_STATS;
        dev->queue_max[dev->num_queues++] = VBALLOON_QUEUE_SIZE;
    }
    if (args->hinting) {
        dev->offered |= F_HINT | F_POISON;
        dev->queue_max[dev->num_queues++] = VBALLOON_HINT_QUEUE_SIZE;
    }
    if (args->reporting) {
        dev->offered |= F_REPORT | F_POISON;
        dev->queue_max[dev->num_queues++] = VBALLOON_QUEUE_SIZE;
    }
    dev->config_len =
        dev->offered & F_POISON
            ? VBALLOON_CONFIG_BYTES
            : offsetof(struct virtio_balloon_config, free_page_hint_cmd_id);
}

int vballoon_new(const struct vdev_env *env, const struct vballoon_args *args,
                 struct virtio_dev **out_dev)
{
    struct vballoon *b;

    if (args->target_bytes > gm_ram_bytes(env->mem) ||
        args->stats_interval_s > VBALLOON_MAX_INTERVAL_S)
        return -EINVAL;
    b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    virtio_dev_init(&b->dev, &vballoon_ops, env, "balloon", VIRTIO_ID_BALLOON);
    vballoon_offer(b, args);
    b->stats_interval_s = args->stats_interval_s;
    atomic_init(&b->num_pages, (uint32_t)(args->target_bytes / VBALLOON_PAGE));
    *out_dev = &b->dev;
    return 0;
}
