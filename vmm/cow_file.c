/* SPDX-License-Identifier: Apache-2.0 */
/* Opening copy-on-write files and their chains. */
#include "vmm/cow_file.h"

#include "vmm/cleanup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Sectors of the bitmap read at once. */
#define COW_BATCH 16u

int cow_lock(int fd, bool exclusive)
{
    struct flock lock = {
        .l_type = exclusive ? F_WRLCK : F_RDLCK,
        .l_whence = SEEK_SET,
    };

    if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
        return 0;
    return errno == EAGAIN || errno == EACCES ? -EBUSY : 0;
}

/* --- one file --------------------------------------------------------------
 */

/* 0, -errno, or -EBADMSG for what was never written there. */
static int cow_read_map(int fd, const struct cow_header *h, uint8_t *map)
{
    uint64_t sectors = cow_num_sectors(h->size_bytes);
    uint8_t raw[COW_BATCH * COW_SECTOR_BYTES];

    for (uint64_t s = 0; s < sectors; s += COW_BATCH) {
        uint64_t n = min_u64(COW_BATCH, sectors - s);
        int rc =
            util_pread_full(fd, raw, n * COW_SECTOR_BYTES,
                            (off_t)(COW_HEADER_BYTES + s * COW_SECTOR_BYTES));

        if (rc)
            return rc;
        for (uint64_t i = 0; i < n; i++) {
            if (!cow_sector_decode(h->id, raw + i * COW_SECTOR_BYTES, s + i,
                                   map))
                return -EBADMSG;
        }
    }
    return cow_map_end_ok(map, h->size_bytes) ? 0 : -EBADMSG;
}

static int cow_read_maps(int fd, const char *name, struct cow_file *f,
                         struct errmsg *err)
{
    uint8_t *map = calloc(1, cow_map_bytes(f->header.size_bytes));
    int rc = map ? cow_read_map(fd, &f->header, map) : -ENOMEM;

    if (rc == 0) {
        f->map = map;
        return 0;
    }
    free(map);
    if (rc == -EBADMSG)
        return err_set(err, -EINVAL,
                       "disk %s: its bitmap is damaged (checksum); restore the "
                       "file from a copy",
                       name);
    return err_set(err, rc,
                   "disk %s: its bitmap cannot be read: %s; check the file",
                   name, err_reason(rc));
}

int cow_file_read(int fd, const char *name, struct cow_file *f,
                  struct errmsg *err)
{
    uint8_t raw[COW_HEADER_BYTES];
    struct stat st;
    int rc;

    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return err_set(err, -EINVAL,
                       "disk %s: is no regular file, as copy-on-write disks "
                       "are; give one made by `mote disk create`",
                       name);
    rc = util_pread_full(fd, raw, sizeof(raw), 0);
    if (rc == -ENODATA)
        return err_set(err, -EINVAL,
                       "disk %s: is too short for a copy-on-write disk; give "
                       "one made by `mote disk create`",
                       name);
    if (rc)
        return err_set(err, rc, "disk %s: cannot be read: %s; check the file",
                       name, err_reason(rc));
    rc = cow_header_decode(raw, name, &f->header, err);
    if (rc)
        return rc;
    if ((uint64_t)st.st_size < cow_file_bytes(f->header.size_bytes))
        return err_set(
            err, -EINVAL,
            "disk %s: was cut: it has %llu bytes of %llu; restore "
            "the file from a copy",
            name, (unsigned long long)st.st_size,
            (unsigned long long)cow_file_bytes(f->header.size_bytes));
    return cow_read_maps(fd, name, f, err);
}

/* --- a chain ---------------------------------------------------------------
 */

static int cow_take_lock(int fd, bool exclusive, const char *name,
                         struct errmsg *err)
{
    if (cow_lock(fd, exclusive) == 0)
        return 0;
    return err_set(err, -EBUSY,
                   "disk %s: is in use by another virtual machine; stop that "
                   "one, or put a copy-on-write disk of its own on it for each",
                   name);
}

static int cow_wrong_base(const char *name, struct errmsg *err)
{
    return err_set(err, -EINVAL,
                   "disk %s: is not the base that was used when the "
                   "copy-on-write disk was made, or was changed since; put the "
                   "right one there",
                   name);
}

/* The next file down, open as `fd`; `up` is the one on it, or NULL. */
static int cow_chain_add(struct cow_chain *c, int fd, bool writable,
                         const char *name, struct errmsg *err)
{
    struct cow_file *up = c->num_files ? &c->file[c->num_files - 1] : NULL;
    struct cow_file *f = &c->file[c->num_files];
    int rc = cow_take_lock(fd, writable, name, err);

    if (rc == 0)
        rc = cow_file_read(fd, name, f, err);
    if (rc)
        return rc;
    f->fd = -1;
    c->num_files++; /* from now on cow_chain_free() frees its map */
    if (writable && f->header.flags & COW_FROZEN)
        return err_set(err, -EROFS,
                       "disk %s: is the base of others, which writing would "
                       "destroy; make one on top of it with `mote disk create "
                       "--base %s:cow`, or attach it read-only",
                       name, name);
    if (up && (memcmp(f->header.id, up->header.base_id, COW_ID_BYTES) != 0 ||
               f->header.size_bytes != up->header.base_bytes ||
               f->header.depth + 1 != up->header.depth))
        return cow_wrong_base(name, err);
    f->fd = fd;
    return 0;
}

static int cow_chain_add_raw(struct cow_chain *c, int fd, const char *name,
                             struct errmsg *err)
{
    const struct cow_header *h = &c->file[c->num_files - 1].header;
    struct cow_base base;
    int rc = cow_take_lock(fd, false, name, err);

    if (rc == 0)
        rc = cow_base_raw(fd, name, &base, err);
    if (rc)
        return rc;
    if (base.size_bytes != h->base_bytes ||
        memcmp(base.id, h->base_id, COW_ID_BYTES) != 0)
        return cow_wrong_base(name, err);
    c->base_fd = fd;
    c->base_bytes = base.size_bytes;
    return 0;
}

void cow_chain_disown(struct cow_chain *chain)
{
    for (uint32_t i = 0; i < chain->num_files; i++)
        chain->file[i].fd = -1;
    chain->base_fd = -1;
}

static struct cow_chain *cow_chain_new(void)
{
    struct cow_chain *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->base_fd = -1;
    return c;
}

void cow_chain_free(struct cow_chain *chain)
{
    if (!chain)
        return;
    for (uint32_t i = 0; i < chain->num_files; i++) {
        drop_fd(&chain->file[i].fd);
        free(chain->file[i].map);
    }
    drop_fd(&chain->base_fd);
    free(chain);
}

uint32_t cow_chain_source(const struct cow_chain *chain, uint32_t from,
                          uint64_t pos, uint64_t *out_end)
{
    *out_end = UINT64_MAX;
    for (uint32_t i = from; i < chain->num_files; i++) {
        const struct cow_file *f = &chain->file[i];

        /* Above it a larger disk begins, which is zero there. */
        if (pos >= f->header.size_bytes)
            return chain->num_files + 1;
        if (cow_map_test(f->map, pos / COW_CLUSTER_BYTES)) {
            *out_end = f->header.size_bytes;
            return i;
        }
    }
    if (pos >= chain->base_bytes)
        return chain->num_files + 1;
    *out_end = chain->base_bytes;
    return chain->num_files;
}

/* O_NONBLOCK: a FIFO must not hold us up; taken off for the ring's sake. */
static int cow_open_file(const char *path, bool writable, int *out_fd,
                         struct errmsg *err)
{
    int fd =
        open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
    int flags;
    int rc;

    if (fd >= 0) {
        flags = fcntl(fd, F_GETFL);
        if (flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0) {
            *out_fd = fd;
            return 0;
        }
    }
    rc = neg_errno();
    if (fd >= 0)
        (void)close(fd);
    return err_set(err, rc, "disk %s: cannot open it: %s; %s", path,
                   err_reason(rc),
                   rc == -ENOENT ? "check the path; a copy-on-write disk needs "
                                   "all its bases where they were"
                   : writable    ? "make it writable for this user or attach "
                                   "it read-only"
                                 : "make it readable for this user");
}

/* What is below the lowest file of the chain so far. */
static int cow_chain_descend(struct cow_chain *c, struct errmsg *err)
{
    const struct cow_header *h = &c->file[c->num_files - 1].header;
    CLEANUP_FD int fd = -1;
    int rc = cow_open_file(h->base_path, false, &fd, err);

    if (rc == 0 && h->base_kind == COW_BASE_COW)
        rc = cow_chain_add(c, fd, false, h->base_path, err);
    else if (rc == 0)
        rc = cow_chain_add_raw(c, fd, h->base_path, err);
    if (rc == 0)
        (void)take_fd(&fd);
    return rc;
}

int cow_chain_open(const char *path, bool read_only,
                   struct cow_chain **out_chain, struct errmsg *err)
{
    struct cow_chain *c = cow_chain_new();
    CLEANUP_FD int fd = -1;
    int rc;

    if (!c)
        return err_set(err, -ENOMEM, "disk %s: out of memory; free some", path);
    rc = cow_open_file(path, !read_only, &fd, err);
    if (rc == 0)
        rc = cow_chain_add(c, fd, !read_only, path, err);
    if (rc == 0)
        (void)take_fd(&fd);
    /* Ends: each depth is one less than the one above. */
    while (rc == 0 && c->base_fd < 0 &&
           c->file[c->num_files - 1].header.base_kind != COW_BASE_NONE)
        rc = cow_chain_descend(c, err);
    if (rc) {
        cow_chain_free(c);
        return rc;
    }
    *out_chain = c;
    return 0;
}

static int cow_chain_add_fds(struct cow_chain *c, const int *fds,
                             size_t num_fds, bool read_only, const char *name,
                             struct errmsg *err)
{
    const struct cow_header *h = &c->file[0].header;
    size_t want = 1;
    int rc = 0;

    for (size_t i = 0; i < num_fds && i < want && rc == 0; i++) {
        if (i > 0 && h->base_kind == COW_BASE_RAW)
            rc = cow_chain_add_raw(c, fds[i], name, err);
        else
            rc = cow_chain_add(c, fds[i], i == 0 && !read_only, name, err);
        h = &c->file[c->num_files ? c->num_files - 1 : 0].header;
        if (c->base_fd < 0 && h->base_kind != COW_BASE_NONE)
            want = i + 2;
    }
    if (rc == 0 && num_fds != want)
        rc = err_set(err, -EINVAL,
                     "disk %s: %zu descriptors for a chain of another length; "
                     "hand over all layers, the top first",
                     name, num_fds);
    return rc;
}

int cow_chain_open_fds(const int *fds, size_t num_fds, bool read_only,
                       const char *name, struct cow_chain **out_chain,
                       struct errmsg *err)
{
    struct cow_chain *c = cow_chain_new();
    int rc;

    if (!c)
        return err_set(err, -ENOMEM, "disk %s: out of memory; free some", name);
    rc = cow_chain_add_fds(c, fds, num_fds, read_only, name, err);
    if (rc) {
        cow_chain_disown(c);
        cow_chain_free(c);
        return rc;
    }
    *out_chain = c;
    return 0;
}
