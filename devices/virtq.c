/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtq.h"

#include <assert.h>
#include <endian.h>
#include <linux/virtio_ring.h>
#include <stdatomic.h>
#include <string.h>

/*
 * Split virtqueue, device side. spec: virtio-1.2 2.7. thread: io
 *
 * The words that both sides write at any time (indices, flags, events, ring
 * entries) are accessed with the __atomic builtins, each exactly once; a
 * descriptor is copied as a whole and only the copy is looked at.
 */

#define VQ_RING_HEADER 4u /* flags and idx of both rings */

_Static_assert(sizeof(struct vring_desc) == 16, "wire format");
_Static_assert(sizeof(struct vring_used_elem) == 8, "wire format");

/* --- words in the rings -------------------------------------------------- */

static const uint16_t *vq_avail_word(const struct virtq *vq, uint32_t i)
{
    return (const uint16_t *)vq->avail + i;
}

/* The avail ring's index, then everything the driver wrote before it. */
static uint16_t vq_load_avail_idx(const struct virtq *vq)
{
    /* pairs with: the driver's write barrier before its avail.idx store */
    return le16toh(__atomic_load_n(vq_avail_word(vq, 1), __ATOMIC_ACQUIRE));
}

static uint16_t vq_load_avail_flags(const struct virtq *vq)
{
    return le16toh(__atomic_load_n(vq_avail_word(vq, 0), __ATOMIC_RELAXED));
}

static uint16_t vq_load_avail_entry(const struct virtq *vq, uint16_t pos)
{
    uint32_t slot = pos & (vq->size - 1u);

    return le16toh(
        __atomic_load_n(vq_avail_word(vq, 2 + slot), __ATOMIC_RELAXED));
}

/* used_event lies behind the avail ring. spec: virtio-1.2 2.7.7 */
static uint16_t vq_load_used_event(const struct virtq *vq)
{
    return le16toh(
        __atomic_load_n(vq_avail_word(vq, 2u + vq->size), __ATOMIC_RELAXED));
}

static uint16_t *vq_used_word(const struct virtq *vq, uint32_t i)
{
    return (uint16_t *)vq->used + i;
}

static void vq_store_used_flags(struct virtq *vq, uint16_t flags)
{
    __atomic_store_n(vq_used_word(vq, 0), htole16(flags), __ATOMIC_RELAXED);
}

/* avail_event lies behind the used ring. spec: virtio-1.2 2.7.10 */
static void vq_store_avail_event(struct virtq *vq, uint16_t idx)
{
    __atomic_store_n(vq_used_word(vq, 2u + 4u * vq->size), htole16(idx),
                     __ATOMIC_RELAXED);
}

static void vq_publish(struct virtq *vq)
{
    /* pairs with: the driver's read barrier after its used.idx load */
    __atomic_store_n(vq_used_word(vq, 1), htole16(vq->next_used),
                     __ATOMIC_RELEASE);
}

/* Our stores so far are seen before what is loaded next. */
static void vq_full_fence(void)
{
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
/* gcc warns that TSan cannot see fences; the far side here is the guest, which
 * TSan does not see either. */
#pragma GCC diagnostic ignored "-Wtsan"
#endif
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static int vq_break(struct virtq *vq)
{
    vq->broken = true;
    return -EPROTO;
}

/* Whether its ring may be touched. */
static bool vq_is_up(const struct virtq *vq)
{
    return vq->size != 0 && !vq->broken && !vq->stopped;
}

/* --- set-up -------------------------------------------------------------- */

uint64_t vq_used_bytes(uint16_t size)
{
    return VQ_RING_HEADER + sizeof(struct vring_used_elem) * (uint64_t)size + 2;
}

int vq_setup(struct virtq *vq, const struct guest_mem *mem,
             const struct vq_setup_args *args)
{
    const void *desc = NULL;
    const void *avail = NULL;
    void *used = NULL;
    uint64_t n = args->size;
    int rc;

    vq_teardown(vq);
    if (!is_pow2(n) || n > VQ_MAX_SIZE)
        return -EINVAL;
    if (args->desc % 16 || args->avail % 2 || args->used % 4)
        return -EINVAL;
    /* Two more bytes for the event word, which exists in any case. */
    rc = gm_rptr(mem, args->desc, sizeof(struct vring_desc) * n, &desc);
    if (rc == 0)
        rc = gm_rptr(mem, args->avail, VQ_RING_HEADER + 2 * n + 2, &avail);
    if (rc == 0)
        rc = gm_wptr(mem, args->used, vq_used_bytes(args->size), &used);
    if (rc)
        return rc;
    vq->mem = mem;
    vq->size = args->size;
    vq->event_idx = args->event_idx;
    vq->indirect = args->indirect;
    vq->signalled_valid = true;
    vq->desc = desc;
    vq->avail = avail;
    vq->used = used;
    return 0;
}

void vq_teardown(struct virtq *vq)
{
    memset(vq, 0, sizeof(*vq));
}

void vq_stop(struct virtq *vq)
{
    vq->stopped = true;
}

struct vq_position vq_position(const struct virtq *vq)
{
    return (struct vq_position){
        .next_avail = vq->next_avail,
        .next_used = vq->next_used,
        .signalled = vq->signalled,
        .signalled_valid = vq->signalled_valid,
    };
}

int vq_restore(struct virtq *vq, const struct vq_position *p)
{
    uint16_t taken = (uint16_t)(p->next_avail - p->next_used);
    uint16_t waiting = 0;

    if (vq_is_up(vq))
        waiting = (uint16_t)(vq_load_avail_idx(vq) - p->next_avail);
    if (taken > vq->size || waiting > vq->size - taken)
        return -EPROTO;
    vq->next_avail = p->next_avail;
    vq->next_used = p->next_used;
    vq->signalled = p->signalled;
    vq->signalled_valid = p->signalled_valid;
    return 0;
}

/* --- taking a request ---------------------------------------------------- */

/* A walk over one chain; `table` changes once at most, to the indirect one. */
struct vq_walk {
    const char *table;
    uint32_t entries; /* in `table` */
    uint32_t steps;   /* descriptors still allowed in it */
    bool in_indirect;
};

static void vq_load_desc(const struct vq_walk *w, uint32_t i,
                         struct vring_desc *out)
{
    struct vring_desc g;

    /* An indirect table may lie at any address: no word-wise loads. */
    memcpy(&g, w->table + sizeof(g) * (size_t)i, sizeof(g));
    /* Keeps the compiler from reading the guest's copy a second time. */
    atomic_signal_fence(memory_order_seq_cst);
    out->addr = le64toh(g.addr);
    out->len = le32toh(g.len);
    out->flags = le16toh(g.flags);
    out->next = le16toh(g.next);
}

/* spec: virtio-1.2 2.7.5.3 */
static int vq_enter_indirect(const struct virtq *vq, struct vq_walk *w,
                             const struct vring_desc *d)
{
    const void *table = NULL;

    if (!vq->indirect || w->in_indirect || (d->flags & VRING_DESC_F_NEXT))
        return -EPROTO;
    if (d->len == 0 || d->len % sizeof(struct vring_desc) ||
        d->len / sizeof(struct vring_desc) > VQ_MAX_SIZE)
        return -EPROTO;
    if (gm_rptr(vq->mem, d->addr, d->len, &table))
        return -EPROTO;
    w->table = table;
    w->entries = (uint32_t)(d->len / sizeof(struct vring_desc));
    w->steps = w->entries;
    w->in_indirect = true;
    return 0;
}

static int vq_add_buffer(const struct virtq *vq, struct vq_chain *c,
                         const struct vring_desc *d)
{
    uint32_t n = (uint32_t)c->num_readable + c->num_writable;
    const void *src = NULL;
    void *dst = NULL;

    if (d->len == 0)
        return 0;
    if (n == VQ_MAX_SEGS)
        return -EPROTO;
    if (d->flags & VRING_DESC_F_WRITE) {
        if (gm_wptr(vq->mem, d->addr, d->len, &dst))
            return -EPROTO;
        c->num_writable++;
        c->writable_bytes += d->len;
    } else {
        if (c->num_writable > 0)
            return -EPROTO;
        if (gm_rptr(vq->mem, d->addr, d->len, &src))
            return -EPROTO;
        /* An iovec has no const flavour; readable parts are only read. */
        memcpy(&dst, &src, sizeof(dst));
        c->num_readable++;
        c->readable_bytes += d->len;
    }
    c->iov[n].iov_base = dst;
    c->iov[n].iov_len = d->len;
    return 0;
}

static int vq_walk_chain(const struct virtq *vq, uint16_t head,
                         struct vq_chain *c)
{
    struct vq_walk w = {
        .table = vq->desc, .entries = vq->size, .steps = vq->size};
    struct vring_desc d;
    uint32_t i = head;
    int rc;

    c->head = head;
    c->num_readable = 0;
    c->num_writable = 0;
    c->readable_bytes = 0;
    c->writable_bytes = 0;
    for (;;) {
        if (i >= w.entries || w.steps == 0)
            return -EPROTO; /* out of the table, or a loop */
        w.steps--;
        vq_load_desc(&w, i, &d);
        if (d.flags & VRING_DESC_F_INDIRECT) {
            rc = vq_enter_indirect(vq, &w, &d);
            i = 0;
        } else {
            rc = vq_add_buffer(vq, c, &d);
            if (rc == 0 && !(d.flags & VRING_DESC_F_NEXT))
                return 0;
            i = d.next;
        }
        if (rc)
            return rc;
    }
}

int vq_pop(struct virtq *vq, struct vq_chain *out)
{
    uint16_t waiting;
    uint16_t taken;
    uint16_t g_head;

    if (vq->broken)
        return -EPROTO;
    if (!vq_is_up(vq))
        return 0;
    waiting = (uint16_t)(vq_load_avail_idx(vq) - vq->next_avail);
    if (waiting == 0)
        return 0;
    /*
     * No driver can have more requests outstanding than the ring has heads.
     * This also bounds what a device holds in flight, and stops an index that
     * jumps or runs backwards.
     */
    taken = (uint16_t)(vq->next_avail - vq->next_used);
    if (taken > vq->size || waiting > vq->size - taken)
        return vq_break(vq);
    g_head = vq_load_avail_entry(vq, vq->next_avail);
    if (g_head >= vq->size || vq_walk_chain(vq, g_head, out))
        return vq_break(vq);
    vq->next_avail++;
    return 1;
}

int vq_pop_again(struct virtq *vq, uint16_t head, struct vq_chain *out)
{
    if (vq->broken)
        return -EPROTO;
    if (!vq_is_up(vq))
        return 0;
    if (head >= vq->size || vq_walk_chain(vq, head, out))
        return vq_break(vq);
    return 1;
}

void vq_unpop(struct virtq *vq)
{
    if (!vq_is_up(vq))
        return;
    assert(vq->next_avail != vq->next_used);
    vq->next_avail--;
}

/* --- completing ---------------------------------------------------------- */

/* Writes the next used entry; the driver does not see it before a publish. */
static void vq_stage(struct virtq *vq, uint16_t head, uint32_t used_bytes)
{
    uint32_t *elem;

    if (!vq_is_up(vq))
        return;
    assert(head < vq->size);
    assert(vq->next_avail != vq->next_used);
    elem = (uint32_t *)vq->used + 1 + 2 * (vq->next_used & (vq->size - 1u));
    __atomic_store_n(&elem[0], htole32(head), __ATOMIC_RELAXED);
    __atomic_store_n(&elem[1], htole32(used_bytes), __ATOMIC_RELAXED);
    vq->next_used++;
    /* After 65536 pushes without a decision `signalled` means nothing. */
    if (vq->next_used == vq->signalled)
        vq->signalled_valid = false;
}

void vq_push(struct virtq *vq, uint16_t head, uint32_t used_bytes)
{
    if (!vq_is_up(vq))
        return; /* the memory may be something else by now */
    vq_stage(vq, head, used_bytes);
    vq_publish(vq);
}

void vq_push_all(struct virtq *vq, const struct vq_used *list, uint16_t n)
{
    if (!vq_is_up(vq))
        return; /* the memory may be something else by now */
    for (uint16_t i = 0; i < n; i++)
        vq_stage(vq, list[i].head, list[i].bytes);
    vq_publish(vq);
}

bool vq_should_signal(struct virtq *vq)
{
    uint16_t old = vq->signalled;
    bool valid = vq->signalled_valid;

    if (!vq_is_up(vq))
        return false;
    if (valid && old == vq->next_used)
        return false; /* nothing was pushed */
    /*
     * The store of used.idx must be seen before the driver's wish is read.
     * pairs with: the driver's barrier between its wish and its used.idx load
     */
    vq_full_fence();
    vq->signalled = vq->next_used;
    vq->signalled_valid = true;
    if (!vq->event_idx)
        return !(vq_load_avail_flags(vq) & VRING_AVAIL_F_NO_INTERRUPT);
    return !valid ||
           vring_need_event(vq_load_used_event(vq), vq->next_used, old);
}

bool vq_enable_kicks(struct virtq *vq)
{
    if (!vq_is_up(vq))
        return false;
    if (vq->event_idx)
        vq_store_avail_event(vq, vq->next_avail);
    else
        vq_store_used_flags(vq, 0);
    /*
     * The wish must be seen before avail.idx is read again.
     * pairs with: the driver's barrier between avail.idx and its kick decision
     */
    vq_full_fence();
    return vq_load_avail_idx(vq) != vq->next_avail;
}

void vq_disable_kicks(struct virtq *vq)
{
    if (!vq_is_up(vq) || vq->event_idx)
        return; /* with event_idx the old avail_event simply goes stale */
    vq_store_used_flags(vq, VRING_USED_F_NO_NOTIFY);
}

uint16_t vq_enable_kicks_behind(struct virtq *vq)
{
    uint16_t idx = vq_is_up(vq) ? vq_load_avail_idx(vq) : 0;
    uint16_t seen = (uint16_t)(idx + 1);

    /* Once more than it can have requests: then it only plays with us. */
    for (uint32_t i = 0; vq_is_up(vq) && idx != seen && i <= vq->size; i++) {
        seen = idx;
        if (vq->event_idx)
            vq_store_avail_event(vq, idx);
        else
            vq_store_used_flags(vq, 0);
        /* pairs with: as in vq_enable_kicks() */
        vq_full_fence();
        idx = vq_load_avail_idx(vq);
    }
    return idx;
}

/* --- a chain's bytes ----------------------------------------------------- */

int vq_chain_slice(const struct vq_chain *c, bool writable, size_t off,
                   size_t len, struct iovec *out, int max)
{
    const struct iovec *v = writable ? c->iov + c->num_readable : c->iov;
    uint32_t n = writable ? c->num_writable : c->num_readable;
    int count = 0;

    for (uint32_t i = 0; i < n && len > 0; i++) {
        size_t take;

        if (off >= v[i].iov_len) {
            off -= v[i].iov_len;
            continue;
        }
        if (count == max)
            return -EINVAL;
        take = v[i].iov_len - off < len ? v[i].iov_len - off : len;
        out[count].iov_base = (char *)v[i].iov_base + off;
        out[count].iov_len = take;
        count++;
        len -= take;
        off = 0;
    }
    return len == 0 ? count : -EINVAL;
}

/* One direction of copying; exactly one of dst and src is given. */
static size_t vq_chain_copy(const struct iovec *v, uint32_t n, size_t off,
                            char *dst, const char *src, size_t len)
{
    size_t done = 0;

    for (uint32_t i = 0; i < n && done < len; i++) {
        size_t take;

        if (off >= v[i].iov_len) {
            off -= v[i].iov_len;
            continue;
        }
        take = v[i].iov_len - off;
        if (take > len - done)
            take = len - done;
        if (dst)
            memcpy(dst + done, (const char *)v[i].iov_base + off, take);
        else
            memcpy((char *)v[i].iov_base + off, src + done, take);
        done += take;
        off = 0;
    }
    return done;
}

size_t vq_chain_read(const struct vq_chain *c, size_t off, void *dst,
                     size_t len)
{
    return vq_chain_copy(c->iov, c->num_readable, off, dst, NULL, len);
}

size_t vq_chain_write(const struct vq_chain *c, size_t off, const void *src,
                      size_t len)
{
    return vq_chain_copy(c->iov + c->num_readable, c->num_writable, off, NULL,
                         src, len);
}
