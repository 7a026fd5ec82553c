/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/bench_start.h"

#include "tools/libmote/launch.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <assert.h>
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
#include <unistd.h>

#define BENCH_GUARD_NS 20000000000ull /* against a hang */
#define BENCH_POLL_NS  100000         /* between two tries to connect */

static const char bench_request[] = "GET /machine-config HTTP/1.1\r\n"
                                    "Host: localhost\r\n\r\n";

/* --- figures ----------------------------------------------------------------
 */

static int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return x < y ? -1 : x > y;
}

void bench_sort(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), bench_compare);
}

double bench_quantile(const double *sorted, size_t n, double p)
{
    size_t i = (size_t)((double)n * p);

    assert(n > 0);
    if ((double)i >= (double)n * p && i > 0)
        i--; /* n*p is whole: that many values are not above sorted[i] */
    return sorted[i < n ? i : n - 1];
}

/* --- one run ----------------------------------------------------------------
 */

static int bench_spawn(const char *vmm, const char *sock, pid_t *out_pid)
{
    const char *const words[] = {vmm, "--api-sock", sock, NULL};
    CLEANUP_FREE char **argv = lm_words_copy(words);
    posix_spawn_file_actions_t fa;
    int rc = argv ? -posix_spawn_file_actions_init(&fa) : -ENOMEM;

    if (rc)
        return rc;
    for (int fd = 0; fd < 3 && rc == 0; fd++)
        rc = -posix_spawn_file_actions_addopen(&fa, fd, "/dev/null", O_RDWR, 0);
    if (rc == 0)
        rc = -posix_spawn(out_pid, vmm, &fa, NULL, argv, environ);
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

static int bench_wait(pid_t pid, const char *sock, uint64_t deadline_ns)
{
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

/* CPU time of another process, to the nanosecond. */
static int bench_cpu_ms(pid_t pid, double *out_ms)
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

static void bench_end(pid_t pid, bool orderly)
{
    (void)kill(pid, orderly ? SIGTERM : SIGKILL); /* it is not reaped yet */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

static int bench_measure(const char *vmm, const char *sock,
                         struct bench_start *out)
{
    uint64_t began_ns = util_now_ns();
    uint64_t answered_ns;
    pid_t pid = 0;
    int rc = bench_spawn(vmm, sock, &pid);

    if (rc)
        return rc;
    rc = bench_wait(pid, sock, began_ns + BENCH_GUARD_NS);
    answered_ns = util_now_ns();
    if (rc == 0)
        rc = bench_cpu_ms(pid, &out->cpu_ms);
    out->wall_ms = (double)(answered_ns - began_ns) / 1e6;
    bench_end(pid, rc == 0);
    return rc;
}

int bench_start_once(const char *vmm, struct bench_start *out,
                     struct mote_err *err)
{
    char dir[] = "/tmp/mote-bench-XXXXXX";
    char sock[sizeof(dir) + 8];
    int rc;

    if (!mkdtemp(dir))
        return lm_err(err, neg_errno(), "%s: %s", dir, err_reason(neg_errno()));
    (void)snprintf(sock, sizeof(sock), "%s/s", dir);
    rc = bench_measure(vmm, sock, out);
    (void)unlink(sock); /* there only if it did not end in order */
    (void)rmdir(dir);
    if (rc == -ECHILD)
        return lm_err(err, rc,
                      "%s: it ended before it answered; run it by hand with "
                      "--api-sock",
                      vmm);
    return rc ? lm_err(err, rc, "%s: no answer: %s", vmm, err_reason(rc)) : 0;
}
