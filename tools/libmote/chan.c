/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/chan.h"

#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#define LM_CONNECT_WAIT_S 5

int lm_unix_address(struct sockaddr_un *out, const char *path,
                    const char *suffix, struct mote_err *err)
{
    int n;

    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    n = snprintf(out->sun_path, sizeof(out->sun_path), "%s%s", path, suffix);
    if (n < 0 || (size_t)n >= sizeof(out->sun_path))
        return lm_err(err, -ENAMETOOLONG,
                      "socket path %s%s: longer than the %zu bytes that a "
                      "Unix socket may have; use a shorter directory",
                      path, suffix, sizeof(out->sun_path) - 1);
    return 0;
}

uint64_t lm_deadline(int timeout_ms)
{
    if (timeout_ms < 0)
        return UINT64_MAX;
    return util_now_ns() + (uint64_t)timeout_ms * 1000000u;
}

int lm_poll_timeout(uint64_t deadline_ns)
{
    uint64_t now = util_now_ns();
    uint64_t ms;

    if (deadline_ns == UINT64_MAX)
        return -1;
    if (deadline_ns <= now)
        return 0;
    ms = (deadline_ns - now + 999999) / 1000000;
    return ms > 1000000000 ? 1000000000 : (int)ms;
}

static int lm_set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return neg_errno();
    return 0;
}

int lm_chan_connect(struct lm_chan *c, const char *path, uint32_t port,
                    struct mote_err *err)
{
    const struct timeval wait = {.tv_sec = LM_CONNECT_WAIT_S};
    CLEANUP_FD int fd = -1;
    struct sockaddr_un sa;
    char hail[32];
    int len = snprintf(hail, sizeof(hail), "CONNECT %u\n", port);
    int rc = lm_unix_address(&sa, path, "", err);

    *c = LM_CHAN_CLOSED;
    if (rc)
        return rc;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* The send timeout also bounds connect() to a full backlog. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)))
        goto failed;
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
        goto failed;
    if (send(fd, hail, (size_t)len, MSG_NOSIGNAL) != len)
        goto failed;
    rc = lm_chan_adopt(c, fd);
    if (rc)
        return lm_err(err, rc, "%s: %s", path, err_reason(rc));
    (void)take_fd(&fd);
    c->greeted = false;
    return 0;
failed:
    rc = neg_errno();
    return lm_err(err, rc, "%s: %s; the machine may have just ended", path,
                  err_reason(rc));
}

int lm_chan_adopt(struct lm_chan *c, int fd)
{
    int rc = lm_set_nonblocking(fd);

    if (rc)
        return rc;
    *c = LM_CHAN_CLOSED;
    rc = lm_put_hello(&c->out);
    if (rc) {
        lm_chan_close(c);
        return rc;
    }
    c->greeted = true;
    c->fd = fd;
    return 0;
}

size_t lm_chan_backlog(const struct lm_chan *c)
{
    return c->out.len - c->out_sent;
}

short lm_chan_events(const struct lm_chan *c)
{
    bool sending = c->greeted && lm_chan_backlog(c) > 0;

    return (short)(POLLIN | (sending ? POLLOUT : 0));
}

/* Reads the monitor's "OK <port>\n" without a byte of what follows it. */
static int lm_chan_greet(struct lm_chan *c)
{
    while (!c->greeted) {
        char *at = c->greeting + c->greeting_len;
        ssize_t n = recv(c->fd, at, 1, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0)
            return -ECONNREFUSED;
        if (*at == '\n')
            c->greeted = strncmp(c->greeting, "OK ", 3) == 0;
        if (*at == '\n' && !c->greeted)
            return -EBADMSG;
        if (++c->greeting_len == sizeof(c->greeting))
            return -EBADMSG;
    }
    return 1;
}

/*
 * A peer that closed is not an error here: what it sent before is still to
 * be read, and the read then finds the end.
 */
static int lm_chan_flush(struct lm_chan *c)
{
    while (lm_chan_backlog(c) > 0) {
        ssize_t n = send(c->fd, c->out.data + c->out_sent, lm_chan_backlog(c),
                         MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0 && errno != EPIPE && errno != ECONNRESET)
            return neg_errno();
        c->out_sent = n < 0 ? c->out.len : c->out_sent + (size_t)n;
    }
    lm_buf_consume(&c->out, c->out_sent);
    c->out_sent = 0;
    return 0;
}

/* Reads once. 1 if bytes came, 0 if none are there. */
static int lm_chan_receive(struct lm_chan *c)
{
    size_t room = 0;
    uint8_t *p = lm_reader_room(&c->in, &room);
    ssize_t n;

    if (!p)
        return -ENOMEM;
    do {
        n = recv(c->fd, p, room, 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN ? 0 : neg_errno();
    if (n == 0)
        return -ECONNRESET;
    lm_reader_put(&c->in, (size_t)n);
    return 1;
}

int lm_chan_send(struct lm_chan *c)
{
    int rc;

    if (c->fd < 0)
        return -ECONNRESET;
    rc = lm_chan_greet(c);
    return rc > 0 ? lm_chan_flush(c) : rc;
}

int lm_chan_next(struct lm_chan *c, struct lm_msg *out)
{
    int rc = lm_chan_send(c);

    if (rc || !c->greeted)
        return rc;
    while ((rc = lm_reader_next(&c->in, out)) == 0) {
        rc = lm_chan_receive(c);
        if (rc <= 0)
            return rc;
    }
    return rc;
}

void lm_chan_close(struct lm_chan *c)
{
    drop_fd(&c->fd);
    lm_reader_fini(&c->in);
    lm_buf_fini(&c->out);
    c->out_sent = 0;
}

int lm_wait_fd(int fd, short events, uint64_t deadline_ns, int cancel_fd)
{
    struct pollfd p[] = {{.fd = fd, .events = events},
                         {.fd = cancel_fd, .events = POLLIN}};

    for (;;) {
        int n = poll(p, ARRAY_SIZE(p), lm_poll_timeout(deadline_ns));

        if (n > 0)
            return p[0].revents ? 0 : -ECANCELED;
        if (n == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return neg_errno();
    }
}
