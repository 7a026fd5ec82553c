/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/fork_wait.h"

#include "vmm/cleanup.h"
#include "vmm/fork_wire.h"
#include "vmm/le.h"
#include "vmm/unix_listen.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_BACKLOG 4

struct fork_wait {
    struct evloop *loop;
    fork_take_fn take;
    void *arg;
    struct unix_listen listen;
    struct ev_fd door;
    /* the one connection; others are turned away meanwhile */
    struct ev_fd peer;
    int sock; /* -1: none */
    int fds[FORK_NUM_FDS];
    size_t got;
    char buf[FORK_HEAD_BYTES + FORK_MAX_TEXT];
};

static void wait_drop_fds(struct fork_wait *w)
{
    for (size_t i = 0; i < FORK_NUM_FDS; i++)
        drop_fd(&w->fds[i]);
}

static void wait_hang_up(struct fork_wait *w)
{
    evloop_fd_del(w->loop, &w->peer);
    drop_fd(&w->sock);
    wait_drop_fds(w);
    w->got = 0;
}

static void wait_answer(struct fork_wait *w, int rc, const struct errmsg *err)
{
    char out[FORK_ANSWER_BYTES + sizeof(err->text)];
    size_t len = rc ? strlen(err->text) : 0;

    put_le32(out, rc ? (uint32_t)-rc : 0);
    put_le32(out + 4, (uint32_t)len);
    memcpy(out + FORK_ANSWER_BYTES, err->text, len);
    /* It fits into an empty socket; a source that has gone hears nothing. */
    (void)send(w->sock, out, FORK_ANSWER_BYTES + len,
               MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The whole request is there. */
static void wait_take(struct fork_wait *w)
{
    struct errmsg err = {""};
    int rc;

    if (memcmp(w->buf, FORK_MAGIC, FORK_MAGIC_BYTES) != 0 ||
        get_le32(w->buf + 8) != FORK_VERSION || w->fds[0] < 0 || w->fds[1] < 0)
        rc = err_set(&err, -EPROTO,
                     "the waiting monitor was sent something else than a "
                     "machine of its version");
    else
        rc = w->take(w->arg, w->fds[0], w->fds[1], w->buf + FORK_HEAD_BYTES,
                     get_le32(w->buf + 12), &err);
    wait_answer(w, rc, &err);
    if (rc == 0) {
        /* One machine a process. */
        evloop_fd_del(w->loop, &w->door);
        unix_listen_close(&w->listen);
    }
    wait_hang_up(w);
}

/* Takes the descriptors of a message; more than there should be are closed. */
static void wait_take_fds(struct fork_wait *w, struct msghdr *msg)
{
    size_t have = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        int fd;

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < n; i++) {
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
            if (have < FORK_NUM_FDS && w->fds[have] < 0)
                w->fds[have++] = fd;
            else
                (void)close(fd);
        }
    }
}

static ssize_t wait_recv(struct fork_wait *w, size_t want)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FORK_NUM_FDS * sizeof(int))];
    } c;
    struct iovec iov = {.iov_base = w->buf + w->got, .iov_len = want - w->got};
    struct msghdr msg = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &c,
        .msg_controllen = sizeof(c.room),
    };
    ssize_t n = recvmsg(w->sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n >= 0)
        wait_take_fds(w, &msg);
    return n;
}

static void wait_on_peer(struct ev_fd *watch, uint32_t revents)
{
    struct fork_wait *w = watch->arg;
    size_t want = FORK_HEAD_BYTES;
    ssize_t n;

    (void)revents;
    if (w->got >= FORK_HEAD_BYTES)
        want += get_le32(w->buf + 12);
    n = wait_recv(w, want);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        wait_hang_up(w);
        return;
    }
    w->got += (size_t)n;
    if (w->got < FORK_HEAD_BYTES)
        return;
    if (get_le32(w->buf + 12) > FORK_MAX_TEXT)
        wait_hang_up(w);
    else if (w->got == FORK_HEAD_BYTES + get_le32(w->buf + 12))
        wait_take(w);
}

static void wait_on_door(struct ev_fd *watch, uint32_t revents)
{
    struct fork_wait *w = watch->arg;
    int fd;

    (void)revents;
    fd = accept4(w->listen.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (w->sock >= 0) {
        (void)close(fd); /* one is there: this one finds no monitor waiting */
        return;
    }
    w->sock = fd;
    if (evloop_fd_add(w->loop, &w->peer, fd, POLLIN, wait_on_peer, w))
        wait_hang_up(w);
}

int fork_wait_new(struct evloop *loop, const char *path, fork_take_fn take,
                  void *arg, struct fork_wait **out_wait, struct errmsg *err)
{
    struct fork_wait *w = calloc(1, sizeof(*w));
    int rc;

    if (!w)
        return err_set(err, -ENOMEM, "out of memory");
    w->loop = loop;
    w->take = take;
    w->arg = arg;
    w->listen = (struct unix_listen)UNIX_LISTEN_NONE;
    w->sock = -1;
    for (size_t i = 0; i < FORK_NUM_FDS; i++)
        w->fds[i] = -1;
    rc = unix_listen_open(&w->listen, "fork socket", path, WAIT_BACKLOG, err);
    if (rc == 0) {
        rc = evloop_fd_add(loop, &w->door, w->listen.fd, POLLIN, wait_on_door,
                           w);
        if (rc)
            rc = err_set(err, rc, "%s: %s", path, err_reason(rc));
    }
    if (rc) {
        fork_wait_free(w);
        return rc;
    }
    *out_wait = w;
    return 0;
}

void fork_wait_free(struct fork_wait *w)
{
    if (!w)
        return;
    evloop_fd_del(w->loop, &w->door);
    evloop_fd_del(w->loop, &w->peer);
    drop_fd(&w->sock);
    wait_drop_fds(w);
    unix_listen_close(&w->listen);
    free(w);
}
