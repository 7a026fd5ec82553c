/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_SNAPSHOT_MEM_H
#define VMM_SNAPSHOT_MEM_H

/*
 * The memory file of a snapshot and what the saved state says of it. The file
 * holds the guest's RAM as it is, with holes for pages that are zero (full) or
 * were not written (diff), and behind it a page that names the snapshot.
 *
 *   trailer  "MOTEMEM\0", le32 version, le32 kind, le64 bytes of RAM,
 *            16 bytes id of the snapshot, le32 0, le32 crc of the 44 before
 *
 * Section "memory": le64 RAM, u8 kind, 16 bytes id of the snapshot that a diff
 * builds on, le32 for each 2 MiB: the crc of its pages that count, of which
 * each is preceded by its number as le64. Those are the pages that are not zero
 * (full) or the ones of a bitmap, which follows (diff). Without the bitmap a
 * page of zeroes could not be told from one that was not written.
 *
 * Only base and zlib: the tools read and merge these files as well.
 *
 * Threads: any. Errors: -errno with a line.
 */

#include "vmm/state.h"

#define SNAP_PAGE  4096u
#define SNAP_CHUNK (2 * MIB)

enum snap_kind { SNAP_FULL, SNAP_DIFF };

struct snap_mem {
    enum snap_kind kind;
    uint64_t ram_bytes;
    uint8_t parent[STATE_ID_BYTES]; /* diff: what it builds on */
    uint32_t num_chunks;
    uint32_t *crc;  /* of each */
    uint64_t *bits; /* diff: the pages in the file; else NULL */
};

int snap_mem_init(struct snap_mem *m, enum snap_kind kind, uint64_t ram_bytes,
                  struct errmsg *err) MUST_CHECK;
void snap_mem_fini(struct snap_mem *m); /* idempotent */

/*
 * The pages of [offset, offset + len), which lie in one chunk and follow those
 * given before, from host memory `p` into the file. Zero pages of a full one
 * are left out, as are pages that a diff has no bit for.
 */
int snap_mem_write(struct snap_mem *m, int fd, uint64_t offset, const void *p,
                   uint64_t len_bytes) MUST_CHECK;
int snap_mem_write_trailer(const struct snap_mem *m, int fd,
                           const uint8_t id[STATE_ID_BYTES]) MUST_CHECK;

void snap_mem_save(const struct snap_mem *m, struct state_out *out);
/* Owned by the caller after a success. */
int snap_mem_load(struct snap_mem *m, const struct state_file *f,
                  struct errmsg *err) MUST_CHECK;

/*
 * Whether the file behind `fd` is the one that belongs to the state `f`, as far
 * as its size and its trailer tell. -EBADMSG with a line.
 */
int snap_mem_check(const struct snap_mem *m, const struct state_file *f, int fd,
                   const char *path, struct errmsg *err) MUST_CHECK;
/* Every page against its checksum; or those of chunk `i` alone, with a buffer
 * of SNAP_CHUNK bytes to work in. */
int snap_mem_verify_chunk(const struct snap_mem *m, int fd, uint32_t i,
                          void *buf, const char *path,
                          struct errmsg *err) MUST_CHECK;
int snap_mem_verify(const struct snap_mem *m, int fd, const char *path,
                    struct errmsg *err) MUST_CHECK;

bool snap_page_is_zero(const void *page);

#endif
