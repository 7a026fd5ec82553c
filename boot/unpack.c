/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/unpack.h"

#include "vmm/le.h"

#include <string.h>
#include <sys/mman.h>

#ifdef HAVE_ZSTD
#define UNPACK_ZSTD unpack_zstd
#else
#define UNPACK_ZSTD NULL
#endif
#ifdef HAVE_LZ4
#define UNPACK_LZ4 unpack_lz4
#else
#define UNPACK_LZ4 NULL
#endif
#ifdef HAVE_LZMA
#define UNPACK_XZ unpack_xz
#else
#define UNPACK_XZ NULL
#endif

#define UNPACK_SIZE_WORD 4u

struct unpack_format {
    const char *name;
    const char *remedy; /* when there is no decoder */
    unpack_fn *fn;
    bool own_size; /* the size at its end is part of the format */
    uint8_t magic_len;
    uint8_t magic[6];
};

static const struct unpack_format unpack_formats[] = {
    {"gzip", NULL, unpack_gzip, true, 2, "\x1f\x8b"},
    {"zstd", "build mote with libzstd", UNPACK_ZSTD, false, 4,
     "\x28\xb5\x2f\xfd"},
    {"lz4", "build mote with liblz4", UNPACK_LZ4, false, 4, "\x02\x21\x4c\x18"},
    {"xz", "build mote with liblzma", UNPACK_XZ, false, 6,
     "\xfd"
     "7zXZ\0"},
    {"bzip2", "give the vmlinux of the same build", NULL, false, 3, "BZh"},
    {"lzma", "give the vmlinux of the same build", NULL, false, 3, "\x5d\0\0"},
    {"lzo", "give the vmlinux of the same build", NULL, false, 4,
     "\x89"
     "LZO"},
};

static const struct unpack_format *unpack_find(const uint8_t *src, uint64_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(unpack_formats); i++) {
        const struct unpack_format *f = &unpack_formats[i];

        if (len >= f->magic_len && !memcmp(src, f->magic, f->magic_len))
            return f;
    }
    return NULL;
}

static int unpack_check_size(const char *name, uint64_t size,
                             uint64_t max_bytes, struct errmsg *err)
{
    if (size == 0 || size > max_bytes)
        return err_set(err, -ENOEXEC,
                       "kernel %.256s: damaged bzImage: its payload claims to "
                       "unpack to %llu bytes, its header allows %llu; build "
                       "or copy it again",
                       name, (unsigned long long)size,
                       (unsigned long long)max_bytes);
    return 0;
}

int unpack_payload(const char *name, const uint8_t *src, uint64_t len,
                   uint64_t max_bytes, struct unpacked *out, struct errmsg *err)
{
    const struct unpack_format *f = unpack_find(src, len);
    struct unpacked u = {0};
    void *map;
    int rc;

    if (!f || len < UNPACK_SIZE_WORD + f->magic_len)
        return err_set(err, -ENOEXEC,
                       "kernel %.256s: bzImage with a payload of unknown "
                       "format; give the vmlinux of the same build",
                       name);
    if (!f->fn)
        return err_set(
            err, -ENOEXEC,
            "kernel %.256s: bzImage with a payload packed by %s, which is "
            "not supported here; %s",
            name, f->name, f->remedy);
    u.format = f->name;
    u.size_bytes = get_le32(src + len - UNPACK_SIZE_WORD);
    rc = unpack_check_size(name, u.size_bytes, max_bytes, err);
    if (rc)
        return rc;
    map = mmap(NULL, u.size_bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return err_set(err, -ENOMEM,
                       "kernel %.256s: no memory to unpack %llu bytes; free "
                       "some on the host",
                       name, (unsigned long long)u.size_bytes);
    u.bytes = map;
    if (!f->own_size)
        len -= UNPACK_SIZE_WORD;
    rc = f->fn(src, len, u.bytes, u.size_bytes);
    if (rc) {
        unpack_free(&u);
        return err_set(err, rc,
                       "kernel %.256s: its %s payload cannot be unpacked: %s; "
                       "build or copy it again",
                       name, f->name,
                       rc == -EILSEQ ? "damaged data" : err_reason(rc));
    }
    *out = u;
    return 0;
}

void unpack_free(struct unpacked *u)
{
    if (u->bytes)
        (void)munmap(u->bytes, u->size_bytes);
    u->bytes = NULL;
    u->size_bytes = 0;
}
