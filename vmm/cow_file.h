/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_COW_FILE_H
#define VMM_COW_FILE_H

/*
 * Copy-on-write disk files and the chains that they form: made, opened,
 * checked, locked. Moves no data of the disk; devices/disk_cow.h runs a chain
 * under a guest, vmm/cow_merge.h copies one. All calls block.
 *
 * What a file is, its maker says (`kind`); it is never guessed from its first
 * bytes, which a guest may have written.
 *
 * Locks (open file description): exclusive on the file on top of a chain that
 * is opened for writing, shared on all others.
 *
 * Ownership: who opened a chain frees it. fds are the caller's until a call
 * succeeded. Threads: any. Errors: -errno and one line for the user.
 */

#include "vmm/cow_format.h"

/* What a new file is put on top of. */
struct cow_base {
    enum cow_base_kind kind;
    const char *path; /* stored as it is; NULL: none */
    uint8_t id[COW_ID_BYTES];
    uint64_t size_bytes;
    uint32_t depth; /* 0 for a raw one */
};

struct cow_file {
    int fd;
    uint8_t *map; /* cow_map_bytes() */
    struct cow_header header;
};

struct cow_chain {
    uint32_t num_files;
    struct cow_file file[COW_MAX_DEPTH]; /* [0] is the top */
    int base_fd;                         /* the raw base, or -1 */
    uint64_t base_bytes;
};

/* --- making ----------------------------------------------------------------
 */

/*
 * A new file at `path`, which must not exist, on the disk `base_path` of the
 * kind `kind` (NULL and COW_BASE_NONE: on nothing). `size_bytes` 0: as large as
 * the base; never smaller. The base's absolute path is stored. A base that is a
 * copy-on-write file is marked so that nobody opens it for writing again; in
 * use by a writer it is refused. On disk when this returns; on failure nothing
 * is left behind.
 */
int cow_create(const char *path, const char *base_path, enum cow_base_kind kind,
               uint64_t size_bytes, struct errmsg *err) MUST_CHECK;

/*
 * The same into `fd`, an empty regular file open for reading and writing, on
 * what cow_base_raw() or cow_base_cow() tell. Not synced: the first flush of
 * the disk does that. `name` is for messages.
 */
int cow_create_fd(int fd, const char *name, const struct cow_base *base,
                  uint64_t size_bytes, struct errmsg *err) MUST_CHECK;

/* `fd` as a base: its identity and size. `path` is kept, not copied. */
int cow_base_raw(int fd, const char *path, struct cow_base *out,
                 struct errmsg *err) MUST_CHECK;
void cow_base_cow(const struct cow_header *h, const char *path,
                  struct cow_base *out);

/* Sets or clears COW_FROZEN, in the file and in `f`. Not synced. */
int cow_set_frozen(struct cow_file *f, bool frozen) MUST_CHECK;

/* --- opening ---------------------------------------------------------------
 */

/* The file at `path` and, by the paths in the headers, all below it. */
int cow_chain_open(const char *path, bool read_only,
                   struct cow_chain **out_chain, struct errmsg *err) MUST_CHECK;

/*
 * The same from descriptors: the copy-on-write files from the top down, then
 * the raw base if the lowest has one. Takes the fds over if it succeeds.
 * `name` is for messages.
 */
int cow_chain_open_fds(const int *fds, size_t num_fds, bool read_only,
                       const char *name, struct cow_chain **out_chain,
                       struct errmsg *err) MUST_CHECK;

/* Its descriptors are the caller's again: it forgets them. */
void cow_chain_disown(struct cow_chain *chain);
/* Closes what it still holds (fds >= 0, maps); NULL is fine. */
void cow_chain_free(struct cow_chain *chain);

/* Header and bitmap of one file, checked. `f->fd` stays as it is. */
int cow_file_read(int fd, const char *name, struct cow_file *f,
                  struct errmsg *err) MUST_CHECK;

/*
 * Who holds the byte at `pos`, in the files from `from` down: the index of one,
 * num_files for the raw base, num_files + 1 for nobody: it reads as zero. What
 * is at *out_end and beyond, in the same cluster, is not its.
 */
uint32_t cow_chain_source(const struct cow_chain *chain, uint32_t from,
                          uint64_t pos, uint64_t *out_end);

/* Size as a disk of a regular file or block device; 0 or -errno. */
int cow_raw_bytes(int fd, uint64_t *out_bytes) MUST_CHECK;

/* All of it, going on after EINTR and short writes. */
int cow_write_at(int fd, const void *buf, size_t len, uint64_t off) MUST_CHECK;
/* Makes the name of a file, which was synced, durable. */
int cow_sync_name(const char *path) MUST_CHECK;

/* -EBUSY: someone else has it. Without locks in the file system: 0. */
int cow_lock(int fd, bool exclusive) MUST_CHECK;

#endif
