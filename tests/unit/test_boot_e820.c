/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/e820.h"

#include "boot/setup_data.h"
#include "boot/zero_page.h"
#include "vmm/layout_x86.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LEGACY_HOLE (LAYOUT_KERNEL_MIN - LAYOUT_LOW_RAM_END)

static bool is_ram(const struct boot_e820_entry *map, size_t n, uint64_t gpa)
{
    for (size_t i = 0; i < n; i++) {
        if (gpa >= map[i].addr && gpa - map[i].addr < map[i].size)
            return map[i].type == E820_RAM;
    }
    return false;
}

/* BL-008: sorted, no overlap, RAM total right, nothing of ours as RAM. */
static void check_map(uint64_t mem_mib)
{
    struct boot_e820_entry map[E820_MAX_OURS];
    struct guest_mem *gm = NULL;
    uint64_t ram = 0;
    size_t n;

    assert_int_equal(gm_new(mem_mib * MIB, &gm), 0);
    n = e820_build(gm, map);
    assert_in_range(n, 4, E820_MAX_OURS);
    for (size_t i = 0; i < n; i++) {
        assert_true(map[i].size > 0);
        if (i > 0)
            assert_true(map[i].addr >= map[i - 1].addr + map[i - 1].size);
        if (map[i].type == E820_RAM) {
            const void *host = NULL;

            ram += map[i].size;
            assert_int_equal(gm_rptr(gm, map[i].addr, map[i].size, &host), 0);
        } else {
            assert_int_equal(map[i].type, E820_RESERVED);
        }
    }
    assert_int_equal(ram, mem_mib * MIB - LEGACY_HOLE);
    assert_true(is_ram(map, n, 0));
    assert_true(is_ram(map, n, LAYOUT_LOW_RAM_END - 1));
    assert_false(is_ram(map, n, LAYOUT_LOW_RAM_END));
    assert_false(is_ram(map, n, LAYOUT_VMGENID));
    assert_false(is_ram(map, n, LAYOUT_KERNEL_MIN - 1));
    assert_true(is_ram(map, n, LAYOUT_KERNEL_MIN));
    assert_false(is_ram(map, n, LAYOUT_VIRTIO_BASE));
    assert_false(is_ram(map, n, LAYOUT_IOAPIC));
    assert_false(is_ram(map, n, LAYOUT_LAPIC));
    assert_false(is_ram(map, n, LAYOUT_TSS));
    assert_int_equal(is_ram(map, n, LAYOUT_HOLE_END), mem_mib > 3328);
    gm_free(gm);
}

static void test_e820_is_sound_for_all_sizes(void **state)
{
    (void)state;
    check_map(16);
    check_map(64);
    check_map(128);
    check_map(3327);
    check_map(3328);
    check_map(3329);
    check_map(4096);
    check_map(16384);
}

/* Linux marks reserved ranges below 1 MiB busy: no driver could claim it. */
static void test_e820_vmgenid_page_is_in_no_entry(void **state)
{
    struct boot_e820_entry map[E820_MAX_OURS];
    struct guest_mem *gm = NULL;
    size_t n;

    (void)state;
    assert_int_equal(gm_new(64 * MIB, &gm), 0);
    n = e820_build(gm, map);
    for (size_t i = 0; i < n; i++)
        assert_true(map[i].addr >= LAYOUT_VMGENID + 4096 ||
                    map[i].addr + map[i].size <= LAYOUT_VMGENID);
    gm_free(gm);
}

static void read_zero_page(struct guest_mem *gm, struct boot_params *bp)
{
    assert_int_equal(gm_read(gm, LAYOUT_BOOT_PARAMS, bp, sizeof(*bp)), 0);
}

static void test_zero_page_for_an_elf(void **state)
{
    struct setup_header none = {0};
    struct zero_page in = {.hdr = &none,
                           .cmdline_len = 17,
                           .initrd_base = 0x7e00000,
                           .initrd_bytes = 12345,
                           .setup_data = LAYOUT_SETUP_DATA};
    struct guest_mem *gm = NULL;
    struct boot_params bp;

    (void)state;
    assert_int_equal(gm_new(64 * MIB, &gm), 0);
    assert_int_equal(zero_page_write(gm, &in), 0);
    read_zero_page(gm, &bp);
    assert_int_equal(bp.hdr.boot_flag, 0xaa55);
    assert_int_equal(bp.hdr.header, 0x53726448);
    assert_int_equal(bp.hdr.type_of_loader, 0xff);
    assert_int_equal(bp.hdr.loadflags, LOADED_HIGH);
    assert_int_equal(bp.hdr.version, 0x020f);
    assert_int_equal(bp.hdr.cmd_line_ptr, LAYOUT_CMDLINE);
    assert_int_equal(bp.hdr.cmdline_size, 17);
    assert_int_equal(bp.hdr.ramdisk_image, 0x7e00000);
    assert_int_equal(bp.hdr.ramdisk_size, 12345);
    assert_int_equal(bp.ext_ramdisk_image, 0);
    assert_int_equal(bp.hdr.setup_data, LAYOUT_SETUP_DATA);
    assert_int_equal(bp.sentinel, 0);
    assert_int_equal(bp.e820_entries, 5);
    assert_int_equal(bp.e820_table[0].addr, 0);
    assert_int_equal(bp.e820_table[5].size, 0);
    gm_free(gm);
}

/* What describes the image stays, what a loader sets is ours. */
static void test_zero_page_keeps_a_bzimage_header(void **state)
{
    struct setup_header hdr = {.version = 0x020c,
                               .init_size = 0x123000,
                               .type_of_loader = 0x77,
                               .loadflags = 0xff,
                               .ramdisk_image = 1,
                               .ramdisk_size = 2,
                               .setup_data = 3};
    struct zero_page in = {.hdr = &hdr};
    struct guest_mem *gm = NULL;
    struct boot_params bp;

    (void)state;
    assert_int_equal(gm_new(64 * MIB, &gm), 0);
    assert_int_equal(zero_page_write(gm, &in), 0);
    read_zero_page(gm, &bp);
    assert_int_equal(bp.hdr.version, 0x020c);
    assert_int_equal(bp.hdr.init_size, 0x123000);
    assert_int_equal(bp.hdr.type_of_loader, 0xff);
    assert_int_equal(bp.hdr.loadflags, LOADED_HIGH);
    assert_int_equal(bp.hdr.ramdisk_image, 0);
    assert_int_equal(bp.hdr.ramdisk_size, 0);
    assert_int_equal(bp.hdr.setup_data, 0);
    gm_free(gm);
}

static void test_setup_data_is_a_linked_list(void **state)
{
    struct guest_mem *gm = NULL;
    struct setup_chain chain;
    struct setup_data node;
    char text[4];

    (void)state;
    assert_int_equal(gm_new(16 * MIB, &gm), 0);
    setup_chain_init(&chain, gm);
    assert_int_equal(chain.first, 0);
    assert_int_equal(setup_chain_add(&chain, SETUP_RNG_SEED, "abc", 3), 0);
    assert_int_equal(setup_chain_add(&chain, SETUP_DTB, "defg", 4), 0);
    assert_int_equal(chain.first, LAYOUT_SETUP_DATA);
    assert_int_equal(gm_read(gm, chain.first, &node, sizeof(node)), 0);
    assert_int_equal(node.type, SETUP_RNG_SEED);
    assert_int_equal(node.len, 3);
    assert_int_equal(node.next, chain.last);
    assert_int_equal((node.next + sizeof(node)) % 8, 0);
    assert_int_equal(gm_read(gm, chain.first + sizeof(node), text, 3), 0);
    assert_memory_equal(text, "abc", 3);
    assert_int_equal(gm_read(gm, chain.last, &node, sizeof(node)), 0);
    assert_int_equal(node.type, SETUP_DTB);
    assert_int_equal(node.next, 0);
    assert_int_equal(gm_read(gm, chain.last + sizeof(node), text, 4), 0);
    assert_memory_equal(text, "defg", 4);
    gm_free(gm);
}

static void test_setup_data_full_is_refused_and_chain_stays(void **state)
{
    uint32_t room =
        LAYOUT_LOW_RAM_END - LAYOUT_SETUP_DATA - sizeof(struct setup_data);
    uint8_t *data = calloc(1, room + 1);
    struct guest_mem *gm = NULL;
    struct setup_chain chain;

    (void)state;
    assert_non_null(data);
    assert_int_equal(gm_new(16 * MIB, &gm), 0);
    setup_chain_init(&chain, gm);
    assert_int_equal(setup_chain_add(&chain, SETUP_DTB, data, room + 1),
                     -ENOSPC);
    assert_int_equal(chain.first, 0);
    assert_int_equal(setup_chain_add(&chain, SETUP_DTB, data, room), 0);
    assert_int_equal(setup_chain_add(&chain, SETUP_DTB, data, 1), -ENOSPC);
    assert_int_equal(chain.last, chain.first);
    gm_free(gm);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_e820_is_sound_for_all_sizes),
        cmocka_unit_test(test_e820_vmgenid_page_is_in_no_entry),
        cmocka_unit_test(test_zero_page_for_an_elf),
        cmocka_unit_test(test_zero_page_keeps_a_bzimage_header),
        cmocka_unit_test(test_setup_data_is_a_linked_list),
        cmocka_unit_test(test_setup_data_full_is_refused_and_chain_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
