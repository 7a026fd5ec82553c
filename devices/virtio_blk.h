/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_BLK_H
#define DEVICES_VIRTIO_BLK_H

/*
 * The virtio block device over any disk backend: read, write, flush, identity,
 * discard, write zeroes; several queues; rate limits; a size and a backend that
 * may change while it runs.
 * spec: virtio-1.2 5.2
 *
 * Threads: the loop's, apart from vblk_new(); the configuration space is read
 * by vCPU threads and changed under the transport's lock.
 */

#include "devices/disk.h"
#include "devices/rate_limit.h"
#include "devices/virtio.h"

#define VBLK_MAX_QUEUES 4u

struct vblk_args {
    /* What the guest reads as the disk's serial (its first 20 bytes), and names
     * it in log lines; copied. */
    const char *id;
    uint16_t num_queues; /* 0: one; more than VBLK_MAX_QUEUES: that many */
    /* Nothing is ever synced and no flush offered: what the guest wrote may be
     * lost with the host's power, not with the monitor. */
    bool unsafe_cache;
    struct rate_limit_config limit; /* all 0: none */
};

/* Requests are counted, and timed from their start to their end, when the
 * backend has done them; thread: io */
struct vblk_stats {
    uint64_t reads;
    uint64_t writes;
    uint64_t flushes;
    uint64_t discards; /* zeroes written included */
    uint64_t read_bytes;
    uint64_t write_bytes;
    uint64_t failed;         /* by the backend */
    uint64_t refused;        /* they made no sense, or are not offered */
    uint64_t throttled;      /* had to wait for the limiter */
    uint64_t limiter_events; /* times that the limiter let go on */
    uint64_t left_over;      /* turns that ended with requests waiting */
    uint64_t updates;        /* of the file behind it */
    uint64_t update_fails;
    struct span read_time;
    struct span write_time;
    struct histogram read_us;
    struct histogram write_us;
    struct histogram flush_us;
};
void vblk_get_stats(const struct virtio_dev *dev, struct vblk_stats *out);

/* Owns `disk` if it succeeds. 0 or -ENOMEM. */
int vblk_new(const struct vdev_env *env, struct disk *disk,
             const struct vblk_args *args,
             struct virtio_dev **out_dev) MUST_CHECK;

/*
 * Takes over the size that the backing file has now; the guest is told if it
 * changed. After a shrink, requests past the new end fail one by one. 0, or
 * -errno when the size cannot be found out: then nothing changes. thread: io
 */
int vblk_refresh_size(struct virtio_dev *dev) MUST_CHECK;

/*
 * From now on requests go to `new_disk`, owned if it succeeds. Those in flight
 * end on the old disk, which is freed after its last (or at once). -EINVAL:
 * one is read-only and the other is not. -ENOMEM. thread: io
 */
int vblk_swap(struct virtio_dev *dev, struct disk *new_disk) MUST_CHECK;

/* New limits, with full buckets; requests that wait are tried again at once.
 * thread: io */
void vblk_set_rate_limit(struct virtio_dev *dev,
                         const struct rate_limit_config *c);

/* Whether the disk is stored in the file that `st` describes: then a swap to
 * that file is a vblk_refresh_size(), since the file is locked. thread: io */
bool vblk_is_file(const struct virtio_dev *dev, const struct stat *st);
/* What is behind it now; nothing is in flight while it rests. Borrowed. */
struct disk *vblk_disk(struct virtio_dev *dev);

#endif
