/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A selector of no queue, and accesses of every width and at odd offsets to
 * every register: reads give 0 where the specification has no access, writes
 * change nothing, and the device works afterwards (BL-043).
 * spec: virtio-1.2 4.2.2
 */
#include "guest/payloads/virtio.h"

#define REGISTERS_END VIRTIO_MMIO_CONFIG
#define CONFIG_TAIL   0xf00u /* behind any configuration */

static const uint32_t queue_registers[] = {
    VIRTIO_MMIO_QUEUE_NUM_MAX,    VIRTIO_MMIO_QUEUE_NUM,
    VIRTIO_MMIO_QUEUE_READY,      VIRTIO_MMIO_QUEUE_DESC_LOW,
    VIRTIO_MMIO_QUEUE_DESC_HIGH,  VIRTIO_MMIO_QUEUE_AVAIL_LOW,
    VIRTIO_MMIO_QUEUE_AVAIL_HIGH, VIRTIO_MMIO_QUEUE_USED_LOW,
    VIRTIO_MMIO_QUEUE_USED_HIGH,
};

#define QUEUE_REGISTERS (sizeof(queue_registers) / sizeof(queue_registers[0]))

static void check_part(uint64_t got, uint64_t bytes, const char *what)
{
    if (got != 0)
        check_eq(got, bytes, what);
}

/*
 * No such access exists: reads give 0, or what a page of memory that shows the
 * registers would.
 */
static void check_no_access(uint64_t at)
{
    uint64_t bytes = mmio_r32(at);

    check_part(mmio_r8(at), (uint8_t)bytes, "1-byte read of a register");
    check_part(mmio_r16(at), (uint16_t)bytes, "2-byte read of a register");
    /* The last one reaches the configuration: only that nothing breaks. */
    if ((at & 0xff) == 0xfc) {
        (void)mmio_r64(at);
        (void)mmio_r32(at + 1);
        return;
    }
    bytes |= (uint64_t)mmio_r32(at + 4) << 32;
    check_part(mmio_r64(at), bytes, "8-byte read of a register");
    check_part(mmio_r32(at + 1), (uint32_t)(bytes >> 8),
               "4-byte read at an odd offset");
}

static void write_badly(uint64_t at)
{
    mmio_w8(at, 0xff);
    mmio_w16(at, 0xffff);
    mmio_w64(at, UINT64_MAX);
    mmio_w32(at + 1, UINT32_MAX);
    mmio_w8(at + 3, 0xff);
}

static void check_bad_selector(struct vdev *d, uint32_t selector)
{
    vd_write(d, VIRTIO_MMIO_QUEUE_SEL, selector);
    for (uint32_t i = 0; i < QUEUE_REGISTERS; i++) {
        uint64_t at = d->base + queue_registers[i];

        check_eq(mmio_r32(at), 0, "register of a queue that is not there");
        mmio_w32(at, 1);
        mmio_w32(at, UINT32_MAX);
        write_badly(at);
        check_eq(mmio_r32(at), 0, "the same after writes");
        check_no_access(at);
    }
    vd_write(d, VIRTIO_MMIO_QUEUE_NOTIFY, selector);
}

static void check_all_registers(struct vdev *d)
{
    for (uint32_t off = 0; off < REGISTERS_END; off += 4) {
        check_no_access(d->base + off);
        /* All but the last: an 8-byte write there reaches the configuration,
         * which no device here lets the driver write. */
        write_badly(d->base + off);
    }
    /* Registers that are not there, and the end of the window. */
    check_eq(mmio_r32(d->base + 0x08c), 0, "an undefined register");
    mmio_w32(d->base + 0x08c, UINT32_MAX);
    check_eq(mmio_r32(d->base + CONFIG_TAIL), 0, "behind the configuration");
    check_eq(mmio_r8(d->base + 0xfff), 0, "last byte of the window");
    mmio_w64(d->base + CONFIG_TAIL + 1, UINT64_MAX);
}

/* The configuration takes any width and offset. */
static void check_config(const struct vdev *d, uint64_t sectors)
{
    uint64_t at = d->base + VIRTIO_MMIO_CONFIG;

    check_eq(mmio_r64(at), sectors, "capacity, 8 bytes at once");
    check_eq(mmio_r32(at), (uint32_t)sectors, "capacity, 4 bytes");
    check_eq(mmio_r16(at + 1), (uint16_t)(sectors >> 8), "2 bytes at offset 1");
    check_eq(mmio_r8(at + 1), (uint8_t)(sectors >> 8), "byte at offset 1");
    mmio_w64(at, 0);
    check_eq(mmio_r64(at), sectors, "capacity after a write");
}

/* The devices that are there besides the disk. */
static void check_other(struct vdev *d)
{
    vd_negotiate(d, 0);
    check_bad_selector(d, 0xffff);
    check_bad_selector(d, UINT32_MAX);
    vd_start(d, 0, vd_poke_queue(d));
    check_bad_selector(d, 0xffff);
    vd_poke(d);
}

void payload_main(void)
{
    uint64_t data[VD_SECTOR / 8];
    uint32_t num = vd_find_all();
    struct vdev *d;

    for (uint32_t i = 0; i < num; i++) {
        if (vd_list[i].device_id != VIRTIO_ID_BLOCK)
            check_other(&vd_list[i]);
    }
    d = vd_find(VIRTIO_ID_BLOCK, 0);
    check(d != NULL, "this test needs a disk");
    check_config(d, payload_number("sectors=", 0));
    vd_negotiate(d, 0);
    check_bad_selector(d, 0xffff);
    check_bad_selector(d, UINT32_MAX);
    check_bad_selector(d, 1);
    check_all_registers(d);
    check_eq(vd_read(d, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_NEEDS_RESET, 0,
             "NEEDS_RESET after all this");
    vd_start(d, 0, 0);
    check_bad_selector(d, 0xffff); /* once more while the device runs */
    check_eq(blk_request(d, VIRTIO_BLK_T_IN, 0, data, sizeof(data)),
             VIRTIO_BLK_S_OK, "a read after all this");
}
