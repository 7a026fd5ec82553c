/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a copy-on-write disk. thread: io */
#include "devices/disk_cow_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Clusters that one step brings to the top as a whole. */
#define COW_MAX_RUN 1024u

static struct disk_cow *cow_of(struct disk *disk)
{
    return container_of(disk, struct disk_cow, base);
}

/* --- where bytes come from -------------------------------------------------
 */

static bool cow_on_top(const struct disk_cow *c, uint64_t pos)
{
    return cow_map_test(c->chain->file[0].map, pos / COW_CLUSTER_BYTES);
}

uint64_t cow_run(const struct disk_cow *c, uint32_t from, uint64_t pos,
                 uint64_t max, struct disk **out_disk, uint64_t *out_offset)
{
    uint64_t limit;
    uint64_t other;
    uint32_t src = cow_chain_source(c->chain, from, pos, &limit);
    uint64_t end = cow_cluster_start(pos) + COW_CLUSTER_BYTES;
    uint32_t raw = c->chain->num_files;

    limit = min_u64(limit, pos + max);
    while (end < limit && cow_chain_source(c->chain, from, end, &other) == src)
        end += COW_CLUSTER_BYTES;
    *out_offset = pos;
    if (src < raw)
        *out_offset += cow_data_offset(c->chain->file[src].header.size_bytes);
    *out_disk = src < raw ? c->layer[src] : src == raw ? c->raw : NULL;
    return min_u64(end, limit) - pos;
}

static void cow_on_io(struct disk_io *io, int status);

/* --- the end of a request --------------------------------------------------
 */

static void cow_finish(struct cow_req *r)
{
    struct disk_io *up = r->up;
    int status = r->status;

    r->c->num_reqs--;
    free(r);
    up->done(up, status); /* last: its owner may free the disk */
}

static void cow_on_later(struct ev_later *l)
{
    cow_finish(l->arg);
}

void cow_complete(struct cow_req *r, int status)
{
    r->status = status;
    if (r->starting)
        evloop_later(r->up->loop_, &r->up->later_, cow_on_later, r);
    else
        cow_finish(r);
}

static void cow_end(struct cow_req *r, int status)
{
    if (status == 0 && r->new_bits && r->c->unsafe)
        cow_store_join(r);
    else
        cow_complete(r, status);
}

/* --- the caller's buffers --------------------------------------------------
 */

static bool cow_has_data(const struct disk_io *io)
{
    return io->op == DISK_READ || io->op == DISK_WRITE;
}

/* The first `n` bytes of the caller's buffers become those of r->io; what the
 * last of them holds beyond is kept for cow_uncut(). */
static void cow_cut(struct cow_req *r, uint64_t n)
{
    struct disk_io *up = r->up;
    uint32_t i = 0;

    while (n > up->iov[i].iov_len)
        n -= up->iov[i++].iov_len;
    r->rest.iov_base = (char *)up->iov[i].iov_base + n;
    r->rest.iov_len = up->iov[i].iov_len - n;
    up->iov[i].iov_len = n;
    r->io.iov = up->iov;
    r->io.iovcnt = i + 1;
    up->iov += i;
    up->iovcnt -= i;
}

static void cow_uncut(struct cow_req *r)
{
    struct disk_io *up = r->up;

    if (r->rest.iov_len > 0) {
        *up->iov = r->rest;
        return;
    }
    up->iov++;
    up->iovcnt--;
}

void cow_copy(struct disk_io *up, char *dst, uint64_t n)
{
    while (n > 0) {
        size_t take = (size_t)min_u64(n, up->iov->iov_len);

        if (dst) {
            memcpy(dst, up->iov->iov_base, take);
            dst += take;
        } else {
            memset(up->iov->iov_base, 0, take);
        }
        n -= take;
        up->iov->iov_base = (char *)up->iov->iov_base + take;
        up->iov->iov_len -= take;
        if (up->iov->iov_len == 0) {
            up->iov++;
            up->iovcnt--;
        }
    }
}

/* --- steps -----------------------------------------------------------------
 */

void cow_submit_to(struct cow_req *r, struct disk *disk, enum disk_op op,
                   uint64_t offset)
{
    r->io.op = op;
    r->io.offset_bytes = offset;
    disk->ops->submit(disk, r->up->loop_, &r->io);
}

/* What the caller asks for, of the next `n` bytes, to the file on top. */
static void cow_change(struct cow_req *r, enum cow_step step, uint64_t n)
{
    struct disk_io *up = r->up;

    r->step = step;
    r->run_bytes = n;
    if (cow_has_data(up)) {
        cow_cut(r, n);
    } else {
        r->io.iov = up->iov; /* scratch */
        r->io.iovcnt = 0;
        r->io.len_bytes = n;
        r->io.may_unmap = up->may_unmap || step == COW_WHOLE;
    }
    cow_submit_to(r, r->c->layer[0], up->op, cow_top_offset(r->c, r->pos));
}

static void cow_pass(struct cow_req *r, uint64_t n)
{
    r->pos += n;
    r->left -= n;
}

/* True: done without waiting, as all these. */
static bool cow_step_read(struct cow_req *r)
{
    struct disk *disk = NULL;
    uint64_t offset = 0;
    uint64_t n = cow_run(r->c, 0, r->pos, r->left, &disk, &offset);

    if (!disk) {
        cow_copy(r->up, NULL, n);
        cow_pass(r, n);
        return true;
    }
    r->step = COW_READ;
    r->run_bytes = n;
    cow_cut(r, n);
    cow_submit_to(r, disk, DISK_READ, offset);
    return false;
}

/* Bytes of clusters that the top has, from r->pos on. */
static uint64_t cow_top_run(const struct cow_req *r)
{
    uint64_t end = r->pos;

    while (end < r->pos + r->left && cow_on_top(r->c, end))
        end = cow_cluster_end(r->c, end);
    return min_u64(end - r->pos, r->left);
}

/* Bytes of whole clusters that neither the top has nor anyone brings there. */
static uint64_t cow_whole_run(const struct cow_req *r)
{
    uint64_t limit = r->pos + r->left;
    uint64_t max = r->pos + (uint64_t)COW_MAX_RUN * COW_CLUSTER_BYTES;
    uint64_t p = r->pos;

    while (p < limit && p < max && p == cow_cluster_start(p) &&
           cow_cluster_end(r->c, p) <= limit && !cow_on_top(r->c, p) &&
           !cow_claimant(r->c, p / COW_CLUSTER_BYTES))
        p = cow_cluster_end(r->c, p);
    return p - r->pos;
}

/* Zeroes are there already, as far as this cluster goes. */
static bool cow_skip_zeroes(struct cow_req *r)
{
    uint64_t max = cow_cluster_end(r->c, r->pos) - r->pos;
    struct disk *disk = NULL;
    uint64_t offset = 0;
    uint64_t n;

    if (r->up->op != DISK_WRITE_ZEROES)
        return false;
    n = cow_run(r->c, 1, r->pos, min_u64(max, r->left), &disk, &offset);
    if (disk)
        return false;
    cow_pass(r, n);
    return true;
}

/* Writes and zeroes. */
static bool cow_step_write(struct cow_req *r)
{
    struct disk_cow *c = r->c;
    uint64_t n = cow_top_run(r);

    if (n > 0) {
        cow_change(r, COW_DIRECT, n);
        return false;
    }
    r->blocker = cow_claimant(c, r->pos / COW_CLUSTER_BYTES);
    if (r->blocker) {
        TAILQ_INSERT_TAIL(&c->waiting, r, link);
        return false;
    }
    if (cow_skip_zeroes(r))
        return true;
    n = cow_whole_run(r);
    cow_claim(r, n ? n : 1);
    if (n > 0) {
        cow_change(r, COW_WHOLE, n);
        return false;
    }
    cow_copy_up(r);
    return false;
}

/* What is not on top takes no room of ours, and what is read from it is as
 * good as anything else. */
static bool cow_step_discard(struct cow_req *r)
{
    uint64_t n = cow_top_run(r);

    if (n > 0) {
        cow_change(r, COW_DIRECT, n);
        return false;
    }
    n = cow_cluster_end(r->c, r->pos) - r->pos;
    cow_pass(r, min_u64(n, r->left));
    return true;
}

void cow_go(struct cow_req *r)
{
    bool again = true;

    while (again && r->left > 0) {
        if (r->up->op == DISK_READ)
            again = cow_step_read(r);
        else if (r->up->op == DISK_DISCARD)
            again = cow_step_discard(r);
        else
            again = cow_step_write(r);
    }
    if (again)
        cow_end(r, 0);
}

static void cow_on_io(struct disk_io *io, int status)
{
    struct cow_req *r = io->arg;

    if (r->step != COW_FETCH && r->step != COW_STORE && cow_has_data(r->up))
        cow_uncut(r);
    if (status == 0 && r->step == COW_FETCH) {
        r->fetched_bytes += r->run_bytes;
        cow_fetch(r);
        return;
    }
    if (status == 0) {
        for (uint64_t i = r->first_cluster; r->claimed && i < r->end_cluster;
             i++)
            cow_store_set(r->c, i);
        r->new_bits |= r->claimed;
        cow_pass(r, r->run_bytes);
    }
    cow_release(r);
    if (status)
        cow_end(r, status);
    else
        cow_go(r);
}

/* --- the disk --------------------------------------------------------------
 */

static uint64_t cow_length(const struct disk_io *io)
{
    uint64_t n = 0;

    if (!cow_has_data(io))
        return io->op == DISK_FLUSH ? 0 : io->len_bytes;
    for (uint32_t i = 0; i < io->iovcnt; i++)
        n += io->iov[i].iov_len;
    return n;
}

static void cow_on_no_memory(struct ev_later *l)
{
    struct disk_io *io = l->arg;

    io->done(io, -ENOMEM);
}

static void cow_submit(struct disk *disk, struct evloop *loop,
                       struct disk_io *io)
{
    struct cow_req *r = calloc(1, sizeof(*r));

    assert(!disk->read_only || io->op == DISK_READ || io->op == DISK_FLUSH);
    io->disk_ = disk;
    io->loop_ = loop;
    if (!r) {
        evloop_later(loop, &io->later_, cow_on_no_memory, io);
        return;
    }
    r->c = cow_of(disk);
    r->c->num_reqs++;
    r->up = io;
    r->pos = io->offset_bytes;
    r->left = cow_length(io);
    r->io.done = cow_on_io;
    r->io.arg = r;
    r->starting = true;
    if (io->op == DISK_FLUSH)
        cow_store_join(r);
    else
        cow_go(r);
    r->starting = false;
}

static int cow_refresh(struct disk *disk)
{
    (void)disk; /* the size is in the header, which does not change */
    return 0;
}

static bool cow_is_file(const struct disk *disk, const struct stat *st)
{
    const struct disk_cow *c = (const struct disk_cow *)disk; /* first */

    return c->layer[0]->ops->is_file(c->layer[0], st);
}

static void cow_free(struct disk *disk)
{
    struct disk_cow *c = cow_of(disk);

    assert(c->num_reqs == 0 && c->num_idle == c->num_bounces);
    /* As a cache is written back when a disk is switched off; a failure is
     * what its loss of power is. */
    (void)!cow_store_now(c, false);
    while (c->num_idle > 0)
        free(c->idle[--c->num_idle]);
    for (uint32_t i = 0; i < c->chain->num_files; i++)
        c->layer[i]->ops->free(c->layer[i]);
    if (c->raw)
        c->raw->ops->free(c->raw);
    free(c->store.mark);
    free(c->store.copy);
    cow_chain_free(c->chain);
    free(c);
}

const struct disk_ops disk_cow_ops = {
    .submit = cow_submit,
    .refresh = cow_refresh,
    .is_file = cow_is_file,
    .free = cow_free,
};
