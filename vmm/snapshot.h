/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_SNAPSHOT_H
#define VMM_SNAPSHOT_H

/*
 * A machine into two files and back. The state has, beside what the machine
 * writes, the section "config": the configuration as the text of a file, so
 * that whoever loads it needs no other.
 *
 * Threads: io. Errors: -errno with a line; nothing is left behind.
 */

#include "vmm/machine.h"
#include "vmm/snapshot_mem.h"

#include <jansson.h>

/* What later diffs of a machine build on. */
struct snapshot_base {
    bool there;
    uint8_t id[STATE_ID_BYTES];
};

struct snapshot_args {
    const char *state_path;
    const char *mem_path;
    bool diff;   /* as far as writes are tracked; else it is a full one */
    json_t *doc; /* borrowed: the configuration to be saved with it */
};

/*
 * Saves a machine that is PAUSED. Both files are on disk when it returns 0, and
 * `base` is this snapshot then; on an error the record of written pages keeps
 * what it had.
 */
int snapshot_create(struct machine *m, const struct snapshot_args *args,
                    struct snapshot_base *base, struct errmsg *err) MUST_CHECK;

/* The section "config" alone, for whoever saves the rest by itself. */
int snapshot_save_config(json_t *doc, struct state_out *out,
                         struct errmsg *err) MUST_CHECK;

/* A snapshot that was read and found to be whole. */
struct snapshot {
    void *data;
    struct state_file file;
    struct snap_mem mem;
    json_t *doc; /* its configuration */
    int mem_fd;  /* -1: the caller's matter */
};

/* `mem_path` NULL: memory comes from elsewhere. */
int snapshot_open(struct snapshot *s, const char *state_path,
                  const char *mem_path, struct errmsg *err) MUST_CHECK;
/* The same of what a fork hands over: sealed memfds, both borrowed. */
int snapshot_open_fork(struct snapshot *s, int state_fd, int mem_fd,
                       struct errmsg *err) MUST_CHECK;
void snapshot_close(struct snapshot *s); /* idempotent after an open */

#endif
