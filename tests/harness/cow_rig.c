/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/cow_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void rig_must(bool ok)
{
    if (!ok)
        abort();
}

/* --- files -----------------------------------------------------------------
 */

int rig_file(const void *content, size_t bytes)
{
    int fd = memfd_create("cow", MFD_CLOEXEC);

    rig_must(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    if (content)
        rig_must(pwrite(fd, content, bytes, 0) == (ssize_t)bytes);
    return fd;
}

int rig_reopen(int fd)
{
    char path[64];
    int again;

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    again = open(path, O_RDWR | O_CLOEXEC);
    rig_must(again >= 0);
    return again;
}

int rig_delta(int base_fd, enum cow_base_kind kind, uint64_t size_bytes)
{
    struct cow_file *f = calloc(1, sizeof(*f));
    struct cow_base base = {.kind = kind};
    int fd = rig_file(NULL, 0);
    struct errmsg err = {""};
    int rc = 0;

    rig_must(f != NULL);
    if (kind == COW_BASE_RAW)
        rc = cow_base_raw(base_fd, "base", &base, &err);
    if (kind == COW_BASE_COW) {
        rc = cow_file_read(base_fd, "base", f, &err);
        cow_base_cow(&f->header, "base", &base);
    }
    rig_must(rc == 0 &&
             cow_create_fd(fd, "delta", &base, size_bytes, &err) == 0);
    free(f->map);
    free(f);
    return fd;
}

struct disk *rig_open(const int *fds, size_t num_fds, unsigned flags)
{
    int own[COW_MAX_DEPTH + 1];
    struct disk *disk = NULL;
    struct errmsg err = {""};

    for (size_t i = 0; i < num_fds; i++)
        own[i] = rig_reopen(fds[i]);
    if (disk_cow_open_fds(own, num_fds, flags, "test", &disk, &err)) {
        (void)fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return disk;
}

/* --- requests --------------------------------------------------------------
 */

static void rig_on_done(struct disk_io *io, int status)
{
    struct rig_req *r = io->arg;

    rig_must(!r->done);
    r->done = true;
    r->status = status;
    evloop_stop(r->loop);
}

/* A data request in three buffers if there is room for that. */
static uint32_t rig_cut(struct iovec *iov, uint8_t *p, size_t len)
{
    size_t part = len / 3;

    if (part == 0) {
        iov[0] = (struct iovec){p, len};
        return 1;
    }
    iov[0] = (struct iovec){p, part};
    iov[1] = (struct iovec){p + part, part};
    iov[2] = (struct iovec){p + 2 * part, len - 2 * part};
    return 3;
}

void rig_submit(struct disk *disk, struct evloop *loop, struct rig_req *r,
                enum disk_op op, uint64_t offset, void *buf, size_t len)
{
    memset(r, 0, sizeof(*r));
    r->loop = loop;
    r->io.op = op;
    r->io.may_unmap = true;
    r->io.offset_bytes = offset;
    r->io.len_bytes = len;
    r->io.iov = r->iov;
    r->io.iovcnt =
        op == DISK_READ || op == DISK_WRITE ? rig_cut(r->iov, buf, len) : 0;
    r->io.done = rig_on_done;
    r->io.arg = r;
    disk->ops->submit(disk, loop, &r->io);
    rig_must(!r->done);
}

int rig_wait(struct rig_req *r)
{
    while (!r->done)
        rig_must(evloop_run(r->loop) == 0);
    return r->status;
}

int rig_do(struct disk *disk, struct evloop *loop, enum disk_op op,
           uint64_t offset, void *buf, size_t len)
{
    struct rig_req r;

    rig_submit(disk, loop, &r, op, offset, buf, len);
    return rig_wait(&r);
}

/* --- in between ------------------------------------------------------------
 */

static struct rig_spy *spy_of(struct disk *disk)
{
    return container_of(disk, struct rig_spy, base);
}

static void spy_on_done(struct disk_io *io, int status)
{
    struct rig_event *e = io->arg;

    io->done = e->done;
    io->arg = e->arg;
    if (status == 0)
        e->finish = ++*e->spy->clock;
    io->done(io, status);
}

static void spy_on_fail(struct ev_later *l)
{
    struct rig_event *e = l->arg;

    e->io->done = e->done;
    e->io->arg = e->arg;
    e->io->done(e->io, e->fail);
}

static void spy_note(struct rig_spy *spy, struct disk_io *io,
                     struct rig_event *e)
{
    size_t len = 0;

    e->op = io->op;
    e->offset_bytes = io->offset_bytes;
    e->len_bytes = io->len_bytes;
    e->finish = UINT64_MAX;
    e->spy = spy;
    e->io = io;
    e->done = io->done;
    e->arg = io->arg;
    e->start = ++*spy->clock;
    if (io->op != DISK_WRITE)
        return;
    for (uint32_t i = 0; i < io->iovcnt; i++) {
        e->data = realloc(e->data, len + io->iov[i].iov_len);
        rig_must(e->data != NULL);
        memcpy(e->data + len, io->iov[i].iov_base, io->iov[i].iov_len);
        len += io->iov[i].iov_len;
    }
    e->len_bytes = len;
}

static void spy_submit(struct disk *disk, struct evloop *loop,
                       struct disk_io *io)
{
    struct rig_spy *spy = spy_of(disk);
    struct rig_event *e = calloc(1, sizeof(*e));

    rig_must(e != NULL);
    spy->event = realloc(spy->event, (spy->num_events + 1) * sizeof(void *));
    rig_must(spy->event != NULL);
    spy->event[spy->num_events++] = e;
    spy->ops_seen[io->op]++;
    e->fail = spy->hook ? spy->hook(spy, io) : 0;
    spy_note(spy, io, e);
    io->arg = e;
    if (e->fail) {
        evloop_later(loop, &io->later_, spy_on_fail, e);
        return;
    }
    io->done = spy_on_done;
    spy->under->ops->submit(spy->under, loop, io);
}

static bool spy_is_file(const struct disk *disk, const struct stat *st)
{
    const struct rig_spy *spy = (const struct rig_spy *)disk; /* first */

    return spy->under->ops->is_file(spy->under, st);
}

static void spy_free(struct disk *disk)
{
    struct rig_spy *spy = spy_of(disk);

    spy->under->ops->free(spy->under);
    spy->under = NULL;
}

static const struct disk_ops spy_ops = {
    .submit = spy_submit,
    .is_file = spy_is_file,
    .free = spy_free,
};

void rig_spy_init(struct rig_spy *spy, struct disk *cow, uint32_t layer)
{
    struct disk_cow *c = container_of(cow, struct disk_cow, base);
    struct disk **place =
        layer == c->chain->num_files ? &c->raw : &c->layer[layer];

    memset(spy, 0, sizeof(*spy));
    spy->under = *place;
    spy->base = *spy->under;
    spy->base.ops = &spy_ops;
    spy->clock = &spy->own_clock;
    *place = &spy->base;
}

void rig_spy_fini(struct rig_spy *spy)
{
    for (size_t i = 0; i < spy->num_events; i++) {
        free(spy->event[i]->data);
        free(spy->event[i]);
    }
    free(spy->event);
    spy->event = NULL;
    spy->num_events = 0;
}

/* --- random ----------------------------------------------------------------
 */

uint32_t rig_random(uint64_t *state, uint32_t n)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32) % n;
}
