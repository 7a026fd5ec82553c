/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/kernel_image.h"

#include "boot/boot_file.h"
#include "boot/file_kind.h"
#include "vmm/cleanup.h"

#include <elf.h>
#include <string.h>
#include <sys/mman.h>

_Static_assert(FILE_KIND_HEAD >= BZIMAGE_HEAD, "one read serves both");

struct kernel_head {
    size_t len;
    uint8_t bytes[FILE_KIND_HEAD];
};

static int kernel_unknown(const char *path, const struct kernel_head *head,
                          struct errmsg *err)
{
    const char *remedy = NULL;
    const char *kind = file_kind_name(head->bytes, head->len, &remedy);
    uint8_t first[4] = {0};

    if (kind)
        return err_set(err, -ENOEXEC, "kernel %.256s: is %s; %s%s%s", path,
                       kind, FILE_KIND_ACCEPTED, remedy ? ": " : "",
                       remedy ? remedy : "");
    memcpy(first, head->bytes, min_u64(head->len, sizeof(first)));
    return err_set(err, -ENOEXEC,
                   "kernel %.256s: is of no known format (it starts with %02x "
                   "%02x %02x %02x); %s",
                   path, first[0], first[1], first[2], first[3],
                   FILE_KIND_ACCEPTED);
}

static int kernel_read_error(const char *path, int rc, struct errmsg *err)
{
    return err_set(
        err, rc, "kernel %.256s: cannot be read: %s; check the file", path,
        rc == -ENODATA ? "it got shorter meanwhile" : err_reason(rc));
}

/* Opens the file and tells what it is: an ELF or a parsed bzImage. */
static int kernel_identify(const char *path, struct kernel_image *img,
                           struct bzimage *bz, bool *out_is_elf,
                           struct errmsg *err)
{
    struct kernel_head head = {0};
    uint64_t size = 0;
    int rc;

    rc = boot_file_open("kernel", path, &img->fd, &size, err);
    if (rc)
        return rc;
    head.len = (size_t)min_u64(size, sizeof(head.bytes));
    rc = util_pread_full(img->fd, head.bytes, head.len, 0);
    if (rc)
        return kernel_read_error(path, rc, err);
    img->elf =
        (struct elf_source){.name = path, .fd = img->fd, .size_bytes = size};
    *out_is_elf =
        head.len >= SELFMAG && memcmp(head.bytes, ELFMAG, SELFMAG) == 0;
    if (*out_is_elf)
        return 0;
    if (bzimage_is(head.bytes, head.len))
        return bzimage_parse(path, head.bytes, head.len, size, bz, err);
    return kernel_unknown(path, &head, err);
}

/* Packed bytes are read, not mapped: a file that shrinks is then an error. */
static int kernel_unpack(const char *path, const struct bzimage *bz,
                         struct kernel_image *img, struct errmsg *err)
{
    uint64_t started = util_now_ns();
    void *packed = mmap(NULL, bz->payload_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc;

    if (packed == MAP_FAILED)
        return kernel_read_error(path, neg_errno(), err);
    rc = util_pread_full(img->fd, packed, bz->payload_bytes,
                         (off_t)bz->payload_offset);
    if (rc)
        rc = kernel_read_error(path, rc, err);
    else
        rc = unpack_payload(path, packed, bz->payload_bytes, bz->max_bytes,
                            &img->bytes, err);
    (void)munmap(packed, bz->payload_bytes);
    if (rc)
        return rc;
    img->hdr = bz->hdr;
    img->unpack_ns = util_now_ns() - started;
    img->elf = (struct elf_source){.name = path,
                                   .fd = -1,
                                   .bytes = img->bytes.bytes,
                                   .size_bytes = img->bytes.size_bytes};
    drop_fd(&img->fd);
    return 0;
}

int kernel_image_open(const char *path, struct kernel_image *out,
                      struct errmsg *err)
{
    struct kernel_image img = {.fd = -1};
    struct bzimage bz = {0};
    bool is_elf = false;
    int rc;

    rc = kernel_identify(path, &img, &bz, &is_elf, err);
    if (rc == 0 && !is_elf)
        rc = kernel_unpack(path, &bz, &img, err);
    if (rc) {
        kernel_image_close(&img);
        return rc;
    }
    *out = img;
    return 0;
}

int kernel_image_check(const char *path, struct errmsg *err)
{
    struct kernel_image img = {.fd = -1};
    struct elf_x86 elf;
    struct bzimage bz = {0};
    bool is_elf = false;
    int rc;

    rc = kernel_identify(path, &img, &bz, &is_elf, err);
    if (rc == 0 && is_elf)
        rc = elf_x86_parse(&img.elf, &elf, err);
    kernel_image_close(&img);
    return rc;
}

void kernel_image_close(struct kernel_image *img)
{
    drop_fd(&img->fd);
    unpack_free(&img->bytes);
}
