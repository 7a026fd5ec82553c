/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the bitmap of the file on top is written. A round: note which bits are
 * set; sync, so that their data is on disk; write those bits; sync again. Bits
 * that come while a round is at work are the next one's. thread: io
 */
#include "devices/disk_cow_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t store_sectors(const struct disk_cow *c)
{
    return cow_num_sectors(c->base.size_bytes);
}

static uint64_t store_offset(uint64_t sector)
{
    return COW_HEADER_BYTES + sector * COW_SECTOR_BYTES;
}

void cow_store_set(struct disk_cow *c, uint64_t cluster)
{
    uint8_t *mark = &c->store.mark[cluster / COW_SECTOR_BITS];

    cow_map_set(c->chain->file[0].map, cluster);
    *mark |= COW_DIRTY;
    c->store.dirty = true;
}

/* --- rounds ----------------------------------------------------------------
 */

static void store_on_io(struct disk_io *io, int status);
static void store_begin(struct disk_cow *c);

static void store_submit(struct disk_cow *c, enum disk_op op)
{
    struct cow_store *s = &c->store;

    s->io.op = op;
    s->io.done = store_on_io;
    s->io.arg = c;
    c->layer[0]->ops->submit(c->layer[0], TAILQ_FIRST(&s->round)->up->loop_,
                             &s->io);
}

/* The marks of this round: stored, or still to be. */
static void store_settle(struct disk_cow *c, bool stored)
{
    struct cow_store *s = &c->store;

    for (uint64_t i = 0; i < store_sectors(c); i++) {
        if (!(s->mark[i] & COW_IN_ROUND))
            continue;
        s->mark[i] = stored ? s->mark[i] & COW_DIRTY : COW_DIRTY;
        s->dirty |= !stored;
    }
}

static void store_end(struct disk_cow *c, int status)
{
    struct cow_list done = TAILQ_HEAD_INITIALIZER(done);
    struct cow_store *s = &c->store;
    struct cow_req *r;

    store_settle(c, status == 0);
    TAILQ_CONCAT(&done, &s->round, link);
    s->state = COW_STORE_IDLE;
    if (!TAILQ_EMPTY(&s->queue))
        store_begin(c);
    while ((r = TAILQ_FIRST(&done)) != NULL) {
        TAILQ_REMOVE(&done, r, link);
        cow_complete(r, status); /* the last one may free the disk */
    }
}

/* The next sectors of the round in one write. False: all are written. */
static bool store_write_next(struct disk_cow *c)
{
    struct cow_store *s = &c->store;
    uint64_t end = store_sectors(c);
    uint64_t i = s->next_sector;
    uint64_t n = 0;

    while (i < end && !(s->mark[i] & COW_IN_ROUND))
        i++;
    while (i + n < end && n < COW_STORE_BATCH &&
           (s->mark[i + n] & COW_IN_ROUND)) {
        cow_sector_encode(c->chain->file[0].header.id, s->copy, i + n,
                          s->raw + n * COW_SECTOR_BYTES);
        n++;
    }
    if (n == 0)
        return false;
    s->next_sector = i + n;
    s->iov[0] = (struct iovec){s->raw, n * COW_SECTOR_BYTES};
    s->io.iov = s->iov;
    s->io.iovcnt = 1;
    s->io.offset_bytes = store_offset(i);
    store_submit(c, DISK_WRITE);
    return true;
}

static void store_write(struct disk_cow *c)
{
    struct cow_store *s = &c->store;
    bool first = s->state != COW_STORE_WRITE;

    s->state = COW_STORE_WRITE;
    if (store_write_next(c))
        return;
    if (first || !s->sync) {
        store_end(c, 0); /* nothing to write, or nothing to sync */
        return;
    }
    s->state = COW_STORE_SYNC_MAP;
    store_submit(c, DISK_FLUSH);
}

static void store_on_io(struct disk_io *io, int status)
{
    struct disk_cow *c = io->arg;
    struct cow_store *s = &c->store;

    if (status && s->state != COW_STORE_WRITE)
        s->failed = status;
    if (status)
        store_end(c, status);
    else if (s->state == COW_STORE_SYNC_MAP)
        store_end(c, 0);
    else
        store_write(c);
}

static void store_begin(struct disk_cow *c)
{
    struct cow_store *s = &c->store;
    const uint8_t *map = c->chain->file[0].map;
    struct cow_req *r;

    TAILQ_CONCAT(&s->round, &s->queue, link);
    s->next_sector = 0;
    s->sync = !c->unsafe;
    TAILQ_FOREACH(r, &s->round, link)
    s->sync |= r->up->op == DISK_FLUSH;
    if (s->failed || c->base.read_only) {
        store_end(c, s->failed);
        return;
    }
    for (uint64_t i = 0; s->dirty && i < store_sectors(c); i++) {
        if (!(s->mark[i] & COW_DIRTY))
            continue;
        s->mark[i] = COW_IN_ROUND;
        memcpy(s->copy + i * COW_SECTOR_MAP_BYTES,
               map + i * COW_SECTOR_MAP_BYTES, COW_SECTOR_MAP_BYTES);
    }
    s->dirty = false;
    s->state = COW_STORE_SYNC_DATA;
    if (s->sync)
        store_submit(c, DISK_FLUSH);
    else
        store_write(c);
}

void cow_store_join(struct cow_req *r)
{
    struct cow_store *s = &r->c->store;

    TAILQ_INSERT_TAIL(&s->queue, r, link);
    if (s->state == COW_STORE_IDLE)
        store_begin(r->c);
}

/* --- at once ---------------------------------------------------------------
 */

static int store_write_now(struct disk_cow *c)
{
    struct cow_store *s = &c->store;
    const struct cow_file *top = &c->chain->file[0];
    int rc;

    for (uint64_t i = 0; i < store_sectors(c); i++) {
        if (!s->mark[i])
            continue;
        cow_sector_encode(top->header.id, top->map, i, s->raw);
        rc = cow_write_at(c->fd[0], s->raw, COW_SECTOR_BYTES, store_offset(i));
        if (rc)
            return rc;
        s->mark[i] = 0;
    }
    s->dirty = false;
    return 0;
}

int cow_store_now(struct disk_cow *c, bool sync)
{
    struct cow_store *s = &c->store;
    int rc;

    assert(s->state == COW_STORE_IDLE);
    if (c->base.read_only)
        return 0;
    if (s->failed || (!s->dirty && !sync))
        return s->failed;
    if (sync || !c->unsafe)
        s->failed = fdatasync(c->fd[0]) ? neg_errno() : 0;
    if (s->failed)
        return s->failed;
    rc = store_write_now(c);
    if (rc == 0 && sync)
        s->failed = fdatasync(c->fd[0]) ? neg_errno() : 0;
    return rc ? rc : s->failed;
}
