/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest_mem.h"

#include "vmm/cleanup.h"
#include "vmm/layout_x86.h"
#include "vmm/pagemap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GM_PAGE 4096u

/* A part of RAM that is a private mapping of some file, not of the memfd. */
struct gm_file_map {
    gpa_t gpa;
    uint64_t len_bytes;
};

struct guest_mem {
    int fd; /* -1: empty private memory */
    bool is_private;
    int pagemap_fd; /* of private memory over a file; -1: not there */
    uint64_t ram_bytes;
    size_t num_regions;
    struct gm_region regions[GM_MAX_REGIONS];
    size_t num_file_maps;
    struct gm_file_map file_maps[GM_MAX_FILE_MAPS];
    uint64_t *dirty; /* by __atomic; one bit a page; NULL: nobody asked */
};

static int gm_add_region(struct guest_mem *gm, gpa_t gpa, uint64_t len,
                         uint64_t fd_offset)
{
    struct gm_region *r = &gm->regions[gm->num_regions];
    int flags = MAP_NORESERVE | (gm->is_private ? MAP_PRIVATE : MAP_SHARED) |
                (gm->fd < 0 ? MAP_ANONYMOUS : 0);
    void *host = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, gm->fd,
                      gm->fd < 0 ? 0 : (off_t)fd_offset);

    if (host == MAP_FAILED)
        return neg_errno();
    r->gpa = gpa;
    r->len_bytes = len;
    r->host = host;
    r->fd_offset_bytes = fd_offset;
    gm->num_regions++;
    return 0;
}

static int gm_make_file(struct guest_mem *gm)
{
    gm->fd = memfd_create("mote-guest-ram", MFD_CLOEXEC);
    if (gm->fd < 0)
        return neg_errno();
    return ftruncate(gm->fd, (off_t)gm->ram_bytes) < 0 ? neg_errno() : 0;
}

static int gm_map_all(struct guest_mem *gm)
{
    uint64_t low = min_u64(gm->ram_bytes, LAYOUT_HOLE_START);
    int rc = gm_add_region(gm, 0, low, 0);

    if (rc == 0 && gm->ram_bytes > low)
        rc = gm_add_region(gm, LAYOUT_HOLE_END, gm->ram_bytes - low, low);
    return rc;
}

static int gm_alloc(uint64_t ram_bytes, struct guest_mem **out_gm)
{
    struct guest_mem *gm;

    if (ram_bytes == 0 || ram_bytes % GM_PAGE != 0 ||
        ram_bytes > LAYOUT_MAX_RAM)
        return -EINVAL;
    gm = calloc(1, sizeof(*gm));
    if (!gm)
        return -ENOMEM;
    gm->fd = gm->pagemap_fd = -1;
    gm->ram_bytes = ram_bytes;
    *out_gm = gm;
    return 0;
}

int gm_new(uint64_t ram_bytes, struct guest_mem **out_gm)
{
    struct guest_mem *gm = NULL;
    int rc = gm_alloc(ram_bytes, &gm);

    if (rc == 0)
        rc = gm_make_file(gm);
    if (rc == 0)
        rc = gm_map_all(gm);
    if (rc) {
        gm_free(gm);
        return rc;
    }
    *out_gm = gm;
    return 0;
}

int gm_new_private(uint64_t ram_bytes, int fd, struct guest_mem **out_gm)
{
    struct guest_mem *gm = NULL;
    int rc = gm_alloc(ram_bytes, &gm);

    if (rc)
        return rc;
    gm->is_private = true;
    gm->fd = fd;
    rc = gm_map_all(gm);
    if (rc) {
        gm->fd = -1; /* the caller's still */
        gm_free(gm);
        return rc;
    }
    gm->pagemap_fd = fd < 0 ? -1 : pagemap_open();
    *out_gm = gm;
    return 0;
}

void gm_free(struct guest_mem *gm)
{
    if (!gm)
        return;
    for (size_t i = 0; i < gm->num_regions; i++)
        (void)munmap(gm->regions[i].host, gm->regions[i].len_bytes);
    drop_fd(&gm->fd);
    drop_fd(&gm->pagemap_fd);
    free(gm->dirty);
    free(gm);
}

uint64_t gm_ram_bytes(const struct guest_mem *gm)
{
    return gm->ram_bytes;
}

size_t gm_region_count(const struct guest_mem *gm)
{
    return gm->num_regions;
}

const struct gm_region *gm_region(const struct guest_mem *gm, size_t i)
{
    return i < gm->num_regions ? &gm->regions[i] : NULL;
}

int gm_fd(const struct guest_mem *gm)
{
    return gm->fd;
}

static char *gm_find(const struct guest_mem *gm, gpa_t gpa, uint64_t len)
{
    for (size_t i = 0; i < gm->num_regions; i++) {
        const struct gm_region *r = &gm->regions[i];

        /* Differences only: no sum can wrap. */
        if (gpa < r->gpa || gpa - r->gpa > r->len_bytes)
            continue;
        if (len <= r->len_bytes - (gpa - r->gpa))
            return (char *)r->host + (gpa - r->gpa);
    }
    return NULL;
}

static const struct gm_region *gm_region_of(const struct guest_mem *gm,
                                            gpa_t gpa)
{
    for (size_t i = 0; i < gm->num_regions; i++) {
        const struct gm_region *r = &gm->regions[i];

        if (gpa >= r->gpa && gpa - r->gpa < r->len_bytes)
            return r;
    }
    return NULL;
}

int gm_rptr(const struct guest_mem *gm, gpa_t gpa, uint64_t len_bytes,
            const void **out_host)
{
    const char *p = gm_find(gm, gpa, len_bytes);

    if (!p)
        return -EFAULT;
    *out_host = p;
    return 0;
}

int gm_wptr(const struct guest_mem *gm, gpa_t gpa, uint64_t len_bytes,
            void **out_host)
{
    char *p = gm_find(gm, gpa, len_bytes);

    if (!p)
        return -EFAULT;
    gm_mark_dirty(gm, gpa, len_bytes);
    *out_host = p;
    return 0;
}

int gm_read(const struct guest_mem *gm, gpa_t gpa, void *dst,
            uint64_t len_bytes)
{
    const char *p = gm_find(gm, gpa, len_bytes);

    if (!p)
        return -EFAULT;
    memcpy(dst, p, len_bytes);
    return 0;
}

int gm_write(const struct guest_mem *gm, gpa_t gpa, const void *src,
             uint64_t len_bytes)
{
    char *p = gm_find(gm, gpa, len_bytes);

    if (!p)
        return -EFAULT;
    memcpy(p, src, len_bytes);
    gm_mark_dirty(gm, gpa, len_bytes);
    return 0;
}

int gm_map_file(struct guest_mem *gm, gpa_t gpa, uint64_t len_bytes, int fd,
                uint64_t offset_bytes)
{
    char *p = gm_find(gm, gpa, len_bytes);

    if (!p)
        return -EFAULT;
    if (gpa % GM_PAGE || len_bytes % GM_PAGE || offset_bytes % GM_PAGE ||
        len_bytes == 0)
        return -EINVAL;
    if (gm->num_file_maps == GM_MAX_FILE_MAPS)
        return -ENOSPC;
    if (mmap(p, len_bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd,
             (off_t)offset_bytes) == MAP_FAILED)
        return neg_errno();
    gm->file_maps[gm->num_file_maps++] =
        (struct gm_file_map){.gpa = gpa, .len_bytes = len_bytes};
    return 0;
}

/* --- in the order of the file ----------------------------------------------
 */

static const struct gm_region *gm_linear_region(const struct guest_mem *gm,
                                                uint64_t from)
{
    for (size_t i = 0; i < gm->num_regions; i++) {
        const struct gm_region *r = &gm->regions[i];

        if (from >= r->fd_offset_bytes &&
            from - r->fd_offset_bytes < r->len_bytes)
            return r;
    }
    return NULL;
}

void *gm_linear(const struct guest_mem *gm, uint64_t from, uint64_t len_bytes)
{
    const struct gm_region *r = gm_linear_region(gm, from);

    if (!r || len_bytes > r->len_bytes - (from - r->fd_offset_bytes))
        return NULL;
    return (char *)r->host + (from - r->fd_offset_bytes);
}

/* Where the memory that is mapped from elsewhere begins and ends next. */
static void gm_next_map(const struct guest_mem *gm, const struct gm_region *r,
                        uint64_t from, uint64_t *out_from, uint64_t *out_to)
{
    *out_from = *out_to = r->fd_offset_bytes + r->len_bytes;
    for (size_t i = 0; i < gm->num_file_maps; i++) {
        const struct gm_file_map *m = &gm->file_maps[i];
        uint64_t at = r->fd_offset_bytes + (m->gpa - r->gpa);

        if (m->gpa < r->gpa || m->gpa - r->gpa >= r->len_bytes ||
            at + m->len_bytes <= from || at >= *out_from)
            continue;
        *out_from = at > from ? at : from;
        *out_to = at + m->len_bytes;
    }
}

/* Where memory is that lies privately over a file. */
static bool gm_next_private(const struct guest_mem *gm,
                            const struct gm_region *r, uint64_t from,
                            uint64_t *out_from, uint64_t *out_to)
{
    uint64_t end = r->fd_offset_bytes + r->len_bytes;
    off_t data =
        gm->fd < 0 ? (off_t)from : lseek(gm->fd, (off_t)from, SEEK_DATA);
    off_t hole;

    if (data < 0 || (uint64_t)data > end)
        data = (off_t)end; /* no more of it */
    if ((uint64_t)data > from) {
        const char *p = (const char *)r->host + (from - r->fd_offset_bytes);

        /* The guest's own pages, in a hole of the file. */
        if (pagemap_next(gm->pagemap_fd, p, (uint64_t)data - from, out_from,
                         out_to)) {
            *out_from += from;
            *out_to += from;
            return true;
        }
        if ((uint64_t)data == end)
            return gm_next_data(gm, end, out_from, out_to);
    }
    hole = gm->fd < 0 ? (off_t)end : lseek(gm->fd, data, SEEK_HOLE);
    *out_from = (uint64_t)data;
    *out_to = hole < 0 ? end : min_u64((uint64_t)hole, end);
    return true;
}

bool gm_next_data(const struct guest_mem *gm, uint64_t from, uint64_t *out_from,
                  uint64_t *out_to)
{
    const struct gm_region *r = gm_linear_region(gm, from);
    off_t data;
    off_t hole;

    if (!r)
        return false;
    if (gm->is_private)
        return gm_next_private(gm, r, from, out_from, out_to);
    gm_next_map(gm, r, from, out_from, out_to);
    if (*out_from == from && *out_to > from)
        return true;
    data = lseek(gm->fd, (off_t)from, SEEK_DATA);
    hole = data < 0 ? -1 : lseek(gm->fd, data, SEEK_HOLE);
    if (hole < 0 || (uint64_t)data >= *out_from) {
        if (*out_to > *out_from)
            return true;
        return gm_next_data(gm, *out_from, out_from, out_to);
    }
    *out_to = min_u64((uint64_t)hole, *out_from);
    *out_from = (uint64_t)data;
    return true;
}

/* --- what we wrote ourselves ----------------------------------------------
 */

uint64_t gm_num_pages(const struct guest_mem *gm)
{
    return gm->ram_bytes / GM_PAGE;
}

int gm_track_writes(struct guest_mem *gm)
{
    if (!gm->dirty)
        gm->dirty = calloc((gm_num_pages(gm) + 63) / 64, sizeof(*gm->dirty));
    return gm->dirty ? 0 : -ENOMEM;
}

void gm_mark_dirty(const struct guest_mem *gm, gpa_t gpa, uint64_t len_bytes)
{
    const struct gm_region *r = gm->dirty ? gm_region_of(gm, gpa) : NULL;
    uint64_t first;
    uint64_t last;

    if (!r || len_bytes == 0)
        return;
    first = (r->fd_offset_bytes + (gpa - r->gpa)) / GM_PAGE;
    len_bytes = min_u64(len_bytes, r->len_bytes - (gpa - r->gpa));
    last = (r->fd_offset_bytes + (gpa - r->gpa) + len_bytes - 1) / GM_PAGE;
    for (uint64_t page = first; page <= last; page++)
        (void)__atomic_fetch_or(&gm->dirty[page / 64], 1ull << page % 64,
                                __ATOMIC_RELAXED);
}

void gm_take_dirty(const struct guest_mem *gm, uint64_t *bits)
{
    uint64_t words = (gm_num_pages(gm) + 63) / 64;

    for (uint64_t i = 0; gm->dirty && i < words; i++)
        bits[i] |= __atomic_exchange_n(&gm->dirty[i], 0, __ATOMIC_RELAXED);
}

/* --- giving memory back -------------------------------------------------- */

/*
 * How far [gpa, gpa + len) goes on as one kind of memory, and whether that is
 * a file's. `len` is not 0 and the range lies in one region.
 */
static uint64_t gm_same_kind(const struct guest_mem *gm, gpa_t gpa,
                             uint64_t len, bool *out_file)
{
    *out_file = gm->is_private;
    if (gm->is_private)
        return len;
    for (size_t i = 0; i < gm->num_file_maps; i++) {
        const struct gm_file_map *m = &gm->file_maps[i];

        if (gpa >= m->gpa && gpa - m->gpa < m->len_bytes) {
            *out_file = true;
            return min_u64(len, m->len_bytes - (gpa - m->gpa));
        }
        if (m->gpa > gpa)
            len = min_u64(len, m->gpa - gpa);
    }
    return len;
}

/* A hole in the memfd frees its pages; a private page goes by itself. */
static int gm_discard_part(const struct guest_mem *gm,
                           const struct gm_region *r, gpa_t gpa, uint64_t len,
                           bool file)
{
    uint64_t off = gpa - r->gpa;
    int rc;

    do {
        rc = file
                 ? madvise((char *)r->host + off, len, MADV_DONTNEED)
                 : fallocate(gm->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                             (off_t)(r->fd_offset_bytes + off), (off_t)len);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? neg_errno() : 0;
}

int gm_discard(const struct guest_mem *gm, gpa_t gpa, uint64_t len_bytes)
{
    const struct gm_region *r = gm_region_of(gm, gpa);

    if (gpa % GM_PAGE || len_bytes % GM_PAGE || len_bytes == 0)
        return -EINVAL;
    if (!r || len_bytes > r->len_bytes - (gpa - r->gpa))
        return -EFAULT;
    while (len_bytes > 0) {
        bool file;
        uint64_t n = gm_same_kind(gm, gpa, len_bytes, &file);
        int rc = gm_discard_part(gm, r, gpa, n, file);

        if (rc)
            return rc;
        gpa += n;
        len_bytes -= n;
    }
    return 0;
}

bool gm_discard_zeroes(const struct guest_mem *gm, gpa_t gpa,
                       uint64_t len_bytes)
{
    bool file = false;

    return len_bytes == 0 ||
           (gm_same_kind(gm, gpa, len_bytes, &file) == len_bytes && !file);
}

int gm_gpa_of(const struct guest_mem *gm, const void *host, gpa_t *out_gpa)
{
    uintptr_t p = (uintptr_t)host;

    for (size_t i = 0; i < gm->num_regions; i++) {
        const struct gm_region *r = &gm->regions[i];
        uintptr_t base = (uintptr_t)r->host;

        if (p >= base && p - base < r->len_bytes) {
            *out_gpa = r->gpa + (p - base);
            return 0;
        }
    }
    return -EFAULT;
}
