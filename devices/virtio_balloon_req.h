/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_BALLOON_REQ_H
#define DEVICES_VIRTIO_BALLOON_REQ_H

/*
 * From a chain to what a balloon driver asked for: pure, no fd or thread.
 * spec: virtio-1.2 5.5.6
 */

#include "devices/virtio_balloon.h"

#define VBALLOON_PAGE 4096u /* of the interface, whatever the guest's is */
/* Page numbers in one request: four times what any known driver sends. */
#define VBALLOON_MAX_PFNS 4096u

/* The page numbers of one request, ascending, each once. */
struct vballoon_pfns {
    uint32_t num;
    uint32_t next; /* of vballoon_next_run() */
    uint32_t pfn[VBALLOON_MAX_PFNS];
};

/* -EINVAL: none, or not a whole number of them. -E2BIG: too many. */
int vballoon_parse_pfns(const struct vq_chain *c,
                        struct vballoon_pfns *out) MUST_CHECK;

struct vballoon_range {
    gpa_t gpa;
    uint64_t len_bytes; /* whole pages; 0: none of it is RAM */
};

/* The next pages that lie side by side, as far as they are RAM; false: end. */
bool vballoon_next_run(struct vballoon_pfns *p, const struct guest_mem *mem,
                       struct vballoon_range *out);

/* The whole pages inside of one writable part of a chain. */
struct vballoon_range vballoon_part_pages(const struct vq_chain *c, uint16_t i,
                                          const struct guest_mem *mem);

struct vballoon_stats {
    uint32_t valid; /* bit n: value[n] */
    uint64_t value[VBALLOON_NUM_STATS];
};

/* Replaces *out; tags that we do not know, and a torn last entry, are left
 * out. The last of several with one tag counts. */
void vballoon_parse_stats(const struct vq_chain *c, struct vballoon_stats *out);

/* The command in a request of the hinting queue; false: it has none. */
bool vballoon_parse_hint_cmd(const struct vq_chain *c, uint32_t *out_cmd);

#endif
