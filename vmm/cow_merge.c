/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cow_merge.h"

#include "vmm/cleanup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct merge {
    const struct cow_chain *chain;
    int out;
    uint64_t out_offset; /* of the disk's first byte in the new file */
    uint8_t *buf;        /* a cluster */
};

static uint64_t merge_size(const struct merge *m)
{
    return m->chain->file[0].header.size_bytes;
}

static bool merge_is_zero(const uint8_t *p, size_t len)
{
    return p[0] == 0 && memcmp(p, p + 1, len - 1) == 0;
}

/* `len` bytes, inside of one cluster, that are in `fd` at `off`. */
static int merge_copy(const struct merge *m, int fd, uint64_t off, uint64_t pos,
                      size_t len)
{
    off_t data = lseek(fd, (off_t)off, SEEK_DATA);
    int rc;

    /* Nothing but a hole; a file system without such answers is read. */
    if (data < 0 && errno == ENXIO)
        return 0;
    if (data >= 0 && (uint64_t)data >= off + len)
        return 0;
    rc = util_pread_full(fd, m->buf, len, (off_t)off);
    if (rc || merge_is_zero(m->buf, len))
        return rc;
    return cow_write_at(m->out, m->buf, len, m->out_offset + pos);
}

/* One cluster, from those that hold it; `with_raw`: the raw base counts. */
static int merge_cluster(const struct merge *m, uint64_t pos, bool with_raw,
                         bool *out_in_files)
{
    const struct cow_chain *ch = m->chain;
    uint64_t end = min_u64(pos + COW_CLUSTER_BYTES, merge_size(m));
    uint64_t limit = 0;
    uint32_t src = cow_chain_source(ch, 0, pos, &limit);
    uint64_t off = pos;

    *out_in_files = src < ch->num_files;
    if (src > ch->num_files || (src == ch->num_files && !with_raw))
        return 0;
    if (src < ch->num_files)
        off += cow_data_offset(ch->file[src].header.size_bytes);
    return merge_copy(m, src < ch->num_files ? ch->file[src].fd : ch->base_fd,
                      off, pos, (size_t)(min_u64(end, limit) - pos));
}

static int merge_raw(struct merge *m)
{
    bool in_files;
    int rc = ftruncate(m->out, (off_t)merge_size(m)) ? neg_errno() : 0;

    for (uint64_t p = 0; p < merge_size(m) && rc == 0; p += COW_CLUSTER_BYTES)
        rc = merge_cluster(m, p, true, &in_files);
    return rc;
}

static int merge_maps(const struct merge *m, const struct cow_file *f)
{
    uint8_t raw[COW_SECTOR_BYTES];
    int rc = fdatasync(m->out) ? neg_errno() : 0;

    for (uint64_t i = 0; i < cow_num_sectors(f->header.size_bytes) && rc == 0;
         i++) {
        cow_sector_encode(f->header.id, f->map, i, raw);
        rc = cow_write_at(m->out, raw, sizeof(raw),
                          COW_HEADER_BYTES + i * COW_SECTOR_BYTES);
    }
    return rc;
}

static int merge_cow(struct merge *m, const char *name, struct errmsg *err)
{
    const struct cow_chain *ch = m->chain;
    const struct cow_header *low = &ch->file[ch->num_files - 1].header;
    struct cow_file *f = calloc(1, sizeof(*f));
    struct cow_base base = {.kind = low->base_kind,
                            .path = low->base_path,
                            .size_bytes = low->base_bytes};
    bool in_files = false;
    int rc;

    if (!f)
        return -ENOMEM;
    memcpy(base.id, low->base_id, COW_ID_BYTES);
    rc = cow_create_fd(m->out, name, &base, merge_size(m), err);
    if (rc == 0)
        rc = cow_file_read(m->out, name, f, err);
    m->out_offset = cow_data_offset(merge_size(m));
    for (uint64_t p = 0; p < merge_size(m) && rc == 0; p += COW_CLUSTER_BYTES) {
        rc = merge_cluster(m, p, false, &in_files);
        if (in_files)
            cow_map_set(f->map, p / COW_CLUSTER_BYTES);
    }
    if (rc == 0)
        rc = merge_maps(m, f);
    free(f->map);
    free(f);
    return rc;
}

/* --- the new file ----------------------------------------------------------
 */

/* Under its own name only when all of it is there; never over another. */
static int merge_publish(int fd, const char *tmp, const char *path)
{
    if (fsync(fd) || renameat2(AT_FDCWD, tmp, AT_FDCWD, path, RENAME_NOREPLACE))
        return neg_errno();
    return cow_sync_name(path);
}

static int merge_into(const struct cow_chain *chain, int fd, const char *path,
                      enum cow_base_kind kind, struct errmsg *err)
{
    struct merge m = {
        .chain = chain,
        .out = fd,
        .buf = malloc(COW_CLUSTER_BYTES),
    };
    int rc = -ENOMEM;

    if (m.buf)
        rc = kind == COW_BASE_COW ? merge_cow(&m, path, err) : merge_raw(&m);
    free(m.buf);
    return rc;
}

int cow_merge(const struct cow_chain *chain, const char *out_path,
              enum cow_base_kind kind, struct errmsg *err)
{
    CLEANUP_FD int fd = -1;
    char tmp[PATH_MAX];
    int rc = 0;

    if (snprintf(tmp, sizeof(tmp), "%s.partial", out_path) >= (int)sizeof(tmp))
        rc = -ENAMETOOLONG;
    else if (access(out_path, F_OK) == 0)
        rc = -EEXIST;
    if (rc == 0) {
        fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        rc = fd < 0 ? neg_errno() : 0;
    }
    if (rc)
        return err_set(err, rc,
                       "disk %s: cannot be made: %s; choose another "
                       "path",
                       out_path, err_reason(rc));
    rc = merge_into(chain, fd, out_path, kind, err);
    if (rc == 0)
        rc = merge_publish(fd, tmp, out_path);
    if (rc) {
        (void)unlink(tmp); /* ours, made above */
        return err_set(err, rc,
                       "disk %s: cannot be written: %s; see to its "
                       "file system",
                       out_path, err_reason(rc));
    }
    return 0;
}
