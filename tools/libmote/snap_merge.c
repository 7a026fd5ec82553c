/* SPDX-License-Identifier: Apache-2.0 */
/* A full snapshot and the diff that builds on it become one. */
#include "tools/libmote/disk_copy.h"
#include "tools/libmote/snapdir.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct merge {
    struct snapdir base, diff;
    struct snapdir_part part;
    struct snapdir_meta meta; /* of the result; shares the diff's strings */
    struct snap_mem mem;      /* of the result */
    char *under;              /* a chunk of the base */
    char *over;               /* the same chunk of the diff */
};

static int merge_check(const struct merge *m, struct mote_err *err)
{
    if (m->diff.mem.kind != SNAP_DIFF)
        return lm_err(err, -EINVAL,
                      "%s: is a full snapshot; nothing has to be merged",
                      m->diff.path);
    if (m->base.mem.kind == SNAP_DIFF)
        return lm_err(err, -EINVAL,
                      "%s: is a diff itself; merge it into its own base first",
                      m->base.path);
    if (memcmp(m->diff.mem.parent, m->base.state.id, STATE_ID_BYTES) != 0)
        return lm_err(err, -EINVAL,
                      "%s: does not build on %s (%s); `mote snapshot info` "
                      "tells the parent of a diff",
                      m->diff.path, m->base.path, m->base.meta.id);
    if (m->diff.mem.ram_bytes != m->base.mem.ram_bytes)
        return lm_err(err, -EBADMSG, "%s: has another size of memory than %s",
                      m->diff.path, m->base.path);
    return 0;
}

/* --- memory ----------------------------------------------------------------
 */

static bool merge_has_bits(const struct snap_mem *diff, uint32_t chunk)
{
    const uint64_t words = SNAP_CHUNK / SNAP_PAGE / 64;

    for (uint64_t w = 0; w < words; w++) {
        if (diff->bits[chunk * words + w])
            return true;
    }
    return false;
}

/* The pages that the diff has a bit for, also those of zeroes. */
static void merge_overlay(struct merge *m, uint64_t from, uint64_t len)
{
    for (uint64_t at = 0; at < len; at += SNAP_PAGE) {
        uint64_t page = (from + at) / SNAP_PAGE;

        if (m->diff.mem.bits[page / 64] >> page % 64 & 1)
            memcpy(m->under + at, m->over + at, SNAP_PAGE);
    }
}

/* Both sides are read against their checksums: a damaged page must not get a
 * good one. */
static int merge_chunk(struct merge *m, int fd, uint32_t i, struct errmsg *e)
{
    uint64_t from = (uint64_t)i * SNAP_CHUNK;
    uint64_t len = min_u64(SNAP_CHUNK, m->mem.ram_bytes - from);
    int rc = snap_mem_verify_chunk(&m->base.mem, m->base.mem_fd, i, m->under,
                                   m->base.path, e);

    if (rc == 0 && merge_has_bits(&m->diff.mem, i)) {
        rc = snap_mem_verify_chunk(&m->diff.mem, m->diff.mem_fd, i, m->over,
                                   m->diff.path, e);
        if (rc == 0)
            merge_overlay(m, from, len);
    }
    if (rc == 0) {
        rc = snap_mem_write(&m->mem, fd, from, m->under, len);
        if (rc)
            return err_set(e, rc, "%s/" SNAPDIR_MEMORY ": %s", m->part.part,
                           err_reason(rc));
    }
    return rc;
}

static int merge_create(const struct merge *m, const char *file)
{
    int fd = openat(m->part.dir_fd, file,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    return fd < 0 ? neg_errno() : fd;
}

static int merge_memory(struct merge *m, struct errmsg *e)
{
    CLEANUP_FD int fd = merge_create(m, SNAPDIR_MEMORY);
    int rc = fd < 0 ? fd : 0;

    if (rc == 0 && ftruncate(fd, (off_t)(m->mem.ram_bytes + SNAP_PAGE)) < 0)
        rc = neg_errno();
    if (rc)
        return err_set(e, rc, "%s/" SNAPDIR_MEMORY ": %s", m->part.part,
                       err_reason(rc));
    for (uint32_t i = 0; i < m->mem.num_chunks && rc == 0; i++)
        rc = merge_chunk(m, fd, i, e);
    if (rc)
        return rc;
    rc = snap_mem_write_trailer(&m->mem, fd, m->diff.state.id);
    return rc ? err_set(e, rc, "%s/" SNAPDIR_MEMORY ": %s", m->part.part,
                        err_reason(rc))
              : 0;
}

/* --- state -----------------------------------------------------------------
 */

/* The diff's, but for what it says of the memory. */
static int merge_sections(const struct merge *m, struct state_out *out,
                          struct errmsg *e)
{
    const struct state_file *f = &m->diff.state;
    char name[STATE_NAME_MAX + 1];
    uint16_t version = 0;
    uint64_t len = 0;

    for (uint32_t i = 0; state_list(f, i, name, &version, &len); i++) {
        struct state_in in;
        int rc;

        if (!strcmp(name, "memory")) {
            snap_mem_save(&m->mem, out);
            continue;
        }
        rc = state_section(f, name, UINT16_MAX, &in, e);
        if (rc)
            return rc;
        state_begin(out, name, version);
        state_put_bytes(out, in.at, (size_t)len);
        state_end(out);
    }
    return 0;
}

static int merge_state(const struct merge *m, struct errmsg *e)
{
    CLEANUP_FD int fd = merge_create(m, SNAPDIR_STATE);
    struct state_out out;
    int rc = fd < 0 ? fd : 0;

    if (rc)
        return err_set(e, rc, "%s/" SNAPDIR_STATE ": %s", m->part.part,
                       err_reason(rc));
    state_out_init(&out);
    rc = merge_sections(m, &out, e);
    if (rc == 0) {
        rc = state_finish(&out, m->diff.state.id);
        if (rc == 0)
            rc = util_write_full(fd, out.data, out.len_bytes);
        if (rc)
            (void)err_set(e, rc, "%s/" SNAPDIR_STATE ": %s", m->part.part,
                          err_reason(rc));
    }
    state_out_fini(&out);
    return rc;
}

/* --- disks -----------------------------------------------------------------
 */

/* A diff has whole copies of them. */
static int merge_disks(const struct merge *m, struct mote_err *err)
{
    for (size_t i = 0; i < m->diff.meta.disk_count; i++) {
        const struct snapdir_disk *d = &m->diff.meta.disks[i];
        CLEANUP_FD int from = -1;
        CLEANUP_FD int to = -1;
        uint32_t crc = 0;
        int rc;

        if (!d->file[0])
            continue;
        from =
            openat(m->diff.dir_fd, d->file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        to = merge_create(m, d->file);
        rc = from < 0 ? neg_errno() : to < 0 ? to : 0;
        if (rc == 0)
            rc = lm_disk_sum(from, d->size_bytes, &crc, -1);
        if (rc == 0 && crc != d->crc)
            return lm_err(err, -EBADMSG,
                          "%s/%s: the copy of disk %s is damaged: its checksum "
                          "is wrong",
                          m->diff.path, d->file, d->id);
        if (rc == 0)
            rc = lm_disk_copy(from, to, d->size_bytes, -1);
        if (rc)
            return lm_err(err, rc, "%s/%s: %s", m->part.part, d->file,
                          err_reason(rc));
    }
    return 0;
}

/* --- the whole -------------------------------------------------------------
 */

static int merge_write(struct merge *m, struct mote_err *err)
{
    struct errmsg e = {{0}};
    int rc = snap_mem_init(&m->mem, SNAP_FULL, m->diff.mem.ram_bytes, &e);

    if (rc == 0)
        rc = merge_memory(m, &e);
    if (rc == 0)
        rc = merge_state(m, &e);
    if (rc)
        return lm_err(err, rc, "%s", e.text);
    rc = merge_disks(m, err);
    if (rc)
        return rc;
    m->meta = m->diff.meta;
    m->meta.parent[0] = '\0';
    return snapdir_commit(&m->part, &m->meta, err);
}

static int merge_all(struct merge *m, const char *base, const char *diff,
                     const char *out, struct mote_err *err)
{
    int rc = snapdir_open(&m->base, base, err);

    if (rc == 0)
        rc = snapdir_open(&m->diff, diff, err);
    if (rc == 0)
        rc = merge_check(m, err);
    if (rc)
        return rc;
    m->under = malloc(SNAP_CHUNK);
    m->over = malloc(SNAP_CHUNK);
    if (!m->under || !m->over)
        return lm_err_nomem(err);
    rc = snapdir_begin(&m->part, out, err);
    return rc ? rc : merge_write(m, err);
}

int mote_snapshot_merge(const char *base_dir, const char *diff_dir,
                        const char *out_dir, struct mote_err *err)
{
    struct merge *m = calloc(1, sizeof(*m));
    int rc;

    if (!m)
        return lm_err_nomem(err);
    m->base.dir_fd = m->base.mem_fd = -1;
    m->diff.dir_fd = m->diff.mem_fd = -1;
    m->part.dir_fd = m->part.up_fd = -1;
    rc = merge_all(m, base_dir, diff_dir, out_dir, err);
    snapdir_abort(&m->part);
    snap_mem_fini(&m->mem);
    snapdir_close(&m->diff);
    snapdir_close(&m->base);
    free(m->under);
    free(m->over);
    free(m);
    return rc;
}
