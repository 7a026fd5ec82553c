/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/vsock_unix.h"

#include "vmm/cleanup.h"
#include "vmm/unix_listen.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>

/*
 * Host side of vsock. thread: io
 * syscalls: accept4 recvmsg recvfrom sendmsg shutdown poll fcntl close
 */

#define VSU_BACKLOG          4096
#define VSU_ACCEPTS_PER_TURN 64
#define VSU_PAUSE_NS         50000000ull /* no fds left: try again then */

_Static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) == VSU_PATH_MAX + 1,
               "socket address");

/* A client that has not said its line yet. */
struct vsu_client {
    TAILQ_ENTRY(vsu_client) link;
    struct vsu *u;
    int fd;
    struct ev_fd watch;
    struct ev_timer timer;
    uint64_t left_ns; /* at rest: of its time */
    size_t len;
    char line[VSU_LINE_MAX];
};

struct vsu {
    struct evloop *loop;
    struct log *log;
    vsu_connect_fn fn;
    void *arg;
    uint64_t wait_ns;
    struct unix_listen listen;
    bool resting;
    int spare_fd; /* given up for a moment to refuse a client without fds */
    struct ev_fd watch;
    struct ev_timer pause;
    uint32_t num_waiting;
    TAILQ_HEAD(, vsu_client) waiting;
    struct log_limit limit;
};

/* --- bytes --------------------------------------------------------------- */

static void vsu_msg(struct msghdr *msg, struct iovec *iov, int num_iov)
{
    memset(msg, 0, sizeof(*msg));
    msg->msg_iov = iov;
    msg->msg_iovlen = (size_t)num_iov;
}

ssize_t vsu_recv(int fd, struct iovec *iov, int num_iov)
{
    struct msghdr msg;
    ssize_t n;

    vsu_msg(&msg, iov, num_iov);
    do
        n = recvmsg(fd, &msg, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n < 0 ? neg_errno() : n;
}

ssize_t vsu_send(int fd, struct iovec *iov, int num_iov)
{
    struct msghdr msg;
    ssize_t n;

    vsu_msg(&msg, iov, num_iov);
    do
        n = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? neg_errno() : n;
}

bool vsu_has_data(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

bool vsu_hung_up(int fd)
{
    struct pollfd p = {.fd = fd};

    return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR));
}

void vsu_close(int *fd)
{
    if (*fd < 0)
        return;
    /* A poll of the ring may hold the socket a little longer than its fd. */
    (void)shutdown(*fd, SHUT_RDWR); /* fails where the peer has gone */
    drop_fd(fd);
}

/* --- guest to host ------------------------------------------------------- */

int vsu_dial(const struct vsu *u, uint32_t port, int *out_fd)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int n = snprintf(addr.sun_path, sizeof(addr.sun_path), "%s_%u",
                     u->listen.path, port);

    if (n < 0 || (size_t)n >= sizeof(addr.sun_path))
        return -ENAMETOOLONG;
    return unix_dial(&addr, out_fd);
}

/* --- clients before their line ------------------------------------------- */

static void vsu_client_drop(struct vsu_client *c)
{
    struct vsu *u = c->u;

    evloop_fd_del(u->loop, &c->watch);
    evloop_timer_cancel(u->loop, &c->timer);
    TAILQ_REMOVE(&u->waiting, c, link);
    u->num_waiting--;
    vsu_close(&c->fd);
    free(c);
}

/*
 * Takes bytes up to the newline and leaves those behind it in the socket: they
 * are the guest's. 1: the line is whole. 0: not yet. -errno: no good.
 */
static int vsu_client_read(struct vsu_client *c)
{
    char *at = c->line + c->len;
    size_t room = sizeof(c->line) - c->len;
    ssize_t n = recv(c->fd, at, room, MSG_PEEK | MSG_DONTWAIT);
    const char *newline;
    size_t take;

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : neg_errno();
    if (n == 0)
        return -ECONNRESET;
    newline = memchr(at, '\n', (size_t)n);
    take = newline ? (size_t)(newline - at) + 1 : (size_t)n;
    n = recv(c->fd, at, take, MSG_DONTWAIT);
    if (n != (ssize_t)take)
        return -EIO; /* nobody else reads from it */
    c->len += take;
    if (newline)
        return 1;
    return c->len == sizeof(c->line) ? -EMSGSIZE : 0;
}

/* False: the client is gone. */
static bool vsu_client_step(struct vsu_client *c)
{
    struct vsu *u = c->u;
    uint32_t port = 0;
    int rc = vsu_client_read(c);
    int fd;

    if (rc == 0)
        return true;
    if (rc == 1)
        rc = vsu_parse_line(c->line, c->len - 1, &port);
    if (rc < 0) {
        vsu_client_drop(c);
        return false;
    }
    fd = take_fd(&c->fd);
    vsu_client_drop(c);
    u->fn(u->arg, fd, port);
    return false;
}

static void vsu_on_client(struct ev_fd *w, uint32_t revents)
{
    struct vsu_client *c = w->arg;

    /* A line may lie there although its sender has gone: same end, later. */
    if (vsu_client_step(c) && (revents & (POLLHUP | POLLERR)))
        vsu_client_drop(c);
}

static void vsu_on_client_late(struct ev_timer *t)
{
    vsu_client_drop(t->arg);
}

/* For its line, which has to come within `wait_ns`. 0 or -errno. */
static int vsu_client_watch(struct vsu_client *c, uint64_t wait_ns)
{
    struct evloop *loop = c->u->loop;
    int rc = evloop_fd_add(loop, &c->watch, c->fd, POLLIN, vsu_on_client, c);

    if (rc)
        return rc;
    return evloop_timer_arm(loop, &c->timer, util_now_ns() + wait_ns,
                            vsu_on_client_late, c);
}

static void vsu_client_add(struct vsu *u, int fd)
{
    struct vsu_client *c = NULL;

    if (u->num_waiting < VSU_WAIT_MAX)
        c = calloc(1, sizeof(*c));
    if (!c) {
        log_limited(u->log, &u->limit, LOG_WARN,
                    "vsock: a client is refused: %u others have not said "
                    "CONNECT yet",
                    u->num_waiting);
        vsu_close(&fd);
        return;
    }
    c->u = u;
    c->fd = fd;
    TAILQ_INSERT_TAIL(&u->waiting, c, link);
    u->num_waiting++;
    if (!vsu_client_step(c))
        return;
    if (vsu_client_watch(c, u->wait_ns))
        vsu_client_drop(c);
}

/* --- the listener -------------------------------------------------------- */

static void vsu_on_pause_over(struct ev_timer *t)
{
    struct vsu *u = t->arg;

    if (evloop_fd_mod(u->loop, &u->watch, POLLIN))
        log_msg(u->log, LOG_ERROR, "vsock: %s: no more clients are taken",
                u->listen.path);
}

/*
 * No fd is left for a client. It would stay in the backlog and keep the
 * listener readable, so it is taken with the spare fd, and closed. 1: go on
 * with the next one; 0: none was there (accept4() wants an fd before it
 * looks); -errno: that did not work.
 */
static int vsu_refuse_client(struct vsu *u)
{
    int rc = -EMFILE;
    int fd;

    if (u->spare_fd < 0)
        return rc;
    drop_fd(&u->spare_fd);
    fd = accept4(u->listen.fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        rc = 1;
    else if (errno == EAGAIN)
        rc = 0;
    drop_fd(&fd);
    u->spare_fd = fcntl(u->listen.fd, F_DUPFD_CLOEXEC, 0);
    if (rc == 1)
        log_limited(u->log, &u->limit, LOG_WARN,
                    "vsock: a client is refused: no file descriptors left; "
                    "raise the limit (ulimit -n)");
    return rc;
}

/* The listener sleeps a little, lest the loop spins on it. */
static void vsu_pause(struct vsu *u, int rc)
{
    log_limited(u->log, &u->limit, LOG_WARN, "vsock: %s: accept: %s",
                u->listen.path, err_reason(rc));
    /* Should even this fail, the loop spins on us but does no harm. */
    if (evloop_timer_arm(u->loop, &u->pause, util_now_ns() + VSU_PAUSE_NS,
                         vsu_on_pause_over, u) ||
        evloop_fd_mod(u->loop, &u->watch, 0))
        log_limited(u->log, &u->limit, LOG_ERROR, "vsock: %s: cannot pause",
                    u->listen.path);
}

/* 1: go on; 0: no client waits; -errno: accepting does not work now. */
static int vsu_accept_one(struct vsu *u)
{
    int fd = accept4(u->listen.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0) {
        vsu_client_add(u, fd);
        return 1;
    }
    if (errno == EAGAIN)
        return 0;
    if (errno == EINTR || errno == ECONNABORTED)
        return 1;
    if (errno == EMFILE || errno == ENFILE)
        return vsu_refuse_client(u);
    return neg_errno();
}

static void vsu_on_listener(struct ev_fd *w, uint32_t revents)
{
    struct vsu *u = w->arg;
    int rc = 1;

    (void)revents;
    if (u->spare_fd < 0)
        u->spare_fd = fcntl(u->listen.fd, F_DUPFD_CLOEXEC, 0);
    for (int i = 0; rc == 1 && i < VSU_ACCEPTS_PER_TURN; i++)
        rc = vsu_accept_one(u);
    if (rc < 0)
        vsu_pause(u, rc);
}

/* --- rest ---------------------------------------------------------------- */

void vsu_rest(struct vsu *u)
{
    uint64_t now = util_now_ns();
    struct vsu_client *c;

    if (u->resting)
        return;
    u->resting = true;
    evloop_fd_del(u->loop, &u->watch);
    evloop_timer_cancel(u->loop, &u->pause);
    TAILQ_FOREACH(c, &u->waiting, link)
    {
        c->left_ns =
            c->timer.deadline_ns > now ? c->timer.deadline_ns - now : 0;
        evloop_fd_del(u->loop, &c->watch);
        evloop_timer_cancel(u->loop, &c->timer);
    }
}

void vsu_wake(struct vsu *u)
{
    struct vsu_client *c = TAILQ_FIRST(&u->waiting);

    if (!u->resting)
        return;
    u->resting = false;
    while (c) {
        struct vsu_client *next = TAILQ_NEXT(c, link);

        if (vsu_client_watch(c, c->left_ns))
            vsu_client_drop(c);
        c = next;
    }
    if (evloop_fd_add(u->loop, &u->watch, u->listen.fd, POLLIN, vsu_on_listener,
                      u))
        log_msg(u->log, LOG_ERROR, "vsock: %s: no more clients are taken",
                u->listen.path);
}

/* --- life ---------------------------------------------------------------- */

static int vsu_start(struct vsu *u, const char *path, struct errmsg *err)
{
    int rc =
        unix_listen_open(&u->listen, "vsock socket", path, VSU_BACKLOG, err);

    if (rc)
        return rc;
    rc = evloop_fd_add(u->loop, &u->watch, u->listen.fd, POLLIN,
                       vsu_on_listener, u);
    if (rc == 0)
        u->spare_fd = fcntl(u->listen.fd, F_DUPFD_CLOEXEC, 0);
    if (rc == 0 && u->spare_fd < 0)
        rc = neg_errno();
    if (rc)
        return err_set(err, rc, "vsock socket %s: %s", path, err_reason(rc));
    return 0;
}

int vsu_new(const struct vsu_args *args, struct vsu **out_vsu,
            struct errmsg *err)
{
    struct vsu *u = calloc(1, sizeof(*u));
    int rc;

    if (!u)
        return err_set(err, -ENOMEM, "vsock socket %s: out of memory",
                       args->path);
    u->loop = args->loop;
    u->log = args->log;
    u->fn = args->fn;
    u->arg = args->arg;
    u->wait_ns = args->wait_ns ? args->wait_ns : VSU_WAIT_NS;
    u->listen.fd = -1;
    u->spare_fd = -1;
    TAILQ_INIT(&u->waiting);
    rc = vsu_start(u, args->path, err);
    if (rc) {
        vsu_free(u);
        return rc;
    }
    if (strlen(u->listen.path) > VSU_PATH_MAX - VSU_SUFFIX_MAX)
        log_msg(u->log, LOG_WARN,
                "vsock: %s is long: guest connections to high ports will be "
                "refused; %u bytes leave room for every port",
                u->listen.path, VSU_PATH_MAX - VSU_SUFFIX_MAX);
    *out_vsu = u;
    return 0;
}

void vsu_free(struct vsu *u)
{
    struct vsu_client *c;

    if (!u)
        return;
    evloop_fd_del(u->loop, &u->watch);
    evloop_timer_cancel(u->loop, &u->pause);
    c = TAILQ_FIRST(&u->waiting);
    while (c) {
        struct vsu_client *next = TAILQ_NEXT(c, link);

        vsu_client_drop(c);
        c = next;
    }
    drop_fd(&u->spare_fd);
    unix_listen_close(&u->listen);
    free(u);
}

uint32_t vsu_num_waiting(const struct vsu *u)
{
    return u->num_waiting;
}
