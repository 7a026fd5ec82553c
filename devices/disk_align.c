/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/disk_align.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

/* Alignment for direct I/O. thread: io */

#define ALIGN_BOUNCE_BYTES 131072u /* a multiple of every block size */
#define ALIGN_MAX_BOUNCES  32u     /* 4 MiB for one disk */

enum align_step {
    ALIGN_PASS,  /* one request to the lower disk, as it came */
    ALIGN_FETCH, /* a piece is read into the bounce buffer */
    ALIGN_STORE, /* the bounce buffer is written */
    ALIGN_ZERO,  /* the aligned middle of a write-zeroes */
};

/* One request of ours while it is worked on. */
struct align_req {
    TAILQ_ENTRY(align_req) link; /* writes: in `active` or `waiting` */
    TAILQ_ENTRY(align_req) hungry;
    struct disk_align *a;
    struct disk_io *up;
    struct disk_io io; /* to the lower disk */
    struct iovec iov;
    enum align_step step;
    /* Writes: the blocks touched. Only overlaps with a partial one matter. */
    uint64_t first_byte;
    uint64_t end_byte;
    bool partial;
    const struct align_req *blocker; /* waits for this one's end */
    char *bounce;
    uint64_t pos;  /* next byte of the request */
    uint64_t left; /* its bytes from there on */
    uint64_t piece_start;
    uint64_t piece_bytes; /* of whole blocks */
};

TAILQ_HEAD(align_list, align_req);

struct disk_align {
    struct disk base; /* first */
    struct disk *lower;
    uint32_t block_bytes;
    uint32_t memory_bytes;
    struct align_list active;  /* writes that the lower disk works on */
    struct align_list waiting; /* writes behind others, in order */
    struct align_list hungry;  /* wait for a bounce buffer */
    uint32_t num_bounces;
    uint32_t num_idle;
    char *idle[ALIGN_MAX_BOUNCES];
};

static struct disk_align *align_of(struct disk *disk)
{
    return container_of(disk, struct disk_align, base);
}

static uint64_t align_down(const struct disk_align *a, uint64_t v)
{
    return v & ~((uint64_t)a->block_bytes - 1);
}

static bool align_is_write(const struct disk_io *io)
{
    return io->op != DISK_READ && io->op != DISK_FLUSH;
}

static bool align_has_data(const struct disk_io *io)
{
    return io->op == DISK_READ || io->op == DISK_WRITE;
}

/* --- bounce buffers ------------------------------------------------------ */

static char *align_take_bounce(struct disk_align *a)
{
    char *p = NULL;

    if (a->num_idle > 0)
        return a->idle[--a->num_idle];
    if (a->num_bounces == ALIGN_MAX_BOUNCES)
        return NULL;
    p = aligned_alloc(ALIGN_BOUNCE_BYTES, ALIGN_BOUNCE_BYTES);
    if (p)
        a->num_bounces++;
    return p;
}

/* --- the end of a request ------------------------------------------------ */

static void align_start(struct align_req *r);

static bool align_conflict(const struct align_req *x, const struct align_req *y)
{
    return (x->partial || y->partial) && x->first_byte < y->end_byte &&
           y->first_byte < x->end_byte;
}

/* Whom `r` has to wait for: one at work, or one ahead of it in the line. */
static const struct align_req *align_find_blocker(struct disk_align *a,
                                                  const struct align_req *r)
{
    const struct align_req *o;

    TAILQ_FOREACH(o, &a->active, link)
    {
        if (align_conflict(o, r))
            return o;
    }
    TAILQ_FOREACH(o, &a->waiting, link)
    {
        if (o == r)
            break;
        if (align_conflict(o, r))
            return o;
    }
    return NULL;
}

static void align_wake_waiting(struct disk_align *a,
                               const struct align_req *ended)
{
    struct align_req *next;

    for (struct align_req *r = TAILQ_FIRST(&a->waiting); r; r = next) {
        next = TAILQ_NEXT(r, link);
        if (r->blocker != ended)
            continue;
        r->blocker = align_find_blocker(a, r);
        if (r->blocker)
            continue;
        TAILQ_REMOVE(&a->waiting, r, link);
        TAILQ_INSERT_TAIL(&a->active, r, link);
        align_start(r);
    }
}

static void align_give_bounce(struct disk_align *a, char *bounce)
{
    struct align_req *r = TAILQ_FIRST(&a->hungry);

    a->idle[a->num_idle++] = bounce;
    if (r) {
        TAILQ_REMOVE(&a->hungry, r, hungry);
        align_start(r);
    }
}

static void align_finish(struct align_req *r, int status)
{
    struct disk_align *a = r->a;
    struct disk_io *up = r->up;

    if (align_is_write(up)) {
        TAILQ_REMOVE(&a->active, r, link);
        align_wake_waiting(a, r);
    }
    if (r->bounce)
        align_give_bounce(a, r->bounce);
    free(r);
    up->done(up, status); /* last: its owner may free the disk */
}

/* --- pieces through the bounce buffer ------------------------------------ */

static void align_lower(struct align_req *r, enum disk_op op)
{
    r->io.op = op;
    r->a->lower->ops->submit(r->a->lower, r->up->loop_, &r->io);
}

/* The request's bytes inside the piece. */
static uint64_t align_piece_data(const struct align_req *r)
{
    return min_u64(r->left, r->piece_start + r->piece_bytes - r->pos);
}

/* Moves `n` bytes between the buffer and the caller's iovecs, used up so. */
static void align_copy(struct align_req *r, char *buf, uint64_t n)
{
    struct disk_io *up = r->up;

    while (n > 0) {
        size_t take = (size_t)min_u64(n, up->iov->iov_len);

        if (up->op == DISK_READ)
            memcpy(up->iov->iov_base, buf, take);
        else
            memcpy(buf, up->iov->iov_base, take);
        buf += take;
        n -= take;
        up->iov->iov_base = (char *)up->iov->iov_base + take;
        up->iov->iov_len -= take;
        if (up->iov->iov_len == 0) {
            up->iov++;
            up->iovcnt--;
        }
    }
}

static void align_transfer(struct align_req *r, enum disk_op op)
{
    r->step = op == DISK_READ ? ALIGN_FETCH : ALIGN_STORE;
    r->iov = (struct iovec){r->bounce, r->piece_bytes};
    r->io.iov = &r->iov;
    r->io.iovcnt = 1;
    r->io.offset_bytes = r->piece_start;
    align_lower(r, op);
}

/* The piece's blocks are in the buffer, or all of them will be. */
static void align_store(struct align_req *r)
{
    char *p = r->bounce + (r->pos - r->piece_start);
    uint64_t n = align_piece_data(r);

    if (r->up->op == DISK_WRITE)
        align_copy(r, p, n);
    else
        memset(p, 0, n);
    align_transfer(r, DISK_WRITE);
}

static void align_zero_middle(struct align_req *r)
{
    r->step = ALIGN_ZERO;
    r->piece_start = r->pos;
    r->piece_bytes = align_down(r->a, r->left);
    r->io.iov = r->up->iov; /* scratch */
    r->io.iovcnt = 0;
    r->io.offset_bytes = r->pos;
    r->io.len_bytes = r->piece_bytes;
    r->io.may_unmap = r->up->may_unmap;
    align_lower(r, DISK_WRITE_ZEROES);
}

static void align_next_piece(struct align_req *r)
{
    const struct disk_align *a = r->a;
    uint64_t max = ALIGN_BOUNCE_BYTES;
    uint64_t end;

    if (r->up->op == DISK_WRITE_ZEROES) {
        if (r->pos == align_down(a, r->pos) && r->left >= a->block_bytes) {
            align_zero_middle(r);
            return;
        }
        max = a->block_bytes; /* the odd ends */
    }
    r->piece_start = align_down(a, r->pos);
    end = align_down(a, r->pos + r->left + a->block_bytes - 1);
    r->piece_bytes = min_u64(end - r->piece_start, max);
    if (r->up->op == DISK_READ || r->pos != r->piece_start ||
        align_piece_data(r) != r->piece_bytes)
        align_transfer(r, DISK_READ);
    else
        align_store(r);
}

static void align_piece_done(struct align_req *r)
{
    uint64_t n = align_piece_data(r);

    if (r->step == ALIGN_FETCH)
        align_copy(r, r->bounce + (r->pos - r->piece_start), n);
    r->pos += n;
    r->left -= n;
    if (r->left > 0)
        align_next_piece(r);
    else
        align_finish(r, 0);
}

static void align_on_io(struct disk_io *io, int status)
{
    struct align_req *r = io->arg;

    if (status || r->step == ALIGN_PASS)
        align_finish(r, status);
    else if (r->step == ALIGN_FETCH && r->up->op != DISK_READ)
        align_store(r);
    else
        align_piece_done(r);
}

/* --- the start of a request ---------------------------------------------- */

/* Nobody is in the way any more. */
static void align_start(struct align_req *r)
{
    if (r->step == ALIGN_PASS) {
        align_lower(r, r->up->op);
        return;
    }
    r->bounce = align_take_bounce(r->a);
    if (r->bounce)
        align_next_piece(r);
    else
        TAILQ_INSERT_TAIL(&r->a->hungry, r, hungry);
}

static uint64_t align_length(const struct disk_io *io)
{
    uint64_t n = 0;

    if (!align_has_data(io))
        return io->len_bytes;
    for (uint32_t i = 0; i < io->iovcnt; i++)
        n += io->iov[i].iov_len;
    return n;
}

/* Whether each buffer is fit for the lower disk. */
static bool align_buffers_fit(const struct disk_align *a,
                              const struct disk_io *io)
{
    for (uint32_t i = 0; align_has_data(io) && i < io->iovcnt; i++) {
        if ((uintptr_t)io->iov[i].iov_base % a->memory_bytes ||
            io->iov[i].iov_len % a->block_bytes)
            return false;
    }
    return true;
}

/* Only whole blocks can be given back. */
static void align_trim_discard(const struct disk_align *a, struct disk_io *io)
{
    uint64_t end = align_down(a, io->offset_bytes + io->len_bytes);
    uint64_t start = align_down(a, io->offset_bytes + a->block_bytes - 1);

    io->offset_bytes = start;
    io->len_bytes = end > start ? end - start : 0;
}

static void align_on_later(struct ev_later *l)
{
    struct disk_io *io = l->arg;

    io->done(io, io->retries_ ? -ENOMEM : 0);
}

static void align_answer(struct disk_io *io, bool no_memory)
{
    io->retries_ = no_memory;
    evloop_later(io->loop_, &io->later_, align_on_later, io);
}

static void align_enqueue(struct disk_align *a, struct disk_io *io,
                          uint64_t len, bool aligned, bool fit)
{
    struct align_req *r = calloc(1, sizeof(*r));

    if (!r) {
        align_answer(io, true);
        return;
    }
    r->a = a;
    r->up = io;
    r->step = fit ? ALIGN_PASS : ALIGN_FETCH;
    r->pos = io->offset_bytes;
    r->left = len;
    r->first_byte = align_down(a, r->pos);
    r->end_byte = align_down(a, r->pos + len + a->block_bytes - 1);
    r->partial = !aligned;
    r->io = *io;
    r->io.done = align_on_io;
    r->io.arg = r;
    if (!align_is_write(io)) {
        align_start(r);
        return;
    }
    r->blocker = align_find_blocker(a, r);
    if (r->blocker) {
        TAILQ_INSERT_TAIL(&a->waiting, r, link);
        return;
    }
    TAILQ_INSERT_TAIL(&a->active, r, link);
    align_start(r);
}

static void align_submit(struct disk *disk, struct evloop *loop,
                         struct disk_io *io)
{
    struct disk_align *a = align_of(disk);
    bool aligned;
    uint64_t len;
    bool fit;

    if (io->op == DISK_FLUSH) {
        a->lower->ops->submit(a->lower, loop, io);
        return;
    }
    io->disk_ = disk;
    io->loop_ = loop;
    if (io->op == DISK_DISCARD) {
        align_trim_discard(a, io);
        if (io->len_bytes == 0) {
            align_answer(io, false);
            return;
        }
    }
    len = align_length(io);
    aligned = (io->offset_bytes | len) % a->block_bytes == 0;
    fit = aligned && align_buffers_fit(a, io);
    if (fit && !align_is_write(io))
        a->lower->ops->submit(a->lower, loop, io);
    else
        align_enqueue(a, io, len, aligned, fit);
}

/* --- the disk ------------------------------------------------------------ */

static int align_refresh(struct disk *disk)
{
    struct disk_align *a = align_of(disk);
    int rc = a->lower->ops->refresh(a->lower);

    if (rc == 0)
        disk->size_bytes = align_down(a, a->lower->size_bytes);
    return rc;
}

static bool align_is_file(const struct disk *disk, const struct stat *st)
{
    const struct disk_align *a = (const struct disk_align *)disk; /* first */

    return a->lower->ops->is_file(a->lower, st);
}

static void align_free(struct disk *disk)
{
    struct disk_align *a = align_of(disk);

    assert(TAILQ_EMPTY(&a->active) && a->num_idle == a->num_bounces);
    while (a->num_idle > 0)
        free(a->idle[--a->num_idle]);
    a->lower->ops->free(a->lower);
    free(a);
}

static int align_clone(struct disk *disk, int to_fd)
{
    const struct disk_align *a = container_of(disk, struct disk_align, base);

    return a->lower->ops->clone(a->lower, to_fd);
}

static const struct disk_ops align_ops = {
    .submit = align_submit,
    .refresh = align_refresh,
    .is_file = align_is_file,
    .clone = align_clone,
    .free = align_free,
};

int disk_align_new(struct disk *lower, struct disk_raw_alignment align,
                   struct disk **out_disk)
{
    struct disk_align *a = calloc(1, sizeof(*a));
    char *bounce = aligned_alloc(ALIGN_BOUNCE_BYTES, ALIGN_BOUNCE_BYTES);

    if (!a || !bounce) {
        free(a);
        free(bounce);
        return -ENOMEM;
    }
    assert(is_pow2(align.block_bytes) && is_pow2(align.memory_bytes));
    assert(align.block_bytes <= ALIGN_BOUNCE_BYTES);
    a->base = *lower;
    a->base.ops = &align_ops;
    a->base.size_bytes -= a->base.size_bytes % align.block_bytes;
    a->lower = lower;
    /* With one there from the start, waiting for one always ends. */
    a->idle[a->num_idle++] = bounce;
    a->num_bounces = 1;
    a->block_bytes = align.block_bytes;
    a->memory_bytes = align.memory_bytes;
    TAILQ_INIT(&a->active);
    TAILQ_INIT(&a->waiting);
    TAILQ_INIT(&a->hungry);
    *out_disk = &a->base;
    return 0;
}
