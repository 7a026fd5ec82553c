/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of a monitor in a jail, and what such a process is made of. */
#include "tools/libmote/files.h"
#include "tools/libmote/jail.h"

#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_files_are_named_by_the_number_that_they_get(void **state)
{
    struct lm_files f = {.count = 0};
    const char *name = NULL;
    int fd;

    (void)state;
    for (int i = 0; i < 5; i++)
        assert_int_equal(lm_files_lend(&f, -1), 0);
    assert_int_equal(lm_files_open(&f, "disk", "/dev/null", true, &name, NULL),
                     0);
    assert_string_equal(name, "/dev/fd/5/dev/null");
    assert_int_equal(fcntl(f.fds[5], F_GETFL) & O_ACCMODE, O_RDWR);
    assert_int_equal(fcntl(f.fds[5], F_GETFD), FD_CLOEXEC);
    assert_int_equal(
        lm_files_open(&f, "kernel", "/dev/../dev/zero", false, &name, NULL), 0);
    assert_string_equal(name, "/dev/fd/6/dev/../dev/zero");
    assert_int_equal(fcntl(f.fds[6], F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_int_equal(lm_files_open(&f, "kernel", ".", false, &name, NULL), 0);
    assert_string_equal(name, "/dev/fd/7/./.");
    fd = f.fds[6];
    lm_files_close(&f);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    lm_files_close(&f);
}

static void test_files_have_their_own_names_in_messages(void **state)
{
    static const char *const texts[][2] = {
        {"kernel /dev/fd/5/a/b: bad; /dev/fd/12/c", "kernel /a/b: bad; /c"},
        {"disk /dev/fd/6/./x.img: is", "disk x.img: is"},
        {"/dev/fd/5", "/dev/fd/5"},
        {"/dev/fd/x/y /dev/fd/", "/dev/fd/x/y /dev/fd/"},
        {"/dev/fd/1/dev/fd/2/z", "/z"},
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        char text[64];

        (void)snprintf(text, sizeof(text), "%s", texts[i][0]);
        lm_files_plain(text);
        assert_string_equal(text, texts[i][1]);
    }
}

static void test_files_that_cannot_be_opened_are_named(void **state)
{
    struct lm_files f = {.count = 0};
    struct mote_err err = {0};
    const char *name = NULL;

    (void)state;
    assert_int_equal(
        lm_files_open(&f, "disk", "/none/x.img", true, &name, &err), -ENOENT);
    assert_string_equal(err.text, "disk /none/x.img: cannot open it: No such "
                                  "file or directory; check the path");
    assert_int_equal(lm_files_open(&f, "disk", "/tmp", true, &name, &err),
                     -EISDIR);
    assert_null(name);
    assert_int_equal(f.count, 0);
}

static void test_files_more_than_a_process_gets_are_refused(void **state)
{
    struct lm_files f = {.count = 0};
    struct mote_err err = {0};
    const char *name = NULL;

    (void)state;
    for (int i = 0; i < LM_FILES_MAX; i++)
        assert_int_equal(lm_files_lend(&f, -1), 0);
    assert_int_equal(lm_files_lend(&f, -1), -E2BIG);
    assert_int_equal(lm_files_open(&f, "disk", "/dev/null", true, &name, &err),
                     -E2BIG);
    assert_non_null(strstr(err.text, "/dev/null"));
    lm_files_close(&f);
}

/* Runs a shell that judges its own descriptors. */
static int spawned(const int *fds, size_t count, const char *script)
{
    const char *words[] = {"sh", "-c", script, NULL};
    struct lm_launch l = {
        .console_fd = -1, .log_fd = -1, .fds = fds, .fd_count = count};
    struct lm_spawn s;
    int status = 0;
    pid_t pid = 0;

    assert_int_equal(lm_launch_fds(&l, &s), 0);
    s.program = "/bin/sh";
    s.words = words;
    assert_int_equal(lm_spawn(&s, &pid), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_spawn_gives_just_those_descriptors_in_order(void **state)
{
    int ends[2];
    char byte = 0;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    /* The sources' own numbers are among the targets: 3 and 4, crossed. */
    assert_int_equal(spawned((const int[]){ends[1], -1, ends[0]}, 3,
                             "printf x >&3 && ! (: <&6) 2>/dev/null && "
                             "[ -c /dev/fd/4 ] && [ -p /dev/fd/5 ]"),
                     0);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void test_spawn_hides_the_environment(void **state)
{
    (void)state;
    assert_int_equal(setenv("SECRET_TOKEN", "x", 1), 0);
    assert_int_equal(setenv("MOTE_UNIT_TEST", "y", 1), 0);
    assert_int_equal(
        spawned(NULL, 0, "[ -z \"$SECRET_TOKEN\" ] && [ $MOTE_UNIT_TEST = y ]"),
        0);
}

static void test_spawn_too_many_descriptors_are_refused(void **state)
{
    int fds[LM_SPAWN_MAX_FDS];
    struct lm_launch l = {.fds = fds, .fd_count = LM_SPAWN_MAX_FDS - 2};
    struct lm_spawn s;

    (void)state;
    memset(fds, 0xff, sizeof(fds));
    assert_int_equal(lm_launch_fds(&l, &s), -E2BIG);
    l.fd_count--;
    assert_int_equal(lm_launch_fds(&l, &s), 0);
    assert_int_equal(s.fd_count, LM_SPAWN_MAX_FDS);
}

static void test_jail_user_is_nobody_elses(void **state)
{
    struct lm_jail a;
    struct lm_jail b;

    (void)state;
    if (lm_jail_choose(NULL, &a, NULL)) {
        assert_int_equal(geteuid(), 0); /* of too small a user namespace */
        skip();
    }
    assert_int_equal(lm_jail_choose("no-such-tap", &b, NULL), 0);
    if (geteuid() != 0) {
        assert_int_equal(a.uid, 0);
        return;
    }
    assert_true(a.uid >= 61184 && a.gid == a.uid);
    assert_int_not_equal(a.uid, b.uid); /* one in thousands */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_are_named_by_the_number_that_they_get),
        cmocka_unit_test(test_files_have_their_own_names_in_messages),
        cmocka_unit_test(test_files_that_cannot_be_opened_are_named),
        cmocka_unit_test(test_files_more_than_a_process_gets_are_refused),
        cmocka_unit_test(test_spawn_gives_just_those_descriptors_in_order),
        cmocka_unit_test(test_spawn_hides_the_environment),
        cmocka_unit_test(test_spawn_too_many_descriptors_are_refused),
        cmocka_unit_test(test_jail_user_is_nobody_elses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
