/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_balloon_req.h"

#include "vmm/le.h"

#include <linux/virtio_balloon.h>
#include <stdlib.h>
#include <string.h>

#define VBALLOON_STAT_BYTES sizeof(struct virtio_balloon_stat)
/* Entries looked at in one report. */
#define VBALLOON_MAX_STAT_ENTRIES 64u

_Static_assert(VBALLOON_PAGE == 1u << VIRTIO_BALLOON_PFN_SHIFT, "wire format");
_Static_assert(VBALLOON_STAT_BYTES == 10, "wire format");
_Static_assert(VIRTIO_BALLOON_S_HTLB_PGFAIL + 1 == VBALLOON_S_OOM_KILL,
               "tags follow each other");

/* --- page numbers -------------------------------------------------------- */

static int vballoon_by_pfn(const void *a, const void *b)
{
    const uint32_t *x = a;
    const uint32_t *y = b;

    return (*x > *y) - (*x < *y);
}

static uint32_t vballoon_unique(uint32_t *pfn, uint32_t n)
{
    uint32_t kept = 1;

    for (uint32_t i = 1; i < n; i++) {
        if (pfn[i] != pfn[kept - 1])
            pfn[kept++] = pfn[i];
    }
    return kept;
}

int vballoon_parse_pfns(const struct vq_chain *c, struct vballoon_pfns *out)
{
    uint64_t bytes = c->readable_bytes;
    uint32_t n;

    if (bytes == 0 || bytes % sizeof(uint32_t))
        return -EINVAL;
    if (bytes > sizeof(out->pfn))
        return -E2BIG;
    n = (uint32_t)(bytes / sizeof(uint32_t));
    (void)vq_chain_read(c, 0, out->pfn, bytes);
    for (uint32_t i = 0; i < n; i++)
        out->pfn[i] = le32toh(out->pfn[i]);
    qsort(out->pfn, n, sizeof(out->pfn[0]), vballoon_by_pfn);
    out->num = vballoon_unique(out->pfn, n);
    out->next = 0;
    return 0;
}

/*
 * What of the range is RAM. One request's pages reach less far than the hole
 * between the regions is wide, so they meet one region at most.
 */
static void vballoon_clip(struct vballoon_range *r, const struct guest_mem *mem)
{
    for (size_t i = 0; i < gm_region_count(mem); i++) {
        const struct gm_region *ram = gm_region(mem, i);
        gpa_t from = r->gpa > ram->gpa ? r->gpa : ram->gpa;
        gpa_t to = min_u64(r->gpa + r->len_bytes, ram->gpa + ram->len_bytes);

        if (from < to) {
            r->gpa = from;
            r->len_bytes = to - from;
            return;
        }
    }
    r->len_bytes = 0;
}

bool vballoon_next_run(struct vballoon_pfns *p, const struct guest_mem *mem,
                       struct vballoon_range *out)
{
    uint32_t first = p->next;
    uint32_t end = first + 1;

    if (first >= p->num)
        return false;
    while (end < p->num && p->pfn[end] - p->pfn[first] == end - first)
        end++;
    p->next = end;
    out->gpa = (gpa_t)p->pfn[first] * VBALLOON_PAGE;
    out->len_bytes = (uint64_t)(end - first) * VBALLOON_PAGE;
    vballoon_clip(out, mem);
    return true;
}

struct vballoon_range vballoon_part_pages(const struct vq_chain *c, uint16_t i,
                                          const struct guest_mem *mem)
{
    const struct iovec *v = &c->iov[c->num_readable + i];
    struct vballoon_range r = {0, 0};
    gpa_t gpa = 0;
    gpa_t from;
    gpa_t to;

    if (gm_gpa_of(mem, v->iov_base, &gpa))
        return r; /* never: the queue found it in RAM */
    from = align_up(gpa, VBALLOON_PAGE);
    to = gpa + v->iov_len;
    to -= to % VBALLOON_PAGE;
    if (from < to)
        r = (struct vballoon_range){from, to - from};
    return r;
}

/* --- the rest ------------------------------------------------------------ */

void vballoon_parse_stats(const struct vq_chain *c, struct vballoon_stats *out)
{
    uint8_t g_stats[VBALLOON_MAX_STAT_ENTRIES * VBALLOON_STAT_BYTES];
    size_t n = vq_chain_read(c, 0, g_stats, sizeof(g_stats));

    memset(out, 0, sizeof(*out));
    for (size_t at = 0; at + VBALLOON_STAT_BYTES <= n;
         at += VBALLOON_STAT_BYTES) {
        uint16_t tag = get_le16(g_stats + at);

        if (tag >= VBALLOON_NUM_STATS)
            continue;
        out->value[tag] =
            get_le64(g_stats + at + offsetof(struct virtio_balloon_stat, val));
        out->valid |= 1u << tag;
    }
}

bool vballoon_parse_hint_cmd(const struct vq_chain *c, uint32_t *out_cmd)
{
    uint8_t g_cmd[4];

    if (vq_chain_read(c, 0, g_cmd, sizeof(g_cmd)) != sizeof(g_cmd))
        return false;
    *out_cmd = get_le32(g_cmd);
    return true;
}
