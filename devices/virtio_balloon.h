/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_BALLOON_H
#define DEVICES_VIRTIO_BALLOON_H

/*
 * The memory balloon: pages that the guest puts into it, reports as free, or
 * names in a hinting run go back to the host at once. spec: virtio-1.2 5.5
 *
 * Ownership: as any virtio device; `dev` below is one that vballoon_new() made.
 * Threads: all functions on the loop's thread.
 * Errors: -errno, nothing changed then.
 */

#include "devices/virtio.h"

struct vballoon_args {
    uint64_t target_bytes;     /* at start; at most the guest's RAM */
    uint32_t stats_interval_s; /* 0: no statistics, for good */
    bool deflate_on_oom;
    bool hinting;
    bool reporting;
};

/* 0, -EINVAL for a target above the guest's RAM, or -ENOMEM. */
int vballoon_new(const struct vdev_env *env, const struct vballoon_args *args,
                 struct virtio_dev **out_dev) MUST_CHECK;

/*
 * Statistics by tag. Those up to 9 are VIRTIO_BALLOON_S_* of
 * <linux/virtio_balloon.h>; the rest came with Linux 6.12 and has no names in
 * older headers.
 */
#define VBALLOON_S_OOM_KILL       10u
#define VBALLOON_S_ALLOC_STALL    11u
#define VBALLOON_S_SCAN_ASYNC     12u
#define VBALLOON_S_SCAN_DIRECT    13u
#define VBALLOON_S_RECLAIM_ASYNC  14u
#define VBALLOON_S_RECLAIM_DIRECT 15u
#define VBALLOON_NUM_STATS        16u

struct vballoon_info {
    uint64_t target_bytes;
    uint64_t actual_bytes; /* what the driver says, at most the RAM */
    uint32_t stats_valid;  /* bit n: the driver has told stats[n] */
    uint64_t stats[VBALLOON_NUM_STATS];
    /* since the start */
    uint64_t discarded_bytes; /* given back, pages that were not there too */
    uint64_t bad_requests;
};

struct vballoon_counts {
    uint64_t inflates; /* requests, as the next four */
    uint64_t deflates;
    uint64_t stats_updates;
    uint64_t hints;
    uint64_t reports;
    uint64_t discarded_bytes;
    uint64_t discard_fails; /* the host did not take memory back */
    uint64_t bad_requests;
};
void vballoon_get_counts(const struct virtio_dev *dev,
                         struct vballoon_counts *out);

/* How large the balloon is to be; whole pages. -EINVAL above the RAM. */
int vballoon_set_target(struct virtio_dev *dev, uint64_t bytes) MUST_CHECK;
void vballoon_get(struct virtio_dev *dev, struct vballoon_info *out);
/*
 * -ENODEV: statistics were off at the start. -EINVAL: 0, or over
 * VBALLOON_MAX_INTERVAL_S: they cannot be turned off either.
 */
#define VBALLOON_MAX_INTERVAL_S 65535u
int vballoon_set_stats_interval(struct virtio_dev *dev,
                                uint32_t seconds) MUST_CHECK;

/*
 * Free page hinting. A run begins with start: the driver names its free pages
 * and keeps them until it hears that the run is done, which we say by stop, or
 * at once when it has named all and `acknowledge_on_stop` was given.
 * -ENODEV: not configured. -ENOTCONN: no driver runs that knows it.
 */
struct vballoon_hinting {
    uint32_t host_cmd;  /* VIRTIO_BALLOON_CMD_ID_STOP, _DONE, or a run */
    uint32_t guest_cmd; /* what the driver said last */
    bool guest_said;    /* it said something since it started */
};
int vballoon_hinting_start(struct virtio_dev *dev,
                           bool acknowledge_on_stop) MUST_CHECK;
int vballoon_hinting_stop(struct virtio_dev *dev) MUST_CHECK;
int vballoon_hinting_status(struct virtio_dev *dev,
                            struct vballoon_hinting *out) MUST_CHECK;

#endif
