/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/fork_copy.h"

#include "vmm/cleanup.h"
#include "vmm/dirty.h"
#include "vmm/snapshot_mem.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

/* Copied in one turn of the loop: the devices wait no longer than that takes.
 */
#define COPY_SLICE (2 * MIB)
/* What may be left for the stop: it takes well under a millisecond. */
#define COPY_REST_PAGES 256u
#define COPY_MAX_ROUNDS 8u

static void copy_next_turn(struct fork_copy *c);

/* --- the end ----------------------------------------------------------------
 */

/* The record of written pages goes back to what it was for. */
static void copy_give_back(struct fork_copy *c)
{
    struct dirty *d = machine_dirty(c->machine);

    if (!c->was_tracking) {
        if (d->on && dirty_stop(d, NULL) == 0)
            dirty_clear(d);
        return;
    }
    for (uint64_t i = 0; c->before && i < d->words; i++)
        d->bits[i] |= c->before[i];
}

static void copy_end(struct fork_copy *c, int rc)
{
    if (!c->was_paused && machine_state(c->machine) == MACHINE_PAUSED)
        machine_resume(c->machine);
    copy_give_back(c);
    c->done(c, rc);
}

static int copy_fail(struct fork_copy *c, int rc, const char *what)
{
    return err_set(&c->err, rc, "fork: %s: %s", what, err_reason(rc));
}

/* --- memory -----------------------------------------------------------------
 */

static int copy_pwrite(struct fork_copy *c, uint64_t from, uint64_t len)
{
    const char *p = gm_linear(machine_mem(c->machine), from, len);

    c->copied_bytes += len;
    while (len > 0) {
        ssize_t n = pwrite(c->mem_fd, p, len, (off_t)from);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return neg_errno();
        p += n;
        from += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return 0;
}

/* The pages that are not zero: the file is empty so far. */
static int copy_fresh(struct fork_copy *c, uint64_t from, uint64_t to)
{
    const char *p = gm_linear(machine_mem(c->machine), from, to - from);
    uint64_t begin = from;
    int rc = 0;

    for (uint64_t at = from; at < to && rc == 0; at += SNAP_PAGE) {
        if (!snap_page_is_zero(p + (at - from)))
            continue;
        if (at > begin)
            rc = copy_pwrite(c, begin, at - begin);
        begin = at + SNAP_PAGE;
    }
    if (rc == 0 && to > begin)
        rc = copy_pwrite(c, begin, to - begin);
    return rc;
}

/* One slice of the first round. True in *out_more: there is more. */
static int copy_all_slice(struct fork_copy *c, bool *out_more)
{
    uint64_t from = 0;
    uint64_t to = 0;

    *out_more = gm_next_data(machine_mem(c->machine), c->at, &from, &to);
    if (!*out_more)
        return 0;
    c->at = min_u64(to, from + COPY_SLICE);
    return copy_fresh(c, from, c->at);
}

static bool copy_has(const struct fork_copy *c, uint64_t page)
{
    return c->work[page / 64] >> page % 64 & 1;
}

/* The noted pages from c->at on, up to `limit` bytes of them. Runs of pages are
 * one write each, within a region. */
static int copy_noted(struct fork_copy *c, uint64_t limit, bool *out_more)
{
    const struct guest_mem *gm = machine_mem(c->machine);
    uint64_t pages = gm_num_pages(gm);
    uint64_t page = c->at / SNAP_PAGE;
    uint64_t done = 0;
    int rc = 0;

    while (page < pages && done < limit && rc == 0) {
        uint64_t end;

        if (page % 64 == 0 && c->work[page / 64] == 0) {
            page += 64;
            continue;
        }
        if (!copy_has(c, page)) {
            page++;
            continue;
        }
        for (end = page + 1;
             end < pages && copy_has(c, end) &&
             (end - page) * SNAP_PAGE < limit - done &&
             gm_linear(gm, page * SNAP_PAGE, (end + 1 - page) * SNAP_PAGE);
             end++)
            ;
        rc = copy_pwrite(c, page * SNAP_PAGE, (end - page) * SNAP_PAGE);
        done += (end - page) * SNAP_PAGE;
        page = end;
    }
    c->at = min_u64(page, pages) * SNAP_PAGE;
    *out_more = page < pages;
    return rc;
}

/* The pages noted since the last time become the next round's. */
static int copy_collect(struct fork_copy *c, bool own, uint64_t *out_pages)
{
    struct dirty *d = machine_dirty(c->machine);
    int rc = dirty_collect(d, own, &c->err);

    *out_pages = 0;
    for (uint64_t i = 0; i < d->words && rc == 0; i++) {
        c->work[i] = d->bits[i];
        if (c->was_tracking)
            c->before[i] |= d->bits[i];
        *out_pages += (uint64_t)__builtin_popcountll(d->bits[i]);
    }
    if (rc)
        return rc; /* what was noted stays so: copy_give_back() adds to it */
    dirty_clear(d);
    c->at = 0;
    return 0;
}

/* --- the state --------------------------------------------------------------
 */

static int copy_write_state(struct fork_copy *c, const struct state_out *out)
{
    int rc = util_write_full(c->state_fd, out->data, out->len_bytes);
    const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

    if (rc)
        return copy_fail(c, rc, "its state");
    /* No child can change what the others see. */
    if (fcntl(c->state_fd, F_ADD_SEALS, seals) < 0 ||
        fcntl(c->mem_fd, F_ADD_SEALS, seals) < 0)
        return copy_fail(c, neg_errno(), "sealing the copy");
    return 0;
}

/* Before the last pages are collected: what devices have written into their
 * rings is noted by it. */
static int copy_save(struct fork_copy *c, struct state_out *out)
{
    uint8_t id[STATE_ID_BYTES];
    int rc;

    if (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id))
        return copy_fail(c, -EIO, "the host gave no random bytes");
    rc = machine_save(c->machine, out, &c->err);
    if (rc == 0)
        rc = c->save_more(c->arg, out, &c->err);
    if (rc == 0) {
        rc = state_finish(out, id);
        rc = rc ? copy_fail(c, rc, "its state") : 0;
    }
    return rc;
}

/* --- the two stops ----------------------------------------------------------
 */

static void copy_stopped(struct fork_copy *c)
{
    uint64_t ns = util_now_ns() - c->pause_ns;

    if (ns > c->stopped_ns)
        c->stopped_ns = ns;
}

/* At the second stop: what is left, and all that is not memory. */
static void copy_on_last_stop(void *arg)
{
    struct fork_copy *c = arg;
    struct state_out out;
    uint64_t pages;
    bool more;
    int rc;

    state_out_init(&out);
    rc = copy_save(c, &out);
    if (rc == 0)
        rc = copy_collect(c, true, &pages);
    if (rc == 0)
        rc = copy_noted(c, UINT64_MAX, &more);
    if (rc && !c->err.text[0])
        (void)copy_fail(c, rc, "copying memory");
    if (rc == 0)
        rc = copy_write_state(c, &out);
    state_out_fini(&out);
    if (!c->was_paused) {
        machine_resume(c->machine);
        copy_stopped(c);
    }
    copy_end(c, rc);
}

/* At the first stop: nothing is in flight. */
static void copy_on_first_stop(void *arg)
{
    struct fork_copy *c = arg;
    struct dirty *d = machine_dirty(c->machine);

    for (uint64_t i = 0; i < d->words && c->was_tracking; i++)
        c->before[i] = d->bits[i];
    gm_take_dirty(machine_mem(c->machine), d->bits);
    for (uint64_t i = 0; i < d->words && c->was_tracking; i++)
        c->before[i] |= d->bits[i];
    dirty_clear(d);
    if (!c->was_paused) {
        machine_resume(c->machine);
        copy_stopped(c);
    }
    c->at = 0;
    c->round = 0;
    copy_next_turn(c);
}

static void copy_stop(struct fork_copy *c, machine_paused_fn then)
{
    c->pause_ns = util_now_ns();
    machine_pause(c->machine, then, c);
}

/* --- turns ------------------------------------------------------------------
 */

/* A round is over: another one, or the stop. */
static int copy_next_round(struct fork_copy *c)
{
    uint64_t pages = 0;
    int rc = 0;

    if (!c->was_paused)
        rc = copy_collect(c, false, &pages);
    if (rc)
        return rc;
    if (pages <= COPY_REST_PAGES || c->round == COPY_MAX_ROUNDS ||
        (c->round > 0 && pages > c->last_pages / 2)) {
        struct dirty *d = machine_dirty(c->machine);

        /* They are copied with the rest. */
        for (uint64_t i = 0; i < d->words && pages > 0; i++)
            d->bits[i] |= c->work[i];
        c->hurry(c->arg);
        copy_stop(c, copy_on_last_stop);
        return 0;
    }
    c->last_pages = pages;
    c->round++;
    copy_next_turn(c);
    return 0;
}

static void copy_on_turn(struct ev_timer *t)
{
    struct fork_copy *c = t->arg;
    bool more = false;
    int rc = c->round == 0 ? copy_all_slice(c, &more)
                           : copy_noted(c, COPY_SLICE, &more);

    if (rc)
        (void)copy_fail(c, rc, "copying memory");
    else if (more)
        copy_next_turn(c);
    else
        rc = copy_next_round(c);
    if (rc)
        copy_end(c, rc);
}

static void copy_next_turn(struct fork_copy *c)
{
    int rc = evloop_timer_arm(c->loop, &c->turn, 0, copy_on_turn, c);

    if (rc) {
        (void)copy_fail(c, rc, "copying memory");
        copy_end(c, rc);
    }
}

/* --- life -------------------------------------------------------------------
 */

static int copy_make_files(struct fork_copy *c)
{
    c->state_fd =
        memfd_create("mote-fork-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    c->mem_fd = memfd_create("mote-fork-ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (c->state_fd < 0 || c->mem_fd < 0 ||
        ftruncate(c->mem_fd, (off_t)gm_ram_bytes(machine_mem(c->machine))) < 0)
        return neg_errno();
    return 0;
}

int fork_copy_start(struct fork_copy *c, struct errmsg *err)
{
    struct dirty *d = machine_dirty(c->machine);
    int rc;

    c->state_fd = c->mem_fd = -1;
    c->was_paused = machine_state(c->machine) != MACHINE_RUNNING;
    c->was_tracking = d->on;
    c->work = calloc(d->words, sizeof(*c->work));
    c->before = calloc(d->words, sizeof(*c->before));
    rc = c->work && c->before ? copy_make_files(c) : -ENOMEM;
    if (rc)
        rc =
            err_set(err, rc, "fork: a file for its memory: %s", err_reason(rc));
    if (rc == 0)
        rc = dirty_start(d, err);
    if (rc) {
        fork_copy_fini(c);
        return rc;
    }
    copy_stop(c, copy_on_first_stop);
    return 0;
}

void fork_copy_fini(struct fork_copy *c)
{
    if (c->loop)
        evloop_timer_cancel(c->loop, &c->turn);
    drop_fd(&c->state_fd);
    drop_fd(&c->mem_fd);
    free(c->work);
    free(c->before);
    c->work = c->before = NULL;
}
