/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ticks for ever with a disk of sectors=N. Each tick writes a few sectors by
 * the number of the write, reads the last one back into a buffer that nobody
 * else writes, and finds an older buffer unchanged: memory that only a device
 * wrote. tests/api finds the numbers in the file.
 */
#include "guest/payloads/ticker.h"
#include "guest/payloads/virtio.h"

#define WRITES_A_TICK 3u
#define BUFFERS       32u
#define FLUSH_EACH    16u
#define WORDS         (VD_SECTOR / 8)

static uint64_t out[WORDS];
static uint64_t in[BUFFERS][4096 / 8] __attribute__((aligned(4096)));

static void write_one(struct vdev *d, uint64_t sectors, uint64_t n)
{
    for (uint32_t i = 0; i < WORDS; i++)
        out[i] = n << 8 | i;
    check_eq(blk_request(d, VIRTIO_BLK_T_OUT, n % sectors, out, sizeof(out)),
             VIRTIO_BLK_S_OK, "status of a write");
}

static void check_buffer(const uint64_t *data, uint64_t n, const char *what)
{
    for (uint32_t i = 0; i < WORDS; i += 9)
        check_eq(data[i], n << 8 | i, what);
}

/* What tick `n` read. */
static uint64_t last_write(uint64_t n)
{
    return n * WRITES_A_TICK + WRITES_A_TICK - 1;
}

void payload_main(void)
{
    uint64_t sectors = payload_number("sectors=", 2048);
    struct vdev *d;

    (void)vd_find_all();
    d = vd_find(VIRTIO_ID_BLOCK, 0);
    check(d != NULL, "this test needs a disk");
    vd_start(d, 1u << VIRTIO_BLK_F_FLUSH, 0);
    ticker_start();
    for (uint64_t n = 0;; n++) {
        uint64_t *data = in[n % BUFFERS];

        ticker_wait();
        for (uint64_t i = 0; i < WRITES_A_TICK; i++)
            write_one(d, sectors, n * WRITES_A_TICK + i);
        check_eq(blk_request(d, VIRTIO_BLK_T_IN, last_write(n) % sectors, data,
                             VD_SECTOR),
                 VIRTIO_BLK_S_OK, "status of a read");
        check_buffer(data, last_write(n), "a sector just written");
        if (n >= BUFFERS / 2)
            check_buffer(in[(n - BUFFERS / 2) % BUFFERS],
                         last_write(n - BUFFERS / 2), "what a device wrote");
        if (n % FLUSH_EACH == 0)
            check_eq(blk_request(d, VIRTIO_BLK_T_FLUSH, 0, NULL, 0),
                     VIRTIO_BLK_S_OK, "status of a flush");
        ticker_say(n);
    }
}
