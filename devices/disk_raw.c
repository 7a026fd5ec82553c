/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/disk_raw.h"

#include "vmm/cleanup.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

/* Attempts in a row that move nothing before a request fails. */
#define RAW_MAX_RETRIES 64u

struct disk_raw {
    struct disk base; /* first */
    int fd;
};

/* --- requests ------------------------------------------------------------ */

static void raw_on_io(struct ev_io *ev, int32_t result);

static void raw_submit_rest(struct disk_io *io)
{
    const struct disk_raw *raw =
        container_of(io->disk_, const struct disk_raw, base);
    struct ev_io *ev = &io->ev_;

    ev->op = io->op == DISK_READ    ? EV_IO_READV
             : io->op == DISK_WRITE ? EV_IO_WRITEV
                                    : EV_IO_FDATASYNC;
    ev->fd = raw->fd;
    ev->iov = io->iov;
    ev->iovcnt = io->iovcnt;
    ev->offset_bytes = io->offset_bytes;
    ev->fn = raw_on_io;
    ev->arg = io;
    evloop_io_submit(io->loop_, ev);
}

/* Leaves in io->iov what is still to be moved. False: nothing is. */
static bool raw_advance(struct disk_io *io, size_t moved)
{
    io->offset_bytes += moved;
    while (io->iovcnt > 0 && moved >= io->iov->iov_len) {
        moved -= io->iov->iov_len;
        io->iov++;
        io->iovcnt--;
    }
    if (io->iovcnt == 0)
        return false;
    io->iov->iov_base = (char *)io->iov->iov_base + moved;
    io->iov->iov_len -= moved;
    return true;
}

static void raw_on_io(struct ev_io *ev, int32_t result)
{
    struct disk_io *io = ev->arg;
    int status = 0;

    if (result == -EINTR || result == -EAGAIN) {
        if (++io->retries_ < RAW_MAX_RETRIES) {
            raw_submit_rest(io);
            return;
        }
        status = result;
    } else if (result < 0) {
        status = result;
    } else if (io->op != DISK_FLUSH) {
        io->retries_ = 0;
        if (result == 0) {
            status = -EIO; /* the file was cut while in use */
        } else if (raw_advance(io, (size_t)result)) {
            raw_submit_rest(io);
            return;
        }
    }
    io->done(io, status);
}

static void raw_submit(struct disk *disk, struct evloop *loop,
                       struct disk_io *io)
{
    assert(io->op != DISK_WRITE || !disk->read_only);
    io->disk_ = disk;
    io->loop_ = loop;
    io->retries_ = 0;
    raw_submit_rest(io);
}

static void raw_free(struct disk *disk)
{
    struct disk_raw *raw = container_of(disk, struct disk_raw, base);

    drop_fd(&raw->fd);
    free(raw);
}

static const struct disk_ops raw_ops = {
    .submit = raw_submit,
    .free = raw_free,
};

/* --- opening ------------------------------------------------------------- */

static const char *raw_open_remedy(int rc, bool read_only)
{
    switch (rc) {
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
static int raw_open_fd(const char *path, bool read_only, int *out_fd,
                       struct errmsg *err)
{
    int flags = (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOCTTY;
    struct stat st;
    int fd;
    int rc;

    /* Writing to a directory fails as EISDIR: tell it as what it is. */
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return err_set(err, -EISDIR,
                       "disk %s: is a directory; give an image file or a "
                       "block device",
                       path);
    fd = open(path, flags | O_NONBLOCK);
    if (fd < 0) {
        rc = neg_errno();
        return err_set(err, rc, "disk %s: cannot open it: %s; %s", path,
                       err_reason(rc), raw_open_remedy(rc, read_only));
    }
    *out_fd = fd;
    return 0;
}

static int raw_size(const char *path, int fd, uint64_t *out_bytes,
                    struct errmsg *err)
{
    uint64_t bytes = 0;
    struct stat st;
    int rc = fstat(fd, &st);

    if (rc == 0 && S_ISREG(st.st_mode))
        bytes = (uint64_t)st.st_size;
    else if (rc == 0 && S_ISBLK(st.st_mode))
        rc = ioctl(fd, BLKGETSIZE64, &bytes);
    else if (rc == 0)
        return err_set(err, -EINVAL,
                       "disk %s: is neither a regular file nor a block "
                       "device; give one of these",
                       path);
    if (rc < 0) {
        rc = neg_errno();
        return err_set(err, rc,
                       "disk %s: cannot find out its size: %s; check the file",
                       path, err_reason(rc));
    }
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

int disk_raw_open(const char *path, bool read_only, struct log *log,
                  struct disk **out_disk, struct errmsg *err)
{
    CLEANUP_FD int fd = -1;
    struct disk_raw *raw;
    uint64_t bytes = 0;
    int rc;

    rc = raw_open_fd(path, read_only, &fd, err);
    if (rc == 0)
        rc = raw_size(path, fd, &bytes, err);
    if (rc == 0)
        rc = raw_lock(path, fd, read_only, log, err);
    if (rc == 0)
        rc = raw_make_blocking(path, fd, err);
    if (rc)
        return rc;
    if (bytes % DISK_SECTOR_BYTES)
        log_msg(log, LOG_WARN,
                "disk %s: its last %u bytes do not fill a sector of %u; the "
                "guest does not see them and they stay as they are",
                path, (unsigned)(bytes % DISK_SECTOR_BYTES), DISK_SECTOR_BYTES);
    raw = calloc(1, sizeof(*raw));
    if (!raw)
        return err_set(err, -ENOMEM, "disk %s: out of memory; free some", path);
    raw->base.ops = &raw_ops;
    raw->base.size_bytes = bytes - bytes % DISK_SECTOR_BYTES;
    raw->base.read_only = read_only;
    raw->fd = take_fd(&fd);
    *out_disk = &raw->base;
    return 0;
}
