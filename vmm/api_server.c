/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/api_server.h"

#include "vmm/cleanup.h"
#include "vmm/unix_listen.h"

#include <poll.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

/* thread: io; syscalls: accept4 recvfrom sendto shutdown close */

#define API_BACKLOG        64
#define API_READ_BYTES     4096u
#define API_READS_PER_TURN 4
#define API_MAX_REFUSED    16u /* that are still told so */
#define API_DRAIN_BYTES    (1u << 20)
#define API_PAUSE_NS       50000000ull /* no fds left: try again then */

struct api_conn {
    TAILQ_ENTRY(api_conn) link;
    struct api_server *s;
    int fd;
    struct ev_fd watch;
    struct http_parser parser;
    struct http_out out;
    bool closing;  /* nothing more is read; goes once `out` is empty */
    bool asking;   /* its request is the one that is being served */
    bool refused;  /* it was one too many */
    bool draining; /* what comes is dropped, see api_conn_drain() */
    size_t drained;
    size_t in_len;
    size_t in_off;
    char in[API_READ_BYTES];
};

struct api_server {
    struct evloop *loop;
    struct log *log;
    api_request_fn fn;
    void *arg;
    size_t max_body;
    struct unix_listen listener;
    struct ev_fd watch;
    struct ev_timer pause;
    bool busy;          /* a request is with the handler */
    bool in_handler;    /* and its call has not returned */
    uint32_t num_conns; /* without the refused ones */
    uint32_t num_refused;
    TAILQ_HEAD(, api_conn) conns;
    struct log_limit limit;
};

static void api_conn_drop(struct api_conn *c)
{
    struct api_server *s = c->s;

    evloop_fd_del(s->loop, &c->watch);
    TAILQ_REMOVE(&s->conns, c, link);
    if (c->refused)
        s->num_refused--;
    else
        s->num_conns--;
    http_parser_fini(&c->parser);
    http_out_fini(&c->out);
    /* A poll of the ring may hold the socket a little longer than its fd. */
    (void)shutdown(c->fd, SHUT_RDWR); /* fails where the peer has gone */
    drop_fd(&c->fd);
    free(c);
}

/* --- one connection -------------------------------------------------------
 */

/* False: the client takes no more for now, or is gone. */
static bool api_conn_flush(struct api_conn *c)
{
    while (http_out_left(&c->out) > 0) {
        ssize_t n = send(c->fd, c->out.data + c->out.sent,
                         http_out_left(&c->out), MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n >= 0) {
            http_out_sent(&c->out, (size_t)n);
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN)
            return false;
        c->closing = true;
        http_out_fini(&c->out);
        return false;
    }
    return true;
}

/* False: nothing came. */
static bool api_conn_read(struct api_conn *c)
{
    ssize_t n;

    do
        n = recv(c->fd, c->in, sizeof(c->in), MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        c->in_off = 0;
        c->in_len = (size_t)n;
        return true;
    }
    if (n == 0 || errno != EAGAIN)
        c->closing = true;
    return false;
}

/* Without memory for a response the client sees its connection close. */
static void api_conn_put(struct api_conn *c, int rc)
{
    if (rc)
        c->closing = true;
}

static void api_conn_refuse(struct api_conn *c, int status, const char *text)
{
    api_conn_put(c, http_put_refusal(&c->out, status, text));
    c->draining = true;
    c->in_off = 0;
    c->in_len = 0;
}

/*
 * A client that is refused may still be sending, and would see a broken pipe
 * instead of the reason if its connection was closed at once. So our side says
 * that nothing more comes, and the rest of what it sends is thrown away.
 * False: nothing came.
 */
static bool api_conn_drain(struct api_conn *c)
{
    if (c->drained == 0)
        (void)shutdown(c->fd, SHUT_WR); /* fails where the peer has gone */
    if (!api_conn_read(c))
        return false;
    c->drained += c->in_len;
    c->in_len = 0;
    if (c->drained > API_DRAIN_BYTES)
        c->closing = true;
    return true;
}

static void api_conn_feed(struct api_conn *c)
{
    size_t used = 0;

    switch (http_feed(&c->parser, c->in + c->in_off, c->in_len - c->in_off,
                      &used)) {
    case HTTP_MORE:
        break;
    case HTTP_CONTINUE:
        api_conn_put(c, http_put_continue(&c->out));
        break;
    case HTTP_BAD:
        api_conn_refuse(c, 400, c->parser.error);
        break;
    case HTTP_READY:
        c->asking = true;
        c->s->busy = true;
        c->s->in_handler = true;
        c->s->fn(c->s->arg, &c->parser.req);
        c->s->in_handler = false;
        break;
    }
    c->in_off += used;
}

/* False: nothing more can be done now. */
static bool api_conn_step(struct api_conn *c, int *reads)
{
    if (!api_conn_flush(c) || c->closing)
        return false;
    if (c->draining)
        return (*reads)++ < API_READS_PER_TURN && api_conn_drain(c);
    if (c->s->busy)
        return false;
    if (c->in_off == c->in_len &&
        ((*reads)++ >= API_READS_PER_TURN || !api_conn_read(c)))
        return false;
    api_conn_feed(c);
    return true;
}

/*
 * Goes on with one connection as far as it gets: responses out, then requests
 * in, one after the other.
 */
static void api_conn_run(struct api_conn *c)
{
    int reads = 0;

    while (api_conn_step(c, &reads))
        ;
    (void)api_conn_flush(c); /* what is left waits for POLLOUT */
}

/* What the connection waits for from now on; or its end. */
static void api_conn_settle(struct api_conn *c)
{
    uint32_t events = POLLIN;

    if (http_out_left(&c->out) > 0)
        events = POLLOUT;
    else if (c->closing && !c->asking) {
        api_conn_drop(c);
        return;
    } else if (!c->draining && (c->s->busy || c->closing))
        events = 0; /* api_server_answer() goes on with it */
    if (evloop_fd_mod(c->s->loop, &c->watch, events))
        api_conn_drop(c);
}

static void api_conn_go_on(struct api_conn *c)
{
    api_conn_run(c);
    api_conn_settle(c);
}

static void api_on_conn(struct ev_fd *w, uint32_t revents)
{
    struct api_conn *c = w->arg;

    /*
     * Both directions are closed: nobody reads an answer. What the client
     * sent before is still carried out, but for what would have to wait.
     */
    if ((revents & (POLLHUP | POLLERR)) && !(revents & POLLIN)) {
        api_conn_drop(c);
        return;
    }
    api_conn_go_on(c);
}

/* --- answers ---------------------------------------------------------------
 */

static void api_server_go_on(struct api_server *s)
{
    struct api_conn *c = TAILQ_FIRST(&s->conns);

    while (c) {
        struct api_conn *next = TAILQ_NEXT(c, link);

        api_conn_go_on(c);
        c = next;
    }
}

void api_server_answer(struct api_server *s, const struct http_reply *r)
{
    struct api_conn *c;

    s->busy = false;
    TAILQ_FOREACH(c, &s->conns, link)
    {
        struct http_reply out = *r;

        if (!c->asking)
            continue;
        c->asking = false;
        out.close = c->closing || !c->parser.req.keep_alive;
        api_conn_put(c, http_put_reply(&c->out, &out));
        c->closing |= out.close;
        http_next(&c->parser);
        break;
    }
    /* Else its client has gone meanwhile. */
    if (!s->in_handler)
        api_server_go_on(s);
}

/* --- the listener -----------------------------------------------------------
 */

static void api_add(struct api_server *s, int fd)
{
    bool refused = s->num_conns == API_MAX_CONNS;
    struct api_conn *c = NULL;

    if (!refused || s->num_refused < API_MAX_REFUSED)
        c = calloc(1, sizeof(*c));
    if (!c) {
        (void)close(fd);
        return;
    }
    c->s = s;
    c->fd = fd;
    c->refused = refused;
    http_parser_init(&c->parser, s->max_body);
    TAILQ_INSERT_TAIL(&s->conns, c, link);
    if (refused)
        s->num_refused++;
    else
        s->num_conns++;
    if (evloop_fd_add(s->loop, &c->watch, fd, POLLIN, api_on_conn, c)) {
        api_conn_drop(c);
        return;
    }
    if (refused)
        api_conn_refuse(c, 503, "Too many open connections");
    api_conn_go_on(c);
}

static void api_on_pause_over(struct ev_timer *t)
{
    struct api_server *s = t->arg;

    if (evloop_fd_mod(s->loop, &s->watch, POLLIN))
        log_msg(s->log, LOG_ERROR, "API: no more clients are taken");
}

/* No descriptor is left: sleep a little, lest the loop spins on it. */
static void api_pause(struct api_server *s, int rc)
{
    log_limited(s->log, &s->limit, LOG_WARN, "API: accept: %s", err_reason(rc));
    /* Should even this fail, the loop spins on us but does no harm. */
    (void)!evloop_timer_arm(s->loop, &s->pause, util_now_ns() + API_PAUSE_NS,
                            api_on_pause_over, s);
    (void)!evloop_fd_mod(s->loop, &s->watch, 0);
}

static void api_on_listener(struct ev_fd *w, uint32_t revents)
{
    struct api_server *s = w->arg;

    (void)revents;
    for (uint32_t i = 0; i < API_MAX_CONNS; i++) {
        int fd =
            accept4(s->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            api_add(s, fd);
            continue;
        }
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            api_pause(s, neg_errno());
        break;
    }
}

/* --- life -------------------------------------------------------------------
 */

int api_server_new(const struct api_server_args *args,
                   struct api_server **out_server, struct errmsg *err)
{
    struct api_server *s = calloc(1, sizeof(*s));
    int rc;

    if (!s)
        return err_set(err, -ENOMEM, "--api-sock: out of memory");
    s->loop = args->loop;
    s->log = args->log;
    s->fn = args->fn;
    s->arg = args->arg;
    s->max_body = args->max_body;
    TAILQ_INIT(&s->conns);
    s->listener = (struct unix_listen)UNIX_LISTEN_NONE;
    rc = unix_listen_open(&s->listener, "--api-sock", args->path, API_BACKLOG,
                          err);
    if (rc == 0) {
        rc = evloop_fd_add(s->loop, &s->watch, s->listener.fd, POLLIN,
                           api_on_listener, s);
        if (rc)
            (void)err_set(err, rc, "--api-sock %s: %s", args->path,
                          err_reason(rc));
    }
    if (rc) {
        api_server_free(s);
        return rc;
    }
    *out_server = s;
    return 0;
}

void api_server_free(struct api_server *s)
{
    struct api_conn *c;

    if (!s)
        return;
    evloop_fd_del(s->loop, &s->watch);
    evloop_timer_cancel(s->loop, &s->pause);
    c = TAILQ_FIRST(&s->conns);
    while (c) {
        struct api_conn *next = TAILQ_NEXT(c, link);

        api_conn_drop(c);
        c = next;
    }
    unix_listen_close(&s->listener);
    free(s);
}
