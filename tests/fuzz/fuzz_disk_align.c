/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of any alignment, overlapping and completed in any order, on a disk
 * that takes blocks of 4 KiB only. When all have ended each sector holds what
 * one of its writes wrote, or what it held at first if there was none (or one
 * that failed); every request has ended once.
 */
#include "devices/disk_align.h"

#include "tests/fuzz/inline_loop.h"
#include "tests/harness/fuzz_input.h"
#include "tests/harness/mem_disk.h"

#include <string.h>

#define BLOCK     4096u
#define SECTORS   64u /* 8 blocks */
#define SIZE      (SECTORS * 512u)
#define NUM_REQS  48u
#define MAX_STEPS 200u
#define BUF_BYTES (SIZE + BLOCK)
/* What a sector may hold. */
#define TAG_ZERO    0u
#define TAG_MAX     60u
#define TAG_DISCARD 0xd1u /* mem_disk's */
#define TAG_OLD     0x7fu

struct target;

struct req {
    struct target *t;
    struct disk_io io;
    struct iovec iov[DISK_SCRATCH_IOVS];
    bool busy;
    bool writes;
    uint8_t tag; /* what it writes */
    uint32_t first;
    uint32_t count; /* sectors */
    uint8_t *buf;
};

struct target {
    struct evloop *loop;
    struct mem_disk mem;
    struct disk *disk;
    uint8_t stored[SIZE];
    struct req req[NUM_REQS];
    /* for each sector: the tags that were written to it */
    uint64_t may[SECTORS];
    uint8_t next_tag; /* what a write writes: 1 to TAG_MAX */
    bool failed;      /* some request did */
    uint8_t *bufs;
};

static void on_done(struct disk_io *io, int status)
{
    struct req *r = io->arg;

    fuzz_must(r->busy);
    fuzz_must(status == 0 || status == -EIO);
    r->busy = false;
    r->t->failed |= status != 0;
}

static uint64_t tag_bit(uint8_t tag)
{
    if (tag == TAG_DISCARD)
        return 1ull << 62;
    return tag <= TAG_MAX ? 1ull << tag : 0;
}

static struct req *idle_req(struct target *t)
{
    for (uint32_t i = 0; i < NUM_REQS; i++) {
        if (!t->req[i].busy)
            return &t->req[i];
    }
    return NULL;
}

/* The buffer in pieces, at an odd address now and then. */
static uint32_t cut(struct fuzz_in *in, struct req *r, size_t len)
{
    uint8_t *p = r->buf + (fuzz_below(in, 2) ? fuzz_below(in, 64) : 0);
    uint32_t n = 0;

    memset(p, r->tag, len);
    while (len > 0) {
        size_t take = fuzz_below(in, 3) ? len : 1 + fuzz_below(in, 5000);

        if (take > len || n == 15)
            take = len;
        r->iov[n++] = (struct iovec){p, take};
        p += take;
        len -= take;
    }
    return n;
}

static void submit(struct target *t, struct fuzz_in *in)
{
    static const enum disk_op ops[] = {DISK_WRITE,   DISK_WRITE,
                                       DISK_READ,    DISK_WRITE_ZEROES,
                                       DISK_DISCARD, DISK_FLUSH};
    struct req *r = idle_req(t);

    if (!r || t->next_tag == TAG_MAX)
        return;
    r->io.op = ops[fuzz_below(in, ARRAY_SIZE(ops))];
    r->first = fuzz_below(in, SECTORS);
    r->count = 1 + fuzz_below(in, fuzz_below(in, 3) ? 12 : SECTORS);
    if (r->count > SECTORS - r->first)
        r->count = SECTORS - r->first;
    r->writes = r->io.op == DISK_WRITE || r->io.op == DISK_WRITE_ZEROES ||
                r->io.op == DISK_DISCARD;
    r->tag = r->io.op == DISK_WRITE          ? ++t->next_tag
             : r->io.op == DISK_WRITE_ZEROES ? TAG_ZERO
                                             : TAG_DISCARD;
    r->io.offset_bytes = r->first * 512u;
    r->io.len_bytes = r->count * 512u;
    r->io.iov = r->iov;
    r->io.iovcnt = cut(in, r, r->count * 512u);
    r->io.done = on_done;
    r->io.arg = r;
    r->busy = true;
    for (uint32_t s = r->first; r->writes && s < r->first + r->count; s++)
        t->may[s] |= tag_bit(r->tag);
    t->disk->ops->submit(t->disk, t->loop, &r->io);
    fuzz_must(r->busy);
}

static void rest(struct target *t)
{
    do {
        mem_disk_complete_all(&t->mem);
        inline_loop_turn(t->loop);
    } while (t->mem.num_held > 0);
    for (uint32_t i = 0; i < NUM_REQS; i++)
        fuzz_must(!t->req[i].busy);
    for (uint32_t s = 0; s < SECTORS; s++) {
        const uint8_t *p = t->stored + s * 512u;
        /* A discard may leave a sector alone, and so may a failure. */
        bool old_is_fine = t->failed || !(t->may[s] & ~tag_bit(TAG_DISCARD));

        for (uint32_t i = 1; i < 512; i++)
            fuzz_must(p[i] == p[0]);
        fuzz_must((t->may[s] & tag_bit(p[0])) ||
                  (p[0] == TAG_OLD && old_is_fine));
    }
}

static void step(struct target *t, struct fuzz_in *in)
{
    switch (fuzz_below(in, 4)) {
    case 0:
    case 1:
        submit(t, in);
        break;
    case 2:
        if (t->mem.num_held > 0)
            mem_disk_complete(&t->mem, fuzz_below(in, t->mem.num_held),
                              fuzz_rarely(in, 64) ? -EIO : 0);
        break;
    default:
        inline_loop_turn(t->loop);
        break;
    }
}

static void make(struct target *t)
{
    fuzz_must(evloop_new(EVLOOP_AUTO, &t->loop) == 0);
    memset(t->stored, TAG_OLD, SIZE);
    mem_disk_init(&t->mem, t->stored, SIZE);
    t->mem.align = BLOCK;
    fuzz_must(disk_align_new(&t->mem.base,
                             (struct disk_raw_alignment){BLOCK, BLOCK},
                             &t->disk) == 0);
    t->bufs = aligned_alloc(BLOCK, (size_t)NUM_REQS * BUF_BYTES);
    fuzz_must(t->bufs != NULL);
    for (uint32_t i = 0; i < NUM_REQS; i++) {
        t->req[i].t = t;
        t->req[i].buf = t->bufs + (size_t)i * BUF_BYTES;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target *t = calloc(1, sizeof(*t));

    fuzz_must(t != NULL);
    make(t);
    for (uint32_t i = 0; i < MAX_STEPS && in.left > 0; i++)
        step(t, &in);
    rest(t);
    t->disk->ops->free(t->disk);
    fuzz_must(t->mem.freed == 1);
    evloop_free(t->loop);
    free(t->bufs);
    free(t);
    return 0;
}
