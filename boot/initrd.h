/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_INITRD_H
#define BOOT_INITRD_H

/*
 * The initial ramdisk: as high as it fits in low memory, page aligned, clear
 * of the kernel. Whole pages are mapped privately, the last one is copied.
 *
 * Ownership: initrd_close() closes the fd; mapped pages outlive it.
 * Threads: any, before the first vCPU runs. Errors: -errno with a line for
 * the user. syscalls: openat, fstat, pread64, mmap.
 */

#include "vmm/errmsg.h"
#include "vmm/guest_mem.h"

struct initrd {
    const char *path; /* borrowed */
    int fd;
    uint64_t size_bytes;
    gpa_t base; /* set by initrd_place() */
};

int initrd_open(const char *path, struct initrd *out,
                struct errmsg *err) MUST_CHECK;

/* Pure: chooses the base for low RAM that ends at `low_end`. */
int initrd_place(struct initrd *rd, gpa_t kernel_end, gpa_t low_end,
                 struct errmsg *err) MUST_CHECK;

int initrd_load(const struct initrd *rd, struct guest_mem *gm,
                struct errmsg *err) MUST_CHECK;

void initrd_close(struct initrd *rd); /* idempotent */

#endif
