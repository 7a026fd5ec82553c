/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jail/remove.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct dirs {
    char path[32];
    int top;    /* the test's directory */
    int victim; /* in it: what must not be touched */
    int jail;   /* in it: what is emptied */
};

static void make_file(int at, const char *name, const char *text)
{
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

static void make_socket(const struct dirs *d, const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/jail/%s", d->path, name);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
    (void)close(fd);
}

static int enter(int at, const char *name)
{
    int fd;

    assert_int_equal(mkdirat(at, name, 0700), 0);
    fd = openat(at, name, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    return fd;
}

static bool there(int at, const char *name)
{
    return faccessat(at, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int setup(void **state)
{
    struct dirs *d = calloc(1, sizeof(*d));

    assert_non_null(d);
    (void)snprintf(d->path, sizeof(d->path), "/tmp/mote-remove-XXXXXX");
    assert_non_null(mkdtemp(d->path));
    d->top = open(d->path, O_RDONLY | O_DIRECTORY);
    d->victim = enter(d->top, "victim");
    d->jail = enter(d->top, "jail");
    make_file(d->victim, "precious", "x");
    make_file(d->victim, "empty", "");
    *state = d;
    return 0;
}

static int teardown(void **state)
{
    struct dirs *d = *state;

    assert_true(there(d->victim, "precious") && there(d->victim, "empty"));
    (void)remove_inside(d->top, REMOVE_ALL);
    assert_int_equal(rmdir(d->path), 0);
    (void)close(d->jail);
    (void)close(d->victim);
    (void)close(d->top);
    free(d);
    return 0;
}

/* One of each kind; links that lead out of the jail. */
static void fill(const struct dirs *d)
{
    int run = enter(d->jail, "run");

    make_file(d->jail, "data", "x");
    make_file(d->jail, "empty", "");
    make_file(run, "log", "x");
    make_socket(d, "sock");
    make_socket(d, "run/sock");
    assert_int_equal(mkfifoat(d->jail, "fifo", 0600), 0);
    assert_int_equal(symlinkat("../victim", d->jail, "link"), 0);
    assert_int_equal(linkat(d->victim, "precious", d->jail, "hard", 0), 0);
    (void)close(enter(run, "dir"));
    (void)close(run);
}

static void test_remove_all_follows_no_link(void **state)
{
    const struct dirs *d = *state;

    fill(d);
    assert_int_equal(remove_inside(d->jail, REMOVE_ALL), 0);
    assert_int_equal(unlinkat(d->top, "jail", AT_REMOVEDIR), 0);
}

static void test_remove_all_but_data_keeps_what_has_no_second_name(void **state)
{
    const struct dirs *d = *state;

    fill(d);
    assert_int_equal(remove_inside(d->jail, REMOVE_ALL_BUT_DATA), 2);
    assert_true(there(d->jail, "data") && there(d->jail, "run/log"));
    assert_false(there(d->jail, "empty") || there(d->jail, "sock") ||
                 there(d->jail, "fifo") || there(d->jail, "link") ||
                 there(d->jail, "hard") || there(d->jail, "run/dir"));
}

static void test_remove_sockets_leaves_the_callers_files(void **state)
{
    const struct dirs *d = *state;

    fill(d);
    (void)remove_inside(d->jail, REMOVE_SOCKETS);
    assert_false(there(d->jail, "sock") || there(d->jail, "run/sock"));
    assert_true(there(d->jail, "data") && there(d->jail, "empty") &&
                there(d->jail, "fifo") && there(d->jail, "link") &&
                there(d->jail, "hard") && there(d->jail, "run/dir"));
}

/* More levels than there are descriptors for. */
static void test_remove_all_takes_any_depth(void **state)
{
    const struct dirs *d = *state;
    int fd = dup(d->jail);

    for (int i = 0; i < 1500; i++) {
        int next = enter(fd, "d");

        (void)close(fd);
        fd = next;
    }
    (void)close(fd);
    assert_int_equal(remove_inside(d->jail, REMOVE_ALL), 0);
    assert_int_equal(unlinkat(d->top, "jail", AT_REMOVEDIR), 0);
}

static void test_remove_all_opens_closed_directories_of_ours(void **state)
{
    const struct dirs *d = *state;
    int fd = enter(d->jail, "closed");

    make_file(fd, "file", "x");
    assert_int_equal(fchmod(fd, 0), 0);
    (void)close(fd);
    assert_int_equal(remove_inside(d->jail, REMOVE_ALL), 0);
    assert_false(there(d->jail, "closed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_remove_all_follows_no_link, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_remove_all_but_data_keeps_what_has_no_second_name, setup,
            teardown),
        cmocka_unit_test_setup_teardown(
            test_remove_sockets_leaves_the_callers_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_remove_all_takes_any_depth, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_remove_all_opens_closed_directories_of_ours, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
