/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/session.h"

#include "tools/mote/ui.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"
#include "vmm/util.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define SESSION_INPUT_CHUNK ((size_t)64 * 1024)
/* The guest keeps time limits; if it cannot, we do, this much later. */
#define SESSION_LATE_MS 10000
/* How often to see whether a background session got its terminal back. */
#define SESSION_BACKGROUND_MS 500
#define SESSION_ESCAPE        0x1d /* Ctrl-] */
#define SESSION_ESCAPE_TIMES  3
#define SESSION_ESCAPE_NS     1000000000u

/* What poll() watches, by index. */
enum {
    WATCH_SIGNAL,
    WATCH_EXEC,
    WATCH_INPUT,
    WATCH_OUTPUT,
    WATCH_MACHINE,
    WATCH_REQUEST,
    WATCH_COUNT
};

struct session {
    const struct session_params *p;
    struct session_result *r; /* r->end stays 0 until it is over */
    struct mote_exec *exec;
    struct mote_request *request; /* a signal on its way, or NULL */
    struct term term;
    uint64_t start_ns;
    uint64_t late_ns; /* UINT64_MAX = no time limit */
    uint32_t pid;     /* in the guest; 0 = not started yet */
    bool input_open;
    bool input_parked; /* a terminal that others own for now */
    bool interrupted;  /* the first Ctrl-C was passed on */
    unsigned escapes;  /* Ctrl-] in a row */
    uint64_t escape_ns;
    const uint8_t *out; /* output that still has to be written */
    size_t out_len;
    int out_fd;
};

static void session_fail(struct session *s, enum session_end end, int rc,
                         const char *what)
{
    s->r->end = end;
    s->r->err.rc = rc;
    (void)snprintf(s->r->err.text, sizeof(s->r->err.text), "%s: %s", what,
                   err_reason(rc));
}

/* --- output ------------------------------------------------------------------
 */

/* Writes what goes out without blocking; the descriptor is writable. */
static void session_write(struct session *s)
{
    struct stat st;
    bool is_socket;
    size_t len = s->out_len;
    ssize_t n;

    if (fstat(s->out_fd, &st) < 0)
        st.st_mode = S_IFIFO;
    is_socket = S_ISSOCK(st.st_mode);
    if (!S_ISREG(st.st_mode) && !is_socket && len > PIPE_BUF)
        len = PIPE_BUF;
    n = is_socket ? send(s->out_fd, s->out, len, MSG_DONTWAIT | MSG_NOSIGNAL)
                  : write(s->out_fd, s->out, len);
    if (n >= 0) {
        s->out += n;
        s->out_len -= (size_t)n;
        return;
    }
    if (errno == EINTR || errno == EAGAIN)
        return;
    if (errno == EPIPE || errno == ECONNRESET)
        s->r->end = SESSION_NO_READER;
    else
        session_fail(s, SESSION_OUTPUT, neg_errno(),
                     s->out_fd == STDOUT_FILENO ? "standard output"
                                                : "standard error");
}

/* --- from the guest
 * ----------------------------------------------------------- */

static void session_started(struct session *s, uint32_t pid)
{
    s->pid = pid;
    if (s->p->exec.tty)
        term_raw(&s->term);
}

static void session_event(struct session *s, const struct mote_exec_event *ev)
{
    switch (ev->kind) {
    case MOTE_EXEC_STARTED:
        session_started(s, ev->pid);
        break;
    case MOTE_EXEC_STDOUT:
    case MOTE_EXEC_STDERR:
        s->out = ev->data;
        s->out_len = ev->len;
        s->out_fd =
            ev->kind == MOTE_EXEC_STDOUT ? STDOUT_FILENO : STDERR_FILENO;
        break;
    case MOTE_EXEC_EXITED:
        s->r->end = SESSION_EXITED;
        s->r->exit_code = ev->exit_code;
        s->r->signal = ev->signal;
        s->r->timed_out = ev->timed_out;
        s->r->wall_us = ev->wall_us;
        break;
    case MOTE_EXEC_REFUSED:
        s->r->end = SESSION_REFUSED;
        s->r->error = ev->error;
        (void)snprintf(s->r->err.text, sizeof(s->r->err.text), "%s", ev->text);
        break;
    }
}

/* Takes events until one has output for us, or nothing is there. */
static void session_receive(struct session *s)
{
    struct mote_exec_event ev;

    while (!s->r->end && s->out_len == 0) {
        int rc = mote_exec_next(s->exec, &ev, &s->r->err);

        if (rc == 0)
            return;
        if (rc < 0)
            s->r->end = SESSION_LOST;
        else
            session_event(s, &ev);
    }
}

/* --- to the guest
 * -------------------------------------------------------------- */

static void session_input_end(struct session *s)
{
    s->input_open = false;
    if (mote_exec_write(s->exec, NULL, 0) == -ENOMEM)
        session_fail(s, SESSION_LOST, -ENOMEM, "standard input");
}

/* Ctrl-] three times within a second leaves a terminal session. */
static void session_look_for_escape(struct session *s, const uint8_t *data,
                                    size_t len)
{
    uint64_t now = util_now_ns();

    for (size_t i = 0; i < len; i++) {
        if (data[i] != SESSION_ESCAPE) {
            s->escapes = 0;
            continue;
        }
        if (s->escapes == 0 || now - s->escape_ns > SESSION_ESCAPE_NS) {
            s->escapes = 0;
            s->escape_ns = now;
        }
        if (++s->escapes == SESSION_ESCAPE_TIMES)
            s->r->end = SESSION_ESCAPED;
    }
}

static void session_read_input(struct session *s)
{
    static uint8_t buf[SESSION_INPUT_CHUNK]; /* one session per process */
    ssize_t n;

    s->input_parked = isatty(STDIN_FILENO) && term_in_background();
    if (s->input_parked)
        return;
    n = read(STDIN_FILENO, buf, sizeof(buf));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        session_input_end(s); /* what cannot be read is over as well */
        return;
    }
    if (s->term.raw)
        session_look_for_escape(s, buf, (size_t)n);
    if (mote_exec_write(s->exec, buf, (size_t)n))
        session_fail(s, SESSION_LOST, -ENOMEM, "standard input");
}

/* --- signals
 * ---------------------------------------------------------------------- */

/*
 * The first interrupt is the command's. It goes by a connection of its own:
 * the command's may be full of input that it does not read.
 */
static void session_interrupt(struct session *s, int signo)
{
    if (s->interrupted || s->pid == 0 ||
        mote_request_kill(s->p->vsock_path, s->pid, signo, MOTE_WHOM_GROUP,
                          &s->request, &s->r->err)) {
        s->r->end = SESSION_SIGNALLED;
        s->r->signal = signo;
    }
    s->interrupted = true;
}

/* Stopped from outside: leave the terminal in order meanwhile. */
static void session_stop(struct session *s)
{
    bool was_raw = s->term.raw;

    term_restore(&s->term);
    (void)raise(SIGSTOP);
    if (was_raw)
        term_raw(&s->term);
}

static void session_signal(struct session *s)
{
    int signo;

    while (!s->r->end && (signo = signals_next(s->p->signal_fd)) > 0) {
        if (signo == SIGINT) {
            session_interrupt(s, signo);
        } else if (signo == SIGTSTP) {
            session_stop(s);
        } else if (signo != SIGWINCH) {
            s->r->end = SESSION_SIGNALLED;
            s->r->signal = signo;
        }
        if ((signo == SIGWINCH || signo == SIGTSTP) && s->p->exec.tty &&
            mote_exec_resize(s->exec, term_size()))
            session_fail(s, SESSION_LOST, -ENOMEM, "terminal size");
    }
}

static void session_step_request(struct session *s)
{
    /* A refusal means that the command has just ended. */
    if (mote_request_step(s->request, NULL) == 0)
        return;
    mote_request_free(s->request);
    s->request = NULL;
}

/* --- the loop
 * ------------------------------------------------------------------------ */

static bool session_wants_input(const struct session *s)
{
    return s->input_open && s->pid != 0 &&
           mote_exec_backlog(s->exec) < SESSION_INPUT_CHUNK;
}

static void session_watch(const struct session *s, struct pollfd *p)
{
    bool held = s->out_len > 0;
    short wanted = mote_exec_events(s->exec);

    p[WATCH_SIGNAL] = (struct pollfd){s->p->signal_fd, POLLIN, 0};
    p[WATCH_EXEC] = (struct pollfd){mote_exec_fd(s->exec), wanted, 0};
    if (held)
        p[WATCH_EXEC].events &= ~POLLIN;
    /* Hang-ups are told even without events: nothing to hear, no watch. */
    if (p[WATCH_EXEC].events == 0)
        p[WATCH_EXEC].fd = -1;
    p[WATCH_INPUT] = (struct pollfd){-1, POLLIN, 0};
    if (session_wants_input(s) && !s->input_parked)
        p[WATCH_INPUT].fd = STDIN_FILENO;
    p[WATCH_OUTPUT] = (struct pollfd){held ? s->out_fd : -1, POLLOUT, 0};
    /* Its end changes nothing as long as output waits to be written. */
    p[WATCH_MACHINE] = (struct pollfd){held ? -1 : s->p->machine_fd, POLLIN, 0};
    p[WATCH_REQUEST] = (struct pollfd){-1, 0, 0};
    if (s->request)
        p[WATCH_REQUEST] = (struct pollfd){mote_request_fd(s->request),
                                           mote_request_events(s->request), 0};
}

static int session_timeout(const struct session *s)
{
    uint64_t now = util_now_ns();
    uint64_t ms = UINT64_MAX;

    if (s->late_ns != UINT64_MAX)
        ms = s->late_ns <= now ? 0 : (s->late_ns - now) / 1000000 + 1;
    if (s->input_parked)
        ms = min_u64(ms, SESSION_BACKGROUND_MS);
    return ms == UINT64_MAX ? -1 : (int)min_u64(ms, INT_MAX);
}

static void session_turn(struct session *s)
{
    struct pollfd p[WATCH_COUNT];
    int n;

    session_watch(s, p);
    n = poll(p, WATCH_COUNT, session_timeout(s));
    if (n < 0 && errno != EINTR)
        session_fail(s, SESSION_LOST, neg_errno(), "poll");
    if (n < 0)
        return;
    s->input_parked = false;
    if (p[WATCH_SIGNAL].revents)
        session_signal(s);
    if (p[WATCH_OUTPUT].revents && !s->r->end)
        session_write(s);
    if (p[WATCH_INPUT].revents && !s->r->end)
        session_read_input(s);
    if (p[WATCH_REQUEST].revents && s->request)
        session_step_request(s);
    if (s->r->end)
        return;
    /* Also without an event: what was queued above goes out at once. */
    if (s->out_len == 0)
        session_receive(s);
    else if (mote_exec_send(s->exec, &s->r->err))
        s->r->end = SESSION_LOST;
    if (!s->r->end && s->out_len == 0 && p[WATCH_MACHINE].revents)
        session_fail(s, SESSION_LOST, -ECONNRESET, "machine");
    if (!s->r->end && util_now_ns() >= s->late_ns)
        s->r->end = SESSION_LATE;
}

void session_run(const struct session_params *p, struct session_result *out)
{
    struct session s = {.p = p,
                        .r = out,
                        .start_ns = util_now_ns(),
                        .late_ns = UINT64_MAX,
                        .input_open = p->exec.stdin_open};

    *out = (struct session_result){.exit_code = -1};
    if (p->exec.time_limit_ms > 0 &&
        p->exec.time_limit_ms < UINT64_MAX / 2000000)
        s.late_ns =
            s.start_ns + (p->exec.time_limit_ms + SESSION_LATE_MS) * 1000000u;
    if (mote_exec_start(p->vsock_path, &p->exec, &s.exec, &out->err)) {
        out->end = SESSION_LOST;
        return;
    }
    if (p->exec.tty)
        signals_of_tty(p->signal_fd, true);
    while (!out->end)
        session_turn(&s);
    out->command_ms = (double)(util_now_ns() - s.start_ns) / 1e6;
    mote_request_free(s.request);
    mote_exec_free(s.exec);
    term_restore(&s.term);
    if (p->exec.tty)
        signals_of_tty(p->signal_fd, false);
}

/* --- the result
 * ------------------------------------------------------------------------ */

int session_exit_code(const struct session_result *r, const char *program)
{
    switch (r->end) {
    case SESSION_EXITED:
        if (r->timed_out) {
            ui_error("%s: ended by its time limit; raise --timeout", program);
            return EXIT_TIME_LIMIT;
        }
        return r->signal ? 128 + r->signal : r->exit_code;
    case SESSION_REFUSED:
        ui_error("%s", r->err.text);
        return r->error == EXIT_NOT_EXECUTABLE || r->error == EXIT_NOT_FOUND
                   ? (int)r->error
                   : EXIT_MOTE_FAILED;
    case SESSION_SIGNALLED:
        return 128 + r->signal;
    case SESSION_LATE:
        ui_error("%s: did not end by its time limit; its machine or agent "
                 "hangs",
                 program);
        return EXIT_TIME_LIMIT;
    case SESSION_NO_READER:
        return 128 + SIGPIPE; /* as a command without a reader ends */
    case SESSION_ESCAPED:
        return 128 + SIGHUP; /* as if its terminal had gone */
    case SESSION_LOST:
    case SESSION_OUTPUT:
        ui_error("%s", r->err.text);
        return EXIT_MOTE_FAILED;
    }
    return EXIT_MOTE_FAILED;
}
