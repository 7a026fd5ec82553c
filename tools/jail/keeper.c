/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jail/keeper.h"

#include "tools/jail/enter.h"
#include "vmm/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* syscalls: clone signalfd4 wait4 kill prctl setsid ppoll read write */

#define KEEPER_FAILED_STATUS (1 << 8) /* exit code 1, as from waitpid() */

struct keeper {
    struct jail *j;
    int signal_fd;
    int life_fd; /* -1: nobody to watch any more */
    int tell_fd;
    int go_fd;     /* to the process that enters the jail */
    int report_fd; /* from it */
    bool ended;
    int status;
};

/* --- start ------------------------------------------------------------------
 */

static int keeper_fail(const char *what, int rc, struct errmsg *err)
{
    return err_set(err, rc, "%s: %s", what, err_reason(rc));
}

/*
 * clone() itself: the namespaces have to be there when the process begins.
 * One thread, and the copy goes no way that libc has to prepare for.
 */
static pid_t keeper_clone(const struct jail *j)
{
    unsigned long flags = SIGCHLD;

    if (j->o.new_pid_ns)
        flags |= CLONE_NEWPID;
    if (j->user_ns)
        flags |= CLONE_NEWUSER;
    return (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
}

static int keeper_spawn(struct keeper *k, struct errmsg *err)
{
    int go[2] = {-1, -1};
    int report[2] = {-1, -1};
    pid_t pid = -1;

    if (pipe2(go, O_CLOEXEC) == 0 && pipe2(report, O_CLOEXEC) == 0) {
        k->j->parent_cpu_us += jail_cpu_us();
        pid = keeper_clone(k->j);
    }
    if (pid == 0) {
        (void)close(go[1]); /* or its end of file would never come */
        enter_jail(k->j, go[0], report[1]);
    }
    if (pid < 0) {
        int rc = neg_errno();

        (void)keeper_fail(k->j->user_ns
                              ? "starting the monitor in a user namespace"
                              : "starting the monitor",
                          rc, err);
        for (int i = 0; i < 2; i++) {
            drop_fd(&go[i]);
            drop_fd(&report[i]);
        }
        return rc;
    }
    k->j->shared->pid = pid;
    drop_fd(&go[0]);
    drop_fd(&report[1]);
    k->go_fd = go[1];
    k->report_fd = report[0];
    return 0;
}

static int keeper_let_go(struct keeper *k, struct errmsg *err)
{
    int rc = util_write_full(k->go_fd, "", 1);

    return rc ? keeper_fail("the monitor's process", rc, err) : 0;
}

/* What the process that enters says next; `want` 0: end of file. */
static int keeper_listen(struct keeper *k, char want, struct errmsg *err)
{
    char text[1 + sizeof(err->text)] = {0};
    size_t have = 0;
    ssize_t n;

    do {
        n = read(k->report_fd, text + have, sizeof(text) - 1 - have);
        if (n > 0)
            have += (size_t)n;
        if (n > 0 && want && text[0] == want)
            return 0;
    } while (n > 0 || (n < 0 && errno == EINTR));
    if (have == 0 && want == 0)
        return 0;
    return err_set(err, -ECHILD, "%s",
                   have > 1 ? text + 1
                            : "the monitor's process ended before it was in "
                              "its jail");
}

/* In order: each step needs the one before it. */
static int keeper_build(struct keeper *k, struct errmsg *err)
{
    struct jail *j = k->j;
    struct jail_shared *s = j->shared;
    int rc = jail_root_open(&j->root, &j->o, &s->root_made, err);

    if (rc == 0)
        rc = jail_root_fill(&j->root, &j->o, j->exec_fd, !j->user_ns, err);
    if (rc == 0)
        rc = cgroup_make(&j->o, &s->plan, err);
    if (rc == 0)
        rc = keeper_spawn(k, err);
    if (rc == 0)
        rc = cgroup_join(&s->plan, s->pid, err);
    if (rc == 0)
        rc = jail_root_write_pid(&j->root, &j->o, s->pid, err);
    if (rc == 0)
        rc = keeper_let_go(k, err);
    if (rc == 0)
        rc = keeper_listen(k, ENTER_READY, err);
    if (rc == 0)
        rc = keeper_let_go(k, err);
    if (rc == 0)
        rc = keeper_listen(k, 0, err);
    drop_fd(&k->go_fd);
    drop_fd(&k->report_fd);
    return rc;
}

/* --- life -------------------------------------------------------------------
 */

static void keeper_reap(struct keeper *k)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == k->j->shared->pid) {
            k->ended = true;
            k->status = status;
            k->j->shared->pid = 0;
        }
    }
}

static void keeper_kill_monitor(const struct keeper *k, int sig)
{
    /* Not yet reaped, so the number is still its own. */
    if (k->j->shared->pid > 0)
        (void)kill(k->j->shared->pid, sig);
}

static bool keeper_forwards(int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGQUIT ||
           sig == SIGUSR1 || sig == SIGUSR2 || sig == SIGWINCH;
}

static void keeper_signal(struct keeper *k)
{
    struct signalfd_siginfo si;

    if (read(k->signal_fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
        return;
    if (si.ssi_signo == SIGCHLD)
        keeper_reap(k);
    else if (keeper_forwards((int)si.ssi_signo))
        keeper_kill_monitor(k, (int)si.ssi_signo);
}

static void keeper_life(struct keeper *k)
{
    char byte;

    if (read(k->life_fd, &byte, 1) != 1)
        keeper_kill_monitor(k, SIGKILL);
    drop_fd(&k->life_fd);
}

static void keeper_wait(struct keeper *k)
{
    keeper_reap(k); /* it may have ended before */
    while (!k->ended) {
        struct pollfd p[] = {{.fd = k->signal_fd, .events = POLLIN},
                             {.fd = k->life_fd, .events = POLLIN}};

        if (poll(p, ARRAY_SIZE(p), -1) < 0)
            continue; /* EINTR at most */
        if (p[0].revents)
            keeper_signal(k);
        if (p[1].revents)
            keeper_life(k);
    }
}

/* --- end --------------------------------------------------------------------
 */

/* The parent of process `name` in /proc; 0 if it is gone. */
static pid_t keeper_parent_of(const char *name)
{
    CLEANUP_FD int fd = -1;
    char path[32];
    char text[512];
    const char *end;
    int ppid = 0;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%.10s/stat", name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    end = strrchr(text, ')'); /* the name before it may hold anything */
    /* NOLINTNEXTLINE(cert-err34-c): the kernel wrote it */
    return end && sscanf(end + 1, " %*c %d", &ppid) == 1 ? ppid : 0;
}

static void keeper_kill_children(void)
{
    DIR *d = opendir("/proc");
    struct dirent *e;

    if (!d)
        return;
    while ((e = readdir(d))) {
        uint64_t pid = 0;

        if (util_parse_u64(e->d_name, 1, INT32_MAX, &pid) == 0 &&
            keeper_parent_of(e->d_name) == getpid())
            (void)kill((pid_t)pid, SIGKILL);
    }
    (void)closedir(d);
}

/*
 * Whatever the monitor has started and left is ours now (child subreaper). A
 * child that is killed hands its own children on to us: hence the loop.
 */
static void keeper_kill_rest(void)
{
    pid_t pid = waitpid(-1, NULL, WNOHANG);

    while (pid >= 0) {
        if (pid == 0) {
            keeper_kill_children();
            pid = waitpid(-1, NULL, 0);
        } else {
            pid = waitpid(-1, NULL, WNOHANG);
        }
    }
}

static void keeper_take_down(struct jail *j)
{
    unsigned stay = cgroup_remove(&j->shared->plan);
    unsigned files;

    if (stay)
        jail_say("%u of the cgroups %s could not be removed", stay,
                 j->shared->plan.name);
    j->root.made = j->shared->root_made;
    files = jail_root_clean(&j->root, &j->o);
    if (files && j->o.purge)
        jail_say("%u things in %s could not be removed", files, j->root.path);
    else if (files && j->root.made)
        /* In a directory that was there before it is the owner's business. */
        jail_say("%u files with data stay in %s; --purge removes all", files,
                 j->root.path);
    jail_root_close(&j->root);
}

static void keeper_tell(const struct keeper *k, int what, int status)
{
    const struct keeper_word w = {.what = what, .status = status};

    /* It fails if nobody is there to be told. */
    if (util_write_full(k->tell_fd, &w, sizeof(w)))
        return;
}

/* No stream is held open longer than the monitor does. */
static void keeper_quiet(const struct jail *j)
{
    CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int last =
        j->o.daemonize || j->o.new_pid_ns ? STDERR_FILENO : STDOUT_FILENO;

    for (int fd = 0; fd <= last && null >= 0; fd++)
        (void)dup2(null, fd);
    for (size_t i = 0; i < j->o.fd_count; i++)
        (void)close(j->o.fds[i]);
}

void keeper_run(struct jail *j, int life_fd, int tell_fd)
{
    struct keeper k = {.j = j,
                       .life_fd = life_fd,
                       .tell_fd = tell_fd,
                       .go_fd = -1,
                       .report_fd = -1,
                       .signal_fd = -1,
                       .status = KEEPER_FAILED_STATUS};
    struct errmsg err = {{0}};
    sigset_t all;
    int rc = 0;

    (void)setsid(); /* just forked: never a group's leader */
    (void)sigfillset(&all);
    k.signal_fd = signalfd(-1, &all, SFD_CLOEXEC);
    if (k.signal_fd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        rc = keeper_fail("the keeper", neg_errno(), &err);
    if (rc == 0)
        rc = keeper_build(&k, &err);
    if (rc) {
        jail_say("%s", err.text);
        keeper_kill_monitor(&k, SIGKILL);
    } else {
        keeper_tell(&k, KEEPER_STARTED, 0);
        keeper_quiet(j);
        keeper_wait(&k);
    }
    keeper_kill_rest();
    j->shared->pid = 0;
    keeper_take_down(j);
    keeper_tell(&k, KEEPER_ENDED, rc ? KEEPER_FAILED_STATUS : k.status);
    _exit(0);
}

void keeper_rescue(struct jail *j)
{
    pid_t pid = j->shared->pid;
    struct errmsg err;
    bool made = false;

    /* It became our child, and has the keeper's death as its own. */
    if (pid > 0 && waitpid(pid, NULL, WNOHANG) == 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    if (jail_root_open(&j->root, &j->o, &made, &err) == 0)
        keeper_take_down(j);
    else
        jail_root_close(&j->root);
}
