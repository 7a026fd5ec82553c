/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/snapshot_mem.h"

#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define MEM_MAGIC     "MOTEMEM"
#define MEM_VERSION   1u
#define MEM_SECTION   1u
#define TRAILER_BYTES 48u

enum { TRAIL_VERSION = 8, TRAIL_KIND = 12, TRAIL_RAM = 16, TRAIL_ID = 24 };
enum { TRAIL_CRC = 44 };

#define PAGES_PER_CHUNK (SNAP_CHUNK / SNAP_PAGE)

int snap_mem_init(struct snap_mem *m, enum snap_kind kind, uint64_t ram_bytes,
                  struct errmsg *err)
{
    memset(m, 0, sizeof(*m));
    m->kind = kind;
    m->ram_bytes = ram_bytes;
    m->num_chunks = (uint32_t)((ram_bytes + SNAP_CHUNK - 1) / SNAP_CHUNK);
    m->crc = calloc(m->num_chunks, sizeof(*m->crc));
    if (kind == SNAP_DIFF)
        m->bits =
            calloc(m->num_chunks * PAGES_PER_CHUNK / 64 + 1, sizeof(*m->bits));
    if (m->crc && (kind == SNAP_FULL || m->bits))
        return 0;
    snap_mem_fini(m);
    return err_set(err, -ENOMEM, "out of memory");
}

void snap_mem_fini(struct snap_mem *m)
{
    free(m->crc);
    free(m->bits);
    m->crc = NULL;
    m->bits = NULL;
}

bool snap_page_is_zero(const void *page)
{
    const uint64_t *w = page;

    /* The first word that is set ends most pages; a page of zeroes is compared
     * with itself, one word on. */
    return w[0] == 0 && memcmp(w, w + 1, SNAP_PAGE - sizeof(*w)) == 0;
}

static bool snap_page_counts(const struct snap_mem *m, uint64_t page,
                             const void *p)
{
    if (m->kind == SNAP_DIFF)
        return m->bits[page / 64] >> page % 64 & 1;
    return !snap_page_is_zero(p);
}

static void snap_page_sum(uint32_t *crc, uint64_t page, const void *p)
{
    uint8_t number[sizeof(page)];

    put_le64(number, page);
    *crc = (uint32_t)crc32_z(*crc, number, sizeof(number));
    *crc = (uint32_t)crc32_z(*crc, p, SNAP_PAGE);
}

static int snap_pwrite(int fd, const char *p, uint64_t len, uint64_t offset)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, p, len, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return neg_errno();
        p += n;
        offset += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return 0;
}

/* Runs of pages that count become one write each. */
int snap_mem_write(struct snap_mem *m, int fd, uint64_t offset, const void *p,
                   uint64_t len_bytes)
{
    uint32_t *crc = &m->crc[offset / SNAP_CHUNK];
    const char *from = p;
    uint64_t begin = 0;
    int rc = 0;

    for (uint64_t at = 0; at < len_bytes && rc == 0; at += SNAP_PAGE) {
        uint64_t page = (offset + at) / SNAP_PAGE;

        if (snap_page_counts(m, page, from + at)) {
            snap_page_sum(crc, page, from + at);
            continue;
        }
        if (at > begin)
            rc = snap_pwrite(fd, from + begin, at - begin, offset + begin);
        begin = at + SNAP_PAGE;
    }
    if (rc == 0 && len_bytes > begin)
        rc = snap_pwrite(fd, from + begin, len_bytes - begin, offset + begin);
    return rc;
}

int snap_mem_write_trailer(const struct snap_mem *m, int fd,
                           const uint8_t id[STATE_ID_BYTES])
{
    char page[SNAP_PAGE] = {0};

    memcpy(page, MEM_MAGIC, sizeof(MEM_MAGIC));
    put_le32(page + TRAIL_VERSION, MEM_VERSION);
    put_le32(page + TRAIL_KIND, m->kind);
    put_le64(page + TRAIL_RAM, m->ram_bytes);
    memcpy(page + TRAIL_ID, id, STATE_ID_BYTES);
    put_le32(page + TRAIL_CRC,
             (uint32_t)crc32_z(0, (const uint8_t *)page, TRAIL_CRC));
    return snap_pwrite(fd, page, sizeof(page), m->ram_bytes);
}

/* --- in the saved state -----------------------------------------------------
 */

static uint64_t snap_words(const struct snap_mem *m)
{
    return (m->ram_bytes / SNAP_PAGE + 63) / 64;
}

void snap_mem_save(const struct snap_mem *m, struct state_out *out)
{
    state_begin(out, "memory", MEM_SECTION);
    state_put_u64(out, m->ram_bytes);
    state_put_u8(out, (uint8_t)m->kind);
    state_put_bytes(out, m->parent, sizeof(m->parent));
    for (uint32_t i = 0; i < m->num_chunks; i++)
        state_put_u32(out, m->crc[i]);
    for (uint64_t i = 0; m->kind == SNAP_DIFF && i < snap_words(m); i++)
        state_put_u64(out, m->bits[i]);
    state_end(out);
}

int snap_mem_load(struct snap_mem *m, const struct state_file *f,
                  struct errmsg *err)
{
    struct state_in in;
    uint64_t ram;
    uint64_t left;
    uint8_t kind;
    int rc = state_section(f, "memory", MEM_SECTION, &in, err);

    if (rc)
        return rc;
    ram = state_get_u64(&in);
    kind = state_get_u8(&in);
    left = (uint64_t)(in.end - in.at);
    /* The checksums alone bound what a good size can be. */
    if (in.bad || ram == 0 || ram % SNAP_PAGE || kind > SNAP_DIFF ||
        ram / SNAP_CHUNK * sizeof(uint32_t) > left)
        return err_set(err, -EBADMSG,
                       "what the saved state says of the "
                       "memory is damaged");
    rc = snap_mem_init(m, (enum snap_kind)kind, ram, err);
    if (rc)
        return rc;
    state_get_bytes(&in, m->parent, sizeof(m->parent));
    for (uint32_t i = 0; i < m->num_chunks; i++)
        m->crc[i] = state_get_u32(&in);
    for (uint64_t i = 0; m->kind == SNAP_DIFF && i < snap_words(m); i++)
        m->bits[i] = state_get_u64(&in);
    if (state_done(&in)) {
        snap_mem_fini(m);
        return err_set(err, -EBADMSG,
                       "what the saved state says of the "
                       "memory is damaged");
    }
    return 0;
}

/* --- the file ---------------------------------------------------------------
 */

int snap_mem_check(const struct snap_mem *m, const struct state_file *f, int fd,
                   const char *path, struct errmsg *err)
{
    uint8_t t[TRAILER_BYTES];
    struct stat st;
    int rc;

    if (fstat(fd, &st) < 0) {
        rc = neg_errno();
        return err_set(err, rc, "%s: %s", path, err_reason(rc));
    }
    if (!S_ISREG(st.st_mode))
        return err_set(err, -EBADMSG,
                       "%s: is no regular file; memory is mapped from one",
                       path);
    if ((uint64_t)st.st_size != m->ram_bytes + SNAP_PAGE)
        return err_set(err, -EBADMSG,
                       "%s: has %lld bytes, the memory of this snapshot takes "
                       "%llu: it was cut, or belongs to another one",
                       path, (long long)st.st_size,
                       (unsigned long long)m->ram_bytes + SNAP_PAGE);
    rc = util_pread_full(fd, t, sizeof(t), (off_t)m->ram_bytes);
    if (rc)
        return err_set(err, rc, "%s: %s", path, err_reason(rc));
    if (memcmp(t, MEM_MAGIC, sizeof(MEM_MAGIC)) != 0 ||
        get_le32(t + TRAIL_CRC) != (uint32_t)crc32_z(0, t, TRAIL_CRC))
        return err_set(err, -EBADMSG,
                       "%s: is no memory of a snapshot, or its end is damaged",
                       path);
    if (get_le32(t + TRAIL_VERSION) != MEM_VERSION)
        return err_set(err, -ENOTSUP,
                       "%s: has version %u, this mote reads %u; use the mote "
                       "that wrote it",
                       path, get_le32(t + TRAIL_VERSION), MEM_VERSION);
    if (memcmp(t + TRAIL_ID, f->id, STATE_ID_BYTES) != 0)
        return err_set(err, -EBADMSG,
                       "%s: is the memory of another snapshot than the state",
                       path);
    return 0;
}

/* The checksum of one chunk, as the file has it. */
static int snap_chunk_sum(const struct snap_mem *m, int fd, uint32_t i,
                          char *buf, uint32_t *out_crc)
{
    uint64_t from = (uint64_t)i * SNAP_CHUNK;
    uint64_t len = min_u64(SNAP_CHUNK, m->ram_bytes - from);
    int rc = util_pread_full(fd, buf, len, (off_t)from);

    *out_crc = 0;
    for (uint64_t at = 0; rc == 0 && at < len; at += SNAP_PAGE) {
        uint64_t page = (from + at) / SNAP_PAGE;

        if (snap_page_counts(m, page, buf + at))
            snap_page_sum(out_crc, page, buf + at);
    }
    return rc;
}

int snap_mem_verify_chunk(const struct snap_mem *m, int fd, uint32_t i,
                          void *buf, const char *path, struct errmsg *err)
{
    uint32_t crc = 0;
    int rc = snap_chunk_sum(m, fd, i, buf, &crc);

    if (rc)
        return err_set(err, rc, "%s: %s", path, err_reason(rc));
    if (crc != m->crc[i])
        return err_set(err, -EBADMSG,
                       "%s: the memory from 0x%llx on is damaged: its checksum "
                       "is wrong",
                       path, (unsigned long long)i * SNAP_CHUNK);
    return 0;
}

int snap_mem_verify(const struct snap_mem *m, int fd, const char *path,
                    struct errmsg *err)
{
    char *buf = malloc(SNAP_CHUNK);
    int rc = 0;

    if (!buf)
        return err_set(err, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < m->num_chunks && rc == 0; i++)
        rc = snap_mem_verify_chunk(m, fd, i, buf, path, err);
    free(buf);
    return rc;
}
