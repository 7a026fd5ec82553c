/* SPDX-License-Identifier: Apache-2.0 */
/* The block request parser: what it accepts lies inside the disk. */
#include "devices/virtio_blk_req.h"

#include "tests/harness/fuzz_input.h"
#include "vmm/le.h"

#include <string.h>

#define MEM_BYTES 8192u

static uint32_t pick_type(struct fuzz_in *in)
{
    static const uint32_t types[] = {
        VIRTIO_BLK_T_IN,     VIRTIO_BLK_T_OUT,          VIRTIO_BLK_T_FLUSH,
        VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_WRITE_ZEROES, VIRTIO_BLK_T_DISCARD};

    return fuzz_rarely(in, 16) ? fuzz_u32(in)
                               : types[fuzz_below(in, ARRAY_SIZE(types))];
}

/* Cuts `len` bytes at `base` into iovecs of any sizes. */
static uint16_t cut(struct fuzz_in *in, struct iovec *v, uint16_t max,
                    uint8_t *base, size_t len)
{
    uint16_t n = 0;

    while (len > 0 && n < max) {
        size_t take = 1 + fuzz_below(in, 1024);

        if (take > len || n + 1 == max)
            take = len;
        v[n].iov_base = base;
        v[n].iov_len = take;
        base += take;
        len -= take;
        n++;
    }
    return n;
}

static void check_ranges(const struct vblk_req *r,
                         const struct vblk_limits *limits)
{
    fuzz_must(!limits->read_only);
    fuzz_must(r->op == VBLK_DISCARD ? limits->discard : limits->write_zeroes);
    fuzz_must(r->num_ranges > 0 && r->num_ranges <= VBLK_MAX_RANGES);
    for (uint32_t i = 0; i < r->num_ranges; i++) {
        const struct vblk_range *g = &r->ranges[i];

        fuzz_must(g->len_bytes > 0 &&
                  (g->offset_bytes | g->len_bytes) % 512 == 0);
        fuzz_must(g->offset_bytes <= limits->capacity_bytes);
        fuzz_must(g->len_bytes <= limits->capacity_bytes - g->offset_bytes);
        fuzz_must(r->op != VBLK_DISCARD || !g->may_unmap);
    }
}

static void check(const struct vblk_req *r, const struct vq_chain *c,
                  const struct vblk_limits *limits, const uint8_t *in_mem)
{
    fuzz_must(r->status_byte == in_mem + c->writable_bytes - 1);
    if (r->status != VIRTIO_BLK_S_OK) {
        fuzz_must(r->status == VIRTIO_BLK_S_IOERR ||
                  r->status == VIRTIO_BLK_S_UNSUPP);
        return;
    }
    if (r->op == VBLK_READ || r->op == VBLK_WRITE) {
        fuzz_must(r->data_bytes > 0 && r->data_bytes % 512 == 0);
        fuzz_must(r->offset_bytes <= limits->capacity_bytes);
        fuzz_must(r->data_bytes <= limits->capacity_bytes - r->offset_bytes);
        fuzz_must(r->op == VBLK_READ ? r->data_bytes == c->writable_bytes - 1
                                     : r->data_bytes == c->readable_bytes - 16);
        fuzz_must(r->op == VBLK_READ || !limits->read_only);
    }
    if (r->op == VBLK_DISCARD || r->op == VBLK_WRITE_ZEROES)
        check_ranges(r, limits);
    else
        fuzz_must(r->num_ranges == 0);
}

/* Mostly good segments behind the header. Returns their bytes. */
static size_t put_segments(struct fuzz_in *in, uint8_t *p,
                           const struct vblk_limits *limits)
{
    uint32_t n = 1 + fuzz_below(in, VBLK_MAX_RANGES + 1);

    for (uint32_t i = 0; i < n; i++, p += 16) {
        put_le64(p, fuzz_rarely(in, 8)
                        ? fuzz_edge(in, limits->capacity_bytes / 512)
                        : fuzz_u8(in));
        put_le32(p + 8, fuzz_rarely(in, 8) ? fuzz_u32(in) : fuzz_u8(in));
        put_le32(p + 12, fuzz_rarely(in, 8) ? fuzz_u32(in) : fuzz_below(in, 2));
    }
    return 16u * n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static uint8_t out_mem[MEM_BYTES];
    static uint8_t in_mem[MEM_BYTES];
    static struct vq_chain c;
    struct fuzz_in in = {data, len};
    struct vblk_limits limits = {.capacity_bytes = 512ull * fuzz_u16(&in),
                                 .read_only = fuzz_below(&in, 2),
                                 .discard = fuzz_below(&in, 4),
                                 .write_zeroes = fuzz_below(&in, 4)};
    struct vblk_req req;
    size_t out_len = 16;
    size_t in_len = 1;

    put_le32(out_mem, pick_type(&in));
    put_le64(out_mem + 8, fuzz_rarely(&in, 4)
                              ? fuzz_edge(&in, limits.capacity_bytes / 512)
                              : fuzz_u8(&in));
    if (fuzz_below(&in, 3) == 0)
        out_len += put_segments(&in, out_mem + 16, &limits);
    else if (fuzz_below(&in, 2))
        out_len += 512u * fuzz_below(&in, 8);
    else
        in_len += 512u * fuzz_below(&in, 8);
    if (fuzz_rarely(&in, 4))
        out_len = fuzz_below(&in, MEM_BYTES);
    if (fuzz_rarely(&in, 4))
        in_len = fuzz_below(&in, MEM_BYTES);
    memset(&c, 0, sizeof(c));
    c.num_readable = cut(&in, c.iov, 100, out_mem, out_len);
    c.num_writable = cut(&in, c.iov + c.num_readable, 100, in_mem, in_len);
    c.readable_bytes = out_len;
    c.writable_bytes = in_len;
    if (vblk_parse(&c, &limits, &req) == 0)
        check(&req, &c, &limits, in_mem);
    else
        fuzz_must(out_len < 16 || in_len == 0);
    return 0;
}
