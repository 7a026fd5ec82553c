/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/unix_listen.h"

#include "vmm/cleanup.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

/* syscalls: socket bind listen connect getsockopt kill poll lstat unlink */
/* syscalls: fchmod shutdown close */

#define LISTEN_ALIVE_MS 100
#define LISTEN_DEAD_MS  5000

int unix_dial(const struct sockaddr_un *addr, int *out_fd)
{
    CLEANUP_FD int fd =
        socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return neg_errno();
    /* On a Unix socket this never ends as "in progress". */
    if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0)
        return neg_errno();
    *out_fd = take_fd(&fd);
    return 0;
}

/*
 * Whether the listener behind a connection is gone. io_uring keeps the sockets
 * that it polls for a while after their process was killed: until then they
 * take connections that nobody will ever answer. The end of this one tells.
 */
static bool listen_ends(int fd)
{
    struct ucred peer = {0};
    socklen_t len = sizeof(peer);
    struct pollfd p = {.fd = fd, .events = 0}; /* POLLHUP is always told */
    int limit_ms = LISTEN_ALIVE_MS;

    /* pid 0: it is in another PID namespace. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
        peer.pid > 0 && kill(peer.pid, 0) < 0 && errno == ESRCH)
        limit_ms = LISTEN_DEAD_MS;
    return poll(&p, 1, limit_ms) == 1;
}

static bool listen_is_alive(const struct sockaddr_un *addr, int *out_rc)
{
    CLEANUP_FD int fd = -1;
    int rc = unix_dial(addr, &fd);

    *out_rc = 0;
    if (rc == 0)
        return !listen_ends(fd);
    if (rc != -EAGAIN && rc != -ECONNREFUSED && rc != -ENOENT)
        *out_rc = rc;
    return rc == -EAGAIN;
}

/*
 * Somebody's file is where ours should be. Removed only if it is a socket whose
 * owner is dead. Two processes that start on the same dead socket in the same
 * instant can still both get here; lstat again right before unlink keeps that
 * window down to a few instructions.
 */
static int listen_clear_stale(const char *what, const struct sockaddr_un *addr,
                              struct errmsg *err)
{
    const char *path = addr->sun_path;
    struct stat st;
    struct stat again;
    int rc = 0;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : neg_errno();
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, -EEXIST,
                       "%s %s: a file that is not a socket is in its place; "
                       "remove it or choose another path",
                       what, path);
    if (listen_is_alive(addr, &rc))
        return err_set(err, -EADDRINUSE,
                       "%s %s: another process listens there; stop it or "
                       "choose another path",
                       what, path);
    if (rc)
        return rc;
    if (lstat(path, &again) < 0)
        return errno == ENOENT ? 0 : neg_errno();
    if (again.st_dev != st.st_dev || again.st_ino != st.st_ino)
        return -EADDRINUSE;
    return unlink(path) < 0 ? neg_errno() : 0;
}

static int listen_bind(struct unix_listen *l, const char *what, int backlog,
                       struct errmsg *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const struct sockaddr *sa = (const struct sockaddr *)&addr;
    struct stat st;
    int rc;

    memcpy(addr.sun_path, l->path, sizeof(addr.sun_path));
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0)
        return neg_errno();
    /* bind() makes the file with the mode of the socket: never too open. */
    if (fchmod(l->fd, 0600) < 0)
        return neg_errno();
    if (bind(l->fd, sa, sizeof(addr)) < 0) {
        if (errno != EADDRINUSE)
            return neg_errno();
        rc = listen_clear_stale(what, &addr, err);
        if (rc)
            return rc;
        if (bind(l->fd, sa, sizeof(addr)) < 0)
            return neg_errno();
    }
    if (lstat(l->path, &st) < 0)
        return neg_errno();
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    l->bound = true;
    return listen(l->fd, backlog) < 0 ? neg_errno() : 0;
}

static int listen_check_path(const char *what, const char *path,
                             struct errmsg *err)
{
    size_t len = strlen(path);

    if (len == 0)
        return err_set(err, -EINVAL, "%s: the path is empty; give one", what);
    if (len > UNIX_LISTEN_PATH_MAX)
        return err_set(err, -ENAMETOOLONG,
                       "%s %s: the path has %zu bytes, a socket's can have "
                       "%zu; choose a shorter one",
                       what, path, len, (size_t)UNIX_LISTEN_PATH_MAX);
    return 0;
}

int unix_listen_open(struct unix_listen *l, const char *what, const char *path,
                     int backlog, struct errmsg *err)
{
    struct errmsg why = {""};
    int rc;

    memset(l, 0, sizeof(*l));
    l->fd = -1;
    rc = listen_check_path(what, path, err);
    if (rc)
        return rc;
    memcpy(l->path, path, strlen(path));
    rc = listen_bind(l, what, backlog, &why);
    if (rc == 0)
        return 0;
    unix_listen_close(l);
    if (why.text[0])
        return err_set(err, rc, "%s", why.text);
    return err_set(err, rc,
                   "%s %s: %s; check the directory and its permissions", what,
                   path, err_reason(rc));
}

void unix_listen_close(struct unix_listen *l)
{
    struct stat st;

    if (l->bound && lstat(l->path, &st) == 0 && S_ISSOCK(st.st_mode) &&
        st.st_dev == l->dev && st.st_ino == l->ino)
        (void)unlink(l->path); /* a leftover is harmless: it is stale */
    l->bound = false;
    /* Also wakes a poll of the ring, which would keep it listening. */
    if (l->fd >= 0)
        (void)shutdown(l->fd, SHUT_RDWR);
    drop_fd(&l->fd);
}
