/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/boot_x86.h"

#include "boot/cmdline.h"
#include "boot/fdt_x86.h"
#include "boot/initrd.h"
#include "boot/kernel_image.h"
#include "boot/mptable.h"
#include "boot/setup_data.h"
#include "boot/zero_page.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Only kernels that read device trees on x86 contain it. */
#define BOOT_DT_MARK "intel,ce4100-ioapic"

/* Descriptors: present, ring 0, 4 GiB; code with L, data writable. */
#define BOOT_GDT_CODE64 0x00af9b000000ffffull
#define BOOT_GDT_DATA   0x00cf93000000ffffull

#define BOOT_PTE_TABLE  0x03ull /* present, writable */
#define BOOT_PTE_2M     0x83ull /* and a 2 MiB page */
#define BOOT_PT_ENTRIES 512u
#define BOOT_PT_BYTES   4096u
#define BOOT_PT_GIBS    4u

_Static_assert(LAYOUT_PAGE_TABLES + (2 + BOOT_PT_GIBS) * BOOT_PT_BYTES <=
                   LAYOUT_CMDLINE,
               "page tables end below the command line");

struct boot_files {
    struct kernel_image kernel;
    struct initrd initrd; /* fd -1: none */
};

/* Where the next note goes. */
static char *boot_note(struct boot_result *out)
{
    assert(out->num_notes < BOOT_MAX_NOTES);
    return out->notes[out->num_notes++];
}

/* Our own structures go to fixed places in low RAM, which always exists. */
static int boot_low_error(int rc, const char *what, struct errmsg *err)
{
    return err_set(err, rc,
                   "boot data: %s cannot be written: %s; give the VM at least "
                   "%llu MiB of memory",
                   what, err_reason(rc),
                   (unsigned long long)(LAYOUT_MIN_RAM / MIB));
}

static int boot_write_gdt(struct guest_mem *gm, struct boot_result *out,
                          struct errmsg *err)
{
    uint64_t gdt[4] = {0};
    int rc;

    gdt[BOOT_SEL_CS / 8] = htole64(BOOT_GDT_CODE64);
    gdt[BOOT_SEL_DS / 8] = htole64(BOOT_GDT_DATA);
    rc = gm_write(gm, LAYOUT_GDT, gdt, sizeof(gdt));
    if (rc)
        return boot_low_error(rc, "the GDT", err);
    out->gdt_base = LAYOUT_GDT;
    out->gdt_limit = sizeof(gdt) - 1;
    return 0;
}

/* One to one, in 2 MiB pages: 1 GiB pages are not on every CPU. */
static int boot_write_page_tables(struct guest_mem *gm, struct boot_result *out,
                                  struct errmsg *err)
{
    uint64_t table[BOOT_PT_ENTRIES] = {0};
    gpa_t pml4 = LAYOUT_PAGE_TABLES;
    gpa_t pdpt = pml4 + BOOT_PT_BYTES;
    gpa_t pd = pdpt + BOOT_PT_BYTES;
    int rc;

    table[0] = htole64(pdpt | BOOT_PTE_TABLE);
    rc = gm_write(gm, pml4, table, sizeof(table));
    for (uint64_t g = 0; g < BOOT_PT_GIBS; g++)
        table[g] = htole64((pd + g * BOOT_PT_BYTES) | BOOT_PTE_TABLE);
    if (rc == 0)
        rc = gm_write(gm, pdpt, table, sizeof(table));
    for (uint64_t g = 0; rc == 0 && g < BOOT_PT_GIBS; g++) {
        for (uint64_t i = 0; i < BOOT_PT_ENTRIES; i++)
            table[i] = htole64((g * GIB + i * 2 * MIB) | BOOT_PTE_2M);
        rc = gm_write(gm, pd + g * BOOT_PT_BYTES, table, sizeof(table));
    }
    if (rc)
        return boot_low_error(rc, "the page tables", err);
    out->page_tables = pml4;
    return 0;
}

static int boot_check_config(const struct guest_mem *gm,
                             const struct boot_config *cfg, struct errmsg *err)
{
    if (!cfg->kernel_path)
        return err_set(err, -EINVAL,
                       "kernel: none is configured; name a vmlinux or bzImage");
    if (gm_ram_bytes(gm) < LAYOUT_MIN_RAM)
        return err_set(err, -ENOMEM,
                       "memory: %llu MiB is too little; give the VM at least "
                       "%llu MiB",
                       (unsigned long long)(gm_ram_bytes(gm) / MIB),
                       (unsigned long long)(LAYOUT_MIN_RAM / MIB));
    if (cfg->machine.ncpus == 0 || cfg->machine.ncpus > LAYOUT_MAX_VCPUS)
        return err_set(err, -EINVAL, "vCPUs: %u is not possible; give 1 to %u",
                       cfg->machine.ncpus, LAYOUT_MAX_VCPUS);
    if (cfg->machine.ndevs > LAYOUT_MAX_DEVICES)
        return err_set(err, -E2BIG,
                       "devices: %zu are too many; at most %u are possible",
                       cfg->machine.ndevs, LAYOUT_MAX_DEVICES);
    if (cfg->seed_len > BOOT_MAX_SEED)
        return err_set(err, -E2BIG,
                       "random seed: %zu bytes are too many; at most %u",
                       cfg->seed_len, BOOT_MAX_SEED);
    return 0;
}

static int boot_load_kernel(struct guest_mem *gm, const struct boot_config *cfg,
                            const struct kernel_image *img, struct elf_x86 *elf,
                            struct errmsg *err)
{
    int rc = elf_x86_parse(&img->elf, elf, err);

    if (rc == 0)
        rc = elf_x86_check_fit(elf, gm, cfg->kernel_path, err);
    if (rc == 0)
        rc = elf_x86_load(&img->elf, elf, gm, cfg->ram_is_fresh, err);
    return rc;
}

static void boot_choose_desc(const struct guest_mem *gm,
                             const struct boot_config *cfg,
                             const struct elf_x86 *elf, struct boot_result *out)
{
    out->desc = cfg->desc;
    if (cfg->desc != BOOT_DESC_AUTO)
        return;
    if (elf_x86_has_text(elf, gm, BOOT_DT_MARK)) {
        out->desc = BOOT_DESC_DT;
        return;
    }
    out->desc = BOOT_DESC_MPTABLE;
    (void)snprintf(boot_note(out), sizeof(out->notes[0]),
                   "this kernel has no device tree support: it gets an MP "
                   "table and virtio_mmio.device= words");
}

static int boot_load_initrd(struct guest_mem *gm, struct initrd *rd,
                            struct boot_result *out, struct errmsg *err)
{
    int rc;

    if (rd->fd < 0)
        return 0;
    rc = initrd_place(rd, out->kernel_end, gm_region(gm, 0)->len_bytes, err);
    if (rc == 0)
        rc = initrd_load(rd, gm, err);
    if (rc)
        return rc;
    out->initrd_base = rd->base;
    out->initrd_size = rd->size_bytes;
    return 0;
}

static int boot_add_dt(struct setup_chain *chain, const struct boot_machine *m,
                       struct errmsg *err)
{
    _Alignas(8) uint8_t blob[FDT_X86_MAX_BYTES];
    uint32_t len = 0;
    int rc = fdt_x86_build(m, blob, sizeof(blob), &len);

    if (rc == 0)
        rc = setup_chain_add(chain, SETUP_DTB, blob, len);
    if (rc)
        return boot_low_error(rc, "the device tree", err);
    return 0;
}

/* Everything that describes the machine, then boot_params that points to it. */
static int boot_describe(struct guest_mem *gm, const struct boot_config *cfg,
                         const struct setup_header *hdr,
                         struct boot_result *out, struct errmsg *err)
{
    bool dt = out->desc == BOOT_DESC_DT;
    struct zero_page zp = {.hdr = hdr,
                           .cmdline_len = (uint32_t)strlen(out->cmdline),
                           .initrd_base = out->initrd_base,
                           .initrd_bytes = out->initrd_size};
    struct setup_chain chain;
    int rc;

    setup_chain_init(&chain, gm);
    if (cfg->seed && cfg->seed_len > 0) {
        rc = setup_chain_add(&chain, SETUP_RNG_SEED, cfg->seed,
                             (uint32_t)cfg->seed_len);
        if (rc)
            return boot_low_error(rc, "the random seed", err);
    }
    rc = dt ? boot_add_dt(&chain, &cfg->machine, err) : 0;
    if (rc)
        return rc;
    rc = mptable_write(gm, &cfg->machine);
    if (rc)
        return boot_low_error(rc, "the MP table", err);
    rc = gm_write(gm, LAYOUT_CMDLINE, out->cmdline, zp.cmdline_len + 1);
    zp.setup_data = chain.first;
    if (rc == 0)
        rc = zero_page_write(gm, &zp);
    if (rc)
        return boot_low_error(rc, "boot_params", err);
    out->boot_params = LAYOUT_BOOT_PARAMS;
    return 0;
}

/* The kernel and what follows from where it lies and what it can do. */
static int boot_load_files(struct guest_mem *gm, const struct boot_config *cfg,
                           struct boot_files *files, struct boot_result *out,
                           struct errmsg *err)
{
    const struct kernel_image *img = &files->kernel;
    struct elf_x86 elf;
    int rc = boot_load_kernel(gm, cfg, img, &elf, err);

    if (rc)
        return rc;
    out->entry_rip = elf.entry;
    out->kernel_start = elf.start;
    out->kernel_end = elf.end;
    if (img->bytes.format)
        (void)snprintf(boot_note(out), sizeof(out->notes[0]),
                       "bzImage: its %s payload took %llu ms to unpack; the "
                       "vmlinux of the same build starts at once",
                       img->bytes.format,
                       (unsigned long long)(img->unpack_ns / 1000000));
    boot_choose_desc(gm, cfg, &elf, out);
    rc = cmdline_build(cfg->extra_words,
                       out->desc == BOOT_DESC_DT ? NULL : &cfg->machine,
                       cfg->user_cmdline, out->cmdline, err);
    if (rc == 0)
        rc = boot_load_initrd(gm, &files->initrd, out, err);
    if (rc == 0)
        rc = boot_write_gdt(gm, out, err);
    if (rc == 0)
        rc = boot_write_page_tables(gm, out, err);
    if (rc == 0)
        rc = boot_describe(gm, cfg, &img->hdr, out, err);
    return rc;
}

int boot_load(struct guest_mem *gm, const struct boot_config *cfg,
              struct boot_result *out, struct errmsg *err)
{
    struct boot_files files = {.kernel = {.fd = -1}, .initrd = {.fd = -1}};
    struct boot_result res = {0};
    int rc;

    /* What is cheap to refuse comes before a bzImage is unpacked. */
    rc = boot_check_config(gm, cfg, err);
    if (rc == 0)
        rc = cmdline_check_user(cfg->user_cmdline, err);
    if (rc == 0 && cfg->initrd_path)
        rc = initrd_open(cfg->initrd_path, &files.initrd, err);
    if (rc == 0)
        rc = kernel_image_open(cfg->kernel_path, &files.kernel, err);
    if (rc == 0)
        rc = boot_load_files(gm, cfg, &files, &res, err);
    kernel_image_close(&files.kernel);
    initrd_close(&files.initrd);
    if (rc == 0)
        *out = res;
    return rc;
}

int boot_check_cmdline(const char *user_cmdline, struct errmsg *err)
{
    return cmdline_check_user(user_cmdline, err);
}

int boot_check_kernel(const char *path, struct errmsg *err)
{
    return kernel_image_check(path, err);
}
