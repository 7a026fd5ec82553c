/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/fake_driver.h"

#include "vmm/le.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FDRV_RING_ALIGN 4096u

/* Unlike assert() these stay in any build: they check the test itself. */
static void fdrv_must(bool ok)
{
    if (!ok)
        abort();
}

/* --- memory -------------------------------------------------------------- */

void fdrv_init(struct fdrv *d, uint64_t ram_bytes)
{
    memset(d, 0, sizeof(*d));
    fdrv_must(gm_new(ram_bytes, &d->mem) == 0);
    d->next_free = 4096; /* address 0 stays unused: easier to tell apart */
}

void fdrv_fini(struct fdrv *d)
{
    gm_free(d->mem);
    memset(d, 0, sizeof(*d));
}

gpa_t fdrv_alloc(struct fdrv *d, uint64_t len, uint64_t align)
{
    gpa_t gpa = align_up(d->next_free, align);
    void *p = NULL;

    fdrv_must(gm_wptr(d->mem, gpa, len, &p) == 0);
    memset(p, 0, len);
    d->next_free = gpa + len;
    return gpa;
}

gpa_t fdrv_put(struct fdrv *d, const void *src, uint64_t len, uint64_t align)
{
    gpa_t gpa = fdrv_alloc(d, len, align);

    fdrv_write(d, gpa, src, len);
    return gpa;
}

void fdrv_write(struct fdrv *d, gpa_t gpa, const void *src, uint64_t len)
{
    fdrv_must(gm_write(d->mem, gpa, src, len) == 0);
}

void fdrv_read(const struct fdrv *d, gpa_t gpa, void *dst, uint64_t len)
{
    fdrv_must(gm_read(d->mem, gpa, dst, len) == 0);
}

void *fdrv_ptr(const struct fdrv *d, gpa_t gpa, uint64_t len)
{
    void *p = NULL;

    fdrv_must(gm_wptr(d->mem, gpa, len, &p) == 0);
    return p;
}

static void fdrv_put_u16(struct fdrv *d, gpa_t gpa, uint16_t v)
{
    uint8_t b[2];

    put_le16(b, v);
    fdrv_write(d, gpa, b, sizeof(b));
}

static uint16_t fdrv_get_u16(const struct fdrv *d, gpa_t gpa)
{
    uint8_t b[2];

    fdrv_read(d, gpa, b, sizeof(b));
    return get_le16(b);
}

/* --- raw rings ----------------------------------------------------------- */

static void fdrv_store_desc(struct fdrv *d, gpa_t gpa, uint64_t addr,
                            uint32_t len, uint16_t flags, uint16_t next)
{
    uint8_t b[16];

    put_le64(b, addr);
    put_le32(b + 8, len);
    put_le16(b + 12, flags);
    put_le16(b + 14, next);
    fdrv_write(d, gpa, b, sizeof(b));
}

void fdrv_set_desc(struct fdrv *d, uint16_t q, uint16_t i, uint64_t addr,
                   uint32_t len, uint16_t flags, uint16_t next)
{
    fdrv_store_desc(d, d->q[q].desc + 16u * i, addr, len, flags, next);
}

void fdrv_get_desc(const struct fdrv *d, uint16_t q, uint16_t i,
                   struct vring_desc *out)
{
    fdrv_read(d, d->q[q].desc + 16u * i, out, sizeof(*out));
}

void fdrv_set_avail_flags(struct fdrv *d, uint16_t q, uint16_t flags)
{
    fdrv_put_u16(d, d->q[q].avail, flags);
}

void fdrv_set_avail_idx(struct fdrv *d, uint16_t q, uint16_t idx)
{
    fdrv_put_u16(d, d->q[q].avail + 2, idx);
}

void fdrv_set_avail_entry(struct fdrv *d, uint16_t q, uint16_t slot,
                          uint16_t head)
{
    fdrv_put_u16(d, d->q[q].avail + 4 + 2u * slot, head);
}

void fdrv_set_used_event(struct fdrv *d, uint16_t q, uint16_t idx)
{
    fdrv_put_u16(d, d->q[q].avail + 4 + 2u * d->q[q].size, idx);
}

uint16_t fdrv_avail_event(const struct fdrv *d, uint16_t q)
{
    return fdrv_get_u16(d, d->q[q].used + 4 + 8u * d->q[q].size);
}

uint16_t fdrv_used_flags(const struct fdrv *d, uint16_t q)
{
    return fdrv_get_u16(d, d->q[q].used);
}

uint16_t fdrv_used_idx(const struct fdrv *d, uint16_t q)
{
    return fdrv_get_u16(d, d->q[q].used + 2);
}

/* --- rings as a driver keeps them ---------------------------------------- */

void fdrv_queue_init(struct fdrv *d, uint16_t q, uint16_t size, bool event_idx)
{
    struct fdrv_queue *fq = &d->q[q];

    fdrv_must(q < VIRTIO_MAX_QUEUES && size >= 1 && size <= VQ_MAX_SIZE);
    memset(fq, 0, sizeof(*fq));
    fq->size = size;
    fq->event_idx = event_idx;
    fq->desc = fdrv_alloc(d, 16u * size, FDRV_RING_ALIGN);
    fq->avail = fdrv_alloc(d, 6u + 2u * size, FDRV_RING_ALIGN);
    fq->used = fdrv_alloc(d, 6u + 8u * size, FDRV_RING_ALIGN);
    fq->num_free = size;
    for (uint16_t i = 0; i < size; i++)
        fq->next[i] = (uint16_t)(i + 1);
}

struct vq_setup_args fdrv_setup_args(const struct fdrv *d, uint16_t q,
                                     bool indirect)
{
    const struct fdrv_queue *fq = &d->q[q];

    return (struct vq_setup_args){
        .size = fq->size,
        .desc = fq->desc,
        .avail = fq->avail,
        .used = fq->used,
        .event_idx = fq->event_idx,
        .indirect = indirect,
    };
}

static uint16_t fdrv_seg_flags(const struct fdrv_seg *s, bool last)
{
    return (uint16_t)((s->writable ? VRING_DESC_F_WRITE : 0) |
                      (last ? 0 : VRING_DESC_F_NEXT));
}

static uint16_t fdrv_take_desc(struct fdrv_queue *fq)
{
    uint16_t i = fq->free_head;

    fdrv_must(fq->num_free > 0);
    fq->free_head = fq->next[i];
    fq->num_free--;
    return i;
}

static void fdrv_offer(struct fdrv *d, uint16_t q, uint16_t head)
{
    struct fdrv_queue *fq = &d->q[q];

    fdrv_set_avail_entry(d, q, (uint16_t)(fq->avail_idx % fq->size), head);
    fq->avail_idx++;
}

uint16_t fdrv_add(struct fdrv *d, uint16_t q, const struct fdrv_seg *segs,
                  uint16_t n)
{
    struct fdrv_queue *fq = &d->q[q];
    uint16_t head = fq->free_head;

    fdrv_must(n > 0 && n <= fq->num_free);
    for (uint16_t s = 0; s < n; s++) {
        uint16_t i = fdrv_take_desc(fq);

        /* The free list and the chain run through the same links. */
        fdrv_set_desc(d, q, i, segs[s].gpa, segs[s].len,
                      fdrv_seg_flags(&segs[s], s + 1 == n), fq->next[i]);
    }
    fdrv_offer(d, q, head);
    return head;
}

uint16_t fdrv_add_indirect(struct fdrv *d, uint16_t q,
                           const struct fdrv_seg *segs, uint16_t n)
{
    gpa_t table = fdrv_alloc(d, 16u * n, 16);
    uint16_t head = fdrv_take_desc(&d->q[q]);

    for (uint16_t s = 0; s < n; s++)
        fdrv_store_desc(d, table + 16u * s, segs[s].gpa, segs[s].len,
                        fdrv_seg_flags(&segs[s], s + 1 == n),
                        (uint16_t)(s + 1));
    fdrv_set_desc(d, q, head, table, 16u * n, VRING_DESC_F_INDIRECT, 0);
    fdrv_offer(d, q, head);
    return head;
}

void fdrv_publish(struct fdrv *d, uint16_t q)
{
    uint16_t *idx = fdrv_ptr(d, d->q[q].avail + 2, 2);

    /* pairs with: vq_load_avail_idx() */
    __atomic_store_n(idx, htole16(d->q[q].avail_idx), __ATOMIC_RELEASE);
}

/* Gives a chain's descriptors back, as far as they make sense. */
static void fdrv_free_chain(struct fdrv *d, uint16_t q, uint32_t head)
{
    struct fdrv_queue *fq = &d->q[q];
    struct vring_desc desc;
    uint32_t i = head;

    for (uint32_t steps = 0; i < fq->size && steps < fq->size; steps++) {
        fdrv_get_desc(d, q, (uint16_t)i, &desc);
        fq->next[i] = fq->free_head;
        fq->free_head = (uint16_t)i;
        fq->num_free++;
        if (!(le16toh(desc.flags) & VRING_DESC_F_NEXT))
            break;
        i = le16toh(desc.next);
    }
}

bool fdrv_used(struct fdrv *d, uint16_t q, uint32_t *out_head,
               uint32_t *out_len)
{
    struct fdrv_queue *fq = &d->q[q];
    const uint16_t *idx = fdrv_ptr(d, fq->used + 2, 2);
    uint8_t elem[8];

    /* pairs with: vq_publish() */
    if (le16toh(__atomic_load_n(idx, __ATOMIC_ACQUIRE)) == fq->used_idx)
        return false;
    fdrv_read(d, fq->used + 4 + 8u * (fq->used_idx % fq->size), elem,
              sizeof(elem));
    fq->used_idx++;
    *out_head = get_le32(elem);
    *out_len = get_le32(elem + 4);
    fdrv_free_chain(d, q, *out_head);
    return true;
}

/* --- a device without a transport ---------------------------------------- */

static void fdrv_event(struct fdrv *d)
{
    if (d->on_event)
        d->on_event(d->on_event_arg);
}

static void fdrv_on_signal(void *transport, uint16_t q)
{
    struct fdrv *d = transport;

    d->signals[q]++;
    fdrv_event(d);
}

static void fdrv_on_config(void *transport)
{
    struct fdrv *d = transport;

    d->config_changes++;
    fdrv_event(d);
}

static void fdrv_on_config_update(void *transport, virtio_change_fn change,
                                  void *arg)
{
    struct fdrv *d = transport;

    change(d->dev, arg);
    fdrv_on_config(d);
}

static void fdrv_on_needs_reset(void *transport)
{
    struct fdrv *d = transport;

    d->needs_resets++;
    fdrv_event(d);
}

static void fdrv_on_reset_done(void *transport)
{
    struct fdrv *d = transport;

    d->reset_dones++;
    fdrv_event(d);
}

static void fdrv_on_rested(void *transport)
{
    struct fdrv *d = transport;

    d->rests++;
    fdrv_event(d);
}

static const struct virtio_transport_ops fdrv_transport_ops = {
    .signal_queue = fdrv_on_signal,
    .config_changed = fdrv_on_config,
    .config_update = fdrv_on_config_update,
    .needs_reset = fdrv_on_needs_reset,
    .reset_done = fdrv_on_reset_done,
    .rested = fdrv_on_rested,
};

int fdrv_attach(struct fdrv *d, struct virtio_dev *dev, uint16_t size,
                uint64_t features)
{
    return fdrv_attach_some(d, dev, size, features, UINT32_MAX);
}

int fdrv_attach_some(struct fdrv *d, struct virtio_dev *dev, uint16_t size,
                     uint64_t features, uint32_t mask)
{
    uint64_t ring = (1ull << VIRTIO_RING_F_EVENT_IDX) |
                    (1ull << VIRTIO_RING_F_INDIRECT_DESC);
    bool event_idx = features & (1ull << VIRTIO_RING_F_EVENT_IDX);
    bool indirect = features & (1ull << VIRTIO_RING_F_INDIRECT_DESC);

    d->dev = dev;
    dev->transport = d;
    dev->transport_ops = &fdrv_transport_ops;
    dev->features = features & (dev->offered | ring);
    for (uint16_t q = 0; q < dev->num_queues; q++) {
        uint16_t n = size < dev->queue_max[q] ? size : dev->queue_max[q];
        struct vq_setup_args args;

        vq_teardown(&dev->vq[q]);
        if (!(mask & 1u << q))
            continue;
        fdrv_queue_init(d, q, n, event_idx);
        args = fdrv_setup_args(d, q, indirect);
        fdrv_must(vq_setup(&dev->vq[q], d->mem, &args) == 0);
    }
    return dev->ops->activate(dev);
}

void fdrv_kick(struct fdrv *d, uint16_t q)
{
    fdrv_publish(d, q);
    d->dev->ops->queue_kick(d->dev, q);
}

int fdrv_reset(struct fdrv *d)
{
    int rc = d->dev->ops->reset(d->dev);

    for (uint16_t q = 0; q < d->dev->num_queues; q++)
        vq_teardown(&d->dev->vq[q]);
    return rc;
}

/* --- a machine that pauses ------------------------------------------------ */

int fdrv_rest(struct fdrv *d)
{
    fdrv_must(!d->dev->resting);
    d->dev->resting = true;
    return d->dev->ops->rest ? d->dev->ops->rest(d->dev) : 0;
}

void fdrv_wake(struct fdrv *d)
{
    struct virtio_dev *dev = d->dev;

    dev->resting = false;
    if (dev->ops->wake)
        dev->ops->wake(dev);
    for (uint16_t q = 0; q < dev->num_queues; q++) {
        if (dev->vq[q].size != 0 && !dev->vq[q].stopped && !dev->vq[q].broken)
            dev->ops->queue_kick(dev, q);
    }
}

void fdrv_save(struct fdrv *d, struct state_out *out)
{
    static const uint8_t id[STATE_ID_BYTES];

    fdrv_must(d->dev->resting);
    state_out_init(out);
    state_begin(out, "t", 1);
    if (d->dev->ops->save)
        d->dev->ops->save(d->dev, out);
    state_end(out);
    fdrv_must(state_finish(out, id) == 0);
}

int fdrv_load(struct virtio_dev *dev, const struct state_out *saved,
              struct errmsg *err)
{
    struct state_file f;
    struct state_in in;
    int rc;

    fdrv_must(state_open(&f, saved->data, saved->len_bytes, NULL) == 0);
    fdrv_must(state_section(&f, "t", 1, &in, NULL) == 0);
    rc = dev->ops->load ? dev->ops->load(dev, &in, err) : 0;
    return rc ? rc : state_done(&in);
}

int fdrv_move(struct fdrv *d, struct virtio_dev *to)
{
    struct virtio_dev *from = d->dev;
    struct state_out saved;
    int rc;

    fdrv_save(d, &saved);
    d->dev = to;
    to->transport = d;
    to->transport_ops = &fdrv_transport_ops;
    to->features = from->features;
    to->resting = true;
    for (uint16_t q = 0; q < to->num_queues; q++) {
        struct vq_setup_args args = fdrv_setup_args(d, q, from->vq[q].indirect);
        struct vq_position at = vq_position(&from->vq[q]);

        vq_teardown(&to->vq[q]);
        if (from->vq[q].size == 0)
            continue;
        fdrv_must(vq_setup(&to->vq[q], d->mem, &args) == 0);
        to->vq[q].stopped = from->vq[q].stopped;
        to->vq[q].broken = from->vq[q].broken;
        fdrv_must(vq_restore(&to->vq[q], &at) == 0);
    }
    rc = to->ops->activate(to);
    fdrv_must(rc == 0);
    rc = fdrv_load(to, &saved, NULL);
    state_out_fini(&saved);
    return rc;
}
