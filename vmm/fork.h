/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_FORK_H
#define VMM_FORK_H

/*
 * Live fork: N copies of a machine that goes on. Its state and memory are
 * copied once (fork_copy.h) and handed to N waiting monitors (fork_send.h),
 * which share the copy's clean pages.
 *
 * Ownership: the caller frees; all it is given is borrowed. Threads: io.
 * Errors: -errno with a line; of each child, in the result.
 */

#include "vmm/evloop.h"
#include "vmm/machine.h"

#include <jansson.h>

#define FORK_MAX_CHILDREN 1024u

struct fork;

/*
 * `result`: an object to be owned by the callee, NULL when `rc` tells of a
 * failure of the whole. Never from inside of fork_new().
 */
typedef void (*fork_done_fn)(void *arg, int rc, json_t *result,
                             const struct errmsg *err);

struct fork_args {
    struct evloop *loop;
    struct machine *machine;
    const struct vm_config *config; /* of the machine, as is `doc` */
    json_t *doc;      /* the configuration that goes with the state */
    json_t *children; /* [{socket, and fields of PUT /snapshot/load}] */
    json_t *drives;   /* [{drive_id, clone_paths, next_path}] or NULL */
    fork_done_fn done;
    /* The machine's drive has another file from now on. */
    void (*moved)(void *arg, const char *drive_id, const char *path);
    void *arg;
};

int fork_new(const struct fork_args *args, struct fork **out_fork,
             struct errmsg *err) MUST_CHECK;
void fork_free(struct fork *f); /* NULL is fine; also under way */

#endif
