/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_UNIX_LISTEN_H
#define VMM_UNIX_LISTEN_H

/*
 * A listening Unix socket and its file. A socket of a dead process in its
 * place is replaced, anything else there is left alone.
 *
 * Ownership: the struct owns descriptor and file; embedded, starts as
 * UNIX_LISTEN_NONE. Threads: any, one at a time. Errors: -errno with a line.
 */

#include "vmm/errmsg.h"

#include <sys/stat.h>
#include <sys/un.h>

#define UNIX_LISTEN_PATH_MAX (sizeof(((struct sockaddr_un *)0)->sun_path) - 1)
#define UNIX_LISTEN_NONE                                                       \
    {                                                                          \
        .fd = -1                                                               \
    }

struct unix_listen {
    int fd; /* non-blocking, close-on-exec; -1: none */
    char path[UNIX_LISTEN_PATH_MAX + 1];
    bool bound; /* dev and ino tell our file */
    dev_t dev;
    ino_t ino;
};

/*
 * Creates the socket file (mode 0600) and listens. `what` names the socket in
 * messages, e.g. "vsock socket". -EADDRINUSE somebody listens there, -EEXIST
 * not a socket, -ENAMETOOLONG, -EINVAL an empty path, or -errno of a failed
 * call. Fails after at most a tenth of a second where the listener lives;
 * waits up to five seconds for one that is dead but not yet torn down.
 */
int unix_listen_open(struct unix_listen *l, const char *what, const char *path,
                     int backlog, struct errmsg *err) MUST_CHECK;

/* Removes the file if it is still ours, and closes. Idempotent. */
void unix_listen_close(struct unix_listen *l);

/*
 * A connected, non-blocking socket. -EAGAIN: the backlog is full, try again
 * later; any other -errno: nobody there.
 */
int unix_dial(const struct sockaddr_un *addr, int *out_fd) MUST_CHECK;

#endif
