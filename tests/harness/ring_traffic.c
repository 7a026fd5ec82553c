/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/ring_traffic.h"

#include "vmm/le.h"

void fring_init(struct fring *r, struct fdrv *d, uint16_t q)
{
    r->d = d;
    r->q = q;
    r->table = fdrv_alloc(d, 16u * FRING_MAX_SEGS, 16);
    r->next_desc = 0;
    r->avail_idx = 0;
}

struct fring_desc {
    uint64_t addr;
    uint32_t len;
    uint16_t flags;
    uint16_t next;
};

/* One wrong field. */
static void fring_spoil(struct fring *r, struct fuzz_in *in,
                        struct fring_desc *x)
{
    uint64_t ram = gm_ram_bytes(r->d->mem);

    switch (fuzz_below(in, 4)) {
    case 0:
        x->addr = fuzz_edge(in, ram);
        break;
    case 1:
        x->len = (uint32_t)fuzz_edge(in, ram);
        break;
    case 2:
        x->flags = (uint16_t)(x->flags ^ (1u << fuzz_below(in, 4)));
        break;
    default:
        x->next = (uint16_t)fuzz_edge(in, r->d->q[r->q].size);
        break;
    }
}

static void fring_store(struct fring *r, gpa_t gpa, const struct fring_desc *x)
{
    uint8_t b[16];

    put_le64(b, x->addr);
    put_le32(b + 8, x->len);
    put_le16(b + 12, x->flags);
    put_le16(b + 14, x->next);
    fdrv_write(r->d, gpa, b, sizeof(b));
}

/* The i-th descriptor of the table at `base`, which has `size` of them. */
static void fring_put_desc(struct fring *r, struct fuzz_in *in, gpa_t base,
                           uint16_t i, struct fring_desc x)
{
    if (fuzz_rarely(in, 64))
        fring_spoil(r, in, &x);
    fring_store(r, base + 16u * i, &x);
}

static void fring_put_chain(struct fring *r, struct fuzz_in *in, gpa_t base,
                            uint16_t first, uint16_t size,
                            const struct fdrv_seg *segs, uint16_t n)
{
    for (uint16_t k = 0; k < n; k++) {
        struct fring_desc x = {
            .addr = segs[k].gpa,
            .len = segs[k].len,
            .flags = (uint16_t)((segs[k].writable ? VRING_DESC_F_WRITE : 0) |
                                (k + 1 < n ? VRING_DESC_F_NEXT : 0)),
            .next = (uint16_t)((first + k + 1) % size),
        };

        fring_put_desc(r, in, base, (uint16_t)((first + k) % size), x);
    }
}

void fring_add(struct fring *r, struct fuzz_in *in, struct fdrv_seg *segs,
               uint16_t n, bool indirect)
{
    const struct fdrv_queue *fq = &r->d->q[r->q];
    uint16_t head = r->next_desc;

    if ((uint16_t)(r->avail_idx - fdrv_used_idx(r->d, r->q)) >= fq->size)
        return;
    if (indirect && fuzz_below(in, 2)) {
        struct fring_desc x = {r->table, 16u * n, VRING_DESC_F_INDIRECT, 0};

        fring_put_chain(r, in, r->table, 0, FRING_MAX_SEGS, segs, n);
        fring_put_desc(r, in, fq->desc, head, x);
        n = 1;
    } else {
        if (n > fq->size)
            n = fq->size;
        fring_put_chain(r, in, fq->desc, head, fq->size, segs, n);
    }
    r->next_desc = (uint16_t)((head + n) % fq->size);
    fdrv_set_avail_entry(r->d, r->q, (uint16_t)(r->avail_idx % fq->size),
                         fuzz_rarely(in, 64) ? (uint16_t)fuzz_edge(in, fq->size)
                                             : head);
    r->avail_idx++;
    fdrv_set_avail_idx(r->d, r->q, r->avail_idx);
}

void fring_disturb(struct fring *r, struct fuzz_in *in)
{
    switch (fuzz_below(in, 4)) {
    case 0:
        fdrv_set_avail_flags(r->d, r->q, fuzz_u16(in));
        break;
    case 1:
        fdrv_set_used_event(r->d, r->q, fuzz_u16(in));
        break;
    case 2:
        if (fuzz_rarely(in, 16))
            r->avail_idx = fuzz_u16(in);
        fdrv_set_avail_idx(r->d, r->q, r->avail_idx);
        break;
    default: {
        uint16_t i = (uint16_t)fuzz_below(in, r->d->q[r->q].size);
        struct fring_desc x = {fuzz_edge(in, gm_ram_bytes(r->d->mem)),
                               fuzz_u16(in), fuzz_u8(in) & 7, fuzz_u8(in)};

        fring_store(r, r->d->q[r->q].desc + 16u * i, &x);
        break;
    }
    }
}
