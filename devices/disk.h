/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_DISK_H
#define DEVICES_DISK_H

/*
 * A disk as its device sees it: a number of bytes, read, written and flushed
 * asynchronously. What stores them is a backend's matter (disk_raw.c); no
 * backend knows of virtio.
 *
 * Ownership: whoever holds the disk frees it by ops->free, with no request in
 * flight. A request is the caller's and stays valid until `done` ran.
 * Threads: the loop's thread, apart from opening.
 * Errors: `done` gets 0 when the whole request was carried out, or -errno.
 */

#include "vmm/evloop.h"

#define DISK_SECTOR_BYTES 512u

enum disk_op { DISK_READ, DISK_WRITE, DISK_FLUSH };

struct disk;
struct disk_io;
typedef void (*disk_done_fn)(struct disk_io *io, int status);

/*
 * One request. Read and write: iov[] covers at least one byte, [offset,
 * offset + sum) lies inside the disk. The backend may change iov[].
 */
struct disk_io {
    enum disk_op op;
    uint64_t offset_bytes;
    struct iovec *iov;
    uint32_t iovcnt;
    disk_done_fn done;
    void *arg;
    /* the backend's, while it has the request */
    struct disk *disk_;
    struct evloop *loop_;
    struct ev_io ev_;
    uint32_t retries_;
};

struct disk_ops {
    /* `done` runs exactly once, never inside submit. */
    void (*submit)(struct disk *disk, struct evloop *loop, struct disk_io *io);
    void (*free)(struct disk *disk);
};

struct disk {
    const struct disk_ops *ops;
    uint64_t size_bytes; /* a multiple of DISK_SECTOR_BYTES */
    bool read_only;      /* writes are never submitted */
};

#endif
