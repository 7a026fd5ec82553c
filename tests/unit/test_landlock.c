/* SPDX-License-Identifier: Apache-2.0 */
/* Each attempt forks: the rules are for ever. */
#include "vmm/landlock.h"

#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* A directory with file, dir/, sock/v.sock; the attempts are made in it. */
static char work[] = "/tmp/mote-landlock-XXXXXX";
static char old_dir[4096];

static int make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0)
        return neg_errno();
    (void)close(fd);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    if (!getcwd(old_dir, sizeof(old_dir)) || !mkdtemp(work) || chdir(work) < 0)
        return -1;
    return make_file("file") || mkdir("dir", 0700) || mkdir("sock", 0700) ||
                   make_file("sock/v.sock")
               ? -1
               : 0;
}

static int teardown(void **state)
{
    static const char *const files[] = {
        "file",     "new",        "renamed", "link",        "fifo", "s.sock",
        "dir/copy", "dir/v.sock", "dir",     "sock/v.sock", "sock", "made"};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        (void)remove(files[i]);
    return chdir(old_dir) < 0 || rmdir(work) < 0 ? -1 : 0;
}

/* 0 or -errno of an attempt. */
static int opened(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    int rc = fd < 0 ? neg_errno() : 0;

    if (fd >= 0)
        (void)close(fd);
    return rc;
}

static int called(long rc)
{
    return rc < 0 ? neg_errno() : 0;
}

static int try_read(void)
{
    return opened("file", O_RDONLY);
}

static int try_write(void)
{
    return opened("file", O_RDWR);
}

static int try_make_and_remove(void)
{
    int rc = opened("new", O_RDWR | O_CREAT | O_TRUNC);

    return rc ? rc : called(unlink("new"));
}

static int try_read_dir(void)
{
    return opened("dir", O_RDONLY | O_DIRECTORY);
}

static int try_rename_inside(void)
{
    int rc = opened("new", O_RDWR | O_CREAT);

    return rc ? rc : called(rename("new", "renamed"));
}

static int try_remove(void)
{
    return called(unlink("file"));
}

static int try_remove_socket(void)
{
    return called(unlink("sock/v.sock"));
}

static int try_move_out(void)
{
    return called(rename("sock/v.sock", "dir/v.sock"));
}

static int try_own_memory(void)
{
    return opened("/proc/self/mem", O_RDWR);
}

static int try_proc(void)
{
    return opened("/proc/version", O_RDONLY);
}

static int try_sys(void)
{
    return opened("/sys/kernel/uevent_seqnum", O_RDONLY);
}

static int try_system_file(void)
{
    return opened("/etc/passwd", O_RDONLY);
}

static int try_device(void)
{
    return opened("/dev/null", O_RDWR);
}

static int try_run(void)
{
    char *const argv[] = {NULL};

    return called(execve("/bin/true", argv, argv));
}

static int try_mkdir(void)
{
    return called(mkdir("made", 0700));
}

static int try_rmdir(void)
{
    return called(rmdir("dir"));
}

static int try_symlink(void)
{
    return called(symlink("file", "link"));
}

static int try_hard_link_elsewhere(void)
{
    return called(link("file", "dir/copy"));
}

static int try_fifo(void)
{
    return called(mkfifo("fifo", 0600));
}

static int try_node(void)
{
    return called(mknod("made", S_IFCHR | 0600, 0x103));
}

static int try_bind(void)
{
    const struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "s.sock"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return called(bind(fd, (const struct sockaddr *)&a, sizeof(a)));
}

static int try_trace_parent(void)
{
    return called(ptrace(PTRACE_SEIZE, getppid(), NULL, NULL));
}

struct attempt {
    const char *name;
    int (*fn)(void);
    int closed; /* what has to come of it in this role */
    int api;
};

static const struct attempt attempts[] = {
    {"read a file", try_read, -EACCES, 0},
    {"write a file", try_write, -EACCES, 0},
    {"make a file", try_make_and_remove, -EACCES, 0},
    {"read a directory", try_read_dir, -EACCES, 0},
    {"rename in a directory", try_rename_inside, -EACCES, 0},
    {"remove a socket", try_remove_socket, 0, 0},
    {"move a file to elsewhere", try_move_out, -EACCES, -EXDEV},
    {"open its own memory", try_own_memory, -EACCES, -EACCES},
    {"read /proc", try_proc, -EACCES, -EACCES},
    {"read /sys", try_sys, -EACCES, -EACCES},
    {"read /etc/passwd", try_system_file, -EACCES, 0},
    {"open a device", try_device, -EACCES, 0},
    {"run a program", try_run, -EACCES, -EACCES},
    {"make a directory", try_mkdir, -EACCES, -EACCES},
    {"remove a directory", try_rmdir, -EACCES, -EACCES},
    {"make a link", try_symlink, -EACCES, -EACCES},
    {"link to elsewhere", try_hard_link_elsewhere, -EACCES, -EXDEV},
    {"make a pipe", try_fifo, -EACCES, -EACCES},
    {"make a device", try_node, -EACCES, -EACCES},
    {"make a socket", try_bind, -EACCES, -EACCES},
    {"trace its parent", try_trace_parent, -EPERM, -EPERM},
    {"remove another file", try_remove, -EACCES, 0}, /* the last: it is gone */
};

/* In the child: under the rules of `role`. */
static int confine(enum landlock_role role)
{
    int fd = -1;
    int rc = landlock_new(role, &fd);

    if (rc == 0 && role == LANDLOCK_CLOSED)
        rc = landlock_allow_socket(fd, "sock/v.sock");
    if (rc == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        rc = neg_errno();
    return rc ? rc : landlock_enforce(fd);
}

/* What the attempt gave, by way of the child's exit code; -1: no rules. */
static int outcome(enum landlock_role role, int (*fn)(void))
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(confine(role) ? 255 : -fn());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == 255 ? -1 : -WEXITSTATUS(status);
}

static bool have_landlock(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, (size_t)0,
                   LANDLOCK_CREATE_RULESET_VERSION) > 0;
}

static void check_role(enum landlock_role role)
{
    if (!have_landlock())
        skip();
    for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
        const struct attempt *a = &attempts[i];
        int want = role == LANDLOCK_CLOSED ? a->closed : a->api;
        int got = outcome(role, a->fn);

        if (a->fn == try_sys && access("/sys/kernel/uevent_seqnum", F_OK) < 0)
            continue;
        if (a->fn == try_node && geteuid() != 0)
            continue; /* refused anyway, by another errno */
        if (got != want)
            fail_msg("%s: %d instead of %d", a->name, got, want);
        if (a->fn == try_remove_socket)
            assert_int_equal(make_file("sock/v.sock"), 0);
    }
}

static void test_landlock_closed_role_opens_and_makes_nothing(void **state)
{
    (void)state;
    check_role(LANDLOCK_CLOSED);
}

static void test_landlock_api_role_opens_files_but_not_the_kernels(void **state)
{
    (void)state;
    check_role(LANDLOCK_API);
}

/* A kernel without Landlock, or one where it is switched off. */
static int without_landlock(int error)
{
    struct sock_filter insns[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_landlock_create_ruleset, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog prog = {.len = ARRAY_SIZE(insns), .filter = insns};
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = -1;

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
            _exit(255);
        _exit(-landlock_new(LANDLOCK_CLOSED, &fd));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return -WEXITSTATUS(status);
}

static void test_landlock_kernel_without_it_is_told_apart(void **state)
{
    (void)state;
    assert_int_equal(without_landlock(ENOSYS), -ENOSYS);
    assert_int_equal(without_landlock(EOPNOTSUPP), -EOPNOTSUPP);
}

static void test_landlock_rights_grow_with_the_kernel(void **state)
{
    const uint64_t first = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;

    (void)state;
    /* Version 1 refuses what came later. */
    assert_int_equal(landlock_handled_files(LANDLOCK_CLOSED, 1), first);
    assert_int_equal(landlock_handled_files(LANDLOCK_API, 1), first);
    assert_int_equal(landlock_handled_files(LANDLOCK_API, 2),
                     first | LANDLOCK_ACCESS_FS_REFER);
    assert_true(landlock_handled_files(LANDLOCK_CLOSED, 99) & first);
}

static void test_landlock_socket_of_no_directory_is_refused(void **state)
{
    int fd = -1;

    (void)state;
    if (!have_landlock())
        skip();
    assert_int_equal(landlock_new(LANDLOCK_CLOSED, &fd), 0);
    assert_int_equal(landlock_allow_socket(fd, "none/v.sock"), -ENOENT);
    assert_int_equal(landlock_allow_socket(fd, "file/v.sock"), -ENOTDIR);
    assert_int_equal(landlock_allow_socket(fd, "/v.sock"), 0);
    assert_int_equal(landlock_allow_socket(fd, "v.sock"), 0);
    assert_int_equal(landlock_allow_socket(-1, "v.sock"), -EBADF);
    (void)close(fd);
}

int main(void)
{
    /* The order counts: the roles end by removing the file. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_landlock_rights_grow_with_the_kernel),
        cmocka_unit_test(test_landlock_kernel_without_it_is_told_apart),
        cmocka_unit_test(test_landlock_socket_of_no_directory_is_refused),
        cmocka_unit_test(test_landlock_closed_role_opens_and_makes_nothing),
        cmocka_unit_test(
            test_landlock_api_role_opens_files_but_not_the_kernels),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
