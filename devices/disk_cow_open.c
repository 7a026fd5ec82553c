/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a copy-on-write disk, and a new file on top of it. */
#include "devices/disk_cow_int.h"
#include "vmm/cleanup.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A disk for each file, which takes its descriptor over. */
static int cow_wrap_all(struct disk_cow *c)
{
    struct cow_chain *ch = c->chain;
    int rc = 0;

    for (uint32_t i = 0; i < ch->num_files && rc == 0; i++) {
        struct cow_file *f = &ch->file[i];

        rc = disk_raw_wrap(f->fd, cow_file_bytes(f->header.size_bytes),
                           i > 0 || c->base.read_only, &c->layer[i]);
        if (rc == 0)
            c->fd[i] = take_fd(&f->fd);
    }
    if (rc == 0 && ch->base_fd >= 0) {
        rc = disk_raw_wrap(ch->base_fd, ch->base_bytes, true, &c->raw);
        if (rc == 0)
            c->raw_fd = take_fd(&ch->base_fd);
    }
    return rc;
}

static int cow_build(struct disk_cow *c, unsigned flags)
{
    uint64_t size = c->chain->file[0].header.size_bytes;
    const struct disk *top;
    int rc;

    TAILQ_INIT(&c->claims);
    TAILQ_INIT(&c->waiting);
    TAILQ_INIT(&c->hungry);
    TAILQ_INIT(&c->store.queue);
    TAILQ_INIT(&c->store.round);
    c->base.ops = &disk_cow_ops;
    c->base.size_bytes = size;
    c->base.read_only = flags & DISK_READ_ONLY;
    c->base.block_bytes = DISK_SECTOR_BYTES;
    c->unsafe = flags & DISK_UNSAFE;
    c->store.mark = calloc(1, cow_num_sectors(size));
    c->store.copy = calloc(1, cow_map_bytes(size));
    /* With one there from the start, waiting for one always ends. */
    c->idle[0] = malloc(COW_CLUSTER_BYTES);
    if (!c->store.mark || !c->store.copy || !c->idle[0])
        return -ENOMEM;
    c->num_idle = c->num_bounces = 1;
    rc = cow_wrap_all(c);
    if (rc)
        return rc;
    top = c->layer[0];
    assert(top); /* no chain is empty */
    c->base.can_discard = top->can_discard;
    c->base.discard_bytes = top->discard_bytes;
    return 0;
}

/* Half built; the chain has its descriptors back. */
static void cow_unbuild(struct disk_cow *c)
{
    for (uint32_t i = 0; i < COW_MAX_DEPTH && c->layer[i]; i++)
        c->chain->file[i].fd = disk_raw_unwrap(c->layer[i]);
    free(c->store.mark);
    free(c->store.copy);
    free(c->idle[0]);
    free(c);
}

/* The chain is the disk's if it succeeds. */
static int cow_new(struct cow_chain *chain, unsigned flags, const char *name,
                   struct disk **out_disk, struct errmsg *err)
{
    struct disk_cow *c = calloc(1, sizeof(*c));
    int rc = -ENOMEM;

    if (c) {
        c->chain = chain;
        c->raw_fd = -1;
        rc = cow_build(c, flags);
        if (rc)
            cow_unbuild(c);
    }
    if (rc)
        return err_set(err, rc, "disk %s: cannot be set up: %s", name,
                       err_reason(rc));
    *out_disk = &c->base;
    return 0;
}

int disk_cow_open(const char *path, unsigned flags, struct disk **out_disk,
                  struct errmsg *err)
{
    struct cow_chain *chain = NULL;
    int rc = cow_chain_open(path, flags & DISK_READ_ONLY, &chain, err);

    if (rc)
        return rc;
    rc = cow_new(chain, flags, path, out_disk, err);
    if (rc)
        cow_chain_free(chain);
    return rc;
}

int disk_cow_open_fds(const int *fds, size_t num_fds, unsigned flags,
                      const char *name, struct disk **out_disk,
                      struct errmsg *err)
{
    struct cow_chain *chain = NULL;
    int rc = cow_chain_open_fds(fds, num_fds, flags & DISK_READ_ONLY, name,
                                &chain, err);

    if (rc)
        return rc;
    rc = cow_new(chain, flags, name, out_disk, err);
    if (rc) {
        cow_chain_disown(chain);
        cow_chain_free(chain);
    }
    return rc;
}

/* --- a new file on top -----------------------------------------------------
 */

static void cow_push(struct disk_cow *c, const struct cow_file *f,
                     struct disk *disk)
{
    struct cow_chain *ch = c->chain;

    memmove(&ch->file[1], &ch->file[0], ch->num_files * sizeof(ch->file[0]));
    memmove(&c->layer[1], &c->layer[0], ch->num_files * sizeof(struct disk *));
    memmove(&c->fd[1], &c->fd[0], ch->num_files * sizeof(c->fd[0]));
    ch->num_files++;
    ch->file[0] = *f;
    ch->file[0].fd = -1; /* the disk's */
    c->layer[0] = disk;
    c->fd[0] = f->fd;
}

/* The top as it is now, for good. */
static int cow_seal(struct disk_cow *c)
{
    struct cow_file top = c->chain->file[0];
    int rc;

    top.fd = c->fd[0];
    rc = cow_set_frozen(&top, true);
    if (rc == 0)
        rc = cow_store_now(c, true);
    if (rc)
        (void)!cow_set_frozen(&top, false); /* what failed is told */
    else
        c->chain->file[0].header.flags = top.header.flags;
    return rc;
}

/* Undoes cow_seal() if there is no disk for the new file. */
static int cow_seal_and_wrap(struct disk_cow *c, struct cow_file *f,
                             struct disk **out_disk)
{
    int rc = cow_seal(c);

    if (rc)
        return rc;
    rc = disk_raw_wrap(f->fd, cow_file_bytes(f->header.size_bytes), false,
                       out_disk);
    if (rc) {
        c->chain->file[0].fd = c->fd[0];
        (void)!cow_set_frozen(&c->chain->file[0], false);
        c->chain->file[0].fd = -1;
    }
    return rc;
}

int disk_cow_freeze(struct disk *disk, int fd, const char *top_path,
                    struct errmsg *err)
{
    static const char name[] = "(new copy-on-write file)";
    struct disk_cow *c = container_of(disk, struct disk_cow, base);
    CLEANUP_FREE struct cow_file *f = NULL;
    struct disk *layer = NULL;
    struct cow_base base;
    int rc;

    assert(c->num_reqs == 0);
    if (disk->read_only)
        return err_set(err, -EROFS,
                       "disk: is read-only, so that it is fit to "
                       "be a base as it is");
    cow_base_cow(&c->chain->file[0].header, top_path, &base);
    rc = cow_create_fd(fd, name, &base, 0, err);
    if (rc)
        return rc;
    f = calloc(1, sizeof(*f));
    if (!f)
        return err_set(err, -ENOMEM, "disk: out of memory; free some");
    rc = cow_file_read(fd, name, f, err);
    if (rc)
        return rc;
    f->fd = fd;
    rc = cow_lock(fd, true);
    if (rc == 0)
        rc = cow_seal_and_wrap(c, f, &layer);
    if (rc) {
        free(f->map);
        return err_set(err, rc,
                       "disk: cannot be frozen: %s; see to its file "
                       "system",
                       err_reason(rc));
    }
    (void)!cow_lock(c->fd[0], false); /* less than what we have: succeeds */
    cow_push(c, f, layer);
    return 0;
}

/* --- what it is ------------------------------------------------------------
 */

void disk_cow_info(const struct disk *disk, struct disk_cow_info *out)
{
    const struct disk_cow *c = (const struct disk_cow *)disk; /* first */
    const struct cow_file *top = &c->chain->file[0];

    *out = (struct disk_cow_info){
        .depth = c->chain->num_files,
        .has_raw_base = c->raw != NULL,
        .num_clusters = cow_num_clusters(top->header.size_bytes),
        .num_allocated = cow_map_count(top->map, top->header.size_bytes),
    };
    memcpy(out->id, top->header.id, COW_ID_BYTES);
}

size_t disk_cow_fds(const struct disk *disk, int fds[COW_MAX_DEPTH + 1])
{
    const struct disk_cow *c = (const struct disk_cow *)disk; /* first */
    size_t n = 0;

    while (n < c->chain->num_files) {
        fds[n] = c->fd[n];
        n++;
    }
    if (c->raw)
        fds[n++] = c->raw_fd;
    return n;
}
