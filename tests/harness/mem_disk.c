/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/mem_disk.h"

#include <stdlib.h>
#include <string.h>

static void mem_must(bool ok)
{
    if (!ok)
        abort();
}

static void mem_check_range(const struct mem_disk *m, uint64_t off,
                            uint64_t len)
{
    mem_must(len > 0 && off <= m->base.size_bytes &&
             len <= m->base.size_bytes - off);
    mem_must(m->align == 0 || ((off | len) % m->align) == 0);
}

static void mem_check(const struct mem_disk *m, const struct disk_io *io)
{
    uint64_t len = 0;

    mem_must(!m->base.read_only || io->op == DISK_READ || io->op == DISK_FLUSH);
    if (io->op == DISK_FLUSH)
        return;
    if (io->op != DISK_READ && io->op != DISK_WRITE) {
        mem_check_range(m, io->offset_bytes, io->len_bytes);
        /* the room that was promised */
        for (uint32_t i = 0; i < DISK_SCRATCH_IOVS; i++)
            io->iov[i] = (struct iovec){NULL, 0};
        return;
    }
    for (uint32_t i = 0; i < io->iovcnt; i++) {
        mem_must(io->iov[i].iov_len > 0);
        mem_must(m->align == 0 ||
                 (((uintptr_t)io->iov[i].iov_base | io->iov[i].iov_len) %
                  m->align) == 0);
        len += io->iov[i].iov_len;
    }
    mem_check_range(m, io->offset_bytes, len);
}

static void mem_submit(struct disk *disk, struct evloop *loop,
                       struct disk_io *io)
{
    struct mem_disk *m = container_of(disk, struct mem_disk, base);

    mem_must(loop && m->num_held < MEM_DISK_MAX_HELD && m->freed == 0);
    mem_check(m, io);
    io->disk_ = disk;
    io->loop_ = loop;
    m->held[m->num_held++] = io;
    m->submitted++;
    m->ops_seen[io->op]++;
}

static int mem_refresh(struct disk *disk)
{
    struct mem_disk *m = container_of(disk, struct mem_disk, base);

    if (m->refresh_rc == 0)
        disk->size_bytes = m->new_size_bytes;
    return m->refresh_rc;
}

static bool mem_is_file(const struct disk *disk, const struct stat *st)
{
    (void)disk;
    return st != NULL;
}

static void mem_free(struct disk *disk)
{
    struct mem_disk *m = container_of(disk, struct mem_disk, base);

    mem_must(m->num_held == 0);
    m->freed++;
}

static const struct disk_ops mem_ops = {
    .submit = mem_submit,
    .refresh = mem_refresh,
    .is_file = mem_is_file,
    .free = mem_free,
};

void mem_disk_init(struct mem_disk *m, uint8_t *bytes, uint64_t size_bytes)
{
    memset(m, 0, sizeof(*m));
    m->base.ops = &mem_ops;
    m->base.size_bytes = size_bytes;
    m->base.can_discard = true;
    m->bytes = bytes;
    m->new_size_bytes = size_bytes;
}

static void mem_carry_out(struct mem_disk *m, struct disk_io *io)
{
    uint8_t *p = m->bytes + io->offset_bytes;

    if (io->op == DISK_DISCARD)
        memset(p, 0xd1, io->len_bytes); /* anything may be read from it */
    if (io->op == DISK_WRITE_ZEROES)
        memset(p, 0, io->len_bytes);
    if (io->op != DISK_READ && io->op != DISK_WRITE)
        return;
    for (uint32_t k = 0; k < io->iovcnt; k++) {
        if (io->op == DISK_READ)
            memcpy(io->iov[k].iov_base, p, io->iov[k].iov_len);
        else
            memcpy(p, io->iov[k].iov_base, io->iov[k].iov_len);
        p += io->iov[k].iov_len;
    }
}

void mem_disk_complete(struct mem_disk *m, uint32_t i, int status)
{
    struct disk_io *io = m->held[i];

    mem_must(i < m->num_held);
    m->num_held--;
    memmove(&m->held[i], &m->held[i + 1],
            (m->num_held - i) * sizeof(struct disk_io *));
    if (status == 0 && m->bytes)
        mem_carry_out(m, io);
    io->done(io, status);
}

void mem_disk_complete_all(struct mem_disk *m)
{
    while (m->num_held > 0)
        mem_disk_complete(m, 0, 0);
}
