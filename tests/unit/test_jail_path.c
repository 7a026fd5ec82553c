/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jail/path.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct place {
    char path[32];
    char text[128];
};

/* The name of `rest` below the test's directory. */
static const char *in(struct place *p, const char *rest)
{
    (void)snprintf(p->text, sizeof(p->text), "%s/%s", p->path, rest);
    return p->text;
}

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    int fd;

    assert_non_null(p);
    (void)snprintf(p->path, sizeof(p->path), "/tmp/mote-path-XXXXXX");
    assert_non_null(mkdtemp(p->path));
    fd = open(in(p, "file"), O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "hello", 5), 5);
    (void)close(fd);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = {"a/b/c", "a/b",  "a",    "open/x",
                                        "open",  "link", "loop", "file"};
    struct place *p = *state;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)remove(in(p, names[i]));
    assert_int_equal(rmdir(p->path), 0);
    free(p);
    return 0;
}

static void test_path_base_is_made_with_its_parents(void **state)
{
    struct place *p = *state;
    char name[128];
    struct errmsg err;
    int fd = -1;

    assert_int_equal(path_open_base(in(p, "a/./b//c/"), &fd, &err), 0);
    assert_int_equal(path_of_fd(fd, name, sizeof(name)), 0);
    assert_string_equal(name, in(p, "a/b/c"));
    assert_int_equal(path_of_fd(fd, name, 5), -ENAMETOOLONG);
    (void)close(fd);
}

static void test_path_base_that_others_can_write_to_is_refused(void **state)
{
    struct place *p = *state;
    struct errmsg err;
    int fd = -1;

    assert_int_equal(mkdir(in(p, "open"), 0700), 0);
    assert_int_equal(chmod(in(p, "open"), 0777), 0);
    assert_int_equal(path_open_base(in(p, "open/x"), &fd, &err), -EPERM);
    assert_non_null(strstr(err.text, "others can write to open"));
    assert_int_equal(access(in(p, "open/x"), F_OK), -1);
    assert_int_equal(chmod(in(p, "open"), 01777), 0);
    assert_int_equal(path_open_base(in(p, "open/x"), &fd, &err), 0);
    (void)close(fd);
}

static void test_path_base_that_is_no_directory_is_refused(void **state)
{
    struct place *p = *state;
    struct errmsg err;
    int fd = -1;

    assert_int_equal(path_open_base(in(p, "file"), &fd, &err), -ENOTDIR);
    assert_int_equal(path_open_base(in(p, "file/x"), &fd, &err), -ENOTDIR);
    assert_int_equal(fd, -1);
}

static void test_path_own_links_are_followed_and_loops_end(void **state)
{
    struct place *p = *state;
    struct errmsg err;
    char text[8] = "";
    int fd = -1;

    assert_int_equal(symlink("./file", in(p, "link")), 0);
    assert_int_equal(symlink("loop", in(p, "loop")), 0);
    assert_int_equal(path_open_file("--x", in(p, "link"), &fd, &err), 0);
    assert_int_equal(read(fd, text, sizeof(text)), 5);
    assert_string_equal(text, "hello");
    (void)close(fd);
    assert_int_equal(path_open_file("--x", in(p, "loop"), &fd, &err), -ELOOP);
    assert_int_equal(path_open_base(in(p, "loop/y"), &fd, &err), -ELOOP);
}

static void test_path_only_regular_files_are_opened(void **state)
{
    struct place *p = *state;
    struct errmsg err;
    int fd = -1;

    assert_int_equal(path_open_file("--x", p->path, &fd, &err), -EINVAL);
    assert_int_equal(path_open_file("--x", "/dev/null", &fd, &err), -EINVAL);
    assert_int_equal(path_open_file("--x", in(p, "none"), &fd, &err), -ENOENT);
    assert_non_null(strstr(err.text, "--x"));
}

static void test_path_too_long_is_refused(void **state)
{
    char *name = malloc(2 * PATH_OF_ALL);
    struct errmsg err;
    int fd = -1;

    (void)state;
    assert_non_null(name);
    memset(name, '/', 2 * PATH_OF_ALL);
    name[2 * PATH_OF_ALL - 1] = '\0';
    assert_int_equal(path_open_base(name, &fd, &err), -ENAMETOOLONG);
    memset(name, 'x', 300);
    name[300] = '\0';
    assert_int_equal(path_open_file("--x", name, &fd, &err), -ENAMETOOLONG);
    free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_path_base_is_made_with_its_parents,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_path_base_that_others_can_write_to_is_refused, setup,
            teardown),
        cmocka_unit_test_setup_teardown(
            test_path_base_that_is_no_directory_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_path_own_links_are_followed_and_loops_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_path_only_regular_files_are_opened,
                                        setup, teardown),
        cmocka_unit_test(test_path_too_long_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
