/* SPDX-License-Identifier: Apache-2.0 */
/* Each case forks: a filter is for ever. */
#include "vmm/seccomp_filter.h"

#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct attempt {
    enum seccomp_role role;
    void (*fn)(void);
    const char *names; /* in the line; NULL: it must be allowed */
};

static void try_execve(void)
{
    char *const argv[] = {NULL};

    (void)execve("/bin/true", argv, argv);
}

static void try_fork(void)
{
    (void)syscall(SYS_clone, 17, 0, 0, 0, 0);
}

static void try_open(void)
{
    (void)openat(AT_FDCWD, "/etc/passwd", O_RDONLY);
}

static void try_inet_socket(void)
{
    (void)socket(AF_INET, SOCK_STREAM, 0);
}

static void try_unix_socket(void)
{
    (void)socket(AF_UNIX, SOCK_STREAM, 0);
}

static void try_ptrace(void)
{
    (void)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static void try_new_ring(void)
{
    (void)syscall(SYS_io_uring_setup, 8, NULL);
}

static void try_ring_restrictions(void)
{
    (void)syscall(SYS_io_uring_register, -1, 11, NULL, 0);
}

static void try_code_memory(void)
{
    (void)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
               -1, 0);
}

static void try_memory_to_code(void)
{
    (void)syscall(SYS_mprotect, 0x10000, 4096, PROT_READ | PROT_EXEC);
}

static void try_malloc(void)
{
    void *volatile p = malloc(4 << 20);

    free(p);
}

static void try_read(void)
{
    (void)!read(-1, NULL, 0);
}

static void try_kvm_run(void)
{
    (void)ioctl(-1, KVM_RUN, 0);
}

static void try_create_vm(void)
{
    (void)ioctl(-1, KVM_CREATE_VM, 0);
}

/* The upper half of a request number is not looked at by the kernel. */
static void try_create_vm_disguised(void)
{
    (void)syscall(SYS_ioctl, -1, 0x100000000ul | KVM_CREATE_VM, 0);
}

/* What a tracer leaves of a call that it suppresses. */
static void try_no_call(void)
{
    (void)syscall(-1);
}

static void try_write(void)
{
    (void)!write(-1, "x", 1);
}

static void try_kill(void)
{
    (void)kill(1, 0);
}

static const struct attempt attempts[] = {
    {SECCOMP_VCPU, try_execve, "execve (59)"},
    {SECCOMP_VCPU, try_fork, "clone (56)"},
    {SECCOMP_VCPU, try_open, "openat (257)"},
    {SECCOMP_VCPU, try_unix_socket, "socket (41)"},
    {SECCOMP_VCPU, try_read, "read (0)"},
    {SECCOMP_VCPU, try_new_ring, "io_uring_setup (425)"},
    {SECCOMP_VCPU, try_create_vm, "ioctl (16)"},
    {SECCOMP_VCPU, try_create_vm_disguised, "ioctl (16)"},
    {SECCOMP_VCPU, try_code_memory, "mmap (9)"},
    {SECCOMP_VCPU, try_kvm_run, NULL},
    {SECCOMP_VCPU, try_write, NULL},
    {SECCOMP_LOOP, try_execve, "execve (59)"},
    {SECCOMP_LOOP, try_fork, "clone (56)"},
    {SECCOMP_LOOP, try_open, "openat (257)"},
    {SECCOMP_LOOP, try_inet_socket, "socket (41)"},
    {SECCOMP_LOOP, try_ptrace, "ptrace (101)"},
    {SECCOMP_LOOP, try_new_ring, "io_uring_setup (425)"},
    {SECCOMP_LOOP, try_ring_restrictions, "io_uring_register (427)"},
    {SECCOMP_LOOP, try_code_memory, "mmap (9)"},
    {SECCOMP_LOOP, try_memory_to_code, "mprotect (10)"},
    {SECCOMP_LOOP, try_kvm_run, "ioctl (16)"},
    {SECCOMP_LOOP, try_kill, "kill (62)"},
    {SECCOMP_LOOP, try_no_call, "number (-1)"},
    {SECCOMP_LOOP, try_malloc, NULL},
    {SECCOMP_LOOP, try_unix_socket, NULL},
    {SECCOMP_LOOP, try_read, NULL},
    {SECCOMP_LOOP_API, try_open, NULL},
    {SECCOMP_LOOP_API, try_execve, "execve (59)"},
    {SECCOMP_LOOP_API, try_inet_socket, "socket (41)"},
    {SECCOMP_LOOP_API, try_code_memory, "mmap (9)"},
};

static int run_attempt(const struct attempt *a, char *line, size_t size)
{
    int log[2];
    int status = 0;
    ssize_t n;
    pid_t pid;

    assert_int_equal(pipe2(log, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (seccomp_prepare(log[1]) || seccomp_install(a->role, "test"))
            _exit(1);
        a->fn();
        (void)syscall(SYS_exit_group, 0); /* and nothing that libc adds */
    }
    close(log[1]);
    n = read(log[0], line, size - 1);
    line[n > 0 ? n : 0] = '\0';
    close(log[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_each_role_makes_only_its_own_calls(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
        const struct attempt *a = &attempts[i];
        char line[256];
        int code = run_attempt(a, line, sizeof(line));

        if (code != (a->names ? SECCOMP_EXIT_CODE : 0))
            fail_msg("attempt %zu (%s): exit code %d: %s", i,
                     a->names ? a->names : "allowed", code, line);
        if (a->names) {
            if (!strstr(line, "thread test made the forbidden") ||
                !strstr(line, a->names))
                fail_msg("attempt %zu: not %s but: %s", i, a->names, line);
            assert_int_equal(line[strlen(line) - 1], '\n');
        } else {
            assert_string_equal(line, "");
        }
    }
}

static void test_a_violation_is_counted_in_the_metrics(void **state)
{
    const struct attempt a = {SECCOMP_VCPU, try_open, ""};
    int fd = memfd_create("metrics", MFD_CLOEXEC);
    char line[256];
    char want[64] = "";
    unsigned long long ms = 0;
    ssize_t n;

    (void)state;
    assert_true(fd >= 0);
    seccomp_tell_metrics(fd);
    assert_int_equal(run_attempt(&a, line, sizeof(line)), SECCOMP_EXIT_CODE);
    seccomp_tell_metrics(-1);
    n = pread(fd, line, sizeof(line) - 1, 0);
    assert_true(n > 0);
    line[n] = '\0';
    assert_int_equal(sscanf(line, "{\"utc_timestamp_ms\":%llu,%63s", &ms, want),
                     2);
    assert_true(ms > 1700000000000);
    assert_string_equal(want, "\"seccomp\":{\"num_faults\":1}}");
    close(fd);
}

static void test_no_privileges_come_back(void **state)
{
    (void)state;
    if (fork() == 0) {
        if (seccomp_prepare(STDERR_FILENO))
            _exit(1);
        _exit(syscall(SYS_prctl, 39 /* PR_GET_NO_NEW_PRIVS */, 0, 0, 0, 0) !=
              1);
    } else {
        int status = 1;

        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_role_makes_only_its_own_calls),
        cmocka_unit_test(test_a_violation_is_counted_in_the_metrics),
        cmocka_unit_test(test_no_privileges_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
