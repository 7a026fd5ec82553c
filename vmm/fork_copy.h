/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_FORK_COPY_H
#define VMM_FORK_COPY_H

/*
 * The state and the memory of a machine that runs, at one instant, in two
 * sealed memfds. Memory is copied while the guest runs, then again what it
 * wrote meanwhile; it stands still only for the rest. A machine that is paused
 * stays so.
 *
 * Two short stops: at the first one nothing of a device's is in flight, which
 * is where the record of our own writes has to begin; at the second the copy is
 * made whole.
 *
 * Ownership: embedded; owns its descriptors until fork_copy_fini(). Borrows
 * machine and loop. Threads: io. Errors: `done` gets 0, or -errno with a line.
 */

#include "vmm/machine.h"

struct fork_copy;
typedef void (*fork_copy_fn)(struct fork_copy *c, int rc);

struct fork_copy {
    struct machine *machine;
    struct evloop *loop;
    /* Adds to the saved state what the machine does not know. 0 or -errno. */
    int (*save_more)(void *arg, struct state_out *out, struct errmsg *err);
    /* Right before the last stop. */
    void (*hurry)(void *arg);
    fork_copy_fn done;
    void *arg;
    /* results */
    int state_fd;
    int mem_fd;
    uint64_t stopped_ns; /* the longer of the stops */
    uint64_t copied_bytes;
    struct errmsg err;
    /* private */
    struct ev_timer turn;
    uint64_t at;
    uint64_t *work;   /* the pages of this round */
    uint64_t *before; /* what was noted before us, for somebody else's diff */
    uint64_t pause_ns;
    uint32_t round;
    uint64_t last_pages;
    bool was_paused;
    bool was_tracking;
};

/* The result comes by `done`, never from inside. */
int fork_copy_start(struct fork_copy *c, struct errmsg *err) MUST_CHECK;
void fork_copy_fini(struct fork_copy *c); /* idempotent; also under way */

#endif
