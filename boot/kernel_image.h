/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_KERNEL_IMAGE_H
#define BOOT_KERNEL_IMAGE_H

/*
 * A kernel file, known by its content and never by its name: an x86-64 ELF,
 * or a bzImage whose payload is unpacked to the ELF that it holds. Everything
 * else is refused and named for what it is.
 *
 * Ownership: the image owns its fd and its unpacked bytes until
 * kernel_image_close(). Threads: any. Errors: -errno with a line for the user.
 */

#include "boot/bzimage.h"
#include "boot/elf_x86.h"
#include "boot/unpack.h"

struct kernel_image {
    int fd;                  /* -1 once the bytes are unpacked */
    struct unpacked bytes;   /* of a bzImage */
    struct elf_source elf;   /* points to one of the two */
    struct setup_header hdr; /* of a bzImage; zero otherwise */
    uint64_t unpack_ns;      /* time that unpacking took */
};

/* `path` is borrowed for the life of the image. */
int kernel_image_open(const char *path, struct kernel_image *out,
                      struct errmsg *err) MUST_CHECK;

/* As far as that goes without unpacking. */
int kernel_image_check(const char *path, struct errmsg *err) MUST_CHECK;

void kernel_image_close(struct kernel_image *img); /* idempotent */

#endif
