/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_balloon_int.h"

#include "vmm/errmsg.h"

#include <linux/virtio_balloon.h>
#include <stdatomic.h>

/*
 * Requests that name pages: inflate, deflate, hints, reports.
 * spec: virtio-1.2 5.5.6. thread: io
 *
 * A page is given back before its request completes, never after, and the
 * driver does not use it before that: so no page is taken away that the guest
 * already uses again. Work is done here and now rather than by the loop's
 * ring: nothing is then in flight at a reset.
 */

/* One turn of a queue; then others get theirs. */
#define VBALLOON_TURN_RANGES 256u
#define VBALLOON_TURN_BYTES  (32 * MIB)

struct vballoon_budget {
    uint32_t heads;
    uint32_t ranges;
    uint64_t bytes;
};

static bool vballoon_spent(const struct vballoon_budget *budget)
{
    return budget->ranges == 0 || budget->bytes == 0;
}

static void vballoon_discard(struct vballoon *b, gpa_t gpa, uint64_t len)
{
    int rc = gm_discard(b->dev.env.mem, gpa, len);

    counter_add(rc ? &b->counts.discard_fails : &b->counts.discarded_bytes,
                rc ? 1 : len);
    if (rc)
        log_limited(b->dev.env.log, &b->log_limit, LOG_WARN,
                    "balloon: memory cannot be given back: %s", err_reason(rc));
}

/* --- inflate ------------------------------------------------------------- */

/* True when the request is done. */
static bool vballoon_step_inflate(struct vballoon *b,
                                  struct vballoon_budget *budget)
{
    struct vballoon_range r;

    while (!vballoon_spent(budget)) {
        if (!vballoon_next_run(&b->pfns, b->dev.env.mem, &r))
            return true;
        budget->ranges--;
        if (r.len_bytes == 0)
            continue; /* not RAM: nobody's loss */
        vballoon_discard(b, r.gpa, r.len_bytes);
        budget->bytes -= min_u64(budget->bytes, r.len_bytes);
    }
    return false;
}

/* --- hints and reports --------------------------------------------------- */

/*
 * A guest that poisons free pages finds them as they were, or as it would have
 * filled them. spec: virtio-1.2 5.5.6.6
 */
static bool vballoon_may_discard(const struct vballoon *b, gpa_t gpa,
                                 uint64_t len)
{
    if (!vballoon_has(b, VIRTIO_BALLOON_F_PAGE_POISON))
        return true;
    return atomic_load_explicit(&b->poison, memory_order_relaxed) == 0 &&
           gm_discard_zeroes(b->dev.env.mem, gpa, len);
}

static bool vballoon_step_parts(struct vballoon *b, struct vballoon_work *w,
                                struct vballoon_budget *budget)
{
    while (w->part < w->chain.num_writable) {
        struct vballoon_range r =
            vballoon_part_pages(&w->chain, w->part, b->dev.env.mem);
        uint64_t n;

        if (vballoon_spent(budget))
            return false;
        budget->ranges--;
        n = min_u64(r.len_bytes - w->off_bytes, budget->bytes);
        n -= n % VBALLOON_PAGE;
        if (n > 0 && vballoon_may_discard(b, r.gpa + w->off_bytes, n))
            vballoon_discard(b, r.gpa + w->off_bytes, n);
        budget->bytes -= n;
        w->off_bytes += n;
        if (w->off_bytes < r.len_bytes)
            continue; /* the turn's bytes are used up */
        w->part++;
        w->off_bytes = 0;
    }
    return true;
}

/* Does the driver name pages of the run that is asked for? */
static bool vballoon_in_run(const struct vballoon *b)
{
    return b->hinting.guest_said &&
           b->hinting.host_cmd > VIRTIO_BALLOON_CMD_ID_DONE &&
           b->hinting.guest_cmd == b->hinting.host_cmd;
}

static void vballoon_count(struct vballoon *b, enum vballoon_role role)
{
    struct vballoon_counts *c = &b->counts;

    if (role == VBALLOON_INFLATE)
        counter_add(&c->inflates, 1);
    else if (role == VBALLOON_DEFLATE)
        counter_add(&c->deflates, 1);
    else
        counter_add(role == VBALLOON_HINT ? &c->hints : &c->reports, 1);
}

/* --- one queue ----------------------------------------------------------- */

static void vballoon_begin(struct vballoon *b, enum vballoon_role role)
{
    struct vballoon_work *w = &b->work[role];
    uint32_t cmd = 0;

    w->held = true;
    w->skip = false;
    w->part = 0;
    w->off_bytes = 0;
    if (role == VBALLOON_INFLATE) {
        w->skip = vballoon_parse_pfns(&w->chain, &b->pfns) != 0;
        if (w->skip)
            vballoon_bad_request(b, "a list of pages of a bad size");
        return;
    }
    if (role == VBALLOON_HINT && vballoon_parse_hint_cmd(&w->chain, &cmd))
        vballoon_on_hint_cmd(b, cmd);
    /* Nobody has more free memory than memory. */
    w->skip = w->chain.writable_bytes > gm_ram_bytes(b->dev.env.mem);
    if (w->skip)
        vballoon_bad_request(b, "more free pages than there are");
}

static bool vballoon_step(struct vballoon *b, enum vballoon_role role,
                          struct vballoon_budget *budget)
{
    struct vballoon_work *w = &b->work[role];

    if (w->skip)
        return true;
    switch (role) {
    case VBALLOON_INFLATE:
        return vballoon_step_inflate(b, budget);
    case VBALLOON_HINT:
        return !vballoon_in_run(b) || vballoon_step_parts(b, w, budget);
    case VBALLOON_REPORT:
        return vballoon_step_parts(b, w, budget);
    default:
        return true; /* a page that leaves the balloon comes when touched */
    }
}

/* 1: a request waits, or may. 0: none does. Negative: the ring is broken. */
static int vballoon_take(struct vballoon *b, enum vballoon_role role,
                         struct vballoon_budget *budget)
{
    struct vballoon_work *w = &b->work[role];
    int rc;

    if (w->held)
        return 1;
    if (budget->heads == 0)
        return 1;
    rc = vq_pop(b->vq[role], &w->chain);
    if (rc > 0) {
        budget->heads--;
        vballoon_count(b, role);
        vballoon_begin(b, role);
    }
    return rc;
}

void vballoon_handle(struct vballoon *b, enum vballoon_role role)
{
    struct vballoon_budget budget = {b->vq[role]->size, VBALLOON_TURN_RANGES,
                                     VBALLOON_TURN_BYTES};
    struct vballoon_work *w = &b->work[role];
    struct virtq *vq = b->vq[role];
    int rc;

    /* What a stopped queue's driver named is its own again. */
    w->held &= !vq->stopped;
    do {
        vq_disable_kicks(vq);
        while ((rc = vballoon_take(b, role, &budget)) > 0 && w->held &&
               vballoon_step(b, role, &budget)) {
            w->held = false;
            vq_push(vq, w->chain.head, 0);
        }
    } while (rc == 0 && vq_enable_kicks(vq));
    virtio_signal(&b->dev, (uint16_t)(vq - b->dev.vq));
    b->pending[role] = rc > 0;
    if (rc < 0)
        virtio_needs_reset(&b->dev);
}
