/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/initrd.h"

#include "boot/boot_file.h"
#include "vmm/cleanup.h"

#define INITRD_PAGE 4096u
#define INITRD_MAP_MIN                                                         \
    (64 * KIB) /* below, a copy is cheaper than a mapping                      \
                */

int initrd_open(const char *path, struct initrd *out, struct errmsg *err)
{
    struct initrd rd = {.path = path, .fd = -1};
    int rc = boot_file_open("initrd", path, &rd.fd, &rd.size_bytes, err);

    if (rc == 0)
        *out = rd;
    return rc;
}

int initrd_place(struct initrd *rd, gpa_t kernel_end, gpa_t low_end,
                 struct errmsg *err)
{
    gpa_t from = align_up(kernel_end, INITRD_PAGE);
    uint64_t room = from < low_end ? low_end - from : 0;
    uint64_t kib = rd->size_bytes / KIB + (rd->size_bytes % KIB != 0);

    /* A size near 2^64 would wrap when rounded up: compare it first. */
    if (rd->size_bytes > room || align_up(rd->size_bytes, INITRD_PAGE) > room) {
        return err_set(err, -ENOMEM,
                       "initrd %.256s: its %llu KiB do not fit beside the "
                       "kernel, which leaves %llu KiB below the memory hole; "
                       "give the VM more memory or a smaller initrd",
                       rd->path, (unsigned long long)kib,
                       (unsigned long long)(room / KIB));
    }
    rd->base = low_end - align_up(rd->size_bytes, INITRD_PAGE);
    return 0;
}

static int initrd_copy(const struct initrd *rd, uint64_t from,
                       struct guest_mem *gm)
{
    void *host = NULL;
    int rc = gm_wptr(gm, rd->base + from, rd->size_bytes - from, &host);

    if (rc)
        return rc;
    return util_pread_full(rd->fd, host, rd->size_bytes - from, (off_t)from);
}

int initrd_load(const struct initrd *rd, struct guest_mem *gm,
                struct errmsg *err)
{
    uint64_t whole = rd->size_bytes / INITRD_PAGE * INITRD_PAGE;
    int rc = -ENODEV;

    if (whole >= INITRD_MAP_MIN)
        rc = gm_map_file(gm, rd->base, whole, rd->fd, 0);
    if (rc == -ENODEV) { /* too small, or a file system without mmap */
        whole = 0;
        rc = 0;
    }
    if (rc == 0)
        rc = initrd_copy(rd, whole, gm);
    if (rc == -ENODATA)
        return err_set(err, rc,
                       "initrd %.256s: got shorter while it was read; wait "
                       "until it is written completely",
                       rd->path);
    if (rc)
        return err_set(err, rc,
                       "initrd %.256s: cannot be loaded: %s; check the file",
                       rd->path, err_reason(rc));
    return 0;
}

void initrd_close(struct initrd *rd)
{
    drop_fd(&rd->fd);
}
