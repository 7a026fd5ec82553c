/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/rundir.h"

#include "tools/libmote/chan.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A run-time directory of the test's own. */
struct fixture {
    char dir[32];
    struct lm_rundir rd;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    if (!f)
        return -1;
    (void)strcpy(f->dir, "/tmp/mote-unit-XXXXXX");
    if (!mkdtemp(f->dir) || setenv("MOTE_RUNTIME_DIR", f->dir, 1))
        return -1;
    *state = f;
    return lm_rundir_open(&f->rd, NULL);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    lm_rundir_reap(&f->rd);
    (void)unlinkat(f->rd.fd, "lock", 0);
    (void)unlinkat(f->rd.fd, "vm", AT_REMOVEDIR);
    (void)unlinkat(f->rd.fd, "names", AT_REMOVEDIR);
    lm_rundir_close(&f->rd);
    /* Fails if a test has left something: that is one of the checks. */
    if (rmdir(f->dir))
        return -1;
    free(f);
    return 0;
}

static bool exists(int at, const char *name)
{
    return faccessat(at, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_slot_comes_and_goes_whole(void **state)
{
    struct fixture *f = *state;
    struct lm_slot s;
    char id[MOTE_ID_LEN + 1];

    assert_int_equal(lm_slot_new(&f->rd, "web-1", &s, NULL), 0);
    assert_true(lm_id_valid(s.id));
    assert_true(lm_slot_alive(&f->rd, s.id));
    assert_int_equal(lm_rundir_lookup(&f->rd, "web-1", id), 0);
    assert_string_equal(id, s.id);
    assert_int_equal(lm_rundir_lookup(&f->rd, s.id, id), 0);
    assert_int_equal(lm_slot_write(&s, "vm.json", "{}", NULL), 0);
    lm_slot_remove(&f->rd, &s);
    assert_false(exists(f->rd.vm_fd, id));
    assert_false(exists(f->rd.names_fd, "web-1"));
    assert_int_equal(lm_rundir_lookup(&f->rd, "web-1", id), -ENOENT);
    lm_slot_remove(&f->rd, &s); /* once more is harmless */
}

static void test_name_of_live_owner_is_refused(void **state)
{
    struct fixture *f = *state;
    struct lm_slot a;
    struct lm_slot b;
    struct mote_err err = {0};

    assert_int_equal(lm_slot_new(&f->rd, "db", &a, NULL), 0);
    assert_int_equal(lm_slot_new(&f->rd, "db", &b, &err), -EEXIST);
    assert_non_null(strstr(err.text, "name 'db': taken"));
    assert_non_null(strstr(err.text, "; "));
    assert_true(lm_slot_alive(&f->rd, a.id));
    lm_slot_remove(&f->rd, &a);
    assert_int_equal(lm_slot_new(&f->rd, "db", &b, NULL), 0);
    lm_slot_remove(&f->rd, &b);
}

/* What a killed owner leaves: everything but the lock on it. */
static void test_name_of_dead_owner_is_free(void **state)
{
    struct fixture *f = *state;
    struct lm_slot dead;
    struct lm_slot next;
    char id[MOTE_ID_LEN + 1];

    assert_int_equal(lm_slot_new(&f->rd, "db", &dead, NULL), 0);
    (void)close(dead.lock_fd);
    (void)close(dead.dir_fd);
    assert_false(lm_slot_alive(&f->rd, dead.id));
    assert_int_equal(lm_rundir_lookup(&f->rd, "db", id), -ENOENT);
    assert_int_equal(lm_slot_new(&f->rd, "db", &next, NULL), 0);
    lm_rundir_reap(&f->rd);
    assert_false(exists(f->rd.vm_fd, dead.id));
    assert_int_equal(lm_rundir_lookup(&f->rd, "db", id), 0);
    assert_string_equal(id, next.id);
    lm_slot_remove(&f->rd, &next);
}

static void test_reap_touches_nothing_else(void **state)
{
    struct fixture *f = *state;
    struct lm_slot live;

    assert_int_equal(lm_slot_new(&f->rd, "live", &live, NULL), 0);
    assert_int_equal(mkdirat(f->rd.vm_fd, "other", 0700), 0);
    assert_int_equal(symlinkat("../vm/nowhere", f->rd.names_fd, "dangling"), 0);
    lm_rundir_reap(&f->rd);
    assert_true(exists(f->rd.vm_fd, live.id));
    assert_true(exists(f->rd.vm_fd, "other"));
    assert_true(exists(f->rd.names_fd, "live"));
    assert_false(exists(f->rd.names_fd, "dangling"));
    (void)unlinkat(f->rd.vm_fd, "other", AT_REMOVEDIR);
    lm_slot_remove(&f->rd, &live);
}

/* A link in the place of a slot must not lead the sweep out of it. */
static void test_reap_follows_no_link(void **state)
{
    struct fixture *f = *state;
    char victim[] = "/tmp/mote-unit-victim-XXXXXX";
    char file[64];
    int fd;

    assert_non_null(mkdtemp(victim));
    (void)snprintf(file, sizeof(file), "%s/precious", victim);
    fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(symlinkat(victim, f->rd.vm_fd, "aaaaaaaaaaaa"), 0);
    lm_rundir_reap(&f->rd);
    assert_int_equal(access(file, F_OK), 0);
    (void)unlink(file);
    (void)rmdir(victim);
    (void)unlinkat(f->rd.vm_fd, "aaaaaaaaaaaa", 0);
}

static void test_names(void **state)
{
    static const char *const good[] = {"a", "0", "web-1", "a--", "9-z"};
    static const char *const bad[] = {"",    "-a",  "A",        "a_b", "a.b",
                                      "a b", "a/b", "\xc3\xa9", ".."};
    char long_name[MOTE_NAME_MAX + 2];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_int_equal(mote_name_check(good[i], NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(mote_name_check(bad[i], NULL), -EINVAL);
    memset(long_name, 'a', sizeof(long_name));
    long_name[MOTE_NAME_MAX] = '\0';
    assert_int_equal(mote_name_check(long_name, NULL), 0);
    long_name[MOTE_NAME_MAX] = 'a';
    long_name[MOTE_NAME_MAX + 1] = '\0';
    assert_int_equal(mote_name_check(long_name, NULL), -EINVAL);
    assert_false(lm_id_valid("aaaaaaaaaaa"));
    assert_false(lm_id_valid("aaaaaaaaaaa/"));
    assert_false(lm_id_valid("../vm/aaaaaa"));
}

static void test_directory_is_made_private(void **state)
{
    struct fixture *f = *state;
    struct lm_rundir again;
    struct stat st;

    assert_int_equal(chmod(f->dir, 0755), 0);
    assert_int_equal(lm_rundir_open(&again, NULL), 0);
    assert_int_equal(stat(f->dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    lm_rundir_close(&again);
}

static void test_file_in_the_place_of_a_subdirectory_is_refused(void **state)
{
    struct fixture *f = *state;
    struct lm_rundir again;
    struct mote_err err = {0};

    assert_int_equal(unlinkat(f->rd.fd, "names", AT_REMOVEDIR), 0);
    assert_int_equal(symlinkat("/tmp", f->rd.fd, "names"), 0);
    assert_true(lm_rundir_open(&again, &err) < 0);
    assert_non_null(strstr(err.text, f->dir));
    assert_int_equal(unlinkat(f->rd.fd, "names", 0), 0);
    assert_int_equal(mkdirat(f->rd.fd, "names", 0700), 0);
}

static void test_too_deep_directory_is_refused_with_the_limit(void **state)
{
    struct fixture *f = *state;
    struct mote_err err = {0};
    struct lm_rundir deep;
    char path[128];

    (void)memset(path, 0, sizeof(path));
    (void)snprintf(path, sizeof(path), "%s/%0*d", f->dir, LM_ROOT_MAX, 0);
    assert_int_equal(setenv("MOTE_RUNTIME_DIR", path, 1), 0);
    assert_int_equal(lm_rundir_open(&deep, &err), -ENAMETOOLONG);
    assert_non_null(strstr(err.text, "65 bytes"));
    (void)rmdir(path);
    assert_int_equal(setenv("MOTE_RUNTIME_DIR", f->dir, 1), 0);
}

static void test_split_slot_has_links_and_goes_with_what_is_in_it(void **state)
{
    static const char *const links[] = {"api.sock", NULL};
    struct fixture *f = *state;
    struct lm_slot s;
    struct stat st;
    char target[32] = "";
    int fd;

    assert_int_equal(lm_slot_new(&f->rd, NULL, &s, NULL), 0);
    assert_string_equal(s.run_path, s.path);
    assert_int_equal(lm_slot_split(&s, links, NULL), 0);
    assert_non_null(strstr(s.run_path, "/run"));
    assert_int_equal(fstatat(s.dir_fd, "run", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(
        readlinkat(s.dir_fd, "api.sock", target, sizeof(target) - 1), 12);
    assert_string_equal(target, "run/api.sock");
    fd = openat(s.run_fd, "exit.json", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(symlinkat("/etc", s.run_fd, "link"), 0);
    assert_int_equal(lm_slot_split(&s, links, NULL), -EEXIST);
    lm_slot_remove(&f->rd, &s);
    assert_int_equal(access(s.path, F_OK), -1);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
}

static void test_read_file_bounds(void **state)
{
    struct fixture *f = *state;
    struct lm_slot s;
    char *text;

    assert_int_equal(lm_slot_new(&f->rd, NULL, &s, NULL), 0);
    assert_int_equal(lm_slot_write(&s, "x", "12345", NULL), 0);
    text = lm_read_file(s.dir_fd, "x", 5);
    assert_string_equal(text, "12345");
    free(text);
    assert_null(lm_read_file(s.dir_fd, "x", 4));
    assert_null(lm_read_file(s.dir_fd, "y", 4));
    lm_slot_remove(&f->rd, &s);
}

/* BL-023: 107 bytes are a socket path, 108 are refused with the limit named. */
static void test_BL_023_unix_address_limit(void **state)
{
    struct mote_err err = {0};
    struct sockaddr_un sa;
    char path[110];

    (void)state;
    memset(path, 'p', sizeof(path));
    path[102] = '\0';
    assert_int_equal(lm_unix_address(&sa, path, "_1025", NULL), 0);
    assert_int_equal(strlen(sa.sun_path), 107);
    path[102] = 'p';
    path[103] = '\0';
    assert_int_equal(lm_unix_address(&sa, path, "_1025", &err), -ENAMETOOLONG);
    assert_non_null(strstr(err.text, "107 bytes"));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_slot_comes_and_goes_whole),
        T(test_name_of_live_owner_is_refused),
        T(test_name_of_dead_owner_is_free),
        T(test_reap_touches_nothing_else),
        T(test_reap_follows_no_link),
        cmocka_unit_test(test_names),
        T(test_directory_is_made_private),
        T(test_file_in_the_place_of_a_subdirectory_is_refused),
        T(test_too_deep_directory_is_refused_with_the_limit),
        T(test_split_slot_has_links_and_goes_with_what_is_in_it),
        T(test_read_file_bounds),
        cmocka_unit_test(test_BL_023_unix_address_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
