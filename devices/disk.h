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
 * Errors: `done` gets 0 when the whole request was carried out, or -errno;
 * -EOPNOTSUPP for a discard that the storage cannot do.
 */

#include "vmm/evloop.h"

#define DISK_SECTOR_BYTES 512u
/* Room that `iov` has with a request that brings no data. */
#define DISK_SCRATCH_IOVS 64u

enum disk_op {
    DISK_READ,
    DISK_WRITE,
    DISK_FLUSH,
    DISK_DISCARD,      /* a hint: what is read there afterwards is undefined */
    DISK_WRITE_ZEROES, /* `may_unmap`: storage may be given back */
};

struct stat;
struct disk;
struct disk_io;
typedef void (*disk_done_fn)(struct disk_io *io, int status);

/*
 * One request. Read and write: iov[] covers at least one byte, [offset,
 * offset + sum) lies inside the disk. Discard and write zeroes: [offset,
 * offset + len), len > 0, lies inside the disk, and iov[] has room for
 * DISK_SCRATCH_IOVS. The backend may change iov[], offset and length.
 */
struct disk_io {
    enum disk_op op;
    bool may_unmap;
    uint64_t offset_bytes;
    uint64_t len_bytes;
    struct iovec *iov;
    uint32_t iovcnt;
    disk_done_fn done;
    void *arg;
    /* the backend's, while it has the request */
    struct disk *disk_;
    struct evloop *loop_;
    struct ev_io ev_;
    struct ev_later later_;
    uint32_t retries_;
    uint32_t step_;
};

struct disk_ops {
    /* `done` runs exactly once, never inside submit. */
    void (*submit)(struct disk *disk, struct evloop *loop, struct disk_io *io);
    /* Takes over the size that the storage has now. 0 or -errno. */
    int (*refresh)(struct disk *disk);
    /* Whether the disk is stored in the file that `st` describes. */
    bool (*is_file)(const struct disk *disk, const struct stat *st);
    /*
     * Makes `to_fd`, an empty file, a copy that shares the storage until either
     * is written. Nothing is in flight; blocks. -EOPNOTSUPP or -EXDEV where the
     * file system cannot. NULL: never.
     */
    int (*clone)(struct disk *disk, int to_fd);
    void (*free)(struct disk *disk);
};

struct disk {
    const struct disk_ops *ops;
    uint64_t size_bytes;  /* a multiple of DISK_SECTOR_BYTES */
    bool read_only;       /* nothing but reads and flushes is submitted */
    bool can_discard;     /* as far as can be known in advance */
    uint32_t block_bytes; /* best unit of requests, a power of two; 0: 512 */
    /* Discards of less than this give nothing back; 0: unknown. */
    uint32_t discard_bytes;
};

#endif
