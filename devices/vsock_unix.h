/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VSOCK_UNIX_H
#define DEVICES_VSOCK_UNIX_H

/*
 * The host's side of vsock: stream sockets in the file system. A listener at
 * `path` takes clients that say `CONNECT <port>\n`; a connection of the guest
 * to port P goes to the listener of somebody else at `<path>_<P>`. Knows
 * nothing of virtio.
 *
 * Ownership: struct vsu owns the listener, its file and the clients that have
 * not said their line yet; other fds belong to the caller. All are
 * non-blocking and close-on-exec.
 * Threads: io. Errors: 0 or -errno. Never raises SIGPIPE.
 */

#include "vmm/errmsg.h"
#include "vmm/evloop.h"
#include "vmm/log.h"

struct vsu;

/* A client asks for guest port `port`; `fd` is handed over. */
typedef void (*vsu_connect_fn)(void *arg, int fd, uint32_t port);

struct vsu_args {
    struct evloop *loop; /* borrowed */
    struct log *log;     /* borrowed, may be NULL */
    const char *path;    /* copied; at most VSU_PATH_MAX bytes */
    vsu_connect_fn fn;
    void *arg;
    uint64_t wait_ns; /* for a client's line; 0: VSU_WAIT_NS */
};

#define VSU_PATH_MAX   107u /* what fits into a socket address */
#define VSU_SUFFIX_MAX 11u  /* "_4294967295" */
#define VSU_LINE_MAX   32u  /* the CONNECT line with its newline */
#define VSU_WAIT_MAX   256u /* clients that have not said their line */
#define VSU_WAIT_NS    10000000000ull

/*
 * Creates the socket file (mode 0600) and listens. A socket in its place that
 * nobody listens on is replaced; anything else there is left alone.
 * -EADDRINUSE somebody listens there, -EEXIST not a socket, -ENAMETOOLONG,
 * -EINVAL an empty path, or the -errno of the failed call; `err` is filled.
 */
int vsu_new(const struct vsu_args *args, struct vsu **out_vsu,
            struct errmsg *err) MUST_CHECK;
/* Removes the socket file if it is still this one. NULL is fine. */
void vsu_free(struct vsu *u);

/*
 * From now on nobody is accepted and nothing is read; clients wait in the
 * backlog, and the time of those that have not said their line stands still.
 * Each idempotent.
 */
void vsu_rest(struct vsu *u);
void vsu_wake(struct vsu *u);

/*
 * Connects to `<path>_<port>`. -EAGAIN: its backlog is full, try again later;
 * -ENAMETOOLONG; any other -errno: nobody there.
 */
int vsu_dial(const struct vsu *u, uint32_t port, int *out_fd) MUST_CHECK;

/* Clients that have not said their line yet. */
uint32_t vsu_num_waiting(const struct vsu *u);

/* --- bytes --------------------------------------------------------------- */

/* The bytes moved; 0 from vsu_recv: the peer has sent all; or -errno. */
ssize_t vsu_recv(int fd, struct iovec *iov, int num_iov) MUST_CHECK;
ssize_t vsu_send(int fd, struct iovec *iov, int num_iov) MUST_CHECK;
/* Whether bytes wait to be received. */
bool vsu_has_data(int fd);
/* Whether the peer has closed, not only finished sending. */
bool vsu_hung_up(int fd);
/* Ends a connection at once, also for a kernel that still polls it. */
void vsu_close(int *fd);

/* --- the line ------------------------------------------------------------ */

/*
 * Reads `CONNECT <port>` (len bytes, without the newline): the word in any
 * case, one space, decimal digits. 0 or -EINVAL. VMADDR_PORT_ANY is none.
 */
int vsu_parse_line(const char *line, size_t len, uint32_t *out_port) MUST_CHECK;

#endif
