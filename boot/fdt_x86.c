/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/fdt_x86.h"

#include <libfdt.h>
#include <stdio.h>
#include <string.h>

#define FDT_IOAPIC_PHANDLE 1u
#define FDT_APIC_BYTES     0x1000u
#define FDT_VMGENID_BYTES  0x1000u
/* Trigger cell of the ce4100 I/O APIC binding, in Linux's table of four. */
#define FDT_EDGE_RISING 3u
#define FDT_NAME_MAX    32u

/* Keeps the first error, so that a tree reads as its nodes. */
struct fdt_writer {
    void *fdt;
    int rc;
};

static void fdtw_keep(struct fdt_writer *w, int rc)
{
    if (w->rc == 0)
        w->rc = rc;
}

static void fdtw_begin(struct fdt_writer *w, const char *name)
{
    fdtw_keep(w, fdt_begin_node(w->fdt, name));
}

static void fdtw_begin_at(struct fdt_writer *w, const char *name, uint64_t at)
{
    char full[FDT_NAME_MAX];

    (void)snprintf(full, sizeof(full), "%s@%llx", name, (unsigned long long)at);
    fdtw_begin(w, full);
}

static void fdtw_end(struct fdt_writer *w)
{
    fdtw_keep(w, fdt_end_node(w->fdt));
}

static void fdtw_flag(struct fdt_writer *w, const char *name)
{
    fdtw_keep(w, fdt_property(w->fdt, name, NULL, 0));
}

static void fdtw_u32(struct fdt_writer *w, const char *name, uint32_t v)
{
    fdtw_keep(w, fdt_property_u32(w->fdt, name, v));
}

static void fdtw_string(struct fdt_writer *w, const char *name, const char *v)
{
    fdtw_keep(w, fdt_property(w->fdt, name, v, (int)strlen(v) + 1));
}

/* Two address cells and two size cells, as the root says. */
static void fdtw_reg(struct fdt_writer *w, uint64_t base, uint64_t size)
{
    fdt64_t reg[2] = {cpu_to_fdt64(base), cpu_to_fdt64(size)};

    fdtw_keep(w, fdt_property(w->fdt, "reg", reg, sizeof(reg)));
}

static void fdtw_interrupt(struct fdt_writer *w, uint32_t gsi)
{
    fdt32_t cells[2] = {cpu_to_fdt32(gsi), cpu_to_fdt32(FDT_EDGE_RISING)};

    fdtw_keep(w, fdt_property(w->fdt, "interrupts", cells, sizeof(cells)));
}

static void fdtw_cells(struct fdt_writer *w, uint32_t address, uint32_t size)
{
    fdtw_u32(w, "#address-cells", address);
    fdtw_u32(w, "#size-cells", size);
}

static void fdtw_cpus(struct fdt_writer *w, unsigned ncpus)
{
    fdtw_begin(w, "cpus");
    fdtw_cells(w, 1, 0);
    for (unsigned i = 0; i < ncpus; i++) {
        fdtw_begin_at(w, "cpu", i);
        fdtw_string(w, "device_type", "cpu");
        fdtw_u32(w, "reg", i); /* the local APIC id */
        fdtw_end(w);
    }
    fdtw_end(w);
}

/*
 * Linux knows x86 APICs in a device tree by one SoC's names only. Without
 * `intel,virtual-wire-mode` on the local APIC it takes the PICs to be behind
 * the I/O APIC; with it, the UART's interrupt never arrives.
 */
static void fdtw_apics(struct fdt_writer *w)
{
    fdtw_begin_at(w, "interrupt-controller", LAYOUT_IOAPIC);
    fdtw_string(w, "compatible", "intel,ce4100-ioapic");
    fdtw_reg(w, LAYOUT_IOAPIC, FDT_APIC_BYTES);
    fdtw_flag(w, "interrupt-controller");
    fdtw_u32(w, "#interrupt-cells", 2);
    fdtw_u32(w, "phandle", FDT_IOAPIC_PHANDLE);
    fdtw_end(w);

    fdtw_begin_at(w, "interrupt-controller", LAYOUT_LAPIC);
    fdtw_string(w, "compatible", "intel,ce4100-lapic");
    fdtw_reg(w, LAYOUT_LAPIC, FDT_APIC_BYTES);
    fdtw_end(w);
}

static void fdtw_device(struct fdt_writer *w, const char *name,
                        const char *compatible, const struct boot_mmio_dev *d)
{
    fdtw_begin_at(w, name, d->base);
    fdtw_string(w, "compatible", compatible);
    fdtw_reg(w, d->base, d->size_bytes);
    fdtw_interrupt(w, d->gsi);
    fdtw_end(w);
}

static void fdtw_bus(struct fdt_writer *w, const struct boot_machine *m)
{
    fdtw_begin(w, "bus");
    fdtw_string(w, "compatible", "simple-bus");
    fdtw_cells(w, 2, 2);
    fdtw_flag(w, "ranges");
    fdtw_u32(w, "interrupt-parent", FDT_IOAPIC_PHANDLE);
    if (m->vmgenid) {
        struct boot_mmio_dev id = {LAYOUT_VMGENID, FDT_VMGENID_BYTES,
                                   m->vmgenid_gsi};

        fdtw_device(w, "vmgenid", "microsoft,vmgenid", &id);
    }
    for (size_t i = 0; i < m->ndevs; i++)
        fdtw_device(w, "virtio_mmio", "virtio,mmio", &m->devs[i]);
    fdtw_end(w);
}

int fdt_x86_build(const struct boot_machine *m, void *buf, size_t buf_bytes,
                  uint32_t *out_len_bytes)
{
    struct fdt_writer w = {.fdt = buf};

    fdtw_keep(&w, fdt_create(buf, (int)buf_bytes));
    fdtw_keep(&w, fdt_finish_reservemap(buf));
    fdtw_begin(&w, "");
    fdtw_cells(&w, 2, 2);
    fdtw_string(&w, "compatible", "mote,vm");
    fdtw_string(&w, "model", "mote VM");
    fdtw_cpus(&w, m->ncpus);
    fdtw_apics(&w);
    fdtw_bus(&w, m);
    fdtw_end(&w);
    fdtw_keep(&w, fdt_finish(buf));
    if (w.rc)
        return w.rc == -FDT_ERR_NOSPACE ? -ENOSPC : -EINVAL;
    *out_len_bytes = fdt_totalsize(buf);
    return 0;
}
