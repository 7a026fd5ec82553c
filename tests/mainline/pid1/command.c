/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/mainline/pid1/init.h"

#include "tests/mainline/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
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
};

/* One direction of output: the command's pipe, -1 after its end. */
struct stream {
    int pipe_fd;
    int kind;
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

static void stream_step(struct stream *s, short revents)
{
    static uint8_t frame[FRAME_HEAD_BYTES + FRAME_MAX_BYTES];
    ssize_t n;

    if (!revents)
        return;
    n = read(s->pipe_fd, frame + FRAME_HEAD_BYTES, FRAME_MAX_BYTES);
    if (n > 0) {
        port_send(s->kind, frame, (size_t)n);
    } else if (n == 0 || errno != EINTR) {
        close(s->pipe_fd);
        s->pipe_fd = -1;
    }
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
    long deadline = 0;
    bool dead = false, killed = false;
    int result = 0;

    while (!dead || streams[0].pipe_fd >= 0 || streams[1].pipe_fd >= 0) {
        struct pollfd p[3] = {{.fd = streams[0].pipe_fd, .events = POLLIN},
                              {.fd = streams[1].pipe_fd, .events = POLLIN},
                              {.fd = signal_fd, .events = POLLIN}};
        struct signalfd_siginfo info;
        long left = deadline - now_ms();
        int n = poll(p, 3, !dead ? -1 : left > 0 ? (int)left : 0);

        if (n > 0) {
            stream_step(&streams[0], p[0].revents);
            stream_step(&streams[1], p[1].revents);
        }
        if (n > 0 && p[2].revents) {
            (void)!read(signal_fd, &info, sizeof(info));
            if (reap(command, &result)) {
                dead = true;
                deadline = now_ms() + GRACE_MS;
            }
        }
        if (!dead || now_ms() < deadline)
            continue;
        if (killed && n == 0)
            break;
        if (!killed)
            (void)kill(-1, SIGKILL);
        killed = true;
        deadline = now_ms() + STUCK_MS;
    }
    return result;
}

int command_run(struct job *job)
{
    struct stream streams[2] = {{-1, FRAME_OUT}, {-1, FRAME_ERR}};
    sigset_t chld;
    int signal_fd;
    pid_t pid;

    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &chld, NULL);
    signal_fd = signalfd(-1, &chld, SFD_CLOEXEC);
    if (signal_fd < 0)
        FAIL("signalfd: %s", strerror(errno));
    pid = command_start(job, &streams[0], &streams[1]);
    return pump(pid, streams, signal_fd);
}
