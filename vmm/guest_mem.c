/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest_mem.h"

#include "vmm/cleanup.h"
#include "vmm/layout_x86.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GM_PAGE 4096u

struct guest_mem {
    int fd;
    uint64_t ram_bytes;
    size_t num_regions;
    struct gm_region regions[GM_MAX_REGIONS];
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
    if (mmap(p, len_bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd,
             (off_t)offset_bytes) == MAP_FAILED)
        return neg_errno();
    return 0;
}
