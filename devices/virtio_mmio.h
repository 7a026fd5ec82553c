/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTIO_MMIO_H
#define DEVICES_VIRTIO_MMIO_H

/*
 * The memory-mapped virtio transport, version 2 (modern): registers, feature
 * negotiation, queue set-up, status, interrupts.
 *
 * Ownership: owns the device given to it and its eventfds.
 * Threads: registers from vCPU threads under a lock of its own; DRIVER_OK and
 * reset are carried to the loop's thread and waited for there.
 * spec: virtio-1.2 4.2
 */

#include "devices/virtio.h"
#include "vmm/bus.h"

struct virtio_mmio;

extern const struct bus_ops virtio_mmio_bus_ops; /* dev = struct virtio_mmio */

/*
 * Takes over `dev` if it succeeds. `irq_fd`: a non-blocking eventfd whose write
 * raises the device's interrupt; borrowed.
 */
int virtio_mmio_new(struct virtio_dev *dev, int irq_fd,
                    struct virtio_mmio **out_mmio) MUST_CHECK;

/*
 * Before the vCPUs run: `words`, VIRTIO_MMIO_CONFIG bytes, show the registers
 * from now on, for a guest that reads them as memory. An acknowledgement of
 * used buffers alone then need not reach us: that bit of InterruptStatus stays
 * set until the device is reset, and the interrupt handler of a driver looks at
 * queues that have nothing for it. Borrowed until virtio_mmio_free().
 */
void virtio_mmio_show_registers(struct virtio_mmio *m, void *words);

/*
 * Before the vCPUs run: hands out the eventfds of queue kicks, to be wired as
 * ioeventfds on register QueueNotify with the queue's number as data match.
 */
int virtio_mmio_kick_fd(const struct virtio_mmio *m, uint16_t q);
uint16_t virtio_mmio_num_queues(const struct virtio_mmio *m);

/*
 * A machine that pauses; no vCPU runs. virtio_mmio_rest() brings the device to
 * rest and calls `done`, from inside or later on the loop's thread; never if
 * virtio_mmio_shutdown() comes first. Then its state may be saved, and
 * virtio_mmio_wake() goes on. thread: io
 */
void virtio_mmio_rest(struct virtio_mmio *m, void (*done)(void *arg),
                      void *arg);
void virtio_mmio_wake(struct virtio_mmio *m); /* idempotent */

/*
 * Registers, queues and what the device has beside them, as sections `name` and
 * `name`/state, which has at most STATE_NAME_MAX bytes. Saving is for a device
 * at rest. Loading takes a fresh transport of the same device, on guest memory
 * as it was saved, after virtio_mmio_show_registers() if that is to come, and
 * leaves it at rest: virtio_mmio_wake() starts it. Everything read is hostile;
 * on an error the transport is fit for nothing but shutdown and free. -EBADMSG,
 * -EINVAL, -ENOTSUP or -errno with a line.
 */
void virtio_mmio_save(struct virtio_mmio *m, const char *name,
                      struct state_out *out);
int virtio_mmio_load(struct virtio_mmio *m, const char *name,
                     const struct state_file *f, struct errmsg *err) MUST_CHECK;

/*
 * Teardown, in order: all vCPUs are stopped; virtio_mmio_shutdown() resets the
 * device on the loop's thread and calls `done` there (or at once, from inside)
 * when nothing is in flight; then virtio_mmio_free(), which frees the device as
 * well.
 */
void virtio_mmio_shutdown(struct virtio_mmio *m, void (*done)(void *arg),
                          void *arg);
void virtio_mmio_free(struct virtio_mmio *m); /* NULL is fine */

/*
 * Makes every wait of a vCPU thread inside a register access end soon, because
 * the VM stops. Thread: any.
 */
void virtio_mmio_cancel_waits(struct virtio_mmio *m);

#endif
