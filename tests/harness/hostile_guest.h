/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_HOSTILE_GUEST_H
#define TESTS_HARNESS_HOSTILE_GUEST_H

/*
 * A table of all virtio devices and a guest for each, for tests of what every
 * device has to stand.
 */

#include "tests/harness/fake_driver.h"

#define HG_RAM      (16 * MIB)
#define HG_QSIZE    16u
#define HG_INDIRECT (1ull << VIRTIO_RING_F_INDIRECT_DESC)

struct hostile_guest {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct vdev_env env;
    char dir[32];
    char path[64];
    struct virtio_dev *dev;
    int peer;  /* the network's other end; -1: none */
    gpa_t buf; /* 1 MiB */
};

/* One row for each kind of device. */
struct hg_device {
    const char *name;
    struct virtio_dev *(*make)(struct hostile_guest *f);
    /* Queues that are looked into at a kick; of the others buffers are taken
     * when there is something to put into them. */
    uint32_t eager;
    /* Queues where a chain of any shape is a request, if a bad one. */
    uint32_t any_shape;
    /* Queues that keep buffers although there is nothing wrong with them. */
    uint32_t keeps;
    uint64_t writable_config; /* bit n: byte n may change */
};

#define HG_NUM_DEVICES 6u
extern const struct hg_device hg_devices[HG_NUM_DEVICES];

/* Makes the device and its driver, with all that the device offers. */
void hg_begin(struct hostile_guest *f, const struct hg_device *dev,
              uint64_t ring_features);
/* At once, or when the last request has ended. */
void hg_reset(struct hostile_guest *f);
void hg_end(struct hostile_guest *f);

#endif
