/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_MACHINE_DEVICES_H
#define VMM_MACHINE_DEVICES_H

/*
 * The virtio devices of one machine: made from the configuration, each behind
 * its own MMIO window and interrupt line.
 *
 * Ownership: the set owns the devices; borrows the env. Threads: made and
 * freed on the main thread; shutdown on the loop's.
 */

#include "boot/boot_machine.h"
#include "devices/virtio.h"
#include "vmm/bus.h"
#include "vmm/config.h"
#include "vmm/irq.h"
#include "vmm/register_pages.h"

struct device_set;
struct mmds_service;

struct device_env {
    struct vdev_env vdev;
    struct kvm *kvm;
    struct irq_table *irqs;
    struct bus *mmio;
    const struct register_pages *pages;
    int console_out_fd;
    const struct mmds_service *mmds; /* of the interfaces that have it */
};

/* How many windows a configuration takes. */
size_t devices_count(const struct vm_config *c);

int devices_new(const struct device_env *env, const struct vm_config *c,
                struct device_set **out_set, struct errmsg *err) MUST_CHECK;
void devices_free(struct device_set *set); /* NULL is fine */

/* The windows as boot/ describes them to the guest; returns the count. */
size_t devices_describe(const struct device_set *set, struct boot_mmio_dev *out,
                        size_t max);

/* By VIRTIO_ID_* and, unless it is NULL, the id of its section. */
struct virtio_dev *devices_find(const struct device_set *set,
                                uint32_t virtio_id, const char *id) MUST_CHECK;

/* In the order of their windows; *out_id is NULL for those without one. All
 * borrowed. */
size_t devices_num(const struct device_set *set);
struct virtio_dev *devices_at(const struct device_set *set, size_t i,
                              const char **out_id);
/*
 * While no vCPU runs: brings all to rest, then calls `done`, from inside or
 * later; never if devices_shutdown() comes first. thread: io
 */
void devices_rest(struct device_set *set, void (*done)(void *arg), void *arg);
void devices_wake(struct device_set *set);
/* Sections "device/<number>", of devices at rest. */
void devices_save(const struct device_set *set, struct state_out *out);
/* Into a fresh set, which is then at rest. -EBADMSG, -ENOTSUP or -errno. */
int devices_load(struct device_set *set, const struct state_file *f,
                 struct errmsg *err) MUST_CHECK;

/* Ends waits of vCPU threads inside register accesses. Thread: any. */
void devices_cancel_waits(struct device_set *set);
/* Once no vCPU runs: resets all, then calls `done`. thread: io */
void devices_shutdown(struct device_set *set, void (*done)(void *arg),
                      void *arg);

#endif
