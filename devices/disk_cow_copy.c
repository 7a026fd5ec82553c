/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clusters of a copy-on-write disk on their way to the top: who brings which,
 * and those of which only a part is written. thread: io
 */
#include "devices/disk_cow_int.h"

#include <stdlib.h>
#include <string.h>

/* --- claims: clusters on their way to the top ------------------------------
 */

const struct cow_req *cow_claimant(const struct disk_cow *c, uint64_t cluster)
{
    const struct cow_req *o;

    TAILQ_FOREACH(o, &c->claims, claim)
    {
        if (cluster >= o->first_cluster && cluster < o->end_cluster)
            return o;
    }
    return NULL;
}

void cow_claim(struct cow_req *r, uint64_t bytes)
{
    r->claimed = true;
    r->first_cluster = r->pos / COW_CLUSTER_BYTES;
    r->end_cluster =
        (r->pos + bytes + COW_CLUSTER_BYTES - 1) / COW_CLUSTER_BYTES;
    TAILQ_INSERT_TAIL(&r->c->claims, r, claim);
}

static void cow_wake(struct disk_cow *c, const struct cow_req *ended)
{
    struct cow_list woken = TAILQ_HEAD_INITIALIZER(woken);
    struct cow_req *next;
    struct cow_req *r;

    for (r = TAILQ_FIRST(&c->waiting); r; r = next) {
        next = TAILQ_NEXT(r, link);
        if (r->blocker != ended)
            continue;
        TAILQ_REMOVE(&c->waiting, r, link);
        TAILQ_INSERT_TAIL(&woken, r, link);
    }
    while ((r = TAILQ_FIRST(&woken)) != NULL) {
        TAILQ_REMOVE(&woken, r, link);
        r->blocker = NULL;
        cow_go(r);
    }
}

/* What the run held; others may go on with it. */
void cow_release(struct cow_req *r)
{
    struct disk_cow *c = r->c;
    struct cow_req *next;

    if (r->bounce) {
        c->idle[c->num_idle++] = r->bounce;
        r->bounce = NULL;
        next = TAILQ_FIRST(&c->hungry);
        if (next) {
            TAILQ_REMOVE(&c->hungry, next, link);
            next->bounce = c->idle[--c->num_idle];
            cow_fetch(next);
        }
    }
    if (r->claimed) {
        r->claimed = false;
        TAILQ_REMOVE(&c->claims, r, claim);
        cow_wake(c, r);
    }
}

static char *cow_take_bounce(struct disk_cow *c)
{
    char *p = NULL;

    if (c->num_idle > 0)
        return c->idle[--c->num_idle];
    if (c->num_bounces == COW_MAX_BOUNCES)
        return NULL;
    p = malloc(COW_CLUSTER_BYTES);
    if (p)
        c->num_bounces++;
    return p;
}

/* --- copying ---------------------------------------------------------------
 */

/* The cluster is in the buffer: with the caller's part it goes to the top. */
static void cow_store_bounce(struct cow_req *r)
{
    struct disk_cow *c = r->c;
    uint64_t start = cow_cluster_start(r->pos);
    uint64_t end = cow_cluster_end(c, r->pos);
    char *p = r->bounce + (r->pos - start);

    r->step = COW_STORE;
    r->run_bytes = min_u64(r->left, end - r->pos);
    if (r->up->op == DISK_WRITE)
        cow_copy(r->up, p, r->run_bytes);
    else
        memset(p, 0, r->run_bytes);
    r->iov = (struct iovec){r->bounce, end - start};
    r->io.iov = &r->iov;
    r->io.iovcnt = 1;
    cow_submit_to(r, c->layer[0], DISK_WRITE, cow_top_offset(c, start));
}

/* What is still missing of the cluster in the bounce buffer. */
void cow_fetch(struct cow_req *r)
{
    uint64_t start = cow_cluster_start(r->pos);
    uint64_t len = cow_cluster_end(r->c, r->pos) - start;
    struct disk *disk = NULL;
    uint64_t offset = 0;

    r->step = COW_FETCH;
    while (r->fetched_bytes < len) {
        char *p = r->bounce + r->fetched_bytes;
        uint64_t n = cow_run(r->c, 1, start + r->fetched_bytes,
                             len - r->fetched_bytes, &disk, &offset);

        if (disk) {
            r->run_bytes = n;
            r->iov = (struct iovec){p, n};
            r->io.iov = &r->iov;
            r->io.iovcnt = 1;
            cow_submit_to(r, disk, DISK_READ, offset);
            return;
        }
        memset(p, 0, n);
        r->fetched_bytes += n;
    }
    cow_store_bounce(r);
}

void cow_copy_up(struct cow_req *r)
{
    r->fetched_bytes = 0;
    r->bounce = cow_take_bounce(r->c);
    if (r->bounce)
        cow_fetch(r);
    else
        TAILQ_INSERT_TAIL(&r->c->hungry, r, link);
}
