/* SPDX-License-Identifier: Apache-2.0 */
/* Making copy-on-write files, and telling bases apart. */
#include "vmm/cow_file.h"

#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sectors of the bitmap written at once. */
#define COW_BATCH 64u

/* Of a raw base: its ends, where partitions start, and samples between. */
#define COW_PRINT_HEAD    131072u
#define COW_PRINT_TAIL    65536u
#define COW_PRINT_SAMPLE  4096u
#define COW_PRINT_SAMPLES 16u

int cow_write_at(int fd, const void *buf, size_t len, uint64_t off)
{
    const char *p = buf;

    while (len > 0) {
        ssize_t n = pwrite(fd, p, len, (off_t)off);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? neg_errno() : -EIO;
        p += n;
        len -= (size_t)n;
        off += (uint64_t)n;
    }
    return 0;
}

/* --- identity of a raw base ------------------------------------------------
 */

struct cow_print {
    uint64_t a;
    uint64_t b;
};

/* No secret and nobody to fool: it only has to tell images apart. */
static void cow_print_add(struct cow_print *p, uint64_t word)
{
    p->a = (p->a ^ word) * 0x9e3779b97f4a7c15ull;
    p->a ^= p->a >> 29;
    p->b = (p->b + word) * 0xd6e8feb86659fd93ull;
    p->b ^= p->b >> 32;
}

/* The part of [off, off + len) that the base has. */
static int cow_print_range(int fd, uint64_t bytes, uint64_t off, size_t len,
                           uint8_t *buf, struct cow_print *p)
{
    int rc;

    if (off >= bytes)
        return 0;
    len = (size_t)min_u64(len, bytes - off);
    rc = util_pread_full(fd, buf, len, (off_t)off);
    for (size_t i = 0; rc == 0 && i < len; i += 8) /* bytes: whole sectors */
        cow_print_add(p, get_le64(buf + i));
    return rc;
}

static int cow_fingerprint(int fd, uint64_t bytes, uint8_t *out_id)
{
    CLEANUP_FREE uint8_t *buf = NULL;
    struct cow_print p = {bytes, ~bytes};
    uint64_t tail = bytes > COW_PRINT_TAIL ? bytes - COW_PRINT_TAIL : 0;
    int rc;

    buf = malloc(COW_PRINT_HEAD);
    if (!buf)
        return -ENOMEM;
    rc = cow_print_range(fd, bytes, 0, COW_PRINT_HEAD, buf, &p);
    if (rc == 0)
        rc = cow_print_range(fd, bytes, MIB, COW_PRINT_HEAD, buf, &p);
    for (uint64_t i = 1; rc == 0 && i <= COW_PRINT_SAMPLES; i++) {
        uint64_t off = bytes / (COW_PRINT_SAMPLES + 1) * i;

        off -= off % COW_PRINT_SAMPLE;
        rc = cow_print_range(fd, bytes, off, COW_PRINT_SAMPLE, buf, &p);
    }
    if (rc == 0)
        rc = cow_print_range(fd, bytes, tail, COW_PRINT_TAIL, buf, &p);
    put_le64(out_id, p.a);
    put_le64(out_id + 8, p.b);
    return rc;
}

int cow_raw_bytes(int fd, uint64_t *out_bytes)
{
    uint64_t bytes = 0;
    struct stat st;

    if (fstat(fd, &st))
        return neg_errno();
    if (S_ISREG(st.st_mode))
        bytes = (uint64_t)st.st_size;
    else if (!S_ISBLK(st.st_mode))
        return -ENODEV;
    else if (ioctl(fd, BLKGETSIZE64, &bytes))
        return neg_errno();
    *out_bytes = bytes - bytes % COW_SECTOR_BYTES;
    return 0;
}

int cow_base_raw(int fd, const char *path, struct cow_base *out,
                 struct errmsg *err)
{
    struct cow_base b = {.kind = COW_BASE_RAW, .path = path};
    int rc = cow_raw_bytes(fd, &b.size_bytes);

    if (rc == 0 && b.size_bytes == 0)
        return err_set(err, -EINVAL,
                       "disk %s: has not one sector; give a disk image as base",
                       path);
    if (rc == 0)
        rc = cow_fingerprint(fd, b.size_bytes, b.id);
    if (rc)
        return err_set(err, rc,
                       "disk %s: cannot be read as a base: %s; give an image "
                       "file or a block device",
                       path, err_reason(rc));
    *out = b;
    return 0;
}

void cow_base_cow(const struct cow_header *h, const char *path,
                  struct cow_base *out)
{
    *out = (struct cow_base){
        .kind = COW_BASE_COW,
        .path = path,
        .size_bytes = h->size_bytes,
        .depth = h->depth,
    };
    memcpy(out->id, h->id, COW_ID_BYTES);
}

/* --- a new file ------------------------------------------------------------
 */

static int cow_check_size(const char *name, const struct cow_base *base,
                          uint64_t size_bytes, struct errmsg *err)
{
    if (base->depth >= COW_MAX_DEPTH)
        return err_set(err, -EMLINK,
                       "disk %s: %u copy-on-write files are below it already, "
                       "the most there can be; merge them with `mote disk "
                       "flatten`",
                       name, base->depth);
    if (size_bytes == 0)
        return err_set(err, -EINVAL, "disk %s: needs a size or a base", name);
    if (size_bytes % COW_SECTOR_BYTES || size_bytes > COW_MAX_BYTES)
        return err_set(err, -EINVAL,
                       "disk %s: size %llu: must be a multiple of %u and at "
                       "most %llu TiB",
                       name, (unsigned long long)size_bytes, COW_SECTOR_BYTES,
                       (unsigned long long)(COW_MAX_BYTES >> 40));
    if (size_bytes < base->size_bytes)
        return err_set(err, -EINVAL,
                       "disk %s: size %llu: less than its base has (%llu); "
                       "give that or more",
                       name, (unsigned long long)size_bytes,
                       (unsigned long long)base->size_bytes);
    if (base->path && strlen(base->path) >= COW_PATH_BYTES)
        return err_set(err, -ENAMETOOLONG,
                       "disk %s: the path of its base is longer than %u bytes; "
                       "use a shorter one",
                       name, COW_PATH_BYTES - 1);
    return 0;
}

static int cow_write_maps(int fd, const struct cow_header *h)
{
    uint64_t sectors = cow_num_sectors(h->size_bytes);
    size_t map_bytes = (size_t)cow_map_bytes(h->size_bytes);
    /* no bit is set; behind it a batch */
    uint8_t *map = calloc(1, map_bytes + COW_BATCH * COW_SECTOR_BYTES);
    uint8_t *raw;
    int rc = 0;

    if (!map)
        return -ENOMEM;
    raw = map + map_bytes;
    for (uint64_t s = 0; s < sectors && rc == 0; s += COW_BATCH) {
        uint64_t n = min_u64(COW_BATCH, sectors - s);

        for (uint64_t i = 0; i < n; i++)
            cow_sector_encode(h->id, map, s + i, raw + i * COW_SECTOR_BYTES);
        rc = cow_write_at(fd, raw, n * COW_SECTOR_BYTES,
                          COW_HEADER_BYTES + s * COW_SECTOR_BYTES);
    }
    free(map);
    return rc;
}

/* The header comes last: before that the file is refused as foreign. */
static int cow_write_new(int fd, const struct cow_header *h)
{
    uint8_t raw[COW_HEADER_BYTES];
    int rc = 0;

    if (ftruncate(fd, (off_t)cow_file_bytes(h->size_bytes)))
        return neg_errno();
    rc = cow_write_maps(fd, h);
    cow_header_encode(h, raw);
    return rc ? rc : cow_write_at(fd, raw, sizeof(raw), 0);
}

int cow_create_fd(int fd, const char *name, const struct cow_base *base,
                  uint64_t size_bytes, struct errmsg *err)
{
    struct cow_header *h;
    struct stat st;
    int rc;

    if (size_bytes == 0)
        size_bytes = base->size_bytes;
    rc = cow_check_size(name, base, size_bytes, err);
    if (rc)
        return rc;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size != 0)
        return err_set(err, -EINVAL,
                       "disk %s: is no empty file; make a new one for each "
                       "copy-on-write disk",
                       name);
    h = calloc(1, sizeof(*h));
    if (!h)
        return err_set(err, -ENOMEM, "disk %s: out of memory; free some", name);
    h->depth = base->depth + 1;
    h->size_bytes = size_bytes;
    h->base_kind = base->kind;
    h->base_bytes = base->size_bytes;
    memcpy(h->base_id, base->id, COW_ID_BYTES);
    (void)snprintf(h->base_path, sizeof(h->base_path), "%s",
                   base->path ? base->path : "");
    rc = getrandom(h->id, COW_ID_BYTES, 0) == (ssize_t)COW_ID_BYTES ? 0 : -EIO;
    if (rc == 0)
        rc = cow_write_new(fd, h);
    free(h);
    if (rc)
        return err_set(err, rc,
                       "disk %s: cannot be written: %s; see to its "
                       "file system",
                       name, err_reason(rc));
    return 0;
}

/* --- by path ---------------------------------------------------------------
 */

int cow_set_frozen(struct cow_file *f, bool frozen)
{
    uint32_t before = f->header.flags;
    uint8_t raw[COW_HEADER_BYTES];
    int rc;

    f->header.flags = frozen ? before | COW_FROZEN : before & ~COW_FROZEN;
    cow_header_encode(&f->header, raw);
    /* One sector, so that a crash leaves the one header or the other. */
    rc = cow_write_at(f->fd, raw, COW_SECTOR_BYTES, 0);
    if (rc)
        f->header.flags = before;
    return rc;
}

/* Nobody may write it from now on. What cannot be written by us is left. */
static int cow_freeze_base(struct cow_file *f, bool writable, const char *path,
                           struct errmsg *err)
{
    int rc = 0;

    if (f->header.flags & COW_FROZEN)
        return 0;
    if (cow_lock(f->fd, writable))
        return err_set(err, -EBUSY,
                       "disk %s: is in use by a virtual machine; stop that one "
                       "before the disk becomes a base",
                       path);
    if (writable)
        rc = cow_set_frozen(f, true);
    if (rc == 0 && writable && fdatasync(f->fd))
        rc = neg_errno();
    if (rc)
        return err_set(err, rc,
                       "disk %s: cannot be marked as a base: %s; see "
                       "to its file system",
                       path, err_reason(rc));
    return 0;
}

/* Someone forgot to say what it is: as a raw base it would be of no use. A
 * guest that wrote this into its disk gains a refusal. */
static int cow_identify_raw(int fd, const char *path, struct cow_base *out,
                            struct errmsg *err)
{
    char magic[8];

    if (util_pread_full(fd, magic, sizeof(magic), 0) == 0 &&
        cow_is_magic(magic, sizeof(magic)))
        return err_set(err, -EINVAL,
                       "disk %s: begins like a copy-on-write disk; give it as "
                       "%s:cow",
                       path, path);
    return cow_base_raw(fd, path, out, err);
}

static int cow_identify(const char *path, enum cow_base_kind kind,
                        struct cow_base *out, struct errmsg *err)
{
    CLEANUP_FREE struct cow_file *f = NULL;
    CLEANUP_FD int fd = -1;
    bool writable = kind == COW_BASE_COW;
    int rc;

    if (writable) {
        fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
        writable = fd >= 0;
    }
    if (fd < 0)
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        rc = neg_errno();
        return err_set(err, rc,
                       "disk %s: cannot open this base: %s; check the "
                       "path",
                       path, err_reason(rc));
    }
    if (kind == COW_BASE_RAW)
        return cow_identify_raw(fd, path, out, err);
    f = calloc(1, sizeof(*f));
    if (!f)
        return err_set(err, -ENOMEM, "disk %s: out of memory; free some", path);
    rc = cow_file_read(fd, path, f, err);
    f->fd = fd; /* which stays ours */
    free(f->map);
    if (rc == 0)
        rc = cow_freeze_base(f, writable, path, err);
    if (rc == 0)
        cow_base_cow(&f->header, path, out);
    return rc;
}

int cow_sync_name(const char *path)
{
    char *copy = strdup(path);
    CLEANUP_FD int dir = -1;

    if (!copy)
        return -ENOMEM;
    dir = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    return dir < 0 || fsync(dir) ? neg_errno() : 0;
}

int cow_create(const char *path, const char *base_path, enum cow_base_kind kind,
               uint64_t size_bytes, struct errmsg *err)
{
    CLEANUP_FREE char *absolute = NULL;
    struct cow_base base = {0};
    CLEANUP_FD int fd = -1;
    int rc = 0;

    if (base_path) {
        absolute = realpath(base_path, NULL);
        rc = cow_identify(absolute ? absolute : base_path, kind, &base, err);
    }
    if (rc == 0)
        rc = cow_check_size(path, &base,
                            size_bytes ? size_bytes : base.size_bytes, err);
    if (rc)
        return rc;
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        rc = neg_errno();
        return err_set(err, rc,
                       "disk %s: cannot be made: %s; choose another "
                       "path",
                       path, err_reason(rc));
    }
    rc = cow_create_fd(fd, path, &base, size_bytes, err);
    if (rc == 0) {
        rc = fsync(fd) ? neg_errno() : cow_sync_name(path);
        if (rc)
            (void)err_set(err, rc,
                          "disk %s: cannot be synced: %s; see to its "
                          "file system",
                          path, err_reason(rc));
    }
    if (rc)
        (void)unlink(path); /* ours, made above */
    return rc;
}
