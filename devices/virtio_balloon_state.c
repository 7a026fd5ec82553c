/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_balloon_int.h"

#include <linux/virtio_balloon.h>
#include <stdatomic.h>

/*
 * A balloon whose machine pauses, is saved and loaded. thread: io
 *
 * Each queue holds one request at most, the last that it took, so at rest it is
 * put back: the buffer for statistics is taken again at the wake, and a request
 * that names pages is carried out from its beginning. The driver does not use
 * those pages before it hears that they are gone, so to give them back twice
 * harms nobody.
 */

int vballoon_rest(struct virtio_dev *dev)
{
    struct vballoon *b = vballoon_of(dev);
    uint64_t now = util_now_ns();

    for (int r = 0; r < VBALLOON_NUM_ROLES; r++) {
        if (b->work[r].held && b->vq[r])
            vq_unpop(b->vq[r]);
        b->work[r].held = false;
        b->pending[r] = false;
    }
    evloop_timer_cancel(dev->env.loop, &b->again);
    if (b->stats_timer.heap_index_ != 0)
        b->stats_left_ns = b->stats_timer.deadline_ns > now
                               ? b->stats_timer.deadline_ns - now
                               : 0;
    evloop_timer_cancel(dev->env.loop, &b->stats_timer);
    return 0;
}

void vballoon_wake(struct virtio_dev *dev)
{
    struct vballoon *b = vballoon_of(dev);

    if (vballoon_has(b, VIRTIO_BALLOON_F_STATS_VQ) &&
        vballoon_arm_stats(b, b->stats_left_ns))
        log_msg(dev->env.log, LOG_WARN,
                "balloon: out of memory; no more statistics");
}

void vballoon_save(struct virtio_dev *dev, struct state_out *out)
{
    struct vballoon *b = vballoon_of(dev);

    state_put_u32(out, atomic_load(&b->num_pages));
    state_put_u32(out, atomic_load(&b->actual));
    state_put_u32(out, atomic_load(&b->poison));
    state_put_u32(out, b->hinting.host_cmd);
    state_put_u32(out, b->hinting.guest_cmd);
    state_put_u8(out, b->hinting.guest_said);
    state_put_u8(out, b->acknowledge_on_stop);
    state_put_u32(out, b->last_run);
    state_put_u32(out, b->stats_interval_s);
    state_put_u32(out, b->stats.valid);
    for (int i = 0; i < (int)VBALLOON_NUM_STATS; i++)
        state_put_u64(out, b->stats.value[i]);
}

/* What a section says, before any of it is believed. */
struct vballoon_saved {
    uint32_t num_pages;
    uint32_t actual;
    uint32_t poison;
    struct vballoon_hinting hinting;
    bool acknowledge_on_stop;
    uint32_t last_run;
    uint32_t stats_interval_s;
    struct vballoon_stats stats;
};

static void vballoon_get_state(struct vballoon_saved *s, struct state_in *in)
{
    s->num_pages = state_get_u32(in);
    s->actual = state_get_u32(in);
    s->poison = state_get_u32(in);
    s->hinting.host_cmd = state_get_u32(in);
    s->hinting.guest_cmd = state_get_u32(in);
    s->hinting.guest_said = state_get_bool(in);
    s->acknowledge_on_stop = state_get_bool(in);
    s->last_run = state_get_u32(in);
    s->stats_interval_s = state_get_u32(in);
    s->stats.valid = state_get_u32(in);
    for (int i = 0; i < (int)VBALLOON_NUM_STATS; i++)
        s->stats.value[i] = state_get_u64(in);
}

/*
 * What the driver wrote (actual, poison, its command) may be anything, as when
 * it writes it; what the host set was checked when it did.
 */
static bool vballoon_state_is_sane(const struct vballoon *b,
                                   const struct vballoon_saved *s)
{
    bool has_stats = b->dev.offered & (1ull << VIRTIO_BALLOON_F_STATS_VQ);

    if (s->num_pages > gm_ram_bytes(b->dev.env.mem) / VBALLOON_PAGE)
        return false;
    if (s->stats_interval_s > VBALLOON_MAX_INTERVAL_S ||
        has_stats != (s->stats_interval_s != 0))
        return false;
    return s->stats.valid >> VBALLOON_NUM_STATS == 0;
}

int vballoon_load(struct virtio_dev *dev, struct state_in *in,
                  struct errmsg *err)
{
    struct vballoon *b = vballoon_of(dev);
    struct vballoon_saved s;

    (void)err; /* damage has no more to say */
    vballoon_get_state(&s, in);
    if (state_done(in) || !vballoon_state_is_sane(b, &s))
        return -EBADMSG;
    atomic_store(&b->num_pages, s.num_pages);
    atomic_store(&b->actual, s.actual);
    atomic_store(&b->poison, s.poison);
    atomic_store(&b->hint_cmd, s.hinting.host_cmd);
    b->hinting = s.hinting;
    b->acknowledge_on_stop = s.acknowledge_on_stop;
    b->last_run = s.last_run;
    b->stats_interval_s = s.stats_interval_s;
    b->stats_left_ns = vballoon_stats_ns(b);
    b->stats = s.stats;
    return 0;
}
