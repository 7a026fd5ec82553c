/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for the monitor in tests/jail: says what it sees from inside the
 * jail, as lines of KEY=VALUE, and does what the words after the jailer's own
 * arguments ask for, one after the other:
 *
 *   report        who and where it is, and what it can reach
 *   exit=N        ends with this code
 *   raise=N       ends by this signal
 *   say=TEXT      prints TEXT
 *   wait          waits for a signal that kills
 *   catch=N       signal N makes it end with code 100+N
 *   until=PATH    waits for a file of that name
 *   take=N        blocks signal N and takes one that is pending: got=N, or 0
 *   orphans=N     leaves N processes in sessions of their own behind
 *   file=PATH     makes a file with bytes; empty=PATH one without
 *   socket=PATH   makes a Unix socket; fifo=PATH a pipe; link=PATH a link to /
 *   deep=N        makes N directories, each in the one before
 *   mode0=PATH    makes a directory that nobody may enter, with one inside
 *   eat=MIB       touches that much memory
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <linux/capability.h>

extern char **environ;

static void say_open(const char *path, int flags)
{
    int fd = open(path, flags);

    printf("open:%s=%s\n", path, fd >= 0 ? "ok" : strerror(errno));
    if (fd >= 0)
        (void)close(fd);
}

static void say_can(const char *what, long rc)
{
    printf("can:%s=%s\n", what, rc >= 0 ? "yes" : strerror(errno));
}

static void report_user(void)
{
    struct __user_cap_header_struct head = {.version =
                                                _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2] = {{0}};
    uid_t u[3];
    gid_t g[3];
    gid_t groups[64];
    int n = getgroups(64, groups);
    int bounding = 0;
    mode_t mask = umask(0);

    (void)umask(mask);
    (void)getresuid(&u[0], &u[1], &u[2]);
    (void)getresgid(&g[0], &g[1], &g[2]);
    (void)syscall(SYS_capget, &head, caps);
    for (int c = 0; c < 64; c++)
        bounding += prctl(PR_CAPBSET_READ, c) == 1;
    printf("uid=%u %u %u\ngid=%u %u %u\n", u[0], u[1], u[2], g[0], g[1], g[2]);
    printf("groups=");
    for (int i = 0; i < n; i++)
        printf("%s%u", i ? " " : "", groups[i]);
    printf("\npid=%d\n", getpid());
    printf("caps=%08x%08x %08x%08x %08x%08x\n", caps[1].effective,
           caps[0].effective, caps[1].permitted, caps[0].permitted,
           caps[1].inheritable, caps[0].inheritable);
    printf("bounding=%d\n", bounding);
    printf("no_new_privs=%d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    printf("umask=%04o\n", (unsigned)mask);
}

static void report_process(void)
{
    struct utsname uts;
    struct rlimit l;
    char cwd[4096];
    sigset_t blocked;
    int count = 0;
    int death = 0;

    (void)uname(&uts);
    (void)prctl(PR_GET_PDEATHSIG, &death);
    (void)sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (char **e = environ; *e; e++)
        count++;
    printf("host=%s\nenv=%d\ndeath=%d\n", uts.nodename, count, death);
    printf("cwd=%s\n", getcwd(cwd, sizeof(cwd)) ? cwd : "?");
    count = 0;
    for (int s = 1; s < 65; s++) {
        struct sigaction sa;

        count += sigismember(&blocked, s) == 1;
        count += sigaction(s, NULL, &sa) == 0 && sa.sa_handler != SIG_DFL;
    }
    printf("signals=%d\n", count);
    printf("fds=");
    (void)getrlimit(RLIMIT_NOFILE, &l);
    for (int fd = 0; fd < 4096; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            printf("%s%d", fd ? " " : "", fd);
    }
    printf("\nno_file=%llu %llu\n", (unsigned long long)l.rlim_cur,
           (unsigned long long)l.rlim_max);
    (void)getrlimit(RLIMIT_FSIZE, &l);
    printf("fsize=%llu\n", (unsigned long long)l.rlim_cur);
    (void)getrlimit(RLIMIT_CORE, &l);
    printf("core=%llu\n", (unsigned long long)l.rlim_max);
}

static void report_tree(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char name[1024];
        struct stat st;

        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        (void)snprintf(name, sizeof(name), "%s%s%s", path, path[1] ? "/" : "",
                       e->d_name);
        if (lstat(name, &st) < 0)
            continue;
        printf("tree:%s=%06o %u %u %llu\n", name, st.st_mode, st.st_uid,
               st.st_gid, (unsigned long long)st.st_rdev);
        if (S_ISDIR(st.st_mode))
            report_tree(name);
    }
    if (d)
        (void)closedir(d);
}

static void report_reach(const char *self)
{
    static const char *const paths[] = {
        "/etc/passwd", "/../../../../etc/passwd",
        "/proc/self",  "/sys",
        "/home",       "/tmp",
        "/root",
    };
    struct if_nameindex *ifs = if_nameindex();
    int n = 0;

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        say_open(paths[i], O_RDONLY);
    say_open("/dev/kvm", O_RDWR);
    say_open("/dev/net/tun", O_RDWR);
    say_open("/dev/urandom", O_RDONLY);
    say_open(self, O_WRONLY);
    say_open("/", O_RDONLY);
    say_can("setuid", setuid(0));
    say_can("setgroups", setgroups(0, NULL));
    say_can("mount", mount("none", "/run", "tmpfs", 0, NULL));
    say_can("umount", umount2("/dev", MNT_DETACH));
    say_can("remount", mount(NULL, "/dev", NULL, MS_REMOUNT | MS_BIND, NULL));
    say_can("mknod", mknod("/sda", S_IFBLK | 0600, 0x800));
    say_can("chroot", chroot("/run"));
    say_can("dev_write", open("/dev/new", O_WRONLY | O_CREAT, 0600));
    say_can("root_write", open("/new", O_WRONLY | O_CREAT, 0666));
    say_can("run_write", open("/run/new", O_WRONLY | O_CREAT, 0666));
    say_can("hostname", sethostname("x", 1));
    (void)unlink("/new");
    (void)unlink("/run/new");
    for (int fd = 0; fd < 3; fd++) {
        int up = openat(fd, "../../etc/passwd", O_RDONLY);

        printf("can:up_from_%d=%s\n", fd, up < 0 ? "no" : "yes");
    }
    printf("interfaces=");
    for (; ifs && ifs[n].if_index; n++)
        printf("%s%s", n ? " " : "", ifs[n].if_name);
    printf("\n");
}

static void on_signal(int sig)
{
    _exit(100 + sig);
}

static void until(const char *path)
{
    while (access(path, F_OK) < 0)
        (void)usleep(1000);
}

static void take(int sig)
{
    const struct timespec at_once = {0, 0};
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, sig);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    printf("got=%d\n", sigtimedwait(&set, NULL, &at_once) == sig ? sig : 0);
}

static void orphans(int n)
{
    for (int i = 0; i < n; i++) {
        if (fork() == 0) {
            (void)setsid();
            if (fork() == 0)
                (void)setsid();
            for (;;)
                (void)pause();
        }
    }
}

static void deep(int n)
{
    for (int i = 0; i < n; i++) {
        if (mkdir("deep", 0700) < 0 || chdir("deep") < 0)
            exit(1);
        (void)close(open("file", O_WRONLY | O_CREAT, 0600));
    }
    (void)chdir("/");
}

static void make_socket(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    if (bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
        exit(1);
}

static void make_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);

    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        exit(1);
    (void)close(fd);
}

static void make_closed(const char *path)
{
    char inner[1024];

    (void)snprintf(inner, sizeof(inner), "%s/inner", path);
    if (mkdir(path, 0700) < 0 || mkdir(inner, 0) < 0 || chmod(path, 0) < 0)
        exit(1);
}

static void make(const char *word)
{
    const char *v = strchr(word, '=') + 1;

    if (!strncmp(word, "file=", 5))
        make_file(v, "data");
    else if (!strncmp(word, "empty=", 6))
        make_file(v, "");
    else if (!strncmp(word, "socket=", 7))
        make_socket(v);
    else if (!strncmp(word, "fifo=", 5))
        (void)mkfifo(v, 0600);
    else if (!strncmp(word, "link=", 5))
        (void)symlink("/", v);
    else if (!strncmp(word, "mode0=", 6))
        make_closed(v);
}

static void eat(size_t mib)
{
    char *p = malloc(mib << 20);

    for (size_t i = 0; p && i < mib << 20; i += 4096)
        p[i] = 1;
    printf("ate\n");
}

static void one(const char *self, const char *word)
{
    const char *eq = strchr(word, '=');
    int n = eq ? atoi(eq + 1) : 0;

    if (!strcmp(word, "report")) {
        report_user();
        report_process();
        report_tree("/");
        report_reach(self);
    } else if (!strncmp(word, "say=", 4)) {
        printf("%s\n", word + 4);
    } else if (!strncmp(word, "exit=", 5)) {
        exit(n);
    } else if (!strncmp(word, "raise=", 6)) {
        (void)raise(n);
    } else if (!strncmp(word, "catch=", 6)) {
        (void)signal(n, on_signal);
    } else if (!strncmp(word, "until=", 6)) {
        until(eq + 1);
    } else if (!strncmp(word, "take=", 5)) {
        take(n);
    } else if (!strncmp(word, "orphans=", 8)) {
        orphans(n);
    } else if (!strncmp(word, "deep=", 5)) {
        deep(n);
    } else if (!strncmp(word, "eat=", 4)) {
        eat((size_t)n);
    } else if (!strcmp(word, "wait")) {
        printf("waiting\n");
        for (;;)
            (void)pause();
    } else if (eq) {
        make(word);
    }
}

int main(int argc, char **argv)
{
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < argc; i++)
        printf("arg%d=%s\n", i, argv[i]);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0)
            one(argv[0], argv[i]);
    }
    return 0;
}
