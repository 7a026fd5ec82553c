/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_CHAN_H
#define TOOLS_LIBMOTE_CHAN_H

/*
 * One connection to a guest's agent, non-blocking: the monitor's
 * `CONNECT port` greeting, HELLO both ways, then messages.
 *
 * Ownership: the struct is the caller's; it owns its fd. Threads: one.
 * Errors: -errno; -ECONNREFUSED when the monitor closed instead of greeting
 * (nobody listens in the guest), -ECONNRESET when the connection ended later,
 * else those of frame.h.
 */

#include "tools/libmote/err.h"
#include "tools/libmote/frame.h"

struct lm_chan {
    int fd;       /* -1 = closed */
    bool greeted; /* the monitor's OK was read, or none is due */
    char greeting[32];
    size_t greeting_len;
    struct lm_reader in;
    struct lm_buf out;
    size_t out_sent; /* bytes of `out` that are gone */
};

/*
 * Connects to a monitor's vsock socket and asks for `port`; our HELLO is
 * queued. Blocks only while the monitor's backlog is full, 5 s at most.
 */
int lm_chan_connect(struct lm_chan *c, const char *path, uint32_t port,
                    struct mote_err *err) MUST_CHECK;

/* Takes a connection that the guest opened; our HELLO is queued. */
int lm_chan_adopt(struct lm_chan *c, int fd) MUST_CHECK;

/* What to poll for: POLLIN always, POLLOUT while something is queued. */
short lm_chan_events(const struct lm_chan *c);

/* Sends what the socket takes, without receiving. */
int lm_chan_send(struct lm_chan *c) MUST_CHECK;

/*
 * lm_chan_send(), then receives: 1 and the next message, 0 if
 * there is none yet. The message is valid until the next call.
 */
int lm_chan_next(struct lm_chan *c, struct lm_msg *out) MUST_CHECK;

/* Bytes queued and not yet sent. */
size_t lm_chan_backlog(const struct lm_chan *c);

/* Idempotent; fine on LM_CHAN_CLOSED. */
void lm_chan_close(struct lm_chan *c);

#define LM_CHAN_CLOSED ((struct lm_chan){.fd = -1})

/*
 * Waits until `events` of `fd` hold. 0, -ETIMEDOUT, or -ECANCELED if
 * `cancel_fd` (-1 = none) became readable first.
 */
int lm_wait_fd(int fd, short events, uint64_t deadline_ns,
               int cancel_fd) MUST_CHECK;

/* Milliseconds from now until then for poll(), rounded up; UINT64_MAX = -1. */
int lm_poll_timeout(uint64_t deadline_ns);

/* The moment `timeout_ms` from now; UINT64_MAX if it is negative. */
uint64_t lm_deadline(int timeout_ms);

/*
 * Fills an AF_UNIX address. -ENAMETOOLONG, with the limit named in `err`, if
 * path and suffix do not fit.
 */
struct sockaddr_un;
int lm_unix_address(struct sockaddr_un *out, const char *path,
                    const char *suffix, struct mote_err *err) MUST_CHECK;

#endif
