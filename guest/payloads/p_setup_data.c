/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The setup_data chain: a random seed, and, for a kernel that can read it, a
 * device tree with a node for each virtio device and CPU.
 * devices=N and cpus=N are what to expect. spec: x86-boot 1.16, Devicetree 0.4
 */
#include "guest/payloads/payload.h"

#include <asm/bootparam.h>

#define FDT_MAGIC      0xd00dfeedu
#define FDT_BEGIN_NODE 1u
#define FDT_END_NODE   2u
#define FDT_PROP       3u
#define FDT_END        9u
#define CHAIN_MAX      16u

/* By this text the monitor knows a kernel that reads device trees on x86. */
const char payload_reads_device_trees[] = "intel,ce4100-ioapic";

static uint32_t be32(uint64_t at)
{
    return __builtin_bswap32(mmio_r32(at));
}

static uint64_t align4(uint64_t v)
{
    return (v + 3) & ~3ull;
}

static bool begins(uint64_t at, const char *name)
{
    for (; *name; name++, at++) {
        if (mmio_r8(at) != (uint8_t)*name)
            return false;
    }
    return true;
}

static void check_tree(uint64_t fdt, uint32_t len)
{
    uint64_t at = fdt + be32(fdt + 8); /* off_dt_struct */
    uint64_t virtio = 0;
    uint64_t cpus = 0;
    uint64_t depth = 0;
    uint32_t token;

    check_eq(be32(fdt), FDT_MAGIC, "device tree magic");
    check_eq(be32(fdt + 4), len, "device tree size");
    while ((token = be32(at)) != FDT_END) {
        at += 4;
        check(at < fdt + len, "the device tree has no end");
        if (token == FDT_BEGIN_NODE) {
            virtio += begins(at, "virtio_mmio@");
            cpus += begins(at, "cpu@");
            depth++;
            while (mmio_r8(at) != 0)
                at++;
            at = align4(at + 1);
        } else if (token == FDT_PROP) {
            at = align4(at + 8 + be32(at));
        } else if (token == FDT_END_NODE) {
            depth--;
        }
    }
    check_eq(depth, 0, "depth at the end of the device tree");
    check_eq(virtio, payload_number("devices=", 0), "virtio_mmio nodes");
    check_eq(cpus, payload_number("cpus=", 1), "cpu nodes");
}

static void check_seed(uint64_t at, uint32_t len)
{
    uint64_t all = 0;

    check(len >= 32, "the seed is shorter than 32 bytes");
    for (uint32_t i = 0; i + 8 <= len; i += 8)
        all |= mmio_r64(at + i);
    check(all != 0, "the seed is all zeroes");
}

void payload_main(void)
{
    uint64_t at = payload_boot_params->hdr.setup_data;
    bool want_tree = !payload_is("tree=", "no");
    uint32_t trees = 0;
    uint32_t seeds = 0;
    uint32_t n = 0;

    /* Kept by its use here. */
    check(payload_reads_device_trees[0] == 'i', "the mark is gone");
    for (; at != 0; at = mmio_r64(at)) {
        uint32_t type = mmio_r32(at + 8);
        uint32_t len = mmio_r32(at + 12);

        check(n++ < CHAIN_MAX, "the setup_data chain has no end");
        if (type == SETUP_DTB) {
            check_tree(at + 16, len);
            trees++;
        } else if (type == SETUP_RNG_SEED) {
            check_seed(at + 16, len);
            seeds++;
        }
    }
    check_eq(seeds, 1, "random seeds");
    check_eq(trees, want_tree, "device trees");
    check(!want_tree != !payload_word("virtio_mmio.device="),
          "devices are named both in the tree and on the command line, or "
          "nowhere");
}
