/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_API_SERVER_H
#define VMM_API_SERVER_H

/*
 * The control socket: HTTP on a Unix socket, served by the event loop. Knows
 * nothing of what is asked; one request at a time is handed to the handler,
 * which answers at once or later. The others wait in their sockets.
 *
 * What clients can make it hold is bounded: API_MAX_CONNS connections, each
 * with one request, one read's worth of bytes, and one response that is not
 * read yet.
 *
 * Ownership: borrows the loop and the log; owns the socket and its file.
 * Threads: io. Errors: -errno with a line.
 */

#include "vmm/errmsg.h"
#include "vmm/evloop.h"
#include "vmm/http_parse.h"
#include "vmm/http_reply.h"
#include "vmm/log.h"

#define API_MAX_CONNS 10u

struct api_server;

/*
 * Must lead to exactly one api_server_answer(), from inside or later. The
 * request is gone after that.
 */
typedef void (*api_request_fn)(void *arg, const struct http_request *req);

struct api_server_args {
    struct evloop *loop;
    struct log *log;
    const char *path;
    size_t max_body; /* bytes */
    api_request_fn fn;
    void *arg;
};

int api_server_new(const struct api_server_args *args,
                   struct api_server **out_server,
                   struct errmsg *err) MUST_CHECK;
/* NULL is fine. Responses that clients did not take yet are lost. */
void api_server_free(struct api_server *s);

/* The body is copied; `close` is the server's own. */
void api_server_answer(struct api_server *s, const struct http_reply *r);

#endif
