/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/fdt_x86.h"

#include <libfdt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static _Alignas(8) uint8_t blob[FDT_X86_MAX_BYTES];

static struct boot_mmio_dev devs[LAYOUT_MAX_DEVICES];

static void build(unsigned ncpus, size_t ndevs, bool vmgenid)
{
    static const uint32_t gsis[] = LAYOUT_DEVICE_GSIS;
    struct boot_machine m = {.ncpus = ncpus,
                             .devs = devs,
                             .ndevs = ndevs,
                             .vmgenid = vmgenid,
                             .vmgenid_gsi = 23};
    uint32_t len = 0;

    for (size_t i = 0; i < ndevs; i++)
        devs[i] = (struct boot_mmio_dev){LAYOUT_VIRTIO_BASE +
                                             i * LAYOUT_VIRTIO_STRIDE,
                                         LAYOUT_VIRTIO_SIZE, gsis[i]};
    assert_int_equal(fdt_x86_build(&m, blob, sizeof(blob), &len), 0);
    assert_int_equal(fdt_check_full(blob, len), 0);
    assert_int_equal(fdt_totalsize(blob), len);
}

static int node_at(const char *path)
{
    int node = fdt_path_offset(blob, path);

    if (node < 0)
        fail_msg("no node %s", path);
    return node;
}

static void assert_cells(int node, const char *name, const uint32_t *want,
                         size_t count)
{
    const fdt32_t *cells;
    int len = 0;

    cells = fdt_getprop(blob, node, name, &len);
    assert_non_null(cells);
    assert_int_equal(len, count * 4);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(fdt32_to_cpu(cells[i]), want[i]);
}

static void assert_u32(int node, const char *name, uint32_t want)
{
    assert_cells(node, name, &want, 1);
}

static void assert_reg(int node, uint64_t base, uint64_t size)
{
    uint32_t want[4] = {(uint32_t)(base >> 32), (uint32_t)base,
                        (uint32_t)(size >> 32), (uint32_t)size};

    assert_cells(node, "reg", want, 4);
}

static void assert_compatible(int node, const char *want)
{
    assert_int_equal(fdt_node_check_compatible(blob, node, want), 0);
}

static void test_fdt_root_and_cpus(void **state)
{
    (void)state;
    build(3, 0, false);
    assert_u32(node_at("/"), "#address-cells", 2);
    assert_u32(node_at("/cpus"), "#address-cells", 1);
    assert_u32(node_at("/cpus"), "#size-cells", 0);
    for (uint32_t i = 0; i < 3; i++) {
        char path[32];
        int node;

        (void)snprintf(path, sizeof(path), "/cpus/cpu@%x", i);
        node = node_at(path);
        assert_u32(node, "reg", i);
        assert_string_equal(fdt_getprop(blob, node, "device_type", NULL),
                            "cpu");
    }
    assert_true(fdt_path_offset(blob, "/cpus/cpu@3") < 0);
}

static void test_fdt_apics(void **state)
{
    int node;

    (void)state;
    build(1, 1, false);
    node = node_at("/interrupt-controller@fec00000");
    assert_compatible(node, "intel,ce4100-ioapic");
    assert_reg(node, LAYOUT_IOAPIC, 0x1000);
    assert_u32(node, "#interrupt-cells", 2);
    assert_non_null(fdt_getprop(blob, node, "interrupt-controller", NULL));
    assert_u32(node_at("/bus"), "interrupt-parent",
               fdt_get_phandle(blob, node));
    node = node_at("/interrupt-controller@fee00000");
    assert_compatible(node, "intel,ce4100-lapic");
    assert_reg(node, LAYOUT_LAPIC, 0x1000);
    assert_null(fdt_getprop(blob, node, "intel,virtual-wire-mode", NULL));
}

static void test_fdt_devices(void **state)
{
    (void)state;
    build(1, LAYOUT_MAX_DEVICES, false);
    assert_compatible(node_at("/bus"), "simple-bus");
    assert_u32(node_at("/bus"), "#address-cells", 2);
    assert_non_null(fdt_getprop(blob, node_at("/bus"), "ranges", NULL));
    for (size_t i = 0; i < LAYOUT_MAX_DEVICES; i++) {
        uint32_t line[2] = {devs[i].gsi, 3};
        char path[48];
        int node;

        (void)snprintf(path, sizeof(path), "/bus/virtio_mmio@%llx",
                       (unsigned long long)devs[i].base);
        node = node_at(path);
        assert_compatible(node, "virtio,mmio");
        assert_reg(node, devs[i].base, LAYOUT_VIRTIO_SIZE);
        assert_cells(node, "interrupts", line, 2);
    }
    assert_true(fdt_path_offset(blob, "/bus/vmgenid@e0000") < 0);
}

static void test_fdt_vmgenid_only_when_asked_for(void **state)
{
    uint32_t line[2] = {23, 3};
    int node;

    (void)state;
    build(1, 1, true);
    node = node_at("/bus/vmgenid@e0000");
    assert_compatible(node, "microsoft,vmgenid");
    assert_reg(node, LAYOUT_VMGENID, 0x1000);
    assert_cells(node, "interrupts", line, 2);
}

static void
test_fdt_largest_machine_fits_and_small_buffer_is_refused(void **state)
{
    struct boot_machine m = {.ncpus = LAYOUT_MAX_VCPUS};
    uint32_t len = 1;

    (void)state;
    build(LAYOUT_MAX_VCPUS, LAYOUT_MAX_DEVICES, true);
    assert_true(fdt_totalsize(blob) < FDT_X86_MAX_BYTES / 2);
    assert_int_equal(fdt_x86_build(&m, blob, 512, &len), -ENOSPC);
    assert_int_equal(fdt_x86_build(&m, blob, 16, &len), -ENOSPC);
    assert_int_equal(len, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fdt_root_and_cpus),
        cmocka_unit_test(test_fdt_apics),
        cmocka_unit_test(test_fdt_devices),
        cmocka_unit_test(test_fdt_vmgenid_only_when_asked_for),
        cmocka_unit_test(
            test_fdt_largest_machine_fits_and_small_buffer_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
