/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/disk_raw.h"

#include "devices/disk_raw_int.h"
#include "vmm/cleanup.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* Attempts in a row that move nothing before a request fails. */
#define RAW_MAX_RETRIES 64u

/* Zeroes written in one step where the storage cannot make them itself. */
#define RAW_ZERO_BYTES 4096u

/* How a range is made to read as zeroes, best first; disk_io.step_. */
enum raw_zero { RAW_PUNCH, RAW_ZERO_RANGE, RAW_WRITE };

/* Aligned for direct I/O as well. */
static const _Alignas(RAW_ZERO_BYTES) char raw_zeroes[RAW_ZERO_BYTES];

static struct disk_raw *raw_of(struct disk *disk)
{
    return container_of(disk, struct disk_raw, base);
}

/* --- requests ------------------------------------------------------------ */

static void raw_on_io(struct ev_io *ev, int32_t result);

/* The next of the zeroes that have to be written. */
static void raw_fill_zeroes(struct disk_io *io)
{
    uint64_t left = io->len_bytes;

    io->iovcnt = 0;
    while (left > 0 && io->iovcnt < DISK_SCRATCH_IOVS) {
        struct iovec *v = &io->iov[io->iovcnt++];
        const void *src = raw_zeroes;

        /* An iovec has no const flavour; what is written is only read. */
        memcpy(&v->iov_base, &src, sizeof(src));
        v->iov_len = min_u64(left, sizeof(raw_zeroes));
        left -= v->iov_len;
    }
}

static void raw_prep_zeroes(struct disk_io *io, struct ev_io *ev)
{
    if (io->step_ == RAW_WRITE) {
        raw_fill_zeroes(io);
        ev->op = EV_IO_WRITEV;
        return;
    }
    ev->op = EV_IO_FALLOCATE;
    ev->mode =
        FALLOC_FL_KEEP_SIZE |
        (io->step_ == RAW_PUNCH ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE);
}

static void raw_submit_rest(struct disk_io *io)
{
    struct ev_io *ev = &io->ev_;

    switch (io->op) {
    case DISK_READ:
        ev->op = EV_IO_READV;
        break;
    case DISK_WRITE:
        ev->op = EV_IO_WRITEV;
        break;
    case DISK_FLUSH:
        ev->op = EV_IO_FDATASYNC;
        break;
    case DISK_DISCARD:
    case DISK_WRITE_ZEROES:
        raw_prep_zeroes(io, ev);
        break;
    }
    ev->fd = raw_of(io->disk_)->fd;
    ev->iov = io->iov;
    ev->iovcnt = io->iovcnt;
    ev->offset_bytes = io->offset_bytes;
    ev->len_bytes = io->len_bytes;
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

/* After `moved` bytes. 1: there is more to do. 0: all is done. -EIO: the disk
 * has shrunk since, and writing on would make the file grow. */
static int raw_go_on(struct disk_io *io, size_t moved)
{
    uint64_t size = io->disk_->size_bytes;

    if (io->op == DISK_READ || io->op == DISK_WRITE)
        return raw_advance(io, moved);
    if (io->op != DISK_WRITE_ZEROES || io->step_ != RAW_WRITE)
        return 0;
    io->offset_bytes += moved;
    io->len_bytes -= moved;
    if (io->len_bytes == 0)
        return 0;
    return io->offset_bytes < size && io->len_bytes <= size - io->offset_bytes
               ? 1
               : -EIO;
}

static bool raw_moves_bytes(const struct disk_io *io)
{
    return io->op == DISK_READ || io->op == DISK_WRITE ||
           (io->op == DISK_WRITE_ZEROES && io->step_ == RAW_WRITE);
}

/* The storage cannot do it like this; true: there is another way. */
static bool raw_fall_back(struct disk_io *io, int error)
{
    struct disk_raw *raw = raw_of(io->disk_);

    if (io->op != DISK_DISCARD && io->op != DISK_WRITE_ZEROES)
        return false;
    if (error == -EOPNOTSUPP || error == -ENOSYS) {
        raw->no_punch |= io->step_ == RAW_PUNCH;
        raw->no_zero_range |= io->step_ == RAW_ZERO_RANGE;
    } else if (error != -EINVAL) {
        return false;
    }
    if (io->op == DISK_DISCARD || io->step_ == RAW_WRITE)
        return false;
    io->step_++;
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
        if (raw_fall_back(io, result)) {
            raw_submit_rest(io);
            return;
        }
        status = result == -ENOSYS ? -EOPNOTSUPP : result;
    } else if (result == 0 && raw_moves_bytes(io)) {
        status = -EIO; /* the file was cut while in use */
    } else {
        io->retries_ = 0;
        status = raw_go_on(io, (size_t)result);
        if (status > 0) {
            raw_submit_rest(io);
            return;
        }
    }
    io->done(io, status);
}

static void raw_on_later(struct ev_later *l)
{
    struct disk_io *io = l->arg;

    io->done(io, io->len_bytes ? -EOPNOTSUPP : 0);
}

/* Only whole units are given back: what is read from the rest is as good. */
static bool raw_trim_discard(const struct disk_raw *raw, struct disk_io *io)
{
    uint64_t unit = raw->falloc_bytes;
    uint64_t end = (io->offset_bytes + io->len_bytes) / unit * unit;
    uint64_t start = (io->offset_bytes + unit - 1) / unit * unit;

    io->offset_bytes = start;
    io->len_bytes = end > start ? end - start : 0;
    return io->len_bytes > 0;
}

static enum raw_zero raw_first_step(const struct disk_raw *raw,
                                    const struct disk_io *io)
{
    if (io->op == DISK_DISCARD)
        return RAW_PUNCH;
    if ((io->offset_bytes | io->len_bytes) % raw->falloc_bytes)
        return RAW_WRITE;
    if (io->may_unmap && !raw->no_punch)
        return RAW_PUNCH;
    return raw->no_zero_range ? RAW_WRITE : RAW_ZERO_RANGE;
}

static void raw_submit(struct disk *disk, struct evloop *loop,
                       struct disk_io *io)
{
    const struct disk_raw *raw = raw_of(disk);

    assert(!disk->read_only || io->op == DISK_READ || io->op == DISK_FLUSH);
    io->disk_ = disk;
    io->loop_ = loop;
    io->retries_ = 0;
    io->step_ = raw_first_step(raw, io);
    if (io->op == DISK_DISCARD &&
        (!raw_trim_discard(raw, io) || raw->no_punch)) {
        evloop_later(loop, &io->later_, raw_on_later, io);
        return;
    }
    raw_submit_rest(io);
}

static int raw_refresh(struct disk *disk)
{
    struct disk_raw *raw = raw_of(disk);
    uint64_t bytes = 0;
    int rc = disk_raw_bytes(raw->fd, &bytes);

    if (rc)
        return rc;
    disk->size_bytes = bytes - bytes % disk_raw_unit(raw);
    return 0;
}

static bool raw_is_file(const struct disk *disk, const struct stat *st)
{
    const struct disk_raw *raw =
        (const struct disk_raw *)disk; /* its first member */

    if (S_ISBLK(raw->st.st_mode))
        return S_ISBLK(st->st_mode) && raw->st.st_rdev == st->st_rdev;
    return raw->st.st_dev == st->st_dev && raw->st.st_ino == st->st_ino;
}

static void raw_free(struct disk *disk)
{
    struct disk_raw *raw = raw_of(disk);

    drop_fd(&raw->fd);
    free(raw);
}

/* kernel: FICLONE takes what the page cache holds along */
static int raw_clone(struct disk *disk, int to_fd)
{
    const struct disk_raw *raw = (const struct disk_raw *)disk; /* first */

    return ioctl(to_fd, FICLONE, raw->fd) < 0 ? neg_errno() : 0;
}

const struct disk_ops disk_raw_ops = {
    .submit = raw_submit,
    .refresh = raw_refresh,
    .is_file = raw_is_file,
    .clone = raw_clone,
    .free = raw_free,
};

struct disk_raw_alignment disk_raw_alignment(const struct disk *disk)
{
    return ((const struct disk_raw *)disk)->align; /* its first member */
}
