/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/seccomp_filter.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gen/seccomp_programs.h"

/* A signal handler has nothing else to reach them by. */
static volatile sig_atomic_t seccomp_log_fd = STDERR_FILENO;
static volatile sig_atomic_t seccomp_metrics_fd = -1;
static _Thread_local const char *seccomp_label = "?";

static size_t seccomp_put(char *line, size_t at, size_t room, const char *text)
{
    while (*text && at < room)
        line[at++] = *text++;
    return at;
}

static size_t seccomp_put_number(char *line, size_t at, size_t room, uint64_t n)
{
    char digits[24];
    size_t left = sizeof(digits);

    digits[--left] = '\0';
    do {
        digits[--left] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    return seccomp_put(line, at, room, digits + left);
}

/* A line of metrics with nothing but this: the others cannot be counted here.
 */
static void seccomp_write_metrics(void)
{
    struct timespec ts = {0, 0};
    char line[160];
    size_t room = sizeof(line);
    size_t n = 0;

    if (seccomp_metrics_fd < 0)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &ts); /* cannot fail on Linux */
    n = seccomp_put(line, n, room, "{\"utc_timestamp_ms\":");
    n = seccomp_put_number(line, n, room,
                           (uint64_t)ts.tv_sec * 1000 +
                               (uint64_t)ts.tv_nsec / 1000000);
    n = seccomp_put(line, n, room, ",\"seccomp\":{\"num_faults\":1}}\n");
    if (write(seccomp_metrics_fd, line, n) < 0) {
        /* Nobody is left to be told. */
    }
}

/* Only what is safe in a signal handler, and allowed by every filter. */
static void seccomp_on_violation(int sig, siginfo_t *si, void *context)
{
    int nr = si->si_syscall;
    const char *name = nr >= 0 && (size_t)nr < ARRAY_SIZE(seccomp_call_names)
                           ? seccomp_call_names[nr]
                           : NULL;
    char line[160];
    size_t room = sizeof(line);
    size_t n = 0;

    (void)sig;
    (void)context;
    n = seccomp_put(line, n, room, "mote-vmm: error: seccomp: thread ");
    n = seccomp_put(line, n, room, seccomp_label);
    n = seccomp_put(line, n, room, " made the forbidden system call ");
    n = seccomp_put(line, n, room, name ? name : "number");
    n = seccomp_put(line, n, room, " (");
    if (nr < 0) /* what a tracer makes of a call that it suppresses */
        n = seccomp_put(line, n, room, "-");
    n = seccomp_put_number(line, n, room, (uint64_t)abs(nr));
    n = seccomp_put(line, n, room, "); the VM ends here\n");
    if (write(seccomp_log_fd, line, n) < 0) {
        /* Nobody is left to be told. */
    }
    seccomp_write_metrics();
    for (;;) /* libc's _exit() may do more than that, in sanitizer builds */
        (void)syscall(SYS_exit_group, SECCOMP_EXIT_CODE);
}

int seccomp_prepare(int log_fd)
{
    struct sigaction sa = {.sa_sigaction = seccomp_on_violation,
                           .sa_flags = SA_SIGINFO};

    seccomp_log_fd = log_fd;
    (void)sigfillset(&sa.sa_mask);
    if (sigaction(SIGSYS, &sa, NULL) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return neg_errno();
    return 0;
}

static int seccomp_load(const struct sock_filter *insns, size_t count)
{
    /* Only read by the kernel, whose type knows no const. */
    union {
        const struct sock_filter *read_only;
        struct sock_filter *any;
    } filter = {.read_only = insns};
    const struct sock_fprog prog = {.len = (unsigned short)count,
                                    .filter = filter.any};

    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
        return neg_errno();
    return 0;
}

void seccomp_tell_metrics(int fd)
{
    seccomp_metrics_fd = fd;
}

int seccomp_install(enum seccomp_role role, const char *label)
{
    seccomp_label = label;
    switch (role) {
    case SECCOMP_LOOP:
        return seccomp_load(seccomp_loop, ARRAY_SIZE(seccomp_loop));
    case SECCOMP_LOOP_API:
        return seccomp_load(seccomp_loop_api, ARRAY_SIZE(seccomp_loop_api));
    case SECCOMP_VCPU:
        return seccomp_load(seccomp_vcpu, ARRAY_SIZE(seccomp_vcpu));
    }
    return -EINVAL;
}
