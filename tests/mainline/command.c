/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/mainline/init.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    /* what a background process that holds the output open may still use */
    GRACE_MS = 1000,
    /* after SIGKILL only a process stuck in the kernel keeps a pipe open */
    STUCK_MS = 5000,
    /* the driver sends at most this much in one piece */
    STREAM_BYTES = 32768,
};

/* One direction of output: the command's pipe, a buffer, the host's port. */
struct stream {
    int pipe_fd;
    int port_fd;
    bool eof;
    size_t off, len;
    char buf[STREAM_BYTES];
};

static void __attribute__((noreturn))
command_exec(struct job *job, int out_fd, int err_fd)
{
    int null_fd = open("/dev/null", O_RDONLY);
    sigset_t none;
    int rc;

    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setsid();
    if (dup2(null_fd, 0) < 0 || dup2(out_fd, 1) < 0 || dup2(err_fd, 2) < 0)
        _exit(125);
    close(null_fd);
    if (chdir(job->cwd) < 0) {
        (void)dprintf(2, "mainline: %s: %s in the machine\n", job->cwd,
                      strerror(errno));
        _exit(125);
    }
    environ = job->envp;
    execvp(job->argv[0], job->argv);
    rc = errno == ENOENT ? 127 : 126;
    (void)dprintf(2, "mainline: %s: %s\n", job->argv[0], strerror(errno));
    _exit(rc);
}

static pid_t command_start(struct job *job, struct stream *out,
                           struct stream *err)
{
    int out_pipe[2], err_pipe[2];
    pid_t pid;

    if (pipe2(out_pipe, O_CLOEXEC) < 0 || pipe2(err_pipe, O_CLOEXEC) < 0)
        FAIL("pipe: %s", strerror(errno));
    pid = fork();
    if (pid < 0)
        FAIL("fork: %s", strerror(errno));
    if (pid == 0)
        command_exec(job, out_pipe[1], err_pipe[1]);
    close(out_pipe[1]);
    close(err_pipe[1]);
    out->pipe_fd = out_pipe[0];
    err->pipe_fd = err_pipe[0];
    return pid;
}

/* What this stream waits for: room at the host, or bytes of the command. */
static struct pollfd stream_wants(const struct stream *s)
{
    struct pollfd none = {.fd = -1};
    struct pollfd room = {.fd = s->port_fd, .events = POLLOUT};
    struct pollfd data = {.fd = s->pipe_fd, .events = POLLIN};

    if (s->len)
        return room;
    return s->eof ? none : data;
}

static void stream_step(struct stream *s, short revents)
{
    ssize_t n;

    if (!revents)
        return;
    if (s->len) {
        n = write(s->port_fd, s->buf + s->off, s->len);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            FAIL("output port: %s", strerror(errno));
        if (n > 0) {
            s->off += (size_t)n;
            s->len -= (size_t)n;
        }
        return;
    }
    n = read(s->pipe_fd, s->buf, sizeof(s->buf));
    s->off = 0;
    s->len = n > 0 ? (size_t)n : 0;
    s->eof = n == 0 || (n < 0 && errno != EINTR);
}

/* Collects every dead child; true once the command itself is among them. */
static bool reap(pid_t command, int *out_status)
{
    bool found = false;
    int wstatus;
    pid_t pid;

    while ((pid = waitpid(-1, &wstatus, WNOHANG)) > 0) {
        if (pid != command)
            continue;
        *out_status = WIFSIGNALED(wstatus) ? 128 + WTERMSIG(wstatus)
                                           : WEXITSTATUS(wstatus);
        found = true;
    }
    return found;
}

/*
 * Carries output until the command is dead and its pipes are at their end.
 * Whoever holds them open longer than GRACE_MS is killed: the machine is
 * about to go, as a container would.
 */
static int pump(pid_t command, struct stream *streams, int signal_fd)
{
    long deadline = -1;
    bool dead = false, killed = false;
    int result = 0;

    for (;;) {
        struct pollfd p[3] = {stream_wants(&streams[0]),
                              stream_wants(&streams[1]),
                              {.fd = signal_fd, .events = POLLIN}};
        struct signalfd_siginfo info;
        long wait_ms = -1;
        int n;

        if (dead && p[0].fd < 0 && p[1].fd < 0)
            return result;
        if (dead) {
            wait_ms = deadline - now_ms();
            if (wait_ms < 0)
                wait_ms = 0;
        }
        n = poll(p, 3, (int)wait_ms);
        if (n > 0 && p[2].revents) {
            (void)!read(signal_fd, &info, sizeof(info));
            if (reap(command, &result)) {
                dead = true;
                deadline = now_ms() + GRACE_MS;
            }
        }
        if (n > 0) {
            stream_step(&streams[0], p[0].revents);
            stream_step(&streams[1], p[1].revents);
        }
        if (!dead || now_ms() < deadline)
            continue;
        if (!killed) {
            (void)kill(-1, SIGKILL);
            killed = true;
        } else if (n == 0 && !streams[0].len && !streams[1].len) {
            return result;
        }
        deadline = now_ms() + STUCK_MS;
    }
}

int command_run(struct job *job, int out_port, int err_port)
{
    static struct stream streams[2];
    sigset_t chld;
    int signal_fd, result;
    pid_t pid;

    streams[0].port_fd = out_port;
    streams[1].port_fd = err_port;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &chld, NULL);
    signal_fd = signalfd(-1, &chld, SFD_CLOEXEC);
    if (signal_fd < 0)
        FAIL("signalfd: %s", strerror(errno));
    pid = command_start(job, &streams[0], &streams[1]);
    result = pump(pid, streams, signal_fd);
    port_drain(out_port);
    port_drain(err_port);
    return result;
}
