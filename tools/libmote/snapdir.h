/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_SNAPDIR_H
#define TOOLS_LIBMOTE_SNAPDIR_H

/*
 * A snapshot as a directory:
 *
 *   state, memory      as the monitor writes them (vmm/snapshot_pair.h)
 *   disk-0, disk-1...  copies of the drives that could be written
 *   snapshot.json      "version" 1: id, kind, parent, when, and its drives
 *
 * It is written as DIR.part, locked meanwhile, and renamed when all of it is
 * on disk: DIR is whole or not there.
 *
 * Ownership: structs are the caller's and own what they hold. Threads: any.
 * Errors: -errno with `err`.
 */

#include "tools/libmote/err.h"
#include "vmm/snapshot_mem.h"

#include <jansson.h>

#define SNAPDIR_STATE     "state"
#define SNAPDIR_MEMORY    "memory"
#define SNAPDIR_FILE      "snapshot.json"
#define SNAPDIR_MAX_DISKS 64
#define SNAPDIR_ID_TEXT   (2 * STATE_ID_BYTES + 1)

struct snapdir_disk {
    char *id;      /* of the drive */
    char *path;    /* absolute: where it was (a copy: the original) */
    char file[16]; /* the copy in the directory; "" = none: it is read-only */
    uint64_t size_bytes;
    int64_t mtime_ns; /* of one that was not copied */
    uint32_t crc;     /* of a copy; see disk_copy.h */
};

/* What snapshot.json says. */
struct snapdir_meta {
    char id[SNAPDIR_ID_TEXT];
    char parent[SNAPDIR_ID_TEXT]; /* "": a full one */
    char name[MOTE_NAME_MAX + 1];
    int64_t created_ms; /* since 1970 UTC */
    struct snapdir_disk disks[SNAPDIR_MAX_DISKS];
    size_t disk_count;
};

void snapdir_meta_fini(struct snapdir_meta *m); /* idempotent */
void snapdir_id_text(const uint8_t id[STATE_ID_BYTES],
                     char out[SNAPDIR_ID_TEXT]);

/* --- reading ---------------------------------------------------------------
 */

/* One that was found to fit together; memory is opened, not read. */
struct snapdir {
    char *path; /* absolute */
    int dir_fd;
    void *data; /* the state file */
    size_t data_bytes;
    struct state_file state;
    struct snap_mem mem;
    int mem_fd;
    json_t *config; /* of the machine, as a monitor's configuration file */
    struct snapdir_meta meta;
};

int snapdir_open(struct snapdir *d, const char *path,
                 struct mote_err *err) MUST_CHECK;
void snapdir_close(struct snapdir *d); /* idempotent after an open */

/* The path of a file in it, for free(). */
char *snapdir_file(const struct snapdir *d, const char *file);

/* --- writing ---------------------------------------------------------------
 */

struct snapdir_part {
    char *path; /* absolute: where it will be */
    char *part; /* where it is */
    int dir_fd; /* of the latter; holds its lock */
    int up_fd;  /* of the directory around it */
};

/* -EEXIST: there is something; -EBUSY: another one is being written there. */
int snapdir_begin(struct snapdir_part *p, const char *path,
                  struct mote_err *err) MUST_CHECK;
/* snapshot.json, everything to disk, and its name. `p` is done in any case. */
int snapdir_commit(struct snapdir_part *p, const struct snapdir_meta *m,
                   struct mote_err *err) MUST_CHECK;
void snapdir_abort(struct snapdir_part *p); /* idempotent */

#endif
