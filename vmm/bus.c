/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/bus.h"

#include <stdlib.h>
#include <string.h>

#define BUS_MAX_RANGES 64u

struct bus_range {
    uint64_t base;
    uint64_t len;
    const struct bus_ops *ops;
    void *dev;
};

struct bus {
    size_t num;
    struct bus_range ranges[BUS_MAX_RANGES]; /* sorted by base */
};

int bus_new(struct bus **out_bus)
{
    struct bus *bus = calloc(1, sizeof(*bus));

    if (!bus)
        return -ENOMEM;
    *out_bus = bus;
    return 0;
}

void bus_free(struct bus *bus)
{
    free(bus);
}

int bus_add(struct bus *bus, uint64_t base, uint64_t len,
            const struct bus_ops *ops, void *dev)
{
    size_t at = 0;

    if (len == 0 || base + (len - 1) < base)
        return -EINVAL;
    if (bus->num == BUS_MAX_RANGES)
        return -ENOSPC;
    while (at < bus->num && bus->ranges[at].base < base)
        at++;
    if (at > 0 && base - bus->ranges[at - 1].base < bus->ranges[at - 1].len)
        return -EEXIST;
    if (at < bus->num && bus->ranges[at].base - base < len)
        return -EEXIST;
    memmove(&bus->ranges[at + 1], &bus->ranges[at],
            (bus->num - at) * sizeof(bus->ranges[0]));
    bus->ranges[at] = (struct bus_range){base, len, ops, dev};
    bus->num++;
    return 0;
}

/* The range that holds all of [addr, addr+len), or NULL. */
static const struct bus_range *bus_find(const struct bus *bus, uint64_t addr,
                                        uint32_t len)
{
    size_t lo = 0;
    size_t hi = bus->num;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct bus_range *r = &bus->ranges[mid];

        if (addr < r->base)
            hi = mid;
        else if (addr - r->base >= r->len)
            lo = mid + 1;
        else
            return len <= r->len - (addr - r->base) ? r : NULL;
    }
    return NULL;
}

int bus_read(const struct bus *bus, uint64_t addr, void *data, uint32_t len)
{
    const struct bus_range *r = bus_find(bus, addr, len);

    if (!r) {
        memset(data, 0xff, len);
        return -ENXIO;
    }
    memset(data, 0, len);
    r->ops->read(r->dev, addr - r->base, data, len);
    return 0;
}

int bus_write(const struct bus *bus, uint64_t addr, const void *data,
              uint32_t len)
{
    const struct bus_range *r = bus_find(bus, addr, len);

    if (!r)
        return -ENXIO;
    r->ops->write(r->dev, addr - r->base, data, len);
    return 0;
}

const char *bus_who(const struct bus *bus, uint64_t addr, uint64_t *out_base)
{
    const struct bus_range *r = bus_find(bus, addr, 1);

    if (!r)
        return NULL;
    *out_base = r->base;
    return r->ops->name ? r->ops->name : "device";
}
