/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/machine_devices.h"

#include "devices/virtio_balloon.h"
#include "devices/virtio_console.h"
#include "devices/virtio_mmio.h"
#include "devices/virtio_rng.h"
#include "devices/virtio_vsock.h"
#include "vmm/drive.h"
#include "vmm/machine_net.h"

#include <assert.h>
#include <linux/virtio_mmio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(CONFIG_MAX_PORTS == VCON_MAX_PORTS, "ports");
_Static_assert(CONFIG_PORT_NAME_MAX == VCON_NAME_MAX, "names of ports");

struct device_slot {
    struct virtio_mmio *mmio;
    struct virtio_dev *dev; /* owned by the transport */
    char *id;               /* of its section; NULL: it has none */
    struct boot_mmio_dev window;
};

struct device_set {
    struct device_env env;
    size_t num;
    struct device_slot slots[LAYOUT_MAX_DEVICES];
    struct virtio_dev *console; /* its slot's; NULL: none */
    /* io thread, while coming to rest or shutting down */
    size_t num_down;
    void (*done)(void *arg);
    void *done_arg;
};

static int devices_wire_kicks(struct device_set *set,
                              const struct device_slot *s, struct errmsg *err)
{
    for (uint16_t q = 0; q < virtio_mmio_num_queues(s->mmio); q++) {
        int rc = kvm_ioeventfd(set->env.kvm,
                               s->window.base + VIRTIO_MMIO_QUEUE_NOTIFY, q,
                               virtio_mmio_kick_fd(s->mmio, q), err);

        if (rc)
            return rc;
    }
    return 0;
}

/* Reads of the registers, and the usual acknowledgement, stay in KVM. */
static int devices_show_registers(struct device_set *set,
                                  const struct device_slot *s,
                                  struct errmsg *err)
{
    const struct register_pages *pages = set->env.pages;
    void *words = register_pages_get(pages, (size_t)(s - set->slots));

    if (!words)
        return 0;
    virtio_mmio_show_registers(s->mmio, words);
    return kvm_ioeventfd(set->env.kvm,
                         s->window.base + VIRTIO_MMIO_INTERRUPT_ACK,
                         VIRTIO_MMIO_INT_VRING, pages->ack_fd, err);
}

/* Takes `dev` over in any case. */
static int devices_attach(struct device_set *set, struct virtio_dev *dev,
                          struct errmsg *err)
{
    struct device_slot *s = &set->slots[set->num];
    int irq_fd = -1;
    int rc = irq_take_device(set->env.irqs, set->env.kvm, &s->window.gsi,
                             &irq_fd, err);

    if (rc) {
        dev->ops->free(dev);
        return rc;
    }
    rc = virtio_mmio_new(dev, irq_fd, &s->mmio);
    if (rc) {
        dev->ops->free(dev);
        return err_set(err, rc, "virtio device: %s", err_reason(rc));
    }
    s->window.base = LAYOUT_VIRTIO_BASE + set->num * LAYOUT_VIRTIO_STRIDE;
    s->window.size_bytes = LAYOUT_VIRTIO_SIZE;
    s->dev = dev;
    set->num++; /* from now on devices_free() frees it */
    rc = bus_add(set->env.mmio, s->window.base, s->window.size_bytes,
                 &virtio_mmio_bus_ops, s->mmio);
    if (rc)
        return err_set(err, rc, "virtio window: %s", err_reason(rc));
    rc = devices_wire_kicks(set, s, err);
    return rc ? rc : devices_show_registers(set, s, err);
}

/* Attaches under the id by which devices_find() finds it. */
static int devices_attach_as(struct device_set *set, struct virtio_dev *dev,
                             const char *id, struct errmsg *err)
{
    struct device_slot *s;
    int rc = devices_attach(set, dev, err);

    if (rc)
        return rc;
    s = &set->slots[set->num - 1];
    s->id = strdup(id);
    return s->id ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int devices_add_disk(struct device_set *set,
                            const struct config_drive *d, uint32_t num_vcpus,
                            struct errmsg *err)
{
    struct virtio_dev *dev = NULL;
    int rc = drive_new(&set->env.vdev, d, num_vcpus, &dev, err);

    return rc ? rc : devices_attach_as(set, dev, d->id, err);
}

/* The root disk is the guest's first, whatever its place in the list. */
static int devices_add_disks(struct device_set *set, const struct vm_config *c,
                             struct errmsg *err)
{
    int rc = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < c->num_drives && rc == 0; i++) {
            if (c->drives[i].is_root == (pass == 0))
                rc = devices_add_disk(set, &c->drives[i], c->num_vcpus, err);
        }
    }
    return rc;
}

static int devices_add_nets(struct device_set *set, const struct vm_config *c,
                            struct errmsg *err)
{
    struct virtio_dev *dev = NULL;
    int rc = 0;

    for (size_t i = 0; i < c->num_nets && rc == 0; i++) {
        const struct mmds_service *mmds =
            config_mmds_serves(c, c->nets[i].id) ? set->env.mmds : NULL;

        rc = machine_net_new(&set->env.vdev, &c->nets[i], mmds, &dev, err);
        if (rc == 0)
            rc = devices_attach_as(set, dev, c->nets[i].id, err);
    }
    return rc;
}

static int devices_add_others(struct device_set *set, const struct vm_config *c,
                              struct errmsg *err)
{
    struct virtio_dev *dev = NULL;
    int rc = 0;

    if (c->vsock_path) {
        rc = vvsock_new(&set->env.vdev, c->guest_cid, c->vsock_path, &dev, err);
        if (rc == 0)
            rc = devices_attach(set, dev, err);
    }
    if (rc == 0 && c->entropy) {
        rc = vrng_new(&set->env.vdev, &dev);
        rc = rc ? err_set(err, rc, "virtio-rng: %s", err_reason(rc))
                : devices_attach(set, dev, err);
    }
    return rc;
}

static bool devices_has_console(const struct vm_config *c)
{
    return c->virtio_console || c->num_ports > 0;
}

static int devices_add_console(struct device_set *set,
                               const struct vm_config *c, struct errmsg *err)
{
    struct vcon_args args = {.in_fd = -1, .out_fd = -1};
    struct virtio_dev *dev = NULL;
    int rc;

    if (!devices_has_console(c))
        return 0;
    if (c->virtio_console)
        args.out_fd = set->env.console_out_fd;
    for (size_t i = 0; i < c->num_ports; i++)
        args.ports[args.num_ports++] =
            (struct vcon_port_args){c->ports[i].name, c->ports[i].path};
    rc = vcon_new(&set->env.vdev, &args, &dev, err);
    if (rc == 0)
        rc = devices_attach(set, dev, err);
    if (rc == 0)
        set->console = dev;
    return rc;
}

static int devices_add_balloon(struct device_set *set,
                               const struct config_balloon *c,
                               struct errmsg *err)
{
    const struct vballoon_args args = {
        .target_bytes = c->target_bytes,
        .stats_interval_s = c->stats_interval_s,
        .deflate_on_oom = c->deflate_on_oom,
        .hinting = c->hinting,
        .reporting = c->reporting,
    };
    struct virtio_dev *dev = NULL;
    int rc;

    if (!c->present)
        return 0;
    rc = vballoon_new(&set->env.vdev, &args, &dev);
    if (rc)
        return err_set(err, rc, "balloon: %s", err_reason(rc));
    return devices_attach(set, dev, err);
}

size_t devices_count(const struct vm_config *c)
{
    return c->num_drives + c->num_nets + (c->vsock_path != NULL) + c->entropy +
           devices_has_console(c) + c->balloon.present;
}

int devices_new(const struct device_env *env, const struct vm_config *c,
                struct device_set **out_set, struct errmsg *err)
{
    struct device_set *set = calloc(1, sizeof(*set));
    int rc;

    if (!set)
        return err_set(err, -ENOMEM, "out of memory");
    set->env = *env;
    rc = devices_add_disks(set, c, err);
    if (rc == 0)
        rc = devices_add_nets(set, c, err);
    if (rc == 0)
        rc = devices_add_others(set, c, err);
    if (rc == 0)
        rc = devices_add_console(set, c, err);
    if (rc == 0)
        rc = devices_add_balloon(set, &c->balloon, err);
    if (rc) {
        devices_free(set);
        return rc;
    }
    assert(set->num == devices_count(c));
    *out_set = set;
    return 0;
}

void devices_free(struct device_set *set)
{
    if (!set)
        return;
    while (set->num > 0) {
        virtio_mmio_free(set->slots[--set->num].mmio);
        free(set->slots[set->num].id);
    }
    free(set);
}

struct virtio_dev *devices_find(const struct device_set *set,
                                uint32_t virtio_id, const char *id)
{
    for (size_t i = 0; i < set->num; i++) {
        const struct device_slot *s = &set->slots[i];

        if (s->dev->device_id == virtio_id &&
            (!id || (s->id && !strcmp(s->id, id))))
            return s->dev;
    }
    return NULL;
}

size_t devices_num(const struct device_set *set)
{
    return set->num;
}

struct virtio_dev *devices_at(const struct device_set *set, size_t i,
                              const char **out_id)
{
    *out_id = set->slots[i].id;
    return set->slots[i].dev;
}

size_t devices_describe(const struct device_set *set, struct boot_mmio_dev *out,
                        size_t max)
{
    size_t n = 0;

    for (; n < set->num && n < max; n++)
        out[n] = set->slots[n].window;
    return n;
}

void devices_cancel_waits(struct device_set *set)
{
    for (size_t i = 0; i < set->num; i++)
        virtio_mmio_cancel_waits(set->slots[i].mmio);
}

/* thread: io */
static void devices_on_down(void *arg)
{
    struct device_set *set = arg;

    if (++set->num_down < set->num)
        return;
    if (set->console)
        vcon_flush(set->console);
    set->done(set->done_arg);
}

void devices_shutdown(struct device_set *set, void (*done)(void *arg),
                      void *arg)
{
    size_t num = set->num;

    set->num_down = 0;
    set->done = done;
    set->done_arg = arg;
    if (num == 0)
        done(arg);
    for (size_t i = 0; i < num; i++)
        virtio_mmio_shutdown(set->slots[i].mmio, devices_on_down, set);
}

/* --- at rest ----------------------------------------------------------------
 */

/* thread: io */
static void devices_on_rested(void *arg)
{
    struct device_set *set = arg;

    if (++set->num_down == set->num)
        set->done(set->done_arg);
}

void devices_rest(struct device_set *set, void (*done)(void *arg), void *arg)
{
    size_t num = set->num;

    set->num_down = 0;
    set->done = done;
    set->done_arg = arg;
    if (num == 0)
        done(arg);
    for (size_t i = 0; i < num; i++)
        virtio_mmio_rest(set->slots[i].mmio, devices_on_rested, set);
}

void devices_wake(struct device_set *set)
{
    for (size_t i = 0; i < set->num; i++)
        virtio_mmio_wake(set->slots[i].mmio);
}

#define DEVICES_VERSION 1u

/* Where the guest was told to find the devices must hold after a load. */
void devices_save(const struct device_set *set, struct state_out *out)
{
    char name[STATE_NAME_MAX];

    state_begin(out, "devices", DEVICES_VERSION);
    state_put_u32(out, (uint32_t)set->num);
    for (size_t i = 0; i < set->num; i++) {
        state_put_u32(out, set->slots[i].dev->device_id);
        state_put_u64(out, set->slots[i].window.base);
        state_put_u32(out, set->slots[i].window.gsi);
    }
    state_end(out);
    for (size_t i = 0; i < set->num; i++) {
        (void)snprintf(name, sizeof(name), "device/%zu", i);
        virtio_mmio_save(set->slots[i].mmio, name, out);
    }
}

static int devices_check_places(const struct device_set *set,
                                const struct state_file *f, struct errmsg *err)
{
    struct state_in in;
    int rc = state_section(f, "devices", DEVICES_VERSION, &in, err);
    uint32_t num = rc ? 0 : state_get_u32(&in);

    for (size_t i = 0; i < set->num && rc == 0; i++) {
        const struct device_slot *s = &set->slots[i];
        bool same = state_get_u32(&in) == s->dev->device_id;

        same = state_get_u64(&in) == s->window.base && same;
        same = state_get_u32(&in) == s->window.gsi && same;
        if (!same || num != set->num)
            rc = err_set(err, -EBADMSG,
                         "the saved state has other devices than its own "
                         "configuration says");
    }
    if (rc == 0 && state_done(&in))
        rc = err_set(err, -EBADMSG,
                     "the list of devices in the saved state is damaged");
    return rc;
}

int devices_load(struct device_set *set, const struct state_file *f,
                 struct errmsg *err)
{
    char name[STATE_NAME_MAX];
    int rc = devices_check_places(set, f, err);

    for (size_t i = 0; i < set->num && rc == 0; i++) {
        (void)snprintf(name, sizeof(name), "device/%zu", i);
        rc = virtio_mmio_load(set->slots[i].mmio, name, f, err);
    }
    return rc;
}
