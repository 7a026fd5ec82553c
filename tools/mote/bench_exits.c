/* SPDX-License-Identifier: Apache-2.0 */
/* `mote bench exits`: what a booting guest leaves KVM for. */
#include "tools/mote/bench.h"
#include "tools/mote/bench_boot_opts.h"
#include "tools/mote/bench_table.h"
#include "tools/mote/ui.h"
#include "vmm/cleanup.h"

#include <linux/virtio_mmio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The registers of a device begin there in its range: vmm/layout_x86.h. */
#define EXITS_REG_MASK 0xffu

static const struct opt_def exits_defs[] = {
    BOOT_OPTS_ROWS(0),
};

static const struct opt_table exits_table = {
    .usage = "bench exits [options]",
    .summary = "count the exits of one boot to user space",
    .defs = exits_defs,
    .count = ARRAY_SIZE(exits_defs),
    .notes = "One boot and one command; each return of KVM_RUN to the monitor\n"
             "by its kind and port or address, the most frequent first. The\n"
             "marks of the boot (port 0x504) and its last kick are among "
             "them.\n",
};

/* What virtio-mmio calls the register, or "". spec: virtio-1.2 4.2.2 */
static const char *exits_register(const char *device, unsigned long long addr)
{
    static const struct {
        unsigned off;
        const char *name;
    } regs[] = {
        {VIRTIO_MMIO_MAGIC_VALUE, "MagicValue"},
        {VIRTIO_MMIO_VERSION, "Version"},
        {VIRTIO_MMIO_DEVICE_ID, "DeviceID"},
        {VIRTIO_MMIO_VENDOR_ID, "VendorID"},
        {VIRTIO_MMIO_DEVICE_FEATURES, "DeviceFeatures"},
        {VIRTIO_MMIO_DEVICE_FEATURES_SEL, "DeviceFeaturesSel"},
        {VIRTIO_MMIO_DRIVER_FEATURES, "DriverFeatures"},
        {VIRTIO_MMIO_DRIVER_FEATURES_SEL, "DriverFeaturesSel"},
        {VIRTIO_MMIO_QUEUE_SEL, "QueueSel"},
        {VIRTIO_MMIO_QUEUE_NUM_MAX, "QueueNumMax"},
        {VIRTIO_MMIO_QUEUE_NUM, "QueueNum"},
        {VIRTIO_MMIO_QUEUE_READY, "QueueReady"},
        {VIRTIO_MMIO_QUEUE_NOTIFY, "QueueNotify"},
        {VIRTIO_MMIO_INTERRUPT_STATUS, "InterruptStatus"},
        {VIRTIO_MMIO_INTERRUPT_ACK, "InterruptACK"},
        {VIRTIO_MMIO_STATUS, "Status"},
        {VIRTIO_MMIO_QUEUE_DESC_LOW, "QueueDescLow"},
        {VIRTIO_MMIO_QUEUE_DESC_HIGH, "QueueDescHigh"},
        {VIRTIO_MMIO_QUEUE_AVAIL_LOW, "QueueDriverLow"},
        {VIRTIO_MMIO_QUEUE_AVAIL_HIGH, "QueueDriverHigh"},
        {VIRTIO_MMIO_QUEUE_USED_LOW, "QueueDeviceLow"},
        {VIRTIO_MMIO_QUEUE_USED_HIGH, "QueueDeviceHigh"},
        {VIRTIO_MMIO_CONFIG_GENERATION, "ConfigGeneration"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(regs) && !strcmp(device, "virtio-mmio");
         i++) {
        /* The page before is that of the registers, the next one the
         * configuration space. */
        if ((addr & 0xf00) == 0xf00 && regs[i].off == (addr & EXITS_REG_MASK))
            return regs[i].name;
    }
    return "";
}

static long long exits_sum(const json_t *rows)
{
    long long sum = 0;
    json_t *row;
    size_t i;

    json_array_foreach(rows, i, row) sum +=
        json_integer_value(json_object_get(row, "count"));
    return sum;
}

static const char *exits_text(const json_t *row, const char *key)
{
    const char *s = json_string_value(json_object_get(row, key));

    return s ? s : "";
}

static void exits_print(const json_t *exits)
{
    const json_t *rows = json_object_get(exits, "rows");
    json_t *row;
    size_t i;

    (void)printf("%lld exits to user space, exec to first output\n",
                 exits_sum(rows));
    (void)printf("%8s  %-14s %-12s %-12s %s\n", "count", "kind", "address",
                 "device", "register");
    json_array_foreach(rows, i, row)
    {
        const char *addr = exits_text(row, "addr");
        const char *device = exits_text(row, "device");

        (void)printf(
            "%8lld  %-14s %-12s %-12s %s\n",
            (long long)json_integer_value(json_object_get(row, "count")),
            exits_text(row, "kind"), addr, *device ? device : "-",
            exits_register(device, strtoull(addr, NULL, 16)));
    }
    if (json_integer_value(json_object_get(exits, "dropped")) > 0)
        (void)printf(
            "and %lld at addresses that found no row\n",
            (long long)json_integer_value(json_object_get(exits, "dropped")));
}

static int exits_run(const struct boot_opts *o, struct boot_guest *g,
                     struct mote_err *err)
{
    static const char *const extra[] = {"--count-exits", NULL};
    struct boot_result r = {.report = NULL};
    json_t *exits;
    int rc = boot_opts_guest(o, g, err);

    g->extra = extra;
    bench_progress("booting");
    if (rc == 0)
        rc = boot_mote_once(g, &r, err);
    bench_progress_end();
    if (rc)
        return rc;
    exits = json_object_get(r.report, "exits");
    if (!exits)
        rc = lm_err(err, -EPROTO,
                    "mote-vmm: it counted no exits; use the one that was built "
                    "with this mote");
    else if (o->json)
        bench_print_doc(
            json_pack("{s:s, s:I, s:O, s:O}", "kernel", g->kernel, "total",
                      (json_int_t)exits_sum(json_object_get(exits, "rows")),
                      "dropped", json_object_get(exits, "dropped"), "exits",
                      json_object_get(exits, "rows")));
    else
        exits_print(exits);
    boot_result_fini(&r);
    return rc;
}

static int exits_main(const struct cli *cli, int argc, char **argv)
{
    struct boot_opts o = BOOT_OPTS_DEFAULT;
    struct boot_guest g = {.signal_fd = -1};
    struct mote_err err = {0};
    int code;

    (void)cli;
    if (bench_parse(&cmd_bench_exits, argc, argv, &o, &code))
        code =
            exits_run(&o, &g, &err) ? bench_failed(&err, o.json) : ui_finish(0);
    drop_fd(&g.signal_fd);
    return code;
}

const struct command cmd_bench_exits = {"bench exits", &exits_table,
                                        exits_main};
