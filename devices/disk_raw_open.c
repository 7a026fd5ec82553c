/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a raw disk: what kind of file it is, how large, who else uses it, and
 * what direct I/O asks for. thread: main, or io when a disk is swapped
 */
#include "devices/disk_raw_int.h"
#include "vmm/cleanup.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Larger units than this are no disk that we know. */
#define RAW_MAX_ALIGN 65536u

static const char *raw_open_remedy(int rc, unsigned flags)
{
    bool read_only = flags & DISK_READ_ONLY;

    switch (rc) {
    case -EINVAL:
        return flags & DISK_DIRECT ? "its file system may lack direct I/O: "
                                     "leave \"mote_direct\" away"
                                   : "check the file";
    case -ENOENT:
    case -ENOTDIR:
        return "check the path";
    case -EROFS:
        return "attach it read-only";
    case -EACCES:
    case -EPERM:
        return read_only ? "make it readable for this user"
                         : "make it writable for this user or attach it "
                           "read-only";
    default:
        return "check the file";
    }
}

/* O_NONBLOCK: a FIFO or a tape must not hold us up before we know it. */
static int raw_open_fd(const char *path, unsigned flags, int *out_fd,
                       struct errmsg *err)
{
    int how = (flags & DISK_READ_ONLY ? O_RDONLY : O_RDWR) |
              (flags & DISK_DIRECT ? O_DIRECT : 0) | O_NOCTTY;
    struct stat st;
    int fd;

    /* Writing to a directory fails as EISDIR: tell it as what it is. */
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return err_set(err, -EISDIR,
                       "disk %s: is a directory; give an image file or a "
                       "block device",
                       path);
    fd = util_open(path, how | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, fd, "disk %s: cannot open it: %s; %s", path,
                       err_reason(fd), raw_open_remedy(fd, flags));
    *out_fd = fd;
    return 0;
}

int disk_raw_bytes(int fd, uint64_t *out_bytes)
{
    struct stat st;

    if (fstat(fd, &st))
        return neg_errno();
    if (S_ISREG(st.st_mode)) {
        *out_bytes = (uint64_t)st.st_size;
        return 0;
    }
    if (!S_ISBLK(st.st_mode))
        return -ENODEV;
    return ioctl(fd, BLKGETSIZE64, out_bytes) ? neg_errno() : 0;
}

uint32_t disk_raw_unit(const struct disk_raw *raw)
{
    return raw->align.block_bytes > DISK_SECTOR_BYTES ? raw->align.block_bytes
                                                      : DISK_SECTOR_BYTES;
}

static int raw_size(const char *path, int fd, uint64_t *out_bytes,
                    struct errmsg *err)
{
    uint64_t bytes = 0;
    int rc = disk_raw_bytes(fd, &bytes);

    if (rc == -ENODEV)
        return err_set(err, -EINVAL,
                       "disk %s: is neither a regular file nor a block "
                       "device; give one of these",
                       path);
    if (rc)
        return err_set(err, rc,
                       "disk %s: cannot find out its size: %s; check the file",
                       path, err_reason(rc));
    if (bytes == 0)
        return err_set(err, -EINVAL,
                       "disk %s: is empty; make it larger first, e.g. with "
                       "truncate -s 1G",
                       path);
    if (bytes < DISK_SECTOR_BYTES)
        return err_set(err, -EINVAL,
                       "disk %s: has %llu bytes, less than one sector of %u; "
                       "give a disk image",
                       path, (unsigned long long)bytes, DISK_SECTOR_BYTES);
    *out_bytes = bytes;
    return 0;
}

/* --- direct I/O ---------------------------------------------------------- */

/* syscalls: statx; what it tells since Linux 6.1 */
static int raw_ask_alignment(int fd, struct disk_raw_alignment *out)
{
#ifdef STATX_DIOALIGN
    struct statx sx;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) ||
        !(sx.stx_mask & STATX_DIOALIGN))
        return -ENODATA;
    if (sx.stx_dio_offset_align == 0)
        return -EOPNOTSUPP;
    out->block_bytes = sx.stx_dio_offset_align;
    out->memory_bytes = sx.stx_dio_mem_align;
    return 0;
#else
    (void)fd;
    (void)out;
    return -ENODATA;
#endif
}

/* The smallest read that works, for kernels that cannot be asked. */
static int raw_try_alignment(int fd, struct disk_raw_alignment *out)
{
    CLEANUP_FREE void *buf = NULL;
    int sector = 0;

    if (ioctl(fd, BLKSSZGET, &sector) == 0 && sector > 0) {
        *out = (struct disk_raw_alignment){(uint32_t)sector, (uint32_t)sector};
        return 0;
    }
    buf = aligned_alloc(RAW_MAX_ALIGN, RAW_MAX_ALIGN);
    if (!buf)
        return -ENOMEM;
    for (uint32_t n = DISK_SECTOR_BYTES; n <= RAW_MAX_ALIGN; n *= 2) {
        if (pread(fd, buf, n, 0) > 0) {
            *out = (struct disk_raw_alignment){n, n};
            return 0;
        }
        if (errno != EINVAL)
            return neg_errno();
    }
    return -EOPNOTSUPP;
}

static int raw_find_alignment(struct disk_raw *raw, const char *path,
                              uint64_t bytes, struct errmsg *err)
{
    int rc = raw_ask_alignment(raw->fd, &raw->align);

    if (rc == -ENODATA)
        rc = raw_try_alignment(raw->fd, &raw->align);
    if (rc == 0 && (!is_pow2(raw->align.block_bytes) ||
                    !is_pow2(raw->align.memory_bytes) ||
                    raw->align.block_bytes > RAW_MAX_ALIGN ||
                    raw->align.memory_bytes > RAW_MAX_ALIGN))
        rc = -EOPNOTSUPP;
    if (rc)
        return err_set(err, rc,
                       "disk %s: direct I/O is not possible on it: %s; leave "
                       "\"mote_direct\" away",
                       path, err_reason(rc));
    bytes -= bytes % DISK_SECTOR_BYTES; /* what is less is left alone */
    if (bytes % raw->align.block_bytes)
        return err_set(err, -EINVAL,
                       "disk %s: direct I/O needs a size that is a multiple of "
                       "%u; make it one with truncate -s %%%u, or leave "
                       "\"mote_direct\" away",
                       path, raw->align.block_bytes, raw->align.block_bytes);
    return 0;
}

/* --- what the storage can do --------------------------------------------- */

/* Behind its end a file has nothing to lose. */
static bool raw_can_punch(const struct disk_raw *raw)
{
    if (!S_ISREG(raw->st.st_mode))
        return true; /* found out by the first discard */
    return fallocate(raw->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     raw->st.st_size, RAW_MAX_ALIGN) == 0 ||
           (errno != EOPNOTSUPP && errno != ENOSYS);
}

static void raw_find_abilities(struct disk_raw *raw)
{
    int sector = 0;

    raw->falloc_bytes = 1;
    if (S_ISBLK(raw->st.st_mode) && ioctl(raw->fd, BLKSSZGET, &sector) == 0 &&
        sector > 0)
        raw->falloc_bytes = (uint32_t)sector;
    raw->base.block_bytes = disk_raw_unit(raw);
    if (raw->base.read_only)
        return;
    raw->base.can_discard = raw_can_punch(raw);
    raw->no_punch = !raw->base.can_discard;
    if (S_ISREG(raw->st.st_mode) && raw->st.st_blksize > 0)
        raw->base.discard_bytes = (uint32_t)raw->st.st_blksize;
    else
        raw->base.discard_bytes = raw->falloc_bytes;
}

/* --- opening ------------------------------------------------------------- */

/* syscalls: fcntl(F_OFD_SETLK) */
static int raw_lock(const char *path, int fd, bool read_only, struct log *log,
                    struct errmsg *err)
{
    struct flock lock = {
        .l_type = read_only ? F_RDLCK : F_WRLCK,
        .l_whence = SEEK_SET,
    };
    int rc;

    if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
        return 0;
    rc = neg_errno();
    if (rc == -EAGAIN || rc == -EACCES)
        return err_set(err, -EBUSY,
                       "disk %s: is in use by another virtual machine; stop "
                       "that one, use a copy, or attach it read-only in both",
                       path);
    log_msg(log, LOG_WARN,
            "disk %s: its file system has no locks (%s); take care that no "
            "two virtual machines write to it",
            path, err_reason(rc));
    return 0;
}

/*
 * With O_NONBLOCK left on, io_uring would fail a request that has to wait for
 * the device instead of handing it to a worker.
 */
static int raw_make_blocking(const char *path, int fd, struct errmsg *err)
{
    int flags = fcntl(fd, F_GETFL);
    int rc;

    if (flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0)
        return 0;
    rc = neg_errno();
    return err_set(err, rc, "disk %s: cannot set it up: %s; check the file",
                   path, err_reason(rc));
}

static void raw_warn_tail(const char *path, uint64_t bytes, struct log *log)
{
    if (bytes % DISK_SECTOR_BYTES)
        log_msg(log, LOG_WARN,
                "disk %s: its last %u bytes do not fill a sector of %u; the "
                "guest does not see them and they stay as they are",
                path, (unsigned)(bytes % DISK_SECTOR_BYTES), DISK_SECTOR_BYTES);
}

static int raw_open_checked(struct disk_raw *raw, const char *path,
                            unsigned flags, struct log *log, struct errmsg *err)
{
    bool read_only = flags & DISK_READ_ONLY;
    uint64_t bytes = 0;
    int rc = raw_open_fd(path, flags, &raw->fd, err);

    if (rc == 0)
        rc = raw_size(path, raw->fd, &bytes, err);
    if (rc == 0)
        rc = raw_lock(path, raw->fd, read_only, log, err);
    if (rc == 0)
        rc = raw_make_blocking(path, raw->fd, err);
    if (rc == 0 && (flags & DISK_DIRECT))
        rc = raw_find_alignment(raw, path, bytes, err);
    if (rc == 0 && fstat(raw->fd, &raw->st)) {
        rc = neg_errno();
        rc = err_set(err, rc, "disk %s: %s; check the file", path,
                     err_reason(rc));
    }
    if (rc)
        return rc;
    raw_warn_tail(path, bytes, log);
    raw->base.ops = &disk_raw_ops;
    raw->base.size_bytes = bytes - bytes % disk_raw_unit(raw);
    raw->base.read_only = read_only;
    raw_find_abilities(raw);
    return 0;
}

int disk_raw_open(const char *path, unsigned flags, struct log *log,
                  struct disk **out_disk, struct errmsg *err)
{
    struct disk_raw *raw = calloc(1, sizeof(*raw));
    int rc;

    if (!raw)
        return err_set(err, -ENOMEM, "disk %s: out of memory; free some", path);
    raw->fd = -1;
    raw->align = (struct disk_raw_alignment){1, 1};
    rc = raw_open_checked(raw, path, flags, log, err);
    if (rc) {
        drop_fd(&raw->fd);
        free(raw);
        return rc;
    }
    *out_disk = &raw->base;
    return 0;
}

int disk_raw_wrap(int fd, uint64_t size_bytes, bool read_only,
                  struct disk **out_disk)
{
    struct disk_raw *raw = calloc(1, sizeof(*raw));

    if (!raw)
        return -ENOMEM;
    if (fstat(fd, &raw->st)) {
        int rc = neg_errno();

        free(raw);
        return rc;
    }
    raw->fd = fd;
    raw->align = (struct disk_raw_alignment){1, 1};
    raw->base.ops = &disk_raw_ops;
    raw->base.size_bytes = size_bytes;
    raw->base.read_only = read_only;
    raw_find_abilities(raw);
    *out_disk = &raw->base;
    return 0;
}

int disk_raw_unwrap(struct disk *disk)
{
    struct disk_raw *raw = container_of(disk, struct disk_raw, base);
    int fd = raw->fd;

    free(raw);
    return fd;
}
