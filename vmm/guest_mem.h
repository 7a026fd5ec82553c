/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_GUEST_MEM_H
#define VMM_GUEST_MEM_H

/*
 * Guest RAM: one file, laid out in one region below the hole under 4 GiB and
 * one above it (layout_x86.h). A machine that boots has a memfd, mapped shared;
 * one that goes on from a snapshot maps the file of its memory privately, so
 * that copies share what they do not write. The only way to guest memory: every
 * access names a guest physical range that must lie inside one region.
 *
 * Ownership: the object owns the file and the mappings; pointers from
 * gm_rptr/gm_wptr stay valid as long as the object.
 * Threads: immutable after set-up, so any; the bytes themselves are shared
 * with running vCPUs and may change at any time: copy once, check the copy.
 * Errors: -EFAULT for a range outside RAM.
 */

#include "vmm/util.h"

typedef uint64_t gpa_t;

struct guest_mem;

struct gm_region {
    gpa_t gpa;
    uint64_t len_bytes;
    void *host;
    uint64_t fd_offset_bytes;
};

#define GM_MAX_REGIONS 2

/* `ram_bytes` is a multiple of the page size. -EINVAL, -ENOMEM or -errno. */
int gm_new(uint64_t ram_bytes, struct guest_mem **out_gm) MUST_CHECK;
/*
 * The first `ram_bytes` of `fd` are the memory; the file is never written.
 * Takes `fd` over if it succeeds. It must not be cut while it is in use. With
 * -1 the memory is private and empty, for whoever fills it by userfaultfd.
 */
int gm_new_private(uint64_t ram_bytes, int fd,
                   struct guest_mem **out_gm) MUST_CHECK;
void gm_free(struct guest_mem *gm); /* NULL is fine */

uint64_t gm_ram_bytes(const struct guest_mem *gm);
size_t gm_region_count(const struct guest_mem *gm);
const struct gm_region *gm_region(const struct guest_mem *gm, size_t i);
int gm_fd(const struct guest_mem *gm); /* borrowed; -1: none */

/*
 * The memory in the order of its file, as a snapshot stores it: [from, from +
 * len) is one host range if it lies in one region, else NULL.
 */
void *gm_linear(const struct guest_mem *gm, uint64_t from, uint64_t len_bytes);
/*
 * The first range at or behind `from`, in that order and within one region,
 * that may hold something else than zeroes. To read elsewhere would allocate
 * memory. False: there is none.
 */
bool gm_next_data(const struct guest_mem *gm, uint64_t from, uint64_t *out_from,
                  uint64_t *out_to);

/* The whole of [gpa, gpa+len) as one host range, or -EFAULT. */
int gm_rptr(const struct guest_mem *gm, gpa_t gpa, uint64_t len_bytes,
            const void **out_host) MUST_CHECK;
int gm_wptr(const struct guest_mem *gm, gpa_t gpa, uint64_t len_bytes,
            void **out_host) MUST_CHECK;

int gm_read(const struct guest_mem *gm, gpa_t gpa, void *dst,
            uint64_t len_bytes) MUST_CHECK;
int gm_write(const struct guest_mem *gm, gpa_t gpa, const void *src,
             uint64_t len_bytes) MUST_CHECK;

/*
 * Replaces page-aligned guest memory by a private mapping of a file, so that
 * many VMs share its clean pages. -EINVAL when not page aligned, -ENOSPC after
 * GM_MAX_FILE_MAPS of them. Before the vCPUs run.
 */
#define GM_MAX_FILE_MAPS 64
int gm_map_file(struct guest_mem *gm, gpa_t gpa, uint64_t len_bytes, int fd,
                uint64_t offset_bytes) MUST_CHECK;

/* --- what we wrote ourselves ---------------------------------------------- */

/*
 * From now on the pages that gm_wptr(), gm_write() and gm_mark_dirty() name are
 * noted, one bit for each page in the order of the file. KVM notes the guest's
 * own writes (vmm/dirty.h). Idempotent. -ENOMEM.
 */
int gm_track_writes(struct guest_mem *gm) MUST_CHECK;
uint64_t gm_num_pages(const struct guest_mem *gm);
/* A range that is written through a pointer of long ago; nothing if it is not
 * RAM or nobody tracks. Thread: any. */
void gm_mark_dirty(const struct guest_mem *gm, gpa_t gpa, uint64_t len_bytes);
/* Adds the noted pages to `bits` (gm_num_pages(), rounded up to 64) and
 * forgets them. */
void gm_take_dirty(const struct guest_mem *gm, uint64_t *bits);

/*
 * Gives whole pages back to the host at once; the range stays usable, by the
 * guest and by us, at any time. What it reads then: zero, and what the file
 * holds where gm_map_file() mapped one. The memfd must be this VM's alone: in
 * one that others map, the hole would be theirs too.
 * -EINVAL when not page aligned or empty, -EFAULT, or -errno of the host.
 * syscalls: fallocate, madvise
 */
int gm_discard(const struct guest_mem *gm, gpa_t gpa,
               uint64_t len_bytes) MUST_CHECK;
/* Does all of the range read zero once it is discarded? */
bool gm_discard_zeroes(const struct guest_mem *gm, gpa_t gpa,
                       uint64_t len_bytes);
/* The guest physical address of a pointer that gm_rptr/gm_wptr gave. */
int gm_gpa_of(const struct guest_mem *gm, const void *host,
              gpa_t *out_gpa) MUST_CHECK;

#endif
