/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/fork_send.h"

#include "vmm/cleanup.h"
#include "vmm/le.h"
#include "vmm/unix_listen.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const char fork_magic[FORK_MAGIC_BYTES] = FORK_MAGIC;

/* A hang guard: a child that was started takes a few milliseconds. */
#define SEND_LIMIT_NS (30 * 1000000000ull)

static void send_end(struct fork_send *s, int rc)
{
    evloop_fd_del(s->loop, &s->watch);
    evloop_timer_cancel(s->loop, &s->timer);
    drop_fd(&s->sock);
    s->done(s, rc);
}

static void send_fail(struct fork_send *s, int rc, const char *what)
{
    send_end(s,
             err_set(&s->err, rc, "%s: %s: %s", s->path, what, err_reason(rc)));
}

/* --- the request ------------------------------------------------------------
 */

/* The head and what fits of the text, with the descriptors. */
static ssize_t send_first(struct fork_send *s)
{
    char head[FORK_HEAD_BYTES];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FORK_NUM_FDS * sizeof(int))];
    } c;
    const int fds[FORK_NUM_FDS] = {s->state_fd, s->mem_fd};
    struct iovec iov[] = {
        {.iov_base = head, .iov_len = sizeof(head)},
        {.iov_base = s->text, .iov_len = strlen(s->text)},
    };
    struct msghdr msg = {
        .msg_iov = iov,
        .msg_iovlen = ARRAY_SIZE(iov),
        .msg_control = &c,
        .msg_controllen = sizeof(c.room),
    };

    memcpy(head, fork_magic, sizeof(fork_magic));
    put_le32(head + 8, FORK_VERSION);
    put_le32(head + 12, (uint32_t)strlen(s->text));
    memset(&c, 0, sizeof(c));
    c.head.cmsg_level = SOL_SOCKET;
    c.head.cmsg_type = SCM_RIGHTS;
    c.head.cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(&c.head), fds, sizeof(fds));
    return sendmsg(s->sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t send_rest(struct fork_send *s)
{
    size_t off = s->sent - FORK_HEAD_BYTES;

    return send(s->sock, s->text + off, strlen(s->text) - off,
                MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void send_request(struct fork_send *s)
{
    ssize_t n = s->sent == 0 ? send_first(s) : send_rest(s);
    int rc;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        send_fail(s, neg_errno(), "handing over the machine failed");
        return;
    }
    s->sent += (size_t)n;
    if (s->sent < FORK_HEAD_BYTES) {
        /* The head is smaller than any socket buffer: nobody cuts it. */
        send_fail(s, -EIO, "handing over the machine failed");
        return;
    }
    if (s->sent < FORK_HEAD_BYTES + strlen(s->text))
        return;
    rc = evloop_fd_mod(s->loop, &s->watch, POLLIN);
    if (rc)
        send_fail(s, rc, "waiting for its answer");
}

/* --- the answer -------------------------------------------------------------
 */

static void send_on_answer(struct fork_send *s)
{
    uint32_t code = get_le32(s->answer);
    uint64_t len =
        min_u64(get_le32(s->answer + 4), sizeof(s->answer) - FORK_ANSWER_BYTES);

    if (code == 0) {
        send_end(s, 0);
        return;
    }
    (void)err_set(&s->err, 0, "%.*s", (int)len, s->answer + FORK_ANSWER_BYTES);
    send_end(s, -(int)(code < 4096 ? code : EIO));
}

static void send_read(struct fork_send *s)
{
    size_t want = FORK_ANSWER_BYTES;
    ssize_t n;

    if (s->got >= FORK_ANSWER_BYTES)
        want += min_u64(get_le32(s->answer + 4),
                        sizeof(s->answer) - FORK_ANSWER_BYTES);
    n = recv(s->sock, s->answer + s->got, want - s->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        send_fail(s, n < 0 ? neg_errno() : -ECONNRESET,
                  "the waiting monitor gave no answer");
        return;
    }
    s->got += (size_t)n;
    if (s->got == FORK_ANSWER_BYTES && get_le32(s->answer + 4) > 0)
        return;
    if (s->got >= FORK_ANSWER_BYTES &&
        s->got ==
            FORK_ANSWER_BYTES + min_u64(get_le32(s->answer + 4),
                                        sizeof(s->answer) - FORK_ANSWER_BYTES))
        send_on_answer(s);
}

static void send_on_event(struct ev_fd *w, uint32_t revents)
{
    struct fork_send *s = w->arg;

    if (w->events & POLLOUT && !(revents & POLLHUP))
        send_request(s);
    else
        send_read(s);
}

static void send_on_time(struct ev_timer *t)
{
    send_fail(t->arg, -ETIMEDOUT, "the waiting monitor gave no answer");
}

/* A failure before there is anything to wait for is told a turn later. */
static void send_on_late(struct ev_timer *t)
{
    struct fork_send *s = t->arg;

    send_end(s, -ECONNREFUSED);
}

/* --- life -------------------------------------------------------------------
 */

static int send_connect(struct fork_send *s)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int rc;

    if (!s->text)
        return err_set(&s->err, -ENOMEM, "%s: out of memory", s->path);
    if (strlen(s->path) >= sizeof(a.sun_path))
        return err_set(&s->err, -ENAMETOOLONG,
                       "%s: a socket's path has at most %zu bytes", s->path,
                       sizeof(a.sun_path) - 1);
    memcpy(a.sun_path, s->path, strlen(s->path));
    rc = unix_dial(&a, &s->sock);
    if (rc)
        return err_set(&s->err, rc, "%s: no monitor waits there: %s", s->path,
                       err_reason(rc));
    rc = evloop_fd_add(s->loop, &s->watch, s->sock, POLLOUT, send_on_event, s);
    return rc ? err_set(&s->err, rc, "%s: %s", s->path, err_reason(rc)) : 0;
}

void fork_send_start(struct fork_send *s)
{
    int rc;

    s->sock = -1;
    s->sent = s->got = 0;
    rc = send_connect(s);
    rc = evloop_timer_arm(s->loop, &s->timer,
                          rc ? 0 : util_now_ns() + SEND_LIMIT_NS,
                          rc ? send_on_late : send_on_time, s);
    (void)rc; /* out of memory: the child's answer or its end comes */
}

void fork_send_fini(struct fork_send *s)
{
    if (!s->loop)
        return;
    evloop_fd_del(s->loop, &s->watch);
    evloop_timer_cancel(s->loop, &s->timer);
    drop_fd(&s->sock);
    free(s->text);
    s->text = NULL;
}
