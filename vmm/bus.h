/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_BUS_H
#define VMM_BUS_H

/*
 * Dispatch of guest accesses to ports or memory-mapped registers. One object
 * for port I/O, one for MMIO.
 *
 * Ownership: the bus borrows the devices. Threads: ranges are added before the
 * first vCPU runs and never change; accesses come from any vCPU thread and may
 * run at the same time, each device has its own lock.
 */

#include "vmm/util.h"

struct bus;

struct bus_ops {
    const char *name; /* of the kind of device, for reports */
    /* `off` from the start of the range; `len` 1, 2, 4 or 8 bytes, wholly
     * inside the range. `read` fills `data`; it comes zeroed. */
    void (*read)(void *dev, uint64_t off, void *data, uint32_t len);
    void (*write)(void *dev, uint64_t off, const void *data, uint32_t len);
};

int bus_new(struct bus **out_bus) MUST_CHECK;
void bus_free(struct bus *bus); /* NULL is fine */

/* -EINVAL for an empty or wrapping range, -EEXIST when it overlaps one. */
int bus_add(struct bus *bus, uint64_t base, uint64_t len,
            const struct bus_ops *ops, void *dev) MUST_CHECK;

/*
 * 0, or -ENXIO when nobody answers at [addr, addr+len): then a read leaves all
 * bits set, as an empty bus does, and a write is dropped.
 */
int bus_read(const struct bus *bus, uint64_t addr, void *data, uint32_t len);
int bus_write(const struct bus *bus, uint64_t addr, const void *data,
              uint32_t len);

/* Who answers at `addr`, and where its range begins; NULL: nobody. */
const char *bus_who(const struct bus *bus, uint64_t addr, uint64_t *out_base);

#endif
