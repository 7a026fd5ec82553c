/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_MMIO_REGS_H
#define DEVICES_VIRTIO_MMIO_REGS_H

/*
 * The register file of one virtio-mmio device as a plain state machine: what a
 * driver writes is checked and stored, and what follows from it is handed to
 * the caller. No thread, fd or lock in here.
 *
 * Ownership: embedded in the transport, borrows the device.
 * Threads: the transport's lock is held around every call.
 * spec: virtio-1.2 4.2.2
 */

#include "devices/virtio.h"

/* Queue registers as the driver wrote them; checked when it sets QueueReady. */
struct mmio_queue {
    uint32_t g_num;
    bool ready;
    uint64_t g_desc;
    uint64_t g_avail;
    uint64_t g_used;
};

struct mmio_regs {
    const struct virtio_dev *dev;
    uint64_t offered; /* the device's features and those of all rings */
    uint32_t status;
    uint32_t device_features_sel;
    uint32_t driver_features_sel;
    uint32_t queue_sel;
    uint64_t driver_features; /* within `offered` */
    /* Bit n: what it wrote last with selector n is more than that; bit 2
     * stands for all selectors from 2 on. */
    uint8_t unoffered;
    struct mmio_queue q[VIRTIO_MAX_QUEUES];
};

enum mmio_action {
    MMIO_NOTHING,
    MMIO_ACTIVATE,   /* start the device, then set DRIVER_OK */
    MMIO_RESET,      /* reset the running device, then mmio_regs_clear() */
    MMIO_STOP_QUEUE, /* the running device leaves `queue` alone from now on */
};

struct mmio_outcome {
    enum mmio_action action;
    uint16_t queue;
    const char *fault; /* what the driver did wrong, for the log; or NULL */
};

void mmio_regs_init(struct mmio_regs *r, const struct virtio_dev *dev);

/* The state after a reset. */
void mmio_regs_clear(struct mmio_regs *r);

/*
 * An aligned 32-bit access below the configuration space. Registers that are
 * write-only, absent or the transport's own (interrupts, generation) read 0.
 */
uint32_t mmio_regs_read(const struct mmio_regs *r, uint32_t off);
struct mmio_outcome mmio_regs_write(struct mmio_regs *r, uint32_t off,
                                    uint32_t g_value);

/*
 * Whether registers that came from somewhere else are such as a driver can
 * have brought about, queues that are ready checked like there. NULL, or what
 * is wrong with them.
 */
const char *mmio_regs_check(const struct mmio_regs *r);

/* Whether the size and addresses of queue `q` are fit for use. */
bool mmio_regs_queue_fits(const struct mmio_regs *r, uint16_t q);

/* The arguments of vq_setup() for queue `q`, which is ready. */
struct vq_setup_args mmio_regs_queue_args(const struct mmio_regs *r,
                                          uint16_t q);

#endif
