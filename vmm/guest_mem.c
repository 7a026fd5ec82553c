/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest_mem.h"

#include "vmm/cleanup.h"
#include "vmm/layout_x86.h"

#include <fcntl.h>
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
    int fd;
    uint64_t ram_bytes;
    size_t num_regions;
    struct gm_region regions[GM_MAX_REGIONS];
    size_t num_file_maps;
    struct gm_file_map file_maps[GM_MAX_FILE_MAPS];
};

static int gm_add_region(struct guest_mem *gm, gpa_t gpa, uint64_t len,
                         uint64_t fd_offset)
{
    struct gm_region *r = &gm->regions[gm->num_regions];
    void *host = mmap(NULL, len, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, gm->fd, (off_t)fd_offset);

    if (host == MAP_FAILED)
        return neg_errno();
    r->gpa = gpa;
    r->len_bytes = len;
    r->host = host;
    r->fd_offset_bytes = fd_offset;
    gm->num_regions++;
    return 0;
}

static int gm_map_all(struct guest_mem *gm)
{
    uint64_t low = min_u64(gm->ram_bytes, LAYOUT_HOLE_START);
    int rc;

    gm->fd = memfd_create("mote-guest-ram", MFD_CLOEXEC);
    if (gm->fd < 0)
        return neg_errno();
    if (ftruncate(gm->fd, (off_t)gm->ram_bytes) < 0)
        return neg_errno();
    rc = gm_add_region(gm, 0, low, 0);
    if (rc == 0 && gm->ram_bytes > low)
        rc = gm_add_region(gm, LAYOUT_HOLE_END, gm->ram_bytes - low, low);
    return rc;
}

int gm_new(uint64_t ram_bytes, struct guest_mem **out_gm)
{
    struct guest_mem *gm;
    int rc;

    if (ram_bytes == 0 || ram_bytes % GM_PAGE != 0 ||
        ram_bytes > LAYOUT_MAX_RAM)
        return -EINVAL;
    gm = calloc(1, sizeof(*gm));
    if (!gm)
        return -ENOMEM;
    gm->fd = -1;
    gm->ram_bytes = ram_bytes;
    rc = gm_map_all(gm);
    if (rc) {
        gm_free(gm);
        return rc;
    }
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

/* --- giving memory back -------------------------------------------------- */

/*
 * How far [gpa, gpa + len) goes on as one kind of memory, and whether that is
 * a file's. `len` is not 0 and the range lies in one region.
 */
static uint64_t gm_same_kind(const struct guest_mem *gm, gpa_t gpa,
                             uint64_t len, bool *out_file)
{
    *out_file = false;
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
