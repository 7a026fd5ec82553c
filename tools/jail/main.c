/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mote-jail: checks the arguments, starts the keeper, hands signals on to it
 * and its exit code to the caller. README.md says who does what.
 */
#include "tools/jail/enter.h"
#include "tools/jail/jail.h"
#include "tools/jail/keeper.h"
#include "tools/jail/path.h"
#include "vmm/cleanup.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define EXIT_ARGUMENTS 153 /* as mote-vmm and Firecracker */
#define EXIT_FAILED    1
#define MOUNTINFO_MAX  (4u << 20)
/* The release of Firecracker whose jailer's flags these are. */
#define JAILER_VERSION "1.17.0"

uint64_t jail_cpu_us(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

void jail_say(const char *fmt, ...)
{
    char text[800];
    size_t n = (size_t)snprintf(text, sizeof(text), "mote-jail: ");
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text + n, sizeof(text) - 1 - n, fmt, ap);
    va_end(ap);
    n = strlen(text);
    text[n] = '\n';
    if (util_write_full(STDERR_FILENO, text, n + 1))
        return; /* nobody listens */
}

/* --- what there is to work with ---------------------------------------------
 */

static int by_number(const void *a, const void *b)
{
    const int *x = a;
    const int *y = b;

    return (*x > *y) - (*x < *y);
}

/*
 * Closes what the caller left open, but for the streams and --pass-fd. Streams
 * that are closed become /dev/null: no later file may take their number.
 */
static int close_files(struct jail_options *o, struct errmsg *err)
{
    unsigned from = STDERR_FILENO + 1;
    int fd;

    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO && fcntl(fd, F_SETFD, 0) == 0);
    drop_fd(&fd);
    qsort(o->fds, o->fd_count, sizeof(o->fds[0]), by_number);
    for (size_t i = 0; i < o->fd_count; i++) {
        if (fcntl(o->fds[i], F_GETFD) < 0)
            return err_set(err, -EBADF, "--pass-fd %d: is not open", o->fds[i]);
        if ((unsigned)o->fds[i] > from)
            (void)close_range(from, (unsigned)o->fds[i] - 1, 0);
        from = (unsigned)o->fds[i] + 1;
    }
    return close_range(from, ~0u, 0) < 0 ? neg_errno() : 0;
}

static void forget_fd(struct jail_options *o, int fd)
{
    size_t n = 0;

    for (size_t i = 0; i < o->fd_count; i++) {
        if (o->fds[i] != fd)
            o->fds[n++] = o->fds[i];
    }
    o->fd_count = n;
}

/* Whether all is there that a jail needs without a user namespace. */
static bool have_capabilities(void)
{
    static const int needed[] = {CAP_SYS_ADMIN, CAP_SETUID,    CAP_SETGID,
                                 CAP_SETPCAP,   CAP_CHOWN,     CAP_DAC_OVERRIDE,
                                 CAP_FOWNER,    CAP_SYS_CHROOT};
    struct __user_cap_header_struct head = {.version =
                                                _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (syscall(SYS_capget, &head, data) < 0)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
        if (!(data[CAP_TO_INDEX(needed[i])].effective & CAP_TO_MASK(needed[i])))
            return false;
    }
    return true;
}

/* A whole file of /proc, for free(). */
static char *read_proc(const char *path)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    CLEANUP_FREE char *text = NULL;
    size_t cap = 0;
    size_t len = 0;
    ssize_t n = 1;

    while (fd >= 0 && n > 0 && len < MOUNTINFO_MAX) {
        if (cap - len < 4096) {
            char *more = realloc(text, cap + 65536);

            if (!more)
                return NULL;
            text = more;
            cap += 65536;
        }
        n = read(fd, text + len, cap - len - 1);
        len += n > 0 ? (size_t)n : 0;
    }
    if (!text || n < 0)
        return NULL;
    text[len] = '\0';
    return take_ptr(text);
}

/* Only in the first user namespace can device nodes be made. */
static bool in_first_user_ns(void)
{
    CLEANUP_FREE char *map = read_proc("/proc/self/uid_map");
    unsigned inside = 1;
    unsigned outside = 1;
    unsigned count = 0;

    /* NOLINTNEXTLINE(cert-err34-c): the kernel wrote it */
    return map && sscanf(map, "%u %u %u", &inside, &outside, &count) == 3 &&
           inside == 0 && outside == 0 && count == UINT32_MAX;
}

static int open_netns(struct jail *j, struct errmsg *err)
{
    const char *path = j->o.netns;
    int rc = 0;

    if (!path)
        return 0;
    /* The kernel's own links there are no text that could be read. */
    if (!strncmp(path, "/proc/", 6)) {
        j->netns_fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (j->netns_fd < 0)
            rc = err_set(err, neg_errno(), "--netns %s: %s", path,
                         err_reason(neg_errno()));
    } else {
        rc = path_open_file("--netns", path, &j->netns_fd, err);
    }
    if (rc == 0 && ioctl(j->netns_fd, NS_GET_NSTYPE) != CLONE_NEWNET)
        rc = err_set(err, -EINVAL, "--netns %s: is no network namespace", path);
    return rc;
}

/* Shown now, and not as a bare error of a monitor inside. */
static int check_kvm(const struct jail *j, struct errmsg *err)
{
    struct stat st;

    if (!j->user_ns || stat("/dev/kvm", &st) < 0 ||
        faccessat(AT_FDCWD, "/dev/kvm", R_OK | W_OK, AT_EACCESS) == 0)
        return 0;
    return err_set(err, -EACCES,
                   "/dev/kvm: user %u may not use it (it belongs to user %u, "
                   "group %u, mode %04o); join that group, or run as root",
                   (unsigned)j->outer_uid, (unsigned)st.st_uid,
                   (unsigned)st.st_gid, (unsigned)st.st_mode & 07777);
}

static int check_user(struct jail *j, struct errmsg *err)
{
    j->outer_uid = geteuid();
    j->outer_gid = getegid();
    j->user_ns = !have_capabilities();
    j->bind_devices = j->user_ns || !in_first_user_ns();
    if (!j->user_ns && !(j->o.uid_given && j->o.gid_given))
        return err_set(err, -EINVAL,
                       "--uid and --gid: needed as root; the monitor runs as "
                       "that user");
    if (!j->o.uid_given)
        j->o.uid = (uint32_t)j->outer_uid;
    if (!j->o.gid_given)
        j->o.gid = (uint32_t)j->outer_gid;
    return 0;
}

static int prepare(struct jail *j, struct errmsg *err)
{
    CLEANUP_FREE char *mountinfo = NULL;
    int rc = check_user(j, err);

    if (rc)
        return rc;
    rc = path_open_file("--exec-file", j->o.exec_file, &j->exec_fd, err);
    if (rc == 0)
        rc = open_netns(j, err);
    if (rc == 0)
        rc = check_kvm(j, err);
    if (rc)
        return rc;
    j->shared = mmap(NULL, sizeof(*j->shared), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (j->shared != MAP_FAILED && j->o.in_place && !j->o.parent_cgroup)
        return 0; /* no cgroup, so no matter where they are mounted */
    mountinfo = read_proc("/proc/self/mountinfo");
    if (j->shared == MAP_FAILED || !mountinfo)
        return err_set(err, -ENOMEM, "/proc/self/mountinfo: cannot be read");
    return cgroup_plan(&j->o, mountinfo, &j->shared->plan, err);
}

/* --- the caller's child -----------------------------------------------------
 */

struct front {
    struct jail *j;
    pid_t keeper;
    int signal_fd;
    int life_fd;
    int tell_fd;
};

static int front_start(struct front *f, struct errmsg *err)
{
    int life[2] = {-1, -1};
    int tell[2] = {-1, -1};
    sigset_t all;

    (void)sigfillset(&all);
    if (sigprocmask(SIG_BLOCK, &all, NULL) == 0 &&
        /* A killed keeper's monitor comes to us. */
        prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && pipe2(life, O_CLOEXEC) == 0 &&
        pipe2(tell, O_CLOEXEC) == 0) {
        f->j->parent_cpu_us = jail_cpu_us();
        f->keeper = fork();
    }
    if (f->keeper == 0) {
        (void)close(life[1]); /* or its end of file would never come */
        (void)close(tell[0]);
        keeper_run(f->j, life[0], tell[1]);
    }
    if (f->keeper < 0)
        return err_set(err, neg_errno(), "starting the keeper: %s",
                       err_reason(neg_errno()));
    drop_fd(&life[0]);
    drop_fd(&tell[1]);
    f->life_fd = life[1];
    f->tell_fd = tell[0];
    f->signal_fd = signalfd(-1, &all, SFD_CLOEXEC);
    for (size_t i = 0; i < f->j->o.fd_count; i++)
        (void)close(f->j->o.fds[i]);
    return 0;
}

static void front_signal(const struct front *f)
{
    struct signalfd_siginfo si;

    /* It forwards what concerns a monitor. */
    if (read(f->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si) &&
        si.ssi_signo != SIGCHLD)
        (void)kill(f->keeper, (int)si.ssi_signo);
}

/* The next word; -1 when the keeper is gone without one. */
static int front_word(const struct front *f, struct keeper_word *out)
{
    for (;;) {
        struct pollfd p[] = {{.fd = f->tell_fd, .events = POLLIN},
                             {.fd = f->signal_fd, .events = POLLIN}};

        if (poll(p, ARRAY_SIZE(p), -1) < 0)
            continue; /* EINTR at most */
        if (p[1].revents)
            front_signal(f);
        if (p[0].revents) /* a word is one write, far below PIPE_BUF */
            return read(f->tell_fd, out, sizeof(*out)) == (ssize_t)sizeof(*out)
                       ? out->what
                       : -1;
    }
}

/* Ends as the monitor has ended. */
static int front_end_like(int status)
{
    const struct rlimit no_core = {0, 0};
    int sig = WTERMSIG(status);
    sigset_t none;

    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)signal(sig, SIG_DFL); /* refused for SIGKILL, which needs it not */
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)kill(getpid(), sig);
    return 128 + sig;
}

static int front_run(struct front *f)
{
    struct keeper_word w = {0};
    int what = front_word(f, &w);

    if (what == KEEPER_STARTED && (f->j->o.daemonize || f->j->o.new_pid_ns)) {
        if (util_write_full(f->life_fd, "", 1) == 0)
            return 0;
    }
    while (what == KEEPER_STARTED)
        what = front_word(f, &w);
    (void)waitpid(f->keeper, NULL, 0);
    if (what == KEEPER_ENDED)
        return front_end_like(w.status);
    keeper_rescue(f->j);
    jail_say("the keeper was killed; the monitor with it");
    return EXIT_FAILED;
}

/* --- in place ----------------------------------------------------------------
 */

/* Returns only if it failed. */
static int in_place(struct jail *j)
{
    struct errmsg err = {{0}};
    int report_fd = j->o.report_fd;
    int rc = 0;

    /* Kept open like those of --pass-fd, up to the exec. */
    if (report_fd >= 0 && j->o.fd_count < JAIL_MAX_FDS)
        j->o.fds[j->o.fd_count++] = report_fd;
    rc = close_files(&j->o, &err);
    if (report_fd >= 0)
        forget_fd(&j->o, report_fd);
    if (rc == 0)
        rc = prepare(j, &err);
    if (rc == 0)
        rc = cgroup_join(&j->shared->plan, getpid(), &err);
    if (rc == 0)
        rc = enter_in_place(j, &err);
    if (report_fd < 0 || util_write_full(report_fd, err.text, strlen(err.text)))
        jail_say("%s", err.text);
    return rc ? EXIT_FAILED : 0;
}

static int print_version(const char *program)
{
    const char *slash = strrchr(program, '/');

    /* Called by the name of what it stands in for, it answers in its way. */
    if (!strncmp(slash ? slash + 1 : program, "jailer", 6))
        printf("Jailer v" JAILER_VERSION " (mote " MOTE_VERSION ")\n");
    else
        printf("mote-jail " MOTE_VERSION "\n");
    return 0;
}

int main(int argc, char **argv)
{
    struct jail j = {.exec_fd = -1, .netns_fd = -1, .root = JAIL_ROOT_NONE};
    struct front f = {.j = &j, .keeper = -1};
    struct errmsg err = {{0}};

    j.start_us = util_now_ns() / 1000;
    j.start_cpu_us = jail_cpu_us();
    (void)umask(022);
    if (jail_options_parse(argc, argv, &j.o, &err)) {
        jail_say("%s", err.text);
        return EXIT_ARGUMENTS;
    }
    if (j.o.help) {
        jail_options_print_help(stdout);
        return 0;
    }
    if (j.o.version)
        return print_version(argv[0]);
    if (j.o.in_place)
        return in_place(&j);
    if (close_files(&j.o, &err) || prepare(&j, &err) || front_start(&f, &err)) {
        jail_say("%s", err.text);
        return EXIT_FAILED;
    }
    drop_fd(&j.exec_fd);
    drop_fd(&j.netns_fd);
    return front_run(&f);
}
