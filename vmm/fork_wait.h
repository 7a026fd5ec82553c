/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_FORK_WAIT_H
#define VMM_FORK_WAIT_H

/*
 * The other end of a fork: a monitor that waits at a socket until a machine is
 * handed to it, once. A request that is no good is answered with the reason,
 * and the monitor goes on waiting.
 *
 * Ownership: the caller frees; owns the socket and its file.
 * Threads: io. Errors: -errno with a line.
 */

#include "vmm/errmsg.h"
#include "vmm/evloop.h"

struct fork_wait;

/* A machine's descriptors, borrowed, and the JSON text. 0 when it runs, or
 * -errno with a line for the source. */
typedef int (*fork_take_fn)(void *arg, int state_fd, int mem_fd,
                            const char *text, size_t len, struct errmsg *err);

int fork_wait_new(struct evloop *loop, const char *path, fork_take_fn take,
                  void *arg, struct fork_wait **out_wait,
                  struct errmsg *err) MUST_CHECK;
void fork_wait_free(struct fork_wait *w); /* NULL is fine */

#endif
