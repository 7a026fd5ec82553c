/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/bench_process.h"

#include "tools/libmote/launch.h"
#include "vmm/cleanup.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#define BENCH_GUARD_NS 20000000000ull /* against a hang */
#define BENCH_POLL_NS  100000         /* between two tries to connect */

static const char bench_request[] = "GET /machine-config HTTP/1.1\r\n"
                                    "Host: localhost\r\n\r\n";

int bench_spawn(const char *const *words, int out_fd, pid_t *out_pid)
{
    CLEANUP_FREE char **argv = lm_words_copy(words);
    posix_spawn_file_actions_t fa;
    int rc = argv ? -posix_spawn_file_actions_init(&fa) : -ENOMEM;

    if (rc)
        return rc;
    for (int fd = 0; fd < 3 && rc == 0; fd++)
        rc = fd == 1 && out_fd >= 0
                 ? -posix_spawn_file_actions_adddup2(&fa, out_fd, fd)
                 : -posix_spawn_file_actions_addopen(&fa, fd, "/dev/null",
                                                     O_RDWR, 0);
    if (rc == 0)
        rc = -posix_spawn(out_pid, words[0], &fa, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&fa);
    return rc;
}

/* 0: it has answered; -EAGAIN: nobody is there yet; or -errno. */
static int bench_ask(const char *sock)
{
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char answer[512];
    struct pollfd p = {.fd = fd, .events = POLLIN};

    if (fd < 0)
        return neg_errno();
    if (strlen(sock) >= sizeof(sa.sun_path))
        return -ENAMETOOLONG;
    memcpy(sa.sun_path, sock, strlen(sock) + 1);
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
        return errno == ENOENT || errno == ECONNREFUSED ? -EAGAIN : neg_errno();
    if (send(fd, bench_request, sizeof(bench_request) - 1, MSG_NOSIGNAL) < 0)
        return neg_errno();
    if (poll(&p, 1, (int)(BENCH_GUARD_NS / 1000000)) <= 0)
        return -ETIMEDOUT;
    if (recv(fd, answer, sizeof(answer), 0) < 12)
        return -EPROTO;
    return memcmp(answer, "HTTP/1.1 200", 12) ? -EPROTO : 0;
}

int bench_wait_api(pid_t pid, const char *sock)
{
    uint64_t deadline_ns = util_now_ns() + BENCH_GUARD_NS;
    const struct timespec pause = {0, BENCH_POLL_NS};
    int rc;

    while ((rc = bench_ask(sock)) == -EAGAIN) {
        siginfo_t si = {0};

        if (waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            si.si_pid == pid)
            return -ECHILD;
        if (util_now_ns() > deadline_ns)
            return -ETIMEDOUT;
        (void)nanosleep(&pause, NULL);
    }
    return rc;
}

void bench_end(pid_t pid, bool orderly)
{
    (void)kill(pid, orderly ? SIGTERM : SIGKILL); /* it is not reaped yet */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

int bench_cpu_ms(pid_t pid, double *out_ms)
{
    struct timespec ts;
    clockid_t clock;
    int rc = clock_getcpuclockid(pid, &clock);

    if (rc)
        return -rc;
    if (clock_gettime(clock, &ts) < 0)
        return neg_errno();
    *out_ms = (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
    return 0;
}

int bench_private_kib(pid_t pid, bool written, double *out_kib)
{
    char path[64];
    char line[256];
    FILE *f;

    (void)snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    f = fopen(path, "re");
    if (!f)
        return neg_errno();
    *out_kib = 0;
    while (fgets(line, sizeof(line), f)) {
        unsigned long kib = 0;

        if (!strncmp(line, "Private_Dirty:", 14) ||
            (!written && !strncmp(line, "Private_Clean:", 14)))
            kib = strtoul(line + 14, NULL, 10);
        *out_kib += (double)kib;
    }
    (void)fclose(f);
    return *out_kib > 0 ? 0 : -ENODATA;
}

int bench_first_byte(int fd, uint64_t *out_ns)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char bytes[256];

    if (poll(&p, 1, (int)(BENCH_GUARD_NS / 1000000)) <= 0)
        return -ETIMEDOUT;
    *out_ns = util_now_ns();
    return read(fd, bytes, sizeof(bytes)) > 0 ? 0 : -ECHILD;
}
