/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy-on-write file with bytes changed, some under a checksum that was made
 * right again. It is refused, or it opens and serves requests inside of its
 * files: whatever a bitmap says, reads and writes end well and the base stays
 * as it was.
 */
#include "devices/disk_cow_int.h"

#include "tests/fuzz/inline_loop.h"
#include "tests/harness/fuzz_input.h"
#include "vmm/le.h"

#include <sys/mman.h>

#define CLUSTER    65536u
#define BASE_BYTES (2 * CLUSTER + 512)
#define MAX_EDITS  16u
#define NUM_REQS   8u
#define BUF_BYTES  (2 * CLUSTER)

struct target {
    int base;
    int delta;
    uint64_t size_bytes;
    uint8_t head[COW_HEADER_BYTES + 2 * COW_SECTOR_BYTES];
    size_t head_bytes;
    uint32_t pending;
    uint8_t buf[BUF_BYTES];
};

static int memory_file(size_t bytes)
{
    int fd = memfd_create("cow", MFD_CLOEXEC);

    fuzz_must(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

static void prepare(struct target *t, struct fuzz_in *in)
{
    static const uint64_t sizes[] = {BASE_BYTES, 5 * CLUSTER,
                                     4033ull * CLUSTER};
    struct cow_base base = {0};

    t->size_bytes = sizes[fuzz_below(in, ARRAY_SIZE(sizes))];
    t->base = memory_file(BASE_BYTES);
    t->delta = memory_file(0);
    fuzz_must(cow_base_raw(t->base, "base", &base, NULL) == 0);
    if (fuzz_rarely(in, 8))
        base = (struct cow_base){0};
    fuzz_must(cow_create_fd(t->delta, "delta", &base, t->size_bytes, NULL) ==
              0);
    t->head_bytes =
        COW_HEADER_BYTES + cow_num_sectors(t->size_bytes) * COW_SECTOR_BYTES;
    fuzz_must(pread(t->delta, t->head, t->head_bytes, 0) ==
              (ssize_t)t->head_bytes);
}

/* Where something is: the header's fields, its path, or the bitmap. */
static size_t place(const struct target *t, struct fuzz_in *in)
{
    switch (fuzz_below(in, 4)) {
    case 0:
        return fuzz_below(in, 128);
    case 1:
        return fuzz_below(in, COW_HEADER_BYTES);
    default:
        return COW_HEADER_BYTES +
               fuzz_below(in, (uint32_t)(t->head_bytes - COW_HEADER_BYTES));
    }
}

static void edit(struct target *t, struct fuzz_in *in)
{
    uint32_t edits = fuzz_below(in, MAX_EDITS);

    for (uint32_t i = 0; i < edits && in->left > 0; i++)
        t->head[place(t, in)] = fuzz_u8(in);
    if (fuzz_below(in, 4) != 0) {
        put_le32(t->head + 12, 0);
        put_le32(t->head + 12, cow_crc32c(0, t->head, COW_HEADER_BYTES));
    }
    if (fuzz_below(in, 4) != 0) {
        uint8_t map[2 * COW_SECTOR_MAP_BYTES];

        for (uint32_t i = 0; i < cow_num_sectors(t->size_bytes); i++) {
            uint8_t *raw = t->head + COW_HEADER_BYTES + i * COW_SECTOR_BYTES;

            memcpy(map + (size_t)i * COW_SECTOR_MAP_BYTES, raw,
                   COW_SECTOR_MAP_BYTES);
            cow_sector_encode(t->head + 48, map, i, raw);
        }
    }
    fuzz_must(pwrite(t->delta, t->head, t->head_bytes, 0) ==
              (ssize_t)t->head_bytes);
    if (fuzz_rarely(in, 16))
        fuzz_must(ftruncate(t->delta, fuzz_u16(in)) == 0);
}

static void on_done(struct disk_io *io, int status)
{
    struct target *t = io->arg;

    fuzz_must(status == 0 || status == -ENOSPC);
    fuzz_must(t->pending == 1);
    t->pending = 0;
}

static void request(struct target *t, struct fuzz_in *in, struct disk *disk,
                    struct evloop *loop)
{
    static const enum disk_op ops[] = {DISK_READ,    DISK_READ,
                                       DISK_WRITE,   DISK_WRITE_ZEROES,
                                       DISK_DISCARD, DISK_FLUSH};
    struct iovec iov[DISK_SCRATCH_IOVS];
    uint32_t sectors = (uint32_t)(disk->size_bytes / 512);
    uint32_t first = fuzz_u32(in) % sectors;
    uint32_t count = 1 + fuzz_below(in, BUF_BYTES / 512);
    struct disk_io io = {.iov = iov, .iovcnt = 1, .done = on_done, .arg = t};

    if (count > sectors - first)
        count = sectors - first;
    io.op = ops[fuzz_below(in, ARRAY_SIZE(ops))];
    io.offset_bytes = (uint64_t)first * 512;
    io.len_bytes = (uint64_t)count * 512;
    io.may_unmap = fuzz_below(in, 2);
    iov[0] = (struct iovec){t->buf, io.len_bytes};
    t->pending = 1;
    disk->ops->submit(disk, loop, &io);
    for (uint32_t i = 0; t->pending && i < 100; i++)
        inline_loop_turn(loop);
    fuzz_must(t->pending == 0);
}

static void serve(struct target *t, struct fuzz_in *in, struct disk *disk)
{
    struct evloop *loop = NULL;

    fuzz_must(evloop_new(EVLOOP_AUTO, &loop) == 0);
    fuzz_must(disk->size_bytes >= 512 && disk->size_bytes % 512 == 0);
    for (uint32_t i = 0; i < NUM_REQS && in->left > 0; i++)
        request(t, in, disk, loop);
    disk->ops->free(disk);
    evloop_free(loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target *t = calloc(1, sizeof(*t));
    struct disk *disk = NULL;
    struct errmsg err = {""};
    size_t n;
    int fds[2];

    fuzz_must(t != NULL);
    prepare(t, &in);
    edit(t, &in);
    fds[0] = t->delta;
    fds[1] = dup(t->base);
    n = fuzz_rarely(&in, 8) ? 1 : 2;
    if (disk_cow_open_fds(fds, n, 0, "fuzz", &disk, &err) == 0) {
        if (n == 1)
            (void)close(fds[1]);
        serve(t, &in, disk);
    } else {
        fuzz_must(err.text[0] != '\0');
        (void)close(fds[0]);
        (void)close(fds[1]);
    }
    for (uint32_t i = 0; i < BASE_BYTES; i += CLUSTER) {
        fuzz_must(pread(t->base, t->buf, CLUSTER, i) > 0);
        fuzz_must(t->buf[0] == 0 && memcmp(t->buf, t->buf + 1, 511) == 0);
    }
    (void)close(t->base);
    free(t);
    return 0;
}
