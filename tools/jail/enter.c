/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jail/enter.h"

#include "tools/jail/enter_mounts.h"
#include "vmm/cleanup.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* syscalls: setns unshare sethostname setrlimit prctl capset keyctl */
/* syscalls: setgroups setresgid setresuid close_range execve */

#define ENTER_OWN_WORDS 8 /* of the command line, before the caller's */

static int enter_fail(const char *what, int rc, struct errmsg *err)
{
    return err_set(err, rc, "%s: %s", what, err_reason(rc));
}

static int enter_write(const char *path, const char *text, struct errmsg *err)
{
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return enter_fail(path, neg_errno(), err);
    return 0;
}

/* One user and one group of the namespace are those of the caller. */
static int enter_user_ns(const struct jail *j, struct errmsg *err)
{
    char map[64];
    int rc = enter_write("/proc/self/setgroups", "deny", err);

    if (rc)
        return rc;
    (void)snprintf(map, sizeof(map), "%u %u 1", j->o.uid,
                   (unsigned)j->outer_uid);
    rc = enter_write("/proc/self/uid_map", map, err);
    if (rc)
        return rc;
    (void)snprintf(map, sizeof(map), "%u %u 1", j->o.gid,
                   (unsigned)j->outer_gid);
    return enter_write("/proc/self/gid_map", map, err);
}

static int enter_namespaces(const struct jail *j, struct errmsg *err)
{
    int flags = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

    if (j->netns_fd >= 0 && setns(j->netns_fd, CLONE_NEWNET) < 0)
        return enter_fail("--netns: joining it", neg_errno(), err);
    if (j->o.new_net_ns)
        flags |= CLONE_NEWNET;
    if (unshare(flags) < 0)
        return enter_fail("new namespaces", neg_errno(), err);
    /* The host's name is none of the monitor's business. */
    if (sethostname(j->o.id, strlen(j->o.id)) < 0)
        return enter_fail("host name", neg_errno(), err);
    return 0;
}

static int enter_limit(int which, const char *name, uint64_t value,
                       struct errmsg *err)
{
    struct rlimit lim = {.rlim_cur = value, .rlim_max = value};

    if (setrlimit((__rlimit_resource_t)which, &lim) < 0) {
        int rc = neg_errno();

        return err_set(err, rc, "--resource-limit %s=%llu: %s", name,
                       (unsigned long long)value, err_reason(rc));
    }
    return 0;
}

static int enter_limits(const struct jail_options *o, struct errmsg *err)
{
    uint64_t no_file = o->no_file;
    struct rlimit now;
    int rc;

    if (getrlimit(RLIMIT_NOFILE, &now) < 0)
        return enter_fail("limits", neg_errno(), err);
    /* Not asked for: then a lower limit of the caller's stays. */
    if (!o->no_file_given)
        no_file = min_u64(JAIL_NO_FILE, now.rlim_max);
    rc = enter_limit(RLIMIT_NOFILE, "no-file", no_file, err);
    if (rc == 0 && o->fsize_given)
        rc = enter_limit(RLIMIT_FSIZE, "fsize", o->fsize_bytes, err);
    /* A core holds the guest's memory. */
    if (rc == 0)
        rc = enter_limit(RLIMIT_CORE, "core", 0, err);
    return rc;
}

static int enter_drop_bounding(struct errmsg *err)
{
    /* To the kernel's last, which may not be the header's. */
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++) {
        if (prctl(PR_CAPBSET_DROP, cap) < 0)
            return enter_fail("capability bounding set", neg_errno(), err);
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return enter_fail("ambient capabilities", neg_errno(), err);
    return 0;
}

/* User 0 has no rights of its own any more, now and after execve(). */
static int enter_drop_caps(struct errmsg *err)
{
    struct __user_cap_header_struct head = {.version =
                                                _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (syscall(SYS_capset, &head, none) < 0)
        return enter_fail("capabilities", neg_errno(), err);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return enter_fail("no_new_privs", neg_errno(), err);
    return 0;
}

static int enter_user(const struct jail *j, struct errmsg *err)
{
    const int bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED |
                     SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
                     SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
    int rc;

    /* Keys of the caller's session; kernels without keyrings have none. */
    (void)syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
    rc = enter_drop_bounding(err);
    if (rc)
        return rc;
    if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
        return enter_fail("securebits", neg_errno(), err);
    /* In a user namespace of our own the groups stay: /dev/kvm may be one's. */
    if (!j->user_ns && setgroups(0, NULL) < 0)
        return enter_fail("groups", neg_errno(), err);
    if (setresgid(j->o.gid, j->o.gid, j->o.gid) < 0)
        return enter_fail("--gid", neg_errno(), err);
    if (setresuid(j->o.uid, j->o.uid, j->o.uid) < 0)
        return enter_fail("--uid", neg_errno(), err);
    return enter_drop_caps(err);
}

/*
 * As in a new process, apart from one thing: the first process of a PID
 * namespace loses each signal for which it has no handler yet. Those that ask
 * a monitor to end have been blocked since before the clone() and stay so:
 * they wait until it takes them, as mote-vmm does by its signalfd.
 */
static int enter_signals(const struct jail_options *o, struct errmsg *err)
{
    static const int kept[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t blocked;

    for (int sig = 1; sig < NSIG; sig++)
        (void)signal(sig, SIG_DFL); /* KILL, STOP and libc's own refuse */
    (void)sigemptyset(&blocked);
    for (size_t i = 0; i < ARRAY_SIZE(kept) && o->new_pid_ns; i++)
        (void)sigaddset(&blocked, kept[i]);
    if (sigprocmask(SIG_SETMASK, &blocked, NULL) < 0)
        return enter_fail("signals", neg_errno(), err);
    return 0;
}

static int enter_files(const struct jail_options *o, int null_fd,
                       struct errmsg *err)
{
    if (close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
        return enter_fail("close_range", neg_errno(), err);
    for (size_t i = 0; i < o->fd_count; i++) {
        if (fcntl(o->fds[i], F_SETFD, 0) < 0)
            return enter_fail("--pass-fd", neg_errno(), err);
    }
    for (int fd = 0; fd <= STDERR_FILENO && null_fd >= 0; fd++) {
        if (dup2(null_fd, fd) < 0)
            return enter_fail("streams", neg_errno(), err);
    }
    return 0;
}

static int enter_all(const struct jail *j, struct errmsg *err)
{
    int null_fd = -1;
    int rc = j->user_ns ? enter_user_ns(j, err) : 0;

    if (rc == 0 && j->o.daemonize) {
        null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null_fd < 0)
            rc = enter_fail("/dev/null", neg_errno(), err);
    }
    if (rc == 0)
        rc = enter_namespaces(j, err);
    if (rc == 0)
        rc = j->o.in_place ? enter_mounts_in_memory(j, err)
                           : enter_mounts(j, err);
    if (rc == 0)
        rc = enter_limits(&j->o, err);
    if (rc == 0)
        rc = enter_user(j, err);
    (void)umask(077);
    /* After the change of user, which would undo it. In place the parent is a
     * thread of the caller's, which may end long before the monitor. */
    if (rc == 0 && !j->o.in_place && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        rc = enter_fail("death signal", neg_errno(), err);
    if (rc == 0)
        rc = enter_signals(&j->o, err);
    if (rc == 0)
        rc = enter_files(&j->o, null_fd, err);
    return rc;
}

/* The monitor's own words of its command line. */
struct enter_words {
    char path[300];
    char id_flag[8];
    char id[JAIL_ID_MAX + 1];
    char times[3][48];
};

/* An array for free(); its strings are those of `w` and of our own argv. */
static char **enter_argv(const struct jail *j, struct enter_words *w)
{
    char **argv = calloc(ENTER_OWN_WORDS + j->o.rest_count, sizeof(*argv));
    size_t n = 0;

    if (!argv)
        return NULL;
    (void)snprintf(w->path, sizeof(w->path), "/%s", j->o.exec_name);
    (void)snprintf(w->id_flag, sizeof(w->id_flag), "--id");
    (void)snprintf(w->id, sizeof(w->id), "%s", j->o.id);
    (void)snprintf(w->times[0], sizeof(w->times[0]), "--start-time-us=%llu",
                   (unsigned long long)j->start_us);
    (void)snprintf(w->times[1], sizeof(w->times[1]), "--start-time-cpu-us=%llu",
                   (unsigned long long)j->start_cpu_us);
    (void)snprintf(w->times[2], sizeof(w->times[2]),
                   "--parent-cpu-time-us=%llu",
                   (unsigned long long)j->parent_cpu_us);
    argv[n++] = w->path;
    argv[n++] = w->id_flag;
    argv[n++] = w->id;
    for (size_t i = 0; i < ARRAY_SIZE(w->times); i++)
        argv[n++] = w->times[i];
    for (size_t i = 0; i < j->o.rest_count; i++)
        argv[n++] = j->o.rest[i];
    return argv;
}

static bool enter_may_go(int go_fd)
{
    char byte;
    ssize_t n;

    do {
        n = read(go_fd, &byte, 1);
    } while (n < 0 && errno == EINTR);
    return n == 1; /* else the keeper is gone */
}

static _Noreturn void enter_give_up(int report_fd, const struct errmsg *err)
{
    char message[1 + sizeof(err->text)] = {ENTER_FAILED};

    memcpy(message + 1, err->text, sizeof(err->text));
    /* The keeper takes an end without a report for a failure as well. */
    if (util_write_full(report_fd, message, sizeof(message)))
        _exit(1);
    _exit(1);
}

static int enter_exec_error(const struct jail *j, int rc, struct errmsg *err)
{
    return err_set(err, rc, "--exec-file %s: %s", j->o.exec_file,
                   rc == -ENOENT
                       ? "cannot run in a jail; it needs a loader or an "
                         "interpreter (a static program does not)"
                       : err_reason(rc));
}

/* Told here, and not as a bare error of a monitor that has just begun. */
static int enter_check_kvm(const struct jail *j, struct errmsg *err)
{
    if (access("/dev/kvm", F_OK) < 0 ||
        faccessat(AT_FDCWD, "/dev/kvm", R_OK | W_OK, AT_EACCESS) == 0)
        return 0;
    return err_set(err, -EACCES,
                   "/dev/kvm: user %u may not use the host's, and no other can "
                   "be made here",
                   j->o.uid);
}

int enter_in_place(const struct jail *j, struct errmsg *err)
{
    char *none[] = {NULL};
    struct enter_words words;
    char **argv;
    int rc;

    if (j->user_ns && unshare(CLONE_NEWUSER) < 0)
        return enter_fail("a user namespace", neg_errno(), err);
    rc = enter_all(j, err);
    if (rc == 0)
        rc = enter_check_kvm(j, err);
    if (rc)
        return rc;
    argv = enter_argv(j, &words);
    if (!argv)
        return enter_fail("arguments", -ENOMEM, err);
    execve(words.path, argv, none);
    rc = neg_errno();
    free(argv);
    return enter_exec_error(j, rc, err);
}

void enter_jail(const struct jail *j, int go_fd, int report_fd)
{
    const char ready = ENTER_READY;
    struct errmsg err = {{0}};
    char *none[] = {NULL};
    struct enter_words words;
    char **argv;

    if (!enter_may_go(go_fd))
        _exit(1);
    if (enter_all(j, &err))
        enter_give_up(report_fd, &err);
    argv = enter_argv(j, &words);
    if (!argv || util_write_full(report_fd, &ready, 1) || !enter_may_go(go_fd))
        _exit(1);
    execve(words.path, argv, none);
    (void)enter_exec_error(j, neg_errno(), &err);
    enter_give_up(report_fd, &err);
}
